"""An independent reader of safetensors headers: no torch, no safetensors, nothing executed.

The container is eight bytes of little-endian length, that many bytes of JSON, then data.
Format: https://github.com/huggingface/safetensors#format (read 2026-11-29).
"""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from replicate.errors import IntegrityFailure

MAX_HEADER_BYTES = 100_000_000
"""The bound of the reference implementation."""
MAX_VALUES = 2_000_000
"""Values in the JSON of a header: some eight a tensor, and each takes far more memory than bytes."""
MAX_DIMENSIONS = 128
"""Twice what torch has; the product of a million lengths takes hours."""
_LENGTH = 8
_METADATA = "__metadata__"

ITEM_BITS = MappingProxyType(
    {
        "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
        "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
        "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    }
)  # fmt: skip
"""Bits of one element, by the name of its dtype."""
FLOATING = frozenset({"F16", "BF16", "F32", "F64"})
"""Dtypes that a cast may start from or lead to; never float8, packed, integer or boolean ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """One tensor: its data are bytes ``start`` to ``end`` of the file (absolute).

    A ``dtype`` that this version does not know says nothing of the size.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return self.end - self.start

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """What the header of one file says.  ``tensors`` are in order of their data."""

    tensors: tuple[TensorHeader, ...]
    metadata: tuple[tuple[str, str], ...]
    file_size: int

    @property
    def data_size(self) -> int:
        """Bytes of all tensors: what an index counts as ``total_size``."""
        return sum(tensor.size for tensor in self.tensors)


def read_header(path: Path, *, what: str | None = None, any_dtype: bool = False) -> FileHeader:
    """Parse and check the header of a safetensors file; raises IntegrityFailure that says what is wrong.

    The data must be covered by the tensors exactly, without a hole, an overlap or a tail.
    With ``any_dtype``, one of the future is no fault.
    """
    name = what or path.name
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, MAX_HEADER_BYTES):
            raise IntegrityFailure(f"{name}: a header of {length} bytes does not fit a file of {size}")
        raw = file.read(length)
    return parse_header(raw, size, what=name, any_dtype=any_dtype)


def parse_header(raw: bytes, file_size: int, *, what: str, any_dtype: bool = False) -> FileHeader:
    """Check the JSON of a header against the size of its file; raises IntegrityFailure."""
    document = _json_object(raw, what)
    metadata = document.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise IntegrityFailure(f"{what}: {_METADATA} is not a map of strings")
    base = _LENGTH + len(raw)
    tensors = sorted(
        (_tensor(name, entry, base, what, any_dtype=any_dtype) for name, entry in document.items()),
        key=lambda tensor: (tensor.start, tensor.end),
    )
    expected = base
    for tensor in tensors:
        if tensor.start != expected:
            raise IntegrityFailure(f"{what}: {tensor.name} starts at byte {tensor.start} where {expected} is due")
        expected = tensor.end
    if expected != file_size:
        raise IntegrityFailure(f"{what}: its tensors end at byte {expected}, the file at {file_size}")
    return FileHeader(tensors=tuple(tensors), metadata=tuple(sorted(metadata.items())), file_size=file_size)


def _json_object(raw: bytes, what: str) -> dict[str, Any]:
    if sum(map(raw.count, b",[{")) > MAX_VALUES:
        raise IntegrityFailure(f"{what}: the header holds more than {MAX_VALUES} values")
    try:
        document = json.loads(raw.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise IntegrityFailure(f"{what}: the header is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise IntegrityFailure(f"{what}: the header is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name stands there twice")
    return document


def _tensor(name: str, entry: Any, base: int, what: str, *, any_dtype: bool) -> TensorHeader:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise IntegrityFailure(f"{what}: {name}: its entry is not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or (dtype not in ITEM_BITS and not any_dtype):
        raise IntegrityFailure(f"{what}: {name}: unknown dtype {dtype!r:.80}")
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:  # noqa: PLR2004 - begin and end
        raise IntegrityFailure(f"{what}: {name}: shape or offsets are not natural numbers")
    if len(shape) > MAX_DIMENSIONS:
        raise IntegrityFailure(f"{what}: {name}: {len(shape)} dimensions, at most {MAX_DIMENSIONS} are read")
    begin, end = offsets
    if end < begin or (dtype in ITEM_BITS and (end - begin) * 8 != prod(shape) * ITEM_BITS[dtype]):
        raise IntegrityFailure(f"{what}: {name}: {end - begin} bytes do not hold {dtype} of shape {shape}")
    return TensorHeader(name=name, dtype=dtype, shape=tuple(shape), start=base + begin, end=base + end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**53 for number in value)
