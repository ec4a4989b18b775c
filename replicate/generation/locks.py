"""Advisory locks that die with their holder.

flock, never a pid file: a sidecar container has another pid namespace, and a killed
process must not have to be cleaned up after.  Each lock opens its own descriptor,
so it also excludes other threads of this process.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from replicate.generation.disk import local_io


class Flock:
    """A held lock.  A forked child that inherits it cannot release its parent's hold."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: Path, *, shared: bool = False) -> Self:
        """Wait for the lock on ``path``, creating the file where it is missing."""
        with local_io(path, "locking it"):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            except BaseException:
                os.close(fd)
                raise
        return cls(fd)

    @classmethod
    def attempt(cls, path: Path, *, shared: bool = False, wait: bool = False) -> Self | None:
        """Take the lock on an existing file if it is free now, or ``wait`` for it; OSErrors pass through."""
        fd = os.open(path, (os.O_RDONLY if shared else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def guards(self, path: Path) -> bool:
        """Whether the locked file still is the one at ``path``."""
        try:
            return os.path.samestat(os.fstat(self._fd), path.lstat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let go; safe to repeat."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        if self._pid == os.getpid():
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the exclusive lock on ``path`` while the block runs."""
    lock = Flock.take(path)
    try:
        yield
    finally:
        lock.release()
