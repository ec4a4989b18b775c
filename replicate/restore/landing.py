"""The files that are being written: opened once, from the first leaf to the fsync.

A file is made durable when its last leaf is proved, while others still arrive: a large one at once, small ones in
batches, so that one commit of the filesystem's journal serves many.  The descriptor that the bytes were written through
is the one that is fsynced, since a write that failed in the background is told there.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from replicate.generation.writeback import start_writeback
from replicate.manifest import SealedFile
from replicate.restore.lanes import Leaf, is_small
from replicate.restore.pages import Pages, drop_written
from replicate.restore.staging import Staging

FLUSHERS = 4
"""Threads that wait for the disk."""
BATCH = 128
"""Small files that are made durable together."""
MAX_OPEN = 3 * BATCH
"""Descriptors that are open at most, but for those of large files."""

Seed = Callable[[int], str | None]
"""Puts the bytes of a copy into a new file, by its descriptor; returns the copy's place, None where there is none."""


@dataclass(slots=True)
class Landed:
    """A file under way.  ``place``: a copy there gave it all its bytes, which are not proved yet."""

    file: SealedFile
    fd: int
    place: str | None
    left: int
    written: list[Leaf] = field(default_factory=list)


class Landing:
    """Opens files as their first leaf comes and finishes them after the last; a context manager.

    On the way out it waits for the disk.  Where an fsync failed the staging is gone, and that OSError is
    raised: the next fsync may succeed although the bytes never arrived.  ``stop`` is set as soon as one fails.
    ``finished`` then holds the paths that are proved and durable.
    """

    def __init__(
        self, staging: Staging, *, umask: int, resumed: frozenset[str], pages: Pages, stop: threading.Event, alone: bool
    ) -> None:
        self._staging = staging
        self._umask = umask
        self._resumed = resumed
        self._pages = pages
        self._stop = stop
        self._pool = None if alone else ThreadPoolExecutor(FLUSHERS, thread_name_prefix="ckptier-flush")
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(MAX_OPEN)
        self._open: dict[str, Landed] = {}
        self._batch: list[Landed] = []
        self._failure: BaseException | None = None
        self.finished: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush(self._batch)
        else:
            self._stop.set()
            self._open |= {landed.file.path: landed for landed in self._batch}
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        for landed in self._open.values():
            os.close(landed.fd)
        self._open.clear()
        if isinstance(self._failure, OSError):
            with self._staging.fetched_anew():
                raise self._failure
        if self._failure is not None and error is None:
            raise self._failure

    def enter(self, leaf: Leaf, seed: Seed) -> Landed:
        """Return the open file of a leaf; ``seed`` is asked for the bytes of a file that is new."""
        path = leaf.file.path
        small = is_small(leaf.file)
        if small:
            self._room.acquire()
        try:
            with self._lock:
                landed = self._open.get(path)
                if landed is None:
                    landed = self._open[path] = self._opened(leaf.file, small, seed)
        except BaseException:
            if small:
                self._room.release()
            raise
        return landed

    def proved(self, landed: Landed, leaf: Leaf, *, written: bool) -> None:
        """Count a leaf that is there and right; ``written``: its bytes were put there just now."""
        small = is_small(leaf.file)
        if written and not small:
            start_writeback(landed.fd, leaf.start, leaf.length)
            self._let_go(landed, leaf)
        with self._lock:
            landed.left -= 1
            if landed.left:
                return
            del self._open[leaf.file.path]
            batch = [landed]
            if small:
                self._batch.append(landed)
                if len(self._batch) < BATCH:
                    return
                batch, self._batch = self._batch, []
        self._flush(batch)

    def _opened(self, file: SealedFile, small: bool, seed: Seed) -> Landed:  # noqa: FBT001 - two kinds of files
        new = file.path not in self._resumed
        fd = self._staging.open_file(file.path, create=new and small)
        try:
            return Landed(file, fd, seed(fd) if new else None, len(file.leaves))
        except BaseException:
            os.close(fd)
            raise

    def _let_go(self, landed: Landed, leaf: Leaf) -> None:
        """Free the memory of the leaves before this one: they had time to reach the disk."""
        if self._pages is Pages.KEEP:
            return
        with self._lock:
            earlier, landed.written = landed.written, [leaf]
        for one in earlier:
            drop_written(landed.fd, one.start, one.length)

    def _flush(self, batch: list[Landed]) -> None:
        if self._pool is None:
            self._finish(batch)
            return
        if len(batch) > 1:
            for landed in batch:
                start_writeback(landed.fd)
        for number in range(min(FLUSHERS, len(batch))):
            self._pool.submit(self._finish, batch[number::FLUSHERS])

    def _finish(self, batch: list[Landed]) -> None:
        """Make files durable and close them; after the first failure they are only closed."""
        for landed in batch:
            try:
                try:
                    if self._failure is None:
                        self._staging.finish_file(landed.file, landed.fd, self._umask)
                        if self._pages is Pages.DROP:
                            drop_written(landed.fd)
                        self.finished.add(landed.file.path)
                finally:
                    os.close(landed.fd)
            except BaseException as error:  # noqa: BLE001 - raised by whoever waits for the landing
                self._failure = self._failure or error
                self._stop.set()
            finally:
                if is_small(landed.file):
                    self._room.release()
