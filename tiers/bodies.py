"""What is sent: bytes whose size and, where known, digest are stated beforehand."""

import hashlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from tiers.footprint import HELD, Footprint


class Body(Protocol):
    """Bytes that can be read any number of times, so that a request can be repeated."""

    @property
    def size(self) -> int:
        """Number of bytes."""
        ...

    @property
    def sha256(self) -> str | None:
        """Hex SHA-256 that the store is asked to check, or None where it is not known."""
        ...

    def open(self) -> BinaryIO:
        """Return a new seekable reader at the start; the caller closes it."""
        ...


@dataclass(frozen=True, slots=True)
class BytesBody:
    """A small body that is in memory anyway (manifest, log entry)."""

    data: bytes

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    @property
    def sha256(self) -> str | None:
        """Hex SHA-256 of the data (computed; small)."""
        return hashlib.sha256(self.data).hexdigest()

    def open(self) -> BinaryIO:
        """Return a reader over the data."""
        return io.BytesIO(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """``size`` bytes of a file from ``start``, with the digest that sealing recorded.

    Nothing is read until :meth:`open`, and never more than the reader asks for, unless
    ``footprint`` (of the file) has it read ahead, and takes note of what that brings into the page cache.
    """

    path: Path
    start: int
    size: int
    sha256: str | None
    footprint: Footprint | None = field(default=None, compare=False, repr=False)

    def open(self) -> BinaryIO:
        """Return a reader limited to the slice."""
        return cast("BinaryIO", SliceReader(self.path, self.start, self.size, self.footprint))


class SliceReader(io.RawIOBase):
    """A seekable view of part of a file; reading past the slice gives EOF.

    A file that is shorter than the slice raises OSError instead of ending early: a
    short body must never look like a complete one.
    """

    def __init__(self, path: Path, start: int, size: int, footprint: Footprint | None = None) -> None:
        super().__init__()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._footprint = footprint
        self._held_from = start
        if footprint is not None:
            footprint.opened(self._fd, start, size)
        self._start = start
        self._size = size
        self._position = 0
        self.name = str(path)

    def __len__(self) -> int:
        """Size of the slice in bytes."""
        return self._size

    def let_go(self) -> None:
        """Take out of the page cache what reading brought in."""
        if self._footprint is not None:
            self._footprint.let_go(self._fd, self._start, self._start + self._size)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move within the slice."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Position within the slice."""
        return self._position

    def readinto(self, buffer: "memoryview[int] | bytearray") -> int:  # type: ignore[override]
        """Fill ``buffer`` from the slice; 0 at its end."""
        left = self._size - self._position
        if left <= 0:
            return 0
        view = memoryview(buffer).cast("B")[:left]
        count = os.preadv(self._fd, [view], self._start + self._position)
        if count == 0:
            message = f"{self.name} is shorter than it was: expected {self._start + self._size} bytes"
            raise OSError(message)
        self._position += count
        if self._footprint is not None and self._start + self._position > self._held_from + 2 * HELD:
            self._footprint.let_go(self._fd, self._held_from, self._held_from + HELD)
            self._held_from += HELD
        return count

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._fd)
        super().close()
