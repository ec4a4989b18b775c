"""Digests of checkpoint bytes: leaves in parallel, every hashed byte counted.

Digests belong to sealing, once.  :data:`HASHED` counts every checkpoint byte that
goes into a hash function of this process, so that a test can show that nothing is
hashed a second time on the way to a tier.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tiers.cpu_share import usable_cpus

MIB = 1024 * 1024
MIN_LEAF = 64 * MIB
MAX_LEAVES = 8192
BLOCK = MIB
"""Bytes read at a time by each hashing thread, into a buffer that is kept."""
READ_AHEAD = 8 * MIB
"""Bytes that the kernel is asked to have ready beyond those."""


MAX_WORKERS = 16


Leave = Callable[[], object]
"""Asked before each block of bytes: returns once the process may go on."""


class ByteCounter:
    """A thread-safe count of bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

        os.register_at_fork(after_in_child=self._renew)  # another thread may be counting while the trainer forks

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count ``count`` more bytes."""
        with self._lock:
            self._value += count

    @property
    def value(self) -> int:
        """Bytes counted since the process started."""
        return self._value


HASHED = ByteCounter()


def default_workers() -> int:
    """Return how many leaves are hashed at once where nobody says: one for each CPU that may be used, 16 at most."""
    return min(MAX_WORKERS, usable_cpus())


class CountedSha256:
    """SHA-256 of checkpoint bytes; the only way this project hashes them."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, data: "bytes | memoryview[int]") -> None:
        """Hash more bytes."""
        HASHED.add(len(data))
        self._hash.update(data)

    def hexdigest(self) -> str:
        """Return the digest so far in hex."""
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """Digest of one file.  Sizes in bytes, digests in hex.

    ``sha256`` is the plain SHA-256 of a file of at most one leaf, else the SHA-256 over
    the leaves' binary digests: what S3 calls a composite checksum where part = leaf.
    """

    size: int
    leaf_size: int
    leaves: tuple[str, ...]
    sha256: str


def leaf_size_for(size: int, minimum: int = MIN_LEAF) -> int:
    """Return the leaf size for a file: ``minimum``, doubled until at most 8,192 leaves are needed."""
    leaf = minimum
    while size > leaf * MAX_LEAVES:
        leaf *= 2
    return leaf


def leaf_ranges(size: int, leaf_size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of each leaf; an empty file has one empty leaf."""
    yield 0, min(size, leaf_size)
    for start in range(leaf_size, size, leaf_size):
        yield start, min(leaf_size, size - start)


def combine(leaves: "tuple[str, ...] | list[str]") -> str:
    """Return the file digest of its leaf digests."""
    if len(leaves) == 1:
        return leaves[0]
    return hashlib.sha256(b"".join(map(bytes.fromhex, leaves))).hexdigest()


def digest_range(path: Path, start: int, length: int, leave: Leave | None = None) -> str:
    """Hash part of a file with constant memory; raises OSError where it ends early.

    ``leave`` is asked before each block, and waits where the process has to.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return digest_open(fd, start, length, path, leave)
    finally:
        os.close(fd)


def digest_open(fd: int, start: int, length: int, path: Path | str, leave: Leave | None = None) -> str:
    """Hash part of an open file; ``path`` is for messages.  What comes next is read ahead meanwhile."""
    digest = CountedSha256()
    buffer = _buffer()
    done = advised = 0
    while done < length:
        if leave is not None:
            leave()
        wanted = min(BLOCK, length - done)
        advised = _advise(fd, start, done + wanted, length, advised)
        count = os.preadv(fd, [buffer[:wanted]], start + done)
        if count == 0:
            raise OSError(f"{path} ended at {start + done} bytes, expected {start + length}")
        digest.update(buffer[:count])
        done += count
    return digest.hexdigest()


def _advise(fd: int, start: int, read: int, length: int, advised: int) -> int:
    """Let the kernel begin to read what is wanted soon; returns up to where it was told.

    Where it cannot, nothing is lost.
    """
    begin, end = max(advised, read), min(length, read + READ_AHEAD)
    if end - begin < min(READ_AHEAD // 2, length - begin) or begin >= end or not hasattr(os, "posix_fadvise"):
        return advised
    with suppress(OSError):
        os.posix_fadvise(fd, start + begin, end - begin, os.POSIX_FADV_WILLNEED)
    return end


def _buffer() -> "memoryview[int]":
    """Return this thread's own buffer: touching fresh memory costs more than reading into it."""
    known: memoryview[int] | None = getattr(_own, "buffer", None)
    if known is None:
        known = _own.buffer = memoryview(bytearray(BLOCK))
    return known


_own = threading.local()


def digest_file(
    path: Path, size: int, *, leaf_size: int | None = None, workers: int = 2, leave: Leave | None = None
) -> FileDigest:
    """Hash a file leaf by leaf, ``workers`` leaves at once (hashlib releases the GIL)."""
    leaf = leaf_size or leaf_size_for(size)
    ranges = list(leaf_ranges(size, leaf))
    if workers == 1 or len(ranges) == 1:
        leaves = tuple(digest_range(path, start, length, leave) for start, length in ranges)
    else:
        with ThreadPoolExecutor(workers, thread_name_prefix="ckptier-hash") as pool:
            leaves = tuple(pool.map(lambda span: digest_range(path, span[0], span[1], leave), ranges))
    return FileDigest(size=size, leaf_size=leaf, leaves=leaves, sha256=combine(leaves))
