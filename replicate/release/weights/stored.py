"""What a source holds, as plain values: planning needs names, types and where bytes lie, never the bytes."""

from dataclasses import dataclass, field
from math import prod

from replicate.formats.safetensors import ITEM_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One entry of a state dict.

    ``dtype`` is the name that safetensors has for it, ``storage`` tells the buffers of the source
    apart, and the tensor begins ``offset`` bytes into its own.  ``strides`` are in elements.
    ``unfit`` says why the entry cannot be released as it is ("a number", "a sparse tensor").
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    storage: int = 0
    offset: int = 0
    strides: tuple[int, ...] = field(default=())
    unfit: str = ""

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of its data, written out."""
        return size_of(self.dtype, self.shape)

    @property
    def end(self) -> int:
        """First byte of the storage that it does not reach."""
        if not self.elements:
            return self.offset
        last = sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        return self.offset + (last + 1) * ITEM_BITS[self.dtype] // 8

    @property
    def dense(self) -> bool:
        """Whether it fills all between its first byte and its last."""
        return self.end - self.offset == self.size

    def same_as(self, other: "StoredTensor") -> bool:
        """Whether the two are one tensor under two names."""
        mine = (self.storage, self.offset, self.dtype, self.shape, self.strides)
        return mine == (other.storage, other.offset, other.dtype, other.shape, other.strides) and self.elements > 0

    def overlaps(self, other: "StoredTensor") -> bool:
        """Whether the two have bytes in common; two that both leave gaps are taken to interleave."""
        if self.storage != other.storage or not (self.dense or other.dense):
            return False
        return max(self.offset, other.offset) < min(self.end, other.end)


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of this type and shape."""
    return prod(shape) * ITEM_BITS[dtype] // 8
