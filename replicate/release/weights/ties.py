"""Tied tensors: what the description says, what the source shares, and what the model class ties again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from replicate.release.description import Tie
from replicate.release.expected import Expected
from replicate.release.weights.stored import StoredTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A tensor that is not written, since loaders make it from ``of``.

    ``shared``: the source itself keeps both in one place, so that nothing has to be compared.
    """

    name: str
    of: str
    shared: bool


def aliases(ties: Sequence[Tie], tensors: Mapping[str, StoredTensor]) -> dict[str, Alias]:
    """Return what is dropped, by its name, as far as the source has it."""
    return {
        drop: Alias(name=drop, of=tie.keep, shared=tensors[drop].same_as(tensors[tie.keep]))
        for tie in ties
        for drop in tie.drop
        if drop in tensors and tie.keep in tensors
    }


def faults(
    ties: Sequence[Tie], tensors: Mapping[str, StoredTensor], expected: Expected | None
) -> Iterator[tuple[str, str]]:
    """Yield (what is wrong, what to do) about the ties; ``tensors`` are by released name."""
    yield from _declared(ties, tensors, expected)
    dropped = {drop for tie in ties for drop in tie.drop}
    if expected is not None:
        yield from _of_class(ties, tensors, expected)
    yield from _undeclared({name: one for name, one in tensors.items() if name not in dropped})


def _declared(
    ties: Sequence[Tie], tensors: Mapping[str, StoredTensor], expected: Expected | None
) -> Iterator[tuple[str, str]]:
    tied_again = expected.droppable if expected else frozenset()
    for number, tie in enumerate(ties):
        where = f"weights.tied.{number}"
        if tie.keep not in tensors:
            yield f"{where}.keep: {tie.keep} is not in the source", "correct the name"
            continue
        for drop in tie.drop:
            if drop == tie.keep:
                yield f"{where}: {drop} is kept and dropped", "name two tensors"
            elif drop not in tensors:
                if drop not in tied_again:  # a source of safetensors lacks it already
                    yield f"{where}.drop: {drop} is not in the source", "correct the name"
            elif (tensors[drop].dtype, tensors[drop].shape) != (tensors[tie.keep].dtype, tensors[tie.keep].shape):
                yield f"{where}: {drop} and {tie.keep} differ in type or shape", "they are not tied: remove the entry"


def _of_class(
    ties: Sequence[Tie], tensors: Mapping[str, StoredTensor], expected: Expected
) -> Iterator[tuple[str, str]]:
    """Compare with what the model class ties: a name that no loader makes again must not be dropped."""
    made_from = {drop: keep for keep, drops in expected.tied for drop in drops}
    declared = {drop: tie.keep for tie in ties for drop in tie.drop}
    for drop, keep in declared.items():
        if drop not in made_from:
            yield (
                f"weights.tied: the model class does not tie {drop}: loaders would leave it random",
                f"take {drop} out of drop, or correct architecture.model_class",
            )
        elif made_from[drop] != keep:
            yield (
                f"weights.tied: {keep} is kept for {drop}, the model class makes it from {made_from[drop]}",
                f'say keep = "{made_from[drop]}"',
            )
    for drop, keep in made_from.items():
        if drop in tensors and drop not in declared:
            yield (
                f"weights.tied: the model class ties {drop} to {keep}, and both are in the source",
                f'say [[weights.tied]] keep = "{keep}", drop = ["{drop}"]',
            )


def _undeclared(tensors: Mapping[str, StoredTensor]) -> Iterator[tuple[str, str]]:
    """Yield pairs that share bytes without having been declared as one."""
    by_storage: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.elements:
            by_storage.setdefault(tensor.storage, []).append(name)
    for names in by_storage.values():
        for one, other in combinations(sorted(names), 2) if len(names) > 1 else ():
            if tensors[one].same_as(tensors[other]):
                yield (
                    f"weights.tied: {one} and {other} are one tensor in the source, and are not declared as tied",
                    f'say [[weights.tied]] keep = "{one}", drop = ["{other}"], as the model class ties them',
                )
            elif tensors[one].overlaps(tensors[other]):
                yield (
                    f"weights: {one} and {other} overlap in the source: one would be published twice",
                    "leave one out by weights.omit",
                )
