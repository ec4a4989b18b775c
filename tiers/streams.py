"""The part that is the same in every stream that says how it reads by ``read`` alone."""

import io
from typing import cast

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
        """Fill the start of ``buffer``; 0 at the end."""
        view = memoryview(cast("bytearray", buffer)).cast("B")
        data = self.read(len(view))
        assert data is not None  # a subclass never says "not now"
        view[: len(data)] = data
        return len(data)
