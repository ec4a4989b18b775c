"""In the child: plan the transforms again from the description, and hold the record against it.

The comparison of bytes shows that a record is true; this shows that it is what was asked for:
an entry that was left out, kept under another name or not cast is found here.
"""

from collections.abc import Iterator
from typing import Any

from replicate.release.bundle import Action, Kind, Transform
from replicate.release.description import Weights
from replicate.release.verifying.building import forms_of
from replicate.release.verifying.checks import judged
from replicate.release.verifying.rawtensors import dtype_name, source_entries
from replicate.release.verifying.sandbox import Answer
from replicate.release.weights.plan import CastError, plan_transforms, released_names
from replicate.release.weights.stored import StoredTensor

CHECK = "transforms"


def run(arguments: dict[str, Any]) -> Answer:
    """Plan, and compare entry by entry."""
    recorded = [Transform.model_validate(one, strict=False) for one in arguments["transforms"]]
    weights = Weights.model_validate(arguments["weights"])
    kind = Kind(arguments["kind"])
    stored = [_stored(name, value) for name, value in source_entries(arguments["source"]).items()]
    known = arguments["architecture"]
    expected = forms_of(known).nearest(released_names(stored, weights, kind)) if known else None
    plan = plan_transforms(stored, weights, kind=kind, expected=expected)
    errors = {
        one.target: CastError(max_abs=one.max_abs_error or "", max_rel=one.max_rel_error or "", flushed=0)
        for one in recorded
        if one.action is Action.CAST and one.target
    }
    faults = list(_differences(recorded, plan.transforms(errors)))
    how = "and the architecture" if expected is not None else "alone; the architecture is not known"
    return Answer(checks=(judged(CHECK, faults, f"{len(recorded)} are those of the description {how}"),))


def _differences(recorded: list[Transform], planned: tuple[Transform, ...]) -> Iterator[str]:
    here = {one.source: one for one in recorded}
    there = {one.source: one for one in planned}
    for name in sorted(set(here) | set(there)):
        if here.get(name) != there.get(name):
            yield f"{name}: recorded as {_words(here.get(name))}, the description makes it {_words(there.get(name))}"


def _words(one: Transform | None) -> str:
    if one is None:
        return "nothing"
    types = f" from {one.from_dtype} to {one.to_dtype}" if one.action is Action.CAST else ""
    return f"{one.action.value}{types} ({one.target or 'no name'}{f' of {one.of}' if one.of else ''})"


def _stored(name: str, tensor: Any) -> StoredTensor:
    return StoredTensor(
        name=name,
        dtype=dtype_name(tensor.dtype),
        shape=tuple(tensor.shape),
        storage=tensor.untyped_storage().data_ptr(),
        offset=tensor.storage_offset() * tensor.element_size(),
        strides=tuple(tensor.stride()),
    )
