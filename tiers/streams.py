"""The part that is the same in every stream that says how it reads by ``read`` alone."""

import io
from typing import Any, BinaryIO, cast

CHUNK = 1 << 20


class ReadStream(io.RawIOBase):
    """A raw stream of which a subclass gives ``read``; the rest of reading follows from it.

    ``read`` takes None and negative sizes for all that is left, which ``readall`` does piece by piece.
    """

    def readable(self) -> bool:
        """Return True."""
        return True

    def readall(self) -> bytes:
        """Read all that is left."""
        return b"".join(iter(lambda: self.read(CHUNK), b""))

    def readinto(self, buffer: object, /) -> int:
        """Fill the start of ``buffer``; 0 at the end.  A subclass that can spare the copy has its own."""
        view = bytes_of(buffer)
        data = self.read(len(view))
        assert data is not None  # a subclass never says "not now"
        view[: len(data)] = data
        return len(data)


def bytes_of(buffer: object) -> memoryview:
    """Return a buffer that was handed to ``readinto`` as plain bytes."""
    return memoryview(cast("bytearray", buffer)).cast("B")


def fill(stream: BinaryIO, view: memoryview) -> int:
    """Read once into the start of ``view``, by way of ``read`` where a stream has no ``readinto``; 0 at the end."""
    readinto: Any = getattr(stream, "readinto", None)
    if readinto is not None:
        return int(readinto(view))
    data = stream.read(len(view))
    view[: len(data)] = data
    return len(data)
