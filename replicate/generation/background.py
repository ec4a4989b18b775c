"""Publishing in the background, without losing the last checkpoint or a failure.

Each publication is a thread of its own that is not a daemon, so that the interpreter
waits for it at exit.  A failure is raised by the next call, by close(), or, where
neither comes, ends the process with a status that is not zero.
"""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from replicate.errors import CkptierError, Fenced, UsageError
from replicate.generation.owned import StagingBuffers

if TYPE_CHECKING:
    from replicate.generation.store import RunStore

Writer = Callable[[Path, Any], object]
_log = logging.getLogger(__name__)


class AsyncPublisher:
    """Publishes copies of a state; at most ``limit`` are in flight.

    ``when_full`` "wait" makes a further call wait for a place, "raise" makes it raise
    Fenced.  Each publication in flight has memory of its own for the copy, which is kept for the
    next one; close() lets go of it.  In a forked child it starts empty: what the parent had under way is the parent's.
    """

    def __init__(self, store: "RunStore", *, limit: int = 1, when_full: Literal["wait", "raise"] = "wait") -> None:
        if limit < 1:
            raise UsageError(f"limit is {limit}", hint="allow at least one publication in flight")
        self._store = store.single_threaded()  # pools of threads cannot be started while the interpreter ends
        self._limit = limit
        self._when_full = when_full
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._in_flight = 0
        self._failures: list[BaseException] = []
        self._closed = False
        self._spare: list[StagingBuffers] = []

    def _mind_forks(self) -> None:
        if self._pid != os.getpid():
            _of_the_parent.append(self._spare)
            self._start_over()

    @property
    def in_flight(self) -> int:
        """How many publications have not ended."""
        self._mind_forks()
        with self._changed:
            return self._in_flight

    def submit(self, state: Any, *, writer: Writer, next_update: int, **options: Any) -> None:
        """Copy ``state`` and publish it with ``writer(directory, copy)``; ``options`` are those of publish.

        The caller may change its state as soon as this returns; what lies on a GPU by work on
        the stream that is current now.  The copy is the writer's until it returns.  Raises the
        failure of an earlier one, and UsageError for what publish would refuse at once.
        """
        self._mind_forks()
        publication = self._store.publish(next_update=next_update, **options)
        self._take_place()
        try:
            buffers = self._buffers()
            copied, ready = buffers.take(state)

            def write(directory: Path) -> None:
                ready()
                writer(directory, copied)

            thread = threading.Thread(
                target=self._work, args=(publication, write, buffers), name="ckptier-publish", daemon=False
            )
            thread.start()
        except BaseException:
            self._end(None)
            raise

    def _take_place(self) -> None:
        with self._changed:
            if self._closed:
                raise UsageError(
                    "the background publisher is closed", hint="publish before close(), or open the store again"
                )
            self._raise_failures()
            if self._when_full == "raise" and self._in_flight >= self._limit:
                raise Fenced(
                    f"{self._in_flight} publications are in flight, as many as may be",
                    hint="publish less often, raise the limit (each holds a copy of the state), or wait",
                )
            self._changed.wait_for(lambda: self._in_flight < self._limit)
            self._raise_failures()
            self._in_flight += 1

    def _buffers(self) -> StagingBuffers:
        with self._changed:
            return self._spare.pop() if self._spare else StagingBuffers()

    def _work(self, publication: Any, write: Callable[[Path], None], buffers: StagingBuffers) -> None:
        failure: BaseException | None = None
        try:
            with publication as directory:
                write(directory)
        except BaseException as error:  # noqa: BLE001 - handed to the next call; nothing else would ever see it
            failure = error
        # After a failure a copy may still be under way into them: they are not used again.
        self._end(failure, None if failure is not None else buffers)

    def _end(self, failure: BaseException | None, buffers: StagingBuffers | None = None) -> None:
        if failure is not None:
            _log.error("publishing in the background failed: %s", failure)
        with self._changed:
            if failure is not None:
                self._failures.append(failure)
                _unraised.add(self)
            if buffers is not None and not self._closed:
                self._spare.append(buffers)
            self._in_flight -= 1
            self._changed.notify_all()

    def _raise_failures(self) -> None:
        if not self._failures:
            return
        first, *others = self._failures
        self._failures = []
        _unraised.discard(self)
        for other in others:
            first.add_note(f"another publication failed too: {other}")
        raise first

    def wait(self) -> None:
        """Wait until nothing is in flight, then raise what failed."""
        self._mind_forks()
        with self._changed:
            self._changed.wait_for(lambda: self._in_flight == 0)
            self._raise_failures()

    def close(self) -> None:
        """Take no more, wait for what is in flight, and raise what failed; safe to repeat."""
        self._mind_forks()
        with self._changed:
            self._closed = True
            self._spare.clear()
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.close()
        except CkptierError as failure:
            if error is None:
                raise
            error.add_note(f"publishing in the background failed too: {failure}")

    def lost(self) -> list[BaseException]:
        """Return failures that no call has raised yet, in the process that they happened in."""
        return list(self._failures) if self._pid == os.getpid() else []


_of_the_parent: list[list[StagingBuffers]] = []
"""Memory of a forked child's parent: pinned memory must not be given back in a process that did not pin it."""

_unraised: set[AsyncPublisher] = set()
"""Publishers with failures that no call has raised yet: kept here even where the program let go of them."""


def _report_at_exit() -> None:
    """End with status 1 where a failure was never raised: a lost checkpoint must not look like success.

    Runs after the interpreter has waited for the publishing threads.  An exit handler
    cannot set the status in any other way than by ending the process itself.
    """
    failures = [failure for publisher in tuple(_unraised) for failure in publisher.lost()]
    if not failures:
        return
    for failure in failures:
        sys.stderr.write(f"ckptier: a checkpoint was NOT published: {failure}\n")
    sys.stderr.write("ckptier: call close() on the store to handle this in the program\n")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


atexit.register(_report_at_exit)
