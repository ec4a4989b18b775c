"""Flushing and hashing the files of a tree, each byte once: all cores hash while the disk writes.

The leaves of all files share one pool.  Small files go through it many at a time, each
with as few system calls as it takes; large ones are flushed by threads of their own
meanwhile, which only wait for the disk.  With one worker there is no thread at all,
which also works while the interpreter shuts down.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicate.digests import Leave, combine, digest_open, leaf_ranges, leaf_size_for
from replicate.errors import IntegrityFailure, LocalDisk
from replicate.generation.disk import disk_error, local_io
from replicate.generation.evidence import FileIdentity
from replicate.generation.tree import Found
from replicate.generation.writeback import start_writeback
from replicate.manifest import SealedFile
from tiers import effects
from tiers.volume_files import closing_fd

SMALL = 1024 * 1024
"""Bytes up to which a file is hashed whole, together with others."""
TOGETHER = 256
"""Small files in hand at a time, of all workers: so many are open, and a commit of the journal does for many."""
FLUSHERS = 4
"""Threads that wait for the fsync of files."""

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
Hashed = tuple[FileIdentity, SealedFile]


def flush_and_hash(files: Path, found: Sequence[Found], workers: int, leave: Leave | None = None) -> list[Hashed]:
    """Make the bytes of all files durable, and digest them; sorted by path.

    ``leave`` is asked before each block of bytes.  Raises LocalDisk, and IntegrityFailure
    for a file that is not (any more) as it was found.
    """
    small = [one for one in found if one.status.st_size <= SMALL]
    large = [one for one in found if one.status.st_size > SMALL]
    size = max(1, TOGETHER // workers)
    with _Folder.opened(files) as folder, _pool(workers, "flush", FLUSHERS) as disk, _pool(workers, "hash") as hashing:
        flushed = [disk.submit(folder.flush, [one]) for one in large]
        leaves = [_leaves(hashing, folder, one, leave) for one in large]
        groups = [
            hashing.submit(folder.group, small[start : start + size], leave) for start in range(0, len(small), size)
        ]
        _wait(flushed)
        done = [folder.sealed(one, tuple(leaf.result() for leaf in of)) for one, of in zip(large, leaves, strict=True)]
        done += [one for group in groups for one in group.result()]
    return sorted(done, key=lambda pair: pair[1].path)


def flush(files: Path, found: Sequence[Found], workers: int = FLUSHERS) -> None:
    """Make the bytes of all files durable without reading them; the disk is given all of them before it is waited for.

    Raises LocalDisk.
    """
    size = -(-len(found) // workers) if len(found) > TOGETHER else 1
    chunks = [found[start : start + size] for start in range(0, len(found), size)]
    with _Folder.opened(files) as folder, _pool(min(workers, len(found)), "flush") as disk:
        _wait([disk.submit(folder.begin, chunk) for chunk in chunks])
        _wait([disk.submit(folder.flush, chunk) for chunk in chunks])


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder of the files, open: looking a name up in it is shorter than walking the whole path."""

    path: Path
    fd: int

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["_Folder"]:
        """Open it while the block runs."""
        with local_io(path, "opening it"):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield cls(path, fd)
        finally:
            with local_io(path, "closing it"):
                os.close(fd)

    def begin(self, found: Sequence[Found]) -> None:
        """Let the disk begin with these files."""
        for one in found:
            with self._open(one, "flushing") as fd:
                start_writeback(fd)

    def flush(self, found: Sequence[Found]) -> None:
        """Make the bytes of these files durable (fsync works on any descriptor of the inode)."""
        for one in found:
            with self._open(one, "flushing") as fd:
                effects.fsync_fd(fd, f"{self.path}/{one.path}")

    def leaf(self, one: Found, start: int, length: int, leave: Leave | None) -> str:
        """Digest one leaf."""
        with self._open(one, "hashing") as fd:
            return digest_open(fd, start, length, one.path, leave)

    def group(self, found: Sequence[Found], leave: Leave | None) -> list[Hashed]:
        """Flush and digest small files: the disk has all of them before the first is waited for."""
        one, doing = found[0], "opening it"
        try:  # one block around all: one for each step and file would cost as much as its system call
            with ExitStack() as opened:
                fds: list[int] = []
                for one in found:
                    fds.append(os.open(one.path, _READ, dir_fd=self.fd))
                    opened.callback(os.close, fds[-1])
                    start_writeback(fds[-1])
                doing = "hashing"
                digests = []
                for fd, one in zip(fds, found, strict=True):
                    digests.append(digest_open(fd, 0, one.status.st_size, one.path, leave))
                doing = "flushing"
                for fd, one in zip(fds, found, strict=True):
                    effects.fsync_fd(fd, f"{self.path}/{one.path}")
        except OSError as error:
            raise self._explained(error, one, doing) from error
        return [self.sealed(one, (digest,)) for one, digest in zip(found, digests, strict=True)]

    def sealed(self, one: Found, leaves: tuple[str, ...]) -> Hashed:
        """Return what a file was found to be; raises IntegrityFailure where it has changed since."""
        try:
            status = os.stat(one.path, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            raise self._explained(error, one, "hashing") from error
        if Found(path=one.path, status=status).identity != one.identity:
            raise IntegrityFailure(
                f"{one.path!r} changed while it was sealed",
                hint="finish writing before the block is left: no writer thread may go on",
            )
        size = status.st_size
        identity = FileIdentity(size=size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)
        return identity, SealedFile(
            path=one.path,
            size=size,
            mode=status.st_mode & 0o777,
            sha256=combine(leaves),
            leaf_size=leaf_size_for(size),
            leaves=leaves,
        )

    @contextmanager
    def _open(self, one: Found, doing: str) -> Iterator[int]:
        try:
            fd = os.open(one.path, _READ, dir_fd=self.fd)
            with closing_fd(fd):  # whose error counts: on a network filesystem it may tell of a failed write
                yield fd
        except OSError as error:
            raise self._explained(error, one, doing) from error

    def _explained(self, error: OSError, one: Found, doing: str) -> LocalDisk:
        """Name the whole path: the system was given the end of it."""
        path = self.path / one.path
        return disk_error(OSError(error.errno, error.strerror or str(error), str(path)), path, doing)


def _leaves(pool: Executor, folder: _Folder, one: Found, leave: Leave | None) -> list[Future[str]]:
    size = one.status.st_size
    return [
        pool.submit(folder.leaf, one, start, length, leave) for start, length in leaf_ranges(size, leaf_size_for(size))
    ]


class _Inline(Executor):
    """Does at once what it is given."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@contextmanager
def _pool(workers: int, name: str, width: int | None = None) -> Iterator[Executor]:
    """Return a pool while the block runs; after an error what was not begun is not begun any more."""
    if workers <= 1:
        yield _Inline()
        return
    pool = ThreadPoolExecutor(width or workers, thread_name_prefix=f"ckptier-{name}")
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _wait(futures: Iterable[Future[None]]) -> None:
    for future in futures:
        future.result()
