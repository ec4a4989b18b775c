"""Streams over a file of a volume: plain ones, and ones that do not just read the page cache.

Right after writing, the kernel answers a read from the pages that were written, which
proves nothing of the medium.  In order of preference a medium stream

1. reads with ``O_DIRECT``, around the page cache;
2. asks the kernel to drop the file's pages, looks (``mincore``) that none is left, and reads;
3. reads, and says no more than that.
"""

import ctypes
import errno
import io
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tiers.errors import TierError
from tiers.protocol import Verification
from tiers.volume_errnos import failure

ALIGNMENT = 4096
"""Bytes: what every device and filesystem of today takes for O_DIRECT, in memory and in the file."""

WINDOW = 4 << 20
"""Bytes read at a time around the cache: there is no readahead, so small reads would each wait for the device."""

_NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""What filesystems say that cannot do O_DIRECT, at open or only at the first read."""

Translated = Callable[[OSError], TierError]


class VolumeStream(io.RawIOBase):
    """``length`` bytes of an open file; a file that ends before is an error, not EOF."""

    def __init__(self, fd: int, start: int, length: int, translated: Translated) -> None:
        super().__init__()
        self._fd = fd
        self._position = start
        self._end = start + length
        self._translated = translated

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """Fill ``buffer`` as far as one read goes; 0 at the end.  TierUnavailable where the file ends before."""
        view = memoryview(cast("bytearray", buffer)).cast("B")[: self._end - self._position]
        if not view:
            return 0
        try:
            count = self._fill(view)
            if count == 0:
                raise failure(errno.ESTALE, Path())
        except OSError as error:
            raise self._translated(error) from error
        self._position += count
        return count

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._fd)
        super().close()

    def _fill(self, view: "memoryview[int]") -> int:
        return os.preadv(self._fd, [view], self._position)


class MediumStream(VolumeStream):
    """A stream that goes around the page cache as far as the filesystem allows; ``note`` is told how far."""

    def __init__(
        self,
        fd: int,
        path: Path,
        start: int,
        length: int,
        translated: Translated,
        note: Callable[[Verification], None],
    ) -> None:
        super().__init__(fd, start, length, translated)
        self._note = note
        self._direct = open_direct(path, fd)
        self._window = mmap.mmap(-1, min(WINDOW, _aligned_up(length + ALIGNMENT))) if self._direct >= 0 else None
        self._held = range(0)
        note(Verification.READ_BACK_DIRECT if self._direct >= 0 else drop_pages(fd))

    def close(self) -> None:
        """Close the file."""
        if not self.closed and self._direct >= 0:
            os.close(self._direct)
        super().close()

    def _fill(self, view: "memoryview[int]") -> int:
        if self._window is None:
            return super()._fill(view)
        if self._position not in self._held:
            try:
                self._held = self._read_window(self._window)
            except OSError as error:
                if error.errno not in _NO_DIRECT:
                    raise
                self._window = None  # it took the flag and cannot keep its word
                self._note(drop_pages(self._fd))
                return super()._fill(view)
        offset = self._position - self._held.start
        count = min(len(view), self._held.stop - self._position)
        view[:count] = memoryview(self._window)[offset : offset + count]
        return count

    def _read_window(self, window: mmap.mmap) -> range:
        start = self._position - self._position % ALIGNMENT
        count = os.preadv(self._direct, [window], start)
        if start + count <= self._position:
            raise failure(errno.ESTALE, Path())
        return range(start, start + count)


def open_direct(path: Path, fd: int) -> int:
    """Open the file once more, around the page cache; -1 where the filesystem has no such thing.

    Raises OSError (ESTALE) where the path is no longer the file that ``fd`` is.
    """
    flag = getattr(os, "O_DIRECT", 0)
    if not flag:
        return -1
    try:
        direct = os.open(path, os.O_RDONLY | flag | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _NO_DIRECT:
            raise
        return -1
    if not os.path.samestat(os.fstat(direct), os.fstat(fd)):
        os.close(direct)
        raise failure(errno.ESTALE, path)
    return direct


def drop_pages(fd: int) -> Verification:
    """Ask the kernel to forget a file's pages; says whether it has, as proof of what is read next.

    Pages that are not on the medium yet are never dropped: fsync comes first.
    """
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return Verification.READ_BACK
    advise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return Verification.READ_BACK if resident_pages(fd) else Verification.READ_BACK_UNCACHED


def resident_pages(fd: int) -> int:
    """Return how many pages of a file are in memory; all of them where the kernel does not tell."""
    size = os.fstat(fd).st_size
    pages = -(-size // mmap.PAGESIZE)
    if not pages:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mincore"):
        return pages
    try:
        # Privately writable, for only then does Python say where it lies; nothing is written to it.
        with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
            states = (ctypes.c_ubyte * pages)()
            place = ctypes.c_ubyte.from_buffer(mapped)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(size), states)
            del place  # or the mapping could not be closed
    except OSError:
        return pages  # a filesystem whose files cannot be mapped says nothing of its cache
    return pages if failed else sum(state & 1 for state in states)


def _aligned_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
