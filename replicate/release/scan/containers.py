"""The safetensors files of a release as a set: each one whole, the index true in both directions, no shard too many."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replicate.errors import IntegrityFailure
from replicate.formats.safetensors import FileHeader, TensorHeader, read_header
from replicate.release.findings import Rule
from replicate.release.scan.fragments import Node, Origin, Piece, label_of
from replicate.release.scan.hits import Hit
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.jsontext import Pairs
from replicate.release.scan.names import SHARD, FileKind
from replicate.release.scan.tree import TreeFile, Walk

METADATA = (("format", "pt"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A safetensors file with a header that holds."""

    file: TreeFile
    header: FileHeader


def read_containers(walk: Walk) -> tuple[tuple[Container, ...], tuple[Hit, ...]]:
    """Read every header; a damaged file is a hit."""
    containers: list[Container] = []
    hits: list[Hit] = []
    for file in walk.files:
        if file.kind is FileKind.WEIGHTS:
            try:
                containers.append(Container(file=file, header=read_header(file.absolute, what=file.path)))
            except IntegrityFailure as error:
                hits.append(Hit(rule=Rule.CONTAINER, path=file.path, detail=error.message))
    return tuple(containers), tuple(hits)


def find_in_containers(containers: tuple[Container, ...], walk: Walk, context: ScanContext) -> Iterator[Hit]:
    """Check the set of files: metadata, numbering, tensors in two shards, and the manifest's own list."""
    paths = [file.path for file in walk.files if file.kind is FileKind.WEIGHTS]
    if not paths:
        yield Hit(rule=Rule.CONTAINER, path=".", detail="the tree holds no safetensors file of weights")
    yield from _numbering(paths)
    where: dict[str, str] = {}
    for one in containers:
        yield from _metadata(one)
        for tensor in one.header.tensors:
            if tensor.name in where:
                detail = f"lies in {where[tensor.name]} as well"
                yield Hit(rule=Rule.CONTAINER, path=one.file.path, place=tensor.name, detail=detail)
            where.setdefault(tensor.name, one.file.path)
    yield from _against_manifest(containers, context)


def index_name(paths: tuple[str, ...]) -> str | None:
    """Return the name that the index of these shards has; None where one file needs none."""
    found = next((match for match in map(SHARD.fullmatch, paths) if match), None)
    return f"{found['stem']}.safetensors.index.json" if found else None


def find_in_index(path: str, document: Any, containers: tuple[Container, ...]) -> Iterator[Hit]:
    """Compare an index with the headers, both ways."""
    weight_map = document.get("weight_map") if isinstance(document, Pairs) else None
    if not isinstance(weight_map, Pairs) or not all(isinstance(name, str) for _, name in weight_map):
        yield Hit(rule=Rule.CONTAINER, path=path, place="weight_map", detail="is no map from tensors to files")
        return
    mapped = dict(weight_map)
    stored = {tensor.name: one.file.path for one in containers for tensor in one.header.tensors}
    for name in sorted(mapped.keys() | stored.keys()):
        detail = _disagreement(mapped.get(name), stored.get(name))
        if detail:
            yield Hit(rule=Rule.CONTAINER, path=path, place=name, detail=detail)
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Pairs) else None
    size = sum(one.header.data_size for one in containers)
    if total != size:
        detail = f"is {total!r}, and the tensors have {size} bytes"
        yield Hit(rule=Rule.CONTAINER, path=path, place="metadata/total_size", detail=detail)


def _disagreement(mapped: str | None, stored: str | None) -> str:
    if mapped is None:
        return f"lies in {stored} and is not in the index"
    if stored is None:
        return "is in the index and in no shard"
    return "" if mapped == stored else f"lies in {stored}, and the index names another file"


def header_pieces(one: Container) -> Iterator[Piece]:
    """Yield the text in a header: names of tensors and everything in its metadata."""
    metadata = Node(None, "__metadata__")
    for position, (key, value) in enumerate(one.header.metadata):
        label = label_of(key, position)
        yield Piece(Origin.NAME, metadata, label, key)
        yield Piece(Origin.VALUE, metadata, label, value)
    for position, tensor in enumerate(one.header.tensors):
        yield Piece(Origin.NAME, None, f"tensor {position}", tensor.name)


def _metadata(one: Container) -> Iterator[Hit]:
    if one.header.metadata != METADATA:
        keys = ", ".join(key for key, _ in one.header.metadata) or "nothing"
        detail = f"holds {keys}; expected format = pt and nothing else: loaders need it, and more is not reproducible"
        yield Hit(rule=Rule.METADATA, path=one.file.path, place="__metadata__", detail=detail)


def _numbering(paths: list[str]) -> Iterator[Hit]:
    shards = [found for found in map(SHARD.fullmatch, paths) if found]
    counts = sorted({found["count"] for found in shards})
    if shards and len(shards) != len(paths):
        single = sorted(set(paths) - {found[0] for found in shards})
        yield Hit(rule=Rule.CONTAINER, path=single[0], detail="lies beside shards: loaders take one or the other")
    if len(counts) > 1:
        detail = f"shards of {len(counts)} sets lie side by side (of {', '.join(counts)})"
        yield Hit(rule=Rule.CONTAINER, path=shards[0][0], detail=detail)
    for count in counts:
        there = {int(found["number"]) for found in shards if found["count"] == count}
        stem = next(found["stem"] for found in shards if found["count"] == count)
        extra = sorted(number for number in there if not 1 <= number <= int(count))
        missing = int(count) - len(there) + len(extra)
        if missing:
            first = next(number for number in range(1, int(count) + 1) if number not in there)
            detail = f"is missing, with {missing - 1} more of {int(count)} shards"
            yield Hit(rule=Rule.CONTAINER, path=f"{stem}-{first:05d}-of-{count}.safetensors", detail=detail)
        for number in extra:
            detail = f"is numbered outside 1 to {int(count)}"
            yield Hit(rule=Rule.CONTAINER, path=f"{stem}-{number:05d}-of-{count}.safetensors", detail=detail)


def _against_manifest(containers: tuple[Container, ...], context: ScanContext) -> Iterator[Hit]:
    listed = {tensor.name: tensor for tensor in context.manifest.tensors}
    stored: Mapping[str, tuple[Container, TensorHeader]] = {
        tensor.name: (one, tensor) for one in containers for tensor in one.header.tensors
    }
    for name in sorted(listed.keys() | stored.keys()):
        if name not in stored:
            detail = "is in the export manifest and in no file"
            yield Hit(rule=Rule.CONTAINER, path=listed[name].file, place=name, detail=detail)
            continue
        one, tensor = stored[name]
        said = listed.get(name)
        if said is None:
            detail = "is not in the export manifest"
        elif (said.file, said.dtype, said.shape) != (one.file.path, tensor.dtype, tensor.shape):
            detail = (
                f"is {tensor.dtype} {list(tensor.shape)}, and {said.dtype} {list(said.shape)} "
                f"in {said.file} by the export manifest"
            )
        else:
            continue
        yield Hit(rule=Rule.CONTAINER, path=one.file.path, place=name, detail=detail)
