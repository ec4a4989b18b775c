"""Comparing two generations by what was recorded of them: no byte of a file is read where a digest tells."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from replicate.causal import Comparison, Stage, in_order, stage_of
from replicate.digests import digest_file
from replicate.generation.disk import local_io
from replicate.generation.tree import scan
from replicate.manifest import GenerationRecord

_TORCH = frozenset({".pt", ".pth", ".ckpt", ".bin"})
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two.  ``record`` is None for a folder of files that nothing describes.

    ``folder`` is where its files lie here, None where they do not.
    """

    name: str
    record: GenerationRecord | None
    folder: Path | None


def compare_sides(a: Side, b: Side) -> tuple[Comparison, ...]:
    """Compare contract, environment, clocks and files; raises LocalDisk where a file that has to be read cannot be."""
    found = [*_documents(a.record, b.record), *_files(a, b)]
    return in_order(found)


def loadable(a: Side, b: Side, comparisons: tuple[Comparison, ...]) -> tuple[str, ...]:
    """Return the files of torch that both have and that differ."""
    both = frozenset(_sizes(a)) & frozenset(_sizes(b))
    differing = {one.name for one in comparisons if not one.equal}
    return tuple(sorted(path for path in both & differing if PurePosixPath(path).suffix in _TORCH))


def _documents(a: GenerationRecord | None, b: GenerationRecord | None) -> Iterator[Comparison]:
    if a is None or b is None:
        return
    yield from _mappings(Stage.CONTRACT, a.contract, b.contract)
    yield _values(Stage.CONTRACT, "payload", a.payload, b.payload)
    yield from _mappings(Stage.ENVIRONMENT, a.environment, b.environment)
    yield _values(Stage.CLOCKS, "next_update", a.next_update, b.next_update)
    yield _values(Stage.CLOCKS, "tokens_seen", a.tokens_seen, b.tokens_seen)
    yield from _mappings(Stage.OTHER, dict.fromkeys(a.directories, "empty"), dict.fromkeys(b.directories, "empty"))


def _mappings(stage: Stage, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Comparison]:
    for name in sorted({*a, *b}):
        if name in a and name in b:
            yield _values(stage, name, a[name], b[name])
        else:
            yield _only(stage, name, in_a=name in a)


def _values(stage: Stage, name: str, a: Any, b: Any) -> Comparison:
    detail = "" if a == b else f"{_short(a)} in A, {_short(b)} in B"
    return Comparison(stage=stage, name=name, equal=not detail, detail=detail)


def _only(stage: Stage, name: str, *, in_a: bool) -> Comparison:
    return Comparison(stage=stage, name=name, equal=False, detail=f"only in {'A' if in_a else 'B'}")


def _files(a: Side, b: Side) -> Iterator[Comparison]:
    sizes_a, sizes_b = _sizes(a), _sizes(b)
    for path in sorted({*sizes_a, *sizes_b}):
        stage = stage_of(PurePosixPath(path).name)
        if path not in sizes_a or path not in sizes_b:
            yield _only(stage, path, in_a=path in sizes_a)
            continue
        detail = ""
        if sizes_a[path] != sizes_b[path]:
            detail = f"{sizes_a[path]} bytes in A, {sizes_b[path]} in B"
        elif _digest(a, path, b) != _digest(b, path, a):
            detail = "the same size, and other bytes"
        yield Comparison(stage=stage, name=path, equal=not detail, detail=detail)


def _sizes(side: Side) -> dict[str, int]:
    if side.record is not None:
        return {file.path: file.size for file in side.record.files}
    return {found.path: found.status.st_size for found in scan(side.folder).files} if side.folder else {}


def _digest(side: Side, path: str, other: Side) -> str:
    """Return the sealed digest, or that of a file which nothing describes, taken as the other was."""
    sealed = _sealed(side)
    if path in sealed:
        return sealed[path][0]
    file = (side.folder or Path()) / path
    with local_io(file, "reading it to compare"):
        leaf = _sealed(other).get(path)
        return digest_file(file, file.stat().st_size, leaf_size=leaf[1] if leaf else None).sha256


def _sealed(side: Side) -> dict[str, tuple[str, int]]:
    return {file.path: (file.sha256, file.leaf_size) for file in side.record.files} if side.record else {}


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= _SHOWN else words[:_SHOWN] + "…"
