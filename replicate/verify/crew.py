"""Work of unknown size on a few threads: each job may bring more jobs, and none are made before their turn."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

Job = Callable[[], "Iterable[Job]"]
"""Does something, and returns what came up; jobs must not raise for what is expected to go wrong."""


def work_through(jobs: Iterable[Job], workers: int) -> None:
    """Run all jobs, and those that they bring, depth first; what a job raises stops the others and is raised."""
    crew = _Crew(iter(jobs))
    if workers <= 1:
        crew.work()
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="ckptier-verify") as pool:
        futures = [pool.submit(crew.work) for _ in range(workers)]
        try:
            wait(futures)
        finally:
            crew.stop()  # an interrupt of the waiting thread must not have to wait for every leaf
    for future in futures:
        future.result()


class _Crew:
    """What is to do: the last that came up first, so that few things are under way at a time."""

    def __init__(self, jobs: Iterator[Job]) -> None:
        self._todo = [jobs]
        self._changed = threading.Condition()
        self._busy = 0
        self._stopped = False

    def work(self) -> None:
        """Take jobs until there are none and none can come up."""
        try:
            while (job := self._take()) is not None:
                self._bring(iter(job()))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Let everybody leave after the job in hand."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _take(self) -> Job | None:
        with self._changed:
            while not self._stopped:
                job = self._next()
                if job is not None:
                    self._busy += 1
                    return job
                if not self._busy:
                    self._changed.notify_all()
                    return None
                self._changed.wait()
        return None

    def _next(self) -> Job | None:
        while self._todo:
            job = next(self._todo[-1], None)
            if job is not None:
                return job
            self._todo.pop()
        return None

    def _bring(self, more: Iterator[Job]) -> None:
        with self._changed:
            self._todo.append(more)
            self._busy -= 1
            self._changed.notify_all()
