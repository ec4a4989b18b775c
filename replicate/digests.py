"""Digests of checkpoint bytes: leaves in parallel, every hashed byte counted.

Digests belong to sealing, once.  :data:`HASHED` counts every checkpoint byte that
goes into a hash function of this process, so that a test can show that nothing is
hashed a second time on the way to a tier.
"""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
MIN_LEAF = 64 * MIB
MAX_LEAVES = 8192
BLOCK = 4 * MIB
"""Bytes read at a time by each hashing thread, into a buffer that is kept."""


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


def digest_range(path: Path, start: int, length: int) -> str:
    """Hash part of a file with constant memory; raises OSError where it ends early."""
    digest = CountedSha256()
    buffer = memoryview(bytearray(min(BLOCK, length) or 1))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        done = 0
        while done < length:
            count = os.preadv(fd, [buffer[: length - done]], start + done)
            if count == 0:
                raise OSError(f"{path} ended at {start + done} bytes, expected {start + length}")
            digest.update(buffer[:count])
            done += count
    finally:
        os.close(fd)
    return digest.hexdigest()


def digest_file(path: Path, size: int, *, leaf_size: int | None = None, workers: int = 2) -> FileDigest:
    """Hash a file leaf by leaf, ``workers`` leaves at once (hashlib releases the GIL)."""
    leaf = leaf_size or leaf_size_for(size)
    ranges = list(leaf_ranges(size, leaf))
    if workers == 1 or len(ranges) == 1:
        leaves = tuple(digest_range(path, start, length) for start, length in ranges)
    else:
        with ThreadPoolExecutor(workers, thread_name_prefix="ckptier-hash") as pool:
            leaves = tuple(pool.map(lambda span: digest_range(path, *span), ranges))
    return FileDigest(size=size, leaf_size=leaf, leaves=leaves, sha256=combine(leaves))
