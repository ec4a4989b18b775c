"""Reading files beside a program that wants the page cache for itself.

What is read to be sent is wanted once.  Before a part of a file is read it is found out
what of it is in the cache; the kernel is told that the rest is read in sequence, so that
nobody waits for the disk, and what that brought in is let go of again when the bytes have
arrived.  What was there, be it the trainer's or somebody else's, is left there.  A platform
or file system that cannot tell is left alone altogether.
"""

import contextlib
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

MIB = 1 << 20
SPILL = 32 * MIB
"""How far past its reader the kernel may read ahead: as far is judged before, lest our own pages pass for others'."""
CHUNK = 64 * MIB
"""Bytes that are judged together."""
HELD = 64 * MIB
"""What a reader keeps in the cache of what it brought there; beyond it goes behind the reader already."""

ABLE = hasattr(os, "posix_fadvise") and hasattr(mmap, "MAP_PRIVATE")
"""Whether this platform can do any of it."""

GLANCE = MIB
"""Of a slice of at most this size one byte is looked at: to ask exactly would cost more than to read it."""

_MISSING = re.compile(rb"\0+")


def missing(fd: int, start: int, length: int) -> tuple[tuple[int, int], ...] | None:
    """Return the ranges (start, length) of a file that are not in the page cache; None where that cannot be told.

    By mincore(2), which brings nothing in.  A read with RWF_NOWAIT does, and may then find what it brought: a small
    slice that is looked at so is now and then left in the cache.  A file of another user counts as cached, since
    mincore does not tell.
    """
    if length <= GLANCE:
        return _glance(fd, start, length)
    mincore = _mincore()
    first = start - start % mmap.ALLOCATIONGRANULARITY
    if mincore is None:
        return None
    try:
        # Writable, so that its address can be had, and private, so that nothing is written.
        mapped = mmap.mmap(
            fd, start + length - first, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=first
        )
    except (OSError, ValueError):  # a file system without maps, or a file that became shorter: reading will tell
        return None
    with mapped:
        seen = bytearray(-(-len(mapped) // mmap.PAGESIZE))
        if not mincore(mapped, seen):
            return None
    spans = ((first + m.start() * mmap.PAGESIZE, first + m.end() * mmap.PAGESIZE) for m in _MISSING.finditer(seen))
    return tuple((begin, min(end, start + length) - begin) for begin, end in spans)


def _glance(fd: int, start: int, length: int) -> tuple[tuple[int, int], ...] | None:
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    try:
        os.preadv(fd, [bytearray(1)], start, os.RWF_NOWAIT)
    except BlockingIOError:
        return ((start, length),)
    except OSError:  # not supported here, or the disk fails: reading will tell
        return None
    return ()


@cache
def _mincore() -> "Callable[[mmap.mmap, bytearray], bool] | None":
    """Return mincore of the C library; None where there is no such thing."""
    try:
        import ctypes  # noqa: PLC0415 - only who sends needs it

        call = ctypes.CDLL(None).mincore
    except (ImportError, OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def mincore(mapped: mmap.mmap, seen: bytearray) -> bool:
        address = ctypes.c_char.from_buffer(mapped)
        return bool(call(ctypes.addressof(address), len(mapped), (ctypes.c_char * len(seen)).from_buffer(seen)) == 0)

    return mincore


class Footprint:
    """What reading one file to send it has brought into the page cache; for several readers at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._judged = 0 if ABLE else size
        self._ours: list[tuple[int, int]] = []

    def opened(self, fd: int, start: int, size: int) -> None:
        """Prepare for a reader of a slice: find out what of it is there, and have the rest read ahead."""
        end = min(self._size, start + size + SPILL)
        with self._lock:
            while self._judged < end:
                length = min(CHUNK, self._size - self._judged)
                absent = missing(fd, self._judged, length)
                if absent is None:
                    self._judged = self._size
                    break
                self._judged += length
                self._ours.extend(absent)
            expected = bool(self._ours)
        if expected and size > GLANCE:
            _advise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def let_go(self, fd: int, start: int, end: int) -> None:
        """Take back what was brought in of a range."""
        for first, after in self._taken(start, end):
            _advise(fd, first, after - first, os.POSIX_FADV_DONTNEED)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take back."""
        return not self._ours

    def _taken(self, start: int, end: int) -> list[tuple[int, int]]:
        found, left = [], []
        with self._lock:
            for first, count in self._ours:
                after = first + count
                low, high = max(first, start), min(after, end)
                if low >= high:
                    left.append((first, count))
                    continue
                found.append((low, high))
                left += [(one, other - one) for one, other in ((first, low), (high, after)) if one < other]
            self._ours = left
        return found


def _advise(fd: int, start: int, length: int, advice: int) -> None:
    with contextlib.suppress(OSError):  # advice: where a file system takes none, the bytes are read all the same
        os.posix_fadvise(fd, start, length, advice)


class Footprints:
    """Those of the files in one folder that are being read, until what they hold is not needed any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Footprint] = {}

    def of(self, name: str, size: int) -> Footprint:
        """Return the footprint of a file of this size, the same one until it is let go of."""
        with self._lock:
            found = self._known.get(name)
            if found is None:
                found = self._known[name] = Footprint(size)
            return found

    def let_go(self, folder: Path, name: str, only: tuple[int, int] | None = None) -> None:
        """Take back what was brought in of a file, or of its range (start, end); one that is gone has nothing left."""
        with self._lock:
            found = self._known.get(name) if only is not None else self._known.pop(name, None)
        if found is None or found.empty:
            return
        try:
            fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            found.let_go(fd, *(only or (0, sys.maxsize)))
        finally:
            os.close(fd)
