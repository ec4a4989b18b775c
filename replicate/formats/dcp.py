"""The ``.metadata`` of torch's distributed checkpoints (DCP), and whether the files beside it hold what it says.

It is a pickle, read inertly (replicate.formats.pickled).  A writer that lost a thread, or a
folder that was used twice, gives a ``.metadata`` that torch reports as good: a chunk without
a place, a file that is missing, or one that is too short for what should lie in it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from replicate.errors import IntegrityFailure
from replicate.formats.pickled import Made, Pairs, read_pickle
from replicate.paths import UnsafePath, check_path

METADATA_NAME = re.compile(r"(__\d{1,9})?\.metadata")
DATA_SUFFIX = ".distcp"
MAX_PLACES = 1_000_000
MAX_DIMENSIONS = 128
T = TypeVar("T")
_CHECKPOINT = "torch.distributed.checkpoint"
_DTYPES = (
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32 complex64 "
    "complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 "
    "quint8 qint8 qint32 quint4x2 quint2x4 strided sparse_coo Size"
)
NAMES = frozenset(
    {f"torch.{name}" for name in _DTYPES.split()}
    | {
        f"{_CHECKPOINT}.metadata.{name}"
        for name in (
            "Metadata",
            "StorageMeta",
            "TensorStorageMetadata",
            "BytesStorageMetadata",
            "TensorProperties",
            "ChunkStorageMetadata",
            "MetadataIndex",
            "_MEM_FORMAT_ENCODING",
        )
    }
    | {f"{_CHECKPOINT}.filesystem.{name}" for name in ("_StorageInfo", "_StoragePrefix")}
    | {"torch.serialization._get_layout", "collections.OrderedDict"}
    | {f"pathlib{part}.{kind}" for part in ("", "._local") for kind in ("PosixPath", "PurePosixPath", "WindowsPath")}
)
"""Every name that may stand in one, by which version of torch and Python ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Bytes ``offset`` to ``offset + length`` of a file hold (a chunk of) ``tensor``, ``at`` this offset in it."""

    tensor: str
    at: tuple[int, ...] | None
    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DcpMetadata:
    """What a checkpoint consists of: ``due`` are the chunks (None for what is no tensor), ``placed`` where they are."""

    due: tuple[tuple[str, tuple[int, ...] | None], ...]
    placed: tuple[Placed, ...]


def read_metadata(data: bytes, *, what: str) -> DcpMetadata:
    """Read a ``.metadata``; raises BadPickle, TooLarge, or IntegrityFailure where it is another document."""
    found = read_pickle(data, allowed=NAMES, what=what)
    if not isinstance(found, Made) or found.what.name != "Metadata":
        raise IntegrityFailure(f"{what} is no metadata of a distributed checkpoint")
    fields = found.fields()
    try:
        due = tuple(_bounded(_due(fields.get("state_dict_metadata"))))
        placed = tuple(_bounded(_placed(fields.get("storage_data"))))
    except (TypeError, ValueError, AttributeError) as error:
        raise IntegrityFailure(f"{what} does not say what lies where: {error!s:.200}") from error
    return DcpMetadata(due=due, placed=placed)


def metadata_fault(metadata: DcpMetadata, folder: str, sizes: Mapping[str, int]) -> str:
    """Return the first thing that is due and not there, nothing where all is.

    ``folder`` is the metadata's own, ``sizes`` the bytes of every file of the generation by path.
    """
    have = {(one.tensor, one.at) for one in metadata.placed}
    for tensor, at in metadata.due:
        if (tensor, at) not in have:
            where = f" at {list(at)}" if at is not None else ""
            return f"{tensor!r:.200}{where} lies in no file: a writer of the checkpoint failed"
    return next((fault for one in metadata.placed if (fault := _place_fault(one, folder, sizes))), "")


def _place_fault(one: Placed, folder: str, sizes: Mapping[str, int]) -> str:
    path = f"{folder}/{one.path}" if folder else one.path
    try:
        check_path(path)
    except UnsafePath as error:
        return error.message
    if path not in sizes:
        return f"{path!r} is missing, and holds {one.tensor!r:.200}"
    if one.offset + one.length > sizes[path]:
        return f"{path!r} has {sizes[path]} bytes, and {one.tensor!r:.200} ends at {one.offset + one.length}"
    return ""


def _bounded(found: Iterator[T]) -> Iterator[T]:
    """Pass on as many as may be: a list can stand in a pickle once and be meant a million times."""
    for number, one in enumerate(found):
        if number >= MAX_PLACES:
            raise ValueError(f"more than {MAX_PLACES} chunks")
        yield one


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Made):  # an OrderedDict
        value = value.state
    if not isinstance(value, Pairs):
        raise TypeError("a dictionary is missing")
    return value.pairs


def _due(value: Any) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    for tensor, stored in _pairs(value):
        if not isinstance(tensor, str) or not isinstance(stored, Made):
            raise TypeError("an entry is neither a tensor nor bytes")
        if stored.what.name == "BytesStorageMetadata":
            yield tensor, None
            continue
        for chunk in stored.fields().get("chunks", ()):
            yield tensor, _offsets(chunk.fields().get("offsets"))


def _placed(value: Any) -> Iterator[Placed]:
    for index, place in _pairs(value):
        key, info = index.fields(), place.fields()
        tensor, path, offset, length = key.get("fqn"), info.get("relative_path"), info.get("offset"), info.get("length")
        if not isinstance(tensor, str) or not isinstance(path, str):
            raise TypeError("a place has no name")
        if type(offset) is not int or type(length) is not int or min(offset, length) < 0:
            raise ValueError(f"{tensor[:200]!r} has no place that can be")
        at = key.get("offset")
        yield Placed(tensor=tensor, at=None if at is None else _offsets(at), path=path, offset=offset, length=length)


def _offsets(value: Any) -> tuple[int, ...]:
    """Read a torch.Size: a call of it with one tuple."""
    numbers = value.arguments[0] if isinstance(value, Made) and value.arguments else ()
    if not isinstance(numbers, tuple) or len(numbers) > MAX_DIMENSIONS:
        raise TypeError("a size is no tuple of numbers")
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a size has a number that cannot be")
    return numbers
