"""Tensors by their bytes, read once in bounded pieces: NaN and Inf, constants, copies, the manifest's digests.

Bit patterns are compared, nothing is converted: BF16 and float8 have no NumPy type, and
a conversion could hide what it rounds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from replicate.digests import CountedSha256
from replicate.formats.safetensors import TensorHeader
from replicate.release.findings import Rule
from replicate.release.scan.containers import Container
from replicate.release.scan.fragments import Node, Origin, Piece
from replicate.release.scan.hits import Hit
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.pickles import pickle_fault
from replicate.release.scan.runs import printable_runs

PIECE = 8 * 1024 * 1024
"""Bytes read at a time; a multiple of every item size."""
MAX_TEXT_IN_TENSORS = 100_000
"""Printable runs of one tensor that are looked at."""

Bits = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class _Float:
    """A floating dtype by its bits: not finite where all bits of ``mask`` are set, or where it is one of ``codes``."""

    item: type[np.unsignedinteger]
    mask: int = 0
    codes: tuple[int, ...] = ()


_FLOATS = MappingProxyType(
    {
        "F16": _Float(np.uint16, mask=0x7C00),
        "BF16": _Float(np.uint16, mask=0x7F80),
        "F32": _Float(np.uint32, mask=0x7F80_0000),
        "F64": _Float(np.uint64, mask=0x7FF0_0000_0000_0000),
        "C64": _Float(np.uint32, mask=0x7F80_0000),
        "F8_E5M2": _Float(np.uint8, mask=0x7C),
        "F8_E4M3": _Float(np.uint8, mask=0x7F),
        "F8_E8M0": _Float(np.uint8, codes=(0xFF,)),
        "F8_E4M3FNUZ": _Float(np.uint8, codes=(0x80,)),
        "F8_E5M2FNUZ": _Float(np.uint8, codes=(0x80,)),
    }
)
_TEXT_DTYPES = frozenset({"U8", "I8", "BOOL"})
_CONSTANT_FROM = 2
"""Dimensions from which a constant tensor is no norm and no bias."""


@dataclass(slots=True)
class _Seen:
    """What one pass over a tensor found."""

    sha256: str = ""
    not_finite: int = 0
    constant: bool = True
    zero: bool = True


def find_in_values(containers: tuple[Container, ...], context: ScanContext) -> Iterator[Hit]:
    """Read every tensor once."""
    digests = {tensor.name: tensor.sha256 for tensor in context.manifest.tensors}
    copies: dict[tuple[str, tuple[int, ...], str], str] = {}
    for one in containers:
        path = one.file.path
        with one.file.absolute.open("rb") as opened:
            for tensor in one.header.tensors:
                seen = _look(opened, tensor)
                for rule, detail in _faults(tensor, seen):
                    yield Hit(rule=rule, path=path, place=tensor.name, detail=detail)
                if digests.get(tensor.name, seen.sha256) != seen.sha256:
                    detail = "its data are not those of the export manifest"
                    yield Hit(rule=Rule.CONTAINER, path=path, place=tensor.name, detail=detail)
                if _may_be_copy(tensor, seen):
                    first = copies.setdefault((tensor.dtype, tensor.shape, seen.sha256), tensor.name)
                    if first != tensor.name:
                        detail = f"holds the same bytes as {first}: declare it in weights.tied, or leave one out"
                        yield Hit(rule=Rule.TENSOR_DUPLICATE, path=path, place=tensor.name, detail=detail)


def find_pickled_tensors(containers: tuple[Container, ...]) -> Iterator[Hit]:
    """Find byte tensors that hold a pickle or an archive, as states are sometimes saved."""
    for one in containers:
        with one.file.absolute.open("rb") as opened:
            for tensor in _byte_tensors(one):
                opened.seek(tensor.start)
                head = opened.read(min(tensor.size, 64 * 1024))
                detail = pickle_fault(head)
                if detail or head.startswith(b"PK\x03\x04"):
                    words = f"the bytes of this tensor: {detail or 'an archive'}"
                    yield Hit(rule=Rule.PICKLE, path=one.file.path, place=tensor.name, detail=words)


def byte_pieces(one: Container) -> Iterator[Piece]:
    """Yield the printable runs inside tensors of bytes."""
    for tensor in _byte_tensors(one):
        node = Node(None, tensor.name)
        for number, run in enumerate(printable_runs(one.file.absolute, tensor.start, tensor.end)):
            if number == MAX_TEXT_IN_TENSORS:
                break
            yield Piece(Origin.BYTES, node, "data", run)


def _byte_tensors(one: Container) -> Iterator[TensorHeader]:
    return (tensor for tensor in one.header.tensors if tensor.dtype in _TEXT_DTYPES and tensor.size)


def _look(opened: BinaryIO, tensor: TensorHeader) -> _Seen:
    seen, digest = _Seen(), CountedSha256()
    form = _FLOATS.get(tensor.dtype)
    buffer = bytearray(min(PIECE, tensor.size))
    first: int | None = None
    opened.seek(tensor.start)
    left = tensor.size
    while left:
        view = memoryview(buffer)[: min(PIECE, left)]
        count = opened.readinto(view)  # type: ignore[attr-defined]
        if count != len(view):
            raise OSError(f"{Path(opened.name).name} ended inside {tensor.name}")
        digest.update(view)
        left -= count
        if form is not None:
            bits = np.frombuffer(view, dtype=np.dtype(form.item).newbyteorder("<"))
            first = int(bits[0]) if first is None else first
            seen.not_finite += _not_finite(bits, form)
            seen.constant = seen.constant and bool((bits == first).all())
    seen.zero = not first
    seen.sha256 = digest.hexdigest()
    return seen


def _not_finite(bits: Bits, form: _Float) -> int:
    if form.codes:
        return int(np.isin(bits, form.codes).sum())
    mask = bits.dtype.type(form.mask)
    return int(((bits & mask) == mask).sum())


def _faults(tensor: TensorHeader, seen: _Seen) -> Iterator[tuple[Rule, str]]:
    if seen.not_finite:
        yield Rule.TENSOR_NOT_FINITE, f"{seen.not_finite} of {tensor.elements} elements are NaN or infinite"
    floating = tensor.dtype in _FLOATS and tensor.dtype != "F8_E8M0"
    if not floating or not seen.constant or tensor.elements <= 1 or len(tensor.shape) < _CONSTANT_FROM:
        return
    if seen.zero and "lora_" in tensor.name:
        yield Rule.TENSOR_CONSTANT, "is a LoRA matrix of zeros: the adapter was never trained, and changes nothing"
    else:
        what = "zeros" if seen.zero else "one value"
        yield Rule.TENSOR_CONSTANT, f"holds nothing but {what}: not trained, or not loaded"


def _may_be_copy(tensor: TensorHeader, seen: _Seen) -> bool:
    """Whether a copy would be a fault: norms, biases, masks and rotary tables repeat by nature."""
    return tensor.dtype in _FLOATS and len(tensor.shape) >= _CONSTANT_FROM and tensor.elements > 1 and not seen.constant
