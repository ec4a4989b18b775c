"""In the child: every tensor of a release against the source, through the transforms that were recorded.

The record is what is under test, so nothing of the code that wrote it is used here: bytes are
read by the header parser, a cast is made again, its error is measured again.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from replicate.formats.safetensors import FLOATING, TensorHeader, read_header
from replicate.release.bundle import Action, Transform
from replicate.release.verifying.building import library
from replicate.release.verifying.checks import judged
from replicate.release.verifying.rawtensors import (
    bits,
    dtype_name,
    identical,
    read_tensor,
    source_entries,
    torch_dtypes,
)
from replicate.release.verifying.sandbox import Answer

CHECK = "source-comparison"
_ELEMENTS = 1 << 21
"""Elements measured at a time, in double precision."""

Released = Mapping[str, tuple[Path, TensorHeader]]


def run(arguments: dict[str, Any]) -> Answer:
    """Compare; one check, whose faults name the tensor."""
    entries = source_entries(arguments["source"])
    transforms = [Transform.model_validate(one, strict=False) for one in arguments["transforms"]]
    tree = Path(arguments["tree"])
    released = {
        header.name: (tree / file, header) for file in arguments["files"] for header in read_header(tree / file).tensors
    }
    faults = [*_account(entries, transforms, set(released)), *_each(entries, transforms, released)]
    counts = {action: sum(one.action is action for one in transforms) for action in Action}
    seen = ", ".join(f"{count} {action.value}" for action, count in counts.items() if count)
    return Answer(checks=(judged(CHECK, faults, f"{len(released)} tensors are those of the source ({seen})"),))


def _account(entries: Mapping[str, Any], transforms: list[Transform], released: set[str]) -> Iterator[str]:
    """Every tensor of the source has one transform, every tensor of the release comes from one."""
    told = [one.source for one in transforms]
    yield from (
        f"{name}: two transforms are recorded for it" for name in sorted({n for n in told if told.count(n) > 1})
    )
    yield from (
        f"{name}: the source has it, and no transform says what became of it"
        for name in sorted(set(entries) - set(told))
    )
    written = [one.target for one in transforms if one.action in (Action.KEPT, Action.CAST) and one.target]
    twice = sorted({name for name in written if written.count(name) > 1})
    yield from (f"{name}: two entries of the source are recorded as it" for name in twice)
    yield from (
        f"{name}: is released, and no transform says where it comes from" for name in sorted(released - set(written))
    )


def _each(entries: Mapping[str, Any], transforms: list[Transform], released: Released) -> Iterator[str]:
    kept_as = {one.target: one for one in transforms if one.action in (Action.KEPT, Action.CAST)}
    for one in transforms:
        source = entries.get(one.source)
        if one.action is Action.OMITTED:
            yield from _omitted(one)
        elif source is None:
            yield f"{one.source}: recorded as {one.action.value}, and the source has no such tensor"
        elif one.action is Action.ALIAS:
            yield from _alias(one, source, kept_as, entries, released)
        else:
            yield from _written(one, source, released)


def _omitted(one: Transform) -> Iterator[str]:
    if one.target is not None or one.of is not None:
        yield f"{one.source}: recorded as omitted, and as released under {one.target or one.of}"


def _alias(
    one: Transform, source: Any, kept_as: Mapping[str | None, Transform], entries: Mapping[str, Any], released: Released
) -> Iterator[str]:
    if one.target in released:
        yield f"{one.target}: recorded as an alias that is dropped, and it is released"
    original = kept_as.get(one.of)
    if original is None or original.source not in entries:
        yield f"{one.source}: recorded as an alias of {one.of}, which is not released"
    elif not identical(source, entries[original.source]):
        yield f"{one.source}: recorded as an alias of {one.of}, and the two differ in the source"


def _written(one: Transform, source: Any, released: Released) -> Iterator[str]:
    name = one.target
    if name is None or name not in released:
        yield f"{one.source}: recorded as {one.action.value}, and {name} is not in the release"
        return
    path, header = released[name]
    if tuple(source.shape) != header.shape:
        yield f"{name}: has shape {list(header.shape)}, the source {list(source.shape)}"
        return
    if one.action is Action.KEPT:
        yield from _kept(name, source, path, header)
    else:
        yield from _cast(one, name, source, path, header)


def _kept(name: str, source: Any, path: Path, header: TensorHeader) -> Iterator[str]:
    if dtype_name(source.dtype) != header.dtype:
        yield f"{name}: recorded as kept, and it is {header.dtype} where the source has {dtype_name(source.dtype)}"
    elif not library("torch").equal(bits(source), bits(read_tensor(path, header))):
        yield f"{name}: its bytes are not those of the source"


def _cast(one: Transform, name: str, source: Any, path: Path, header: TensorHeader) -> Iterator[str]:
    was = dtype_name(source.dtype)
    if was not in FLOATING or header.dtype not in FLOATING:
        yield f"{name}: cast from {was} to {header.dtype}; only floating tensors may be cast"
        return
    if (one.from_dtype, one.to_dtype) != (was, header.dtype):
        yield f"{name}: recorded as cast from {one.from_dtype} to {one.to_dtype}, and it is {was} to {header.dtype}"
        return
    again = source.detach().to(torch_dtypes()[header.dtype])
    if not library("torch").equal(bits(again), bits(read_tensor(path, header))):
        yield f"{name}: its bytes are not those of the source cast to {header.dtype}"
    yield from _errors(one, name, source.detach(), again)


def _errors(one: Transform, name: str, source: Any, cast: Any) -> Iterator[str]:
    absolute, relative, overflow = _measured(source, cast)
    if overflow:
        yield f"{name}: {overflow} finite values of the source are infinite or NaN after the cast"
        return
    for what, said, found in (("abs", one.max_abs_error, absolute), ("rel", one.max_rel_error, relative)):
        if not _same(said, found):
            yield f"{name}: max_{what}_error is recorded as {said}, measured {found:.6g}"


def _measured(source: Any, cast: Any) -> tuple[float, float, int]:
    """Return the greatest absolute and relative error, and how many values overflowed; a piece at a time."""
    torch = library("torch")
    absolute, relative, overflow = 0.0, 0.0, 0
    for before, after in zip(source.reshape(-1).split(_ELEMENTS), cast.reshape(-1).split(_ELEMENTS), strict=True):
        exact, rounded = before.double(), after.double()
        finite = torch.isfinite(exact)
        overflow += int((finite & ~torch.isfinite(rounded)).sum())
        error, size = (exact - rounded).abs()[finite], exact[finite].abs()
        absolute = max(absolute, float(error.max()) if len(error) else 0.0)
        ratio = error[size > 0] / size[size > 0]
        relative = max(relative, float(ratio.max()) if len(ratio) else 0.0)
    return absolute, relative, overflow


def _same(said: str | None, found: float) -> bool:
    """Both are double precision, and the record spells it out without rounding."""
    try:
        return said is not None and Decimal(said) == Decimal(found)
    except InvalidOperation:
        return False
