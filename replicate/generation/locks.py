"""Advisory locks that die with their holder.

flock, never a pid file: a sidecar container has another pid namespace, and a killed
process must not have to be cleaned up after.  Each lock opens its own descriptor,
so it also excludes other threads of this process.

A flock belongs to the open file, which a forked child shares: a worker of the trainer that
outlives it would hold the trainer's locks for as long as it lives.  A child therefore closes
them, which takes nothing from its parent.
"""

import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from replicate.generation.disk import local_io


class _OpenFiles:
    """The descriptors of this process's locks.  No fork happens between opening one and noting it."""

    def __init__(self) -> None:
        self._fds: set[int] = set()
        self._lock = threading.RLock()
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._start_over
        )

    def open(self, path: Path, flags: int, dir_fd: int | None = None) -> int:
        """Open it close-on-exec, never through a link."""
        with self._lock:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666, dir_fd=dir_fd)
            self._fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        """Close it; does nothing in a child, which has closed it already."""
        with self._lock:
            if fd in self._fds:
                self._fds.remove(fd)
                with suppress(OSError):  # nothing depends on what was written: the lock is gone whatever a close says
                    os.close(fd)

    def _start_over(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        self._lock.release()  # acquired by this very thread, before the fork


_files = _OpenFiles()


class Flock:
    """A held lock.  A forked child does not hold it, and cannot release its parent's hold."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: Path, *, shared: bool = False) -> Self:
        """Wait for the lock on ``path``, creating the file where it is missing."""
        with local_io(path, "locking it"):
            fd = _files.open(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            except BaseException:
                _files.close(fd)
                raise
        return cls(fd)

    @classmethod
    def attempt(cls, path: Path, *, shared: bool = False, wait: bool = False, dir_fd: int | None = None) -> Self | None:
        """Take the lock on an existing file if it is free now, or ``wait`` for it; OSErrors pass through."""
        fd = _files.open(path, os.O_RDONLY if shared else os.O_RDWR, dir_fd)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            _files.close(fd)
            return None
        except BaseException:
            _files.close(fd)
            raise
        return cls(fd)

    def guards(self, path: Path, *, dir_fd: int | None = None) -> bool:
        """Whether the lock is held here, and the locked file still is the one at ``path``."""
        if self._pid != os.getpid():
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path, dir_fd=dir_fd, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def note(self, data: bytes) -> None:
        """Write who holds it into the locked file, unless that is a file with another name too."""
        status = os.fstat(self._fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, data, 0)

    def release(self) -> None:
        """Let go; safe to repeat."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        if self._pid == os.getpid():
            fcntl.flock(fd, fcntl.LOCK_UN)
            _files.close(fd)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the exclusive lock on ``path`` while the block runs."""
    lock = Flock.take(path)
    try:
        yield
    finally:
        lock.release()
