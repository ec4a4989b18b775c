"""What every probe writes, and where."""

import io
from dataclasses import dataclass
from typing import BinaryIO

SCRATCH = ".ckptier-probe"
SIZE = 1_024
ORDER = ("order/a-b", "order/a.b", "order/a/b", "order/a0", "order/b")
"""In ascending order of bytes; folder by folder ``a/b`` would come first."""


@dataclass(frozen=True, slots=True)
class WrongDigest:
    """A body that has the digest of other bytes."""

    data: bytes
    sha256: str | None

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def open(self) -> BinaryIO:
        """Return a reader."""
        return io.BytesIO(self.data)
