"""One pool of threads that works off the lanes until nothing is left, or something fails."""

import threading
from collections.abc import Sequence

from replicate.upload.lanes import Lanes, Work
from replicate.upload.shared import Draining


class Pipeline:
    """Runs the work of ``lanes`` on at most ``threads`` threads.

    The first failure sets ``failed`` and drops what waits; what is under way ends by itself.
    """

    def __init__(self, lanes: Lanes, threads: int, failed: threading.Event) -> None:
        self._lanes = lanes
        self._threads = threads
        self._failed = failed
        self._changed = threading.Condition()
        self._failures: list[tuple[int, int, BaseException]] = []

    def run(self) -> None:
        """Return when all is done; raises the failure that says most (a stop caused by another's says least)."""
        threads = [
            threading.Thread(target=self._work, name=f"ckptier-send-{number}") for number in range(self._threads)
        ]
        started = []
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
            for thread in started:
                thread.join()
        except BaseException:
            with self._changed:
                self._stop()
            for thread in started:
                thread.join()
            raise
        if self._failures:
            self._failures.sort(key=lambda one: (isinstance(one[2], Draining), one[0], one[1]))
            raise self._failures[0][2]

    def _work(self) -> None:
        work = self._next(None, ())
        while work is not None:
            try:
                follows = work.run()
            except BaseException as error:  # noqa: BLE001 - raised again by run, in the thread that waits
                follows = ()
                with self._changed:
                    self._failures.append((work.place, work.step, error))
                    self._stop()
            work = self._next(work, follows)

    def _next(self, done: Work | None, follows: Sequence[Work]) -> Work | None:
        """Hand in what ended with what it leads to, and wait for the next; None where all is done."""
        with self._changed:
            if done is not None:
                self._lanes.done(done)
                if not self._failed.is_set():
                    self._lanes.add(follows)
            while (work := self._lanes.take()) is None:
                if self._lanes.finished:
                    self._changed.notify_all()
                    return None
                self._changed.wait()
            if self._lanes.waiting:
                self._changed.notify()  # one wakes the next, as long as there is something for it
            return work

    def _stop(self) -> None:
        self._failed.set()
        self._lanes.drop()
        self._changed.notify_all()
