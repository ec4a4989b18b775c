"""What becomes of every entry of a state dict: decided from names, types and places, before a byte is read.

In order: entries that the description omits; wrapper parts off the names (replicate.release.weights.naming);
an adapter's name off its tensors'; renames; ties; casts; and the comparison with the architecture.
What is not understood is refused with its name, never passed on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from replicate.errors import ConfigInvalid
from replicate.formats.safetensors import FLOATING
from replicate.release.bundle import Action, Kind, Transform
from replicate.release.description import Cast, Weights
from replicate.release.expected import Expected
from replicate.release.weights import adapters, ties
from replicate.release.weights.naming import WRAPPERS, bare, listed, renamed, unwrapped
from replicate.release.weights.stored import StoredTensor, size_of

CAST_TO = MappingProxyType({"float32": "F32", "float16": "F16", "bfloat16": "BF16"})
"""The description's words for a dtype, and the names that safetensors has."""
MAX_NAME = 1_024
"""Characters of a name: what the export manifest holds."""
_TRAINING = frozenset(
    {
        "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "acc_delta", "grad_avg",
        "optimizer", "optimizers", "optimizer_state", "optim_state", "param_groups", "lr_scheduler", "grad_scaler",
        "rng_state", "master", "master_weights", "master_params", "master_weight", "fp32_master", "momentum",
    }
)  # fmt: skip
"""Parts of names that a training's own state has; an architecture that has such a name itself is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTensor:
    """A tensor that is written: where it comes from, its name, and its types before and after."""

    source: str
    target: str
    from_dtype: str
    to_dtype: str
    shape: tuple[int, ...]
    reason: str

    @property
    def size(self) -> int:
        """Bytes that are written."""
        return size_of(self.to_dtype, self.shape)

    @property
    def cast(self) -> bool:
        """Whether its values change their type."""
        return self.from_dtype != self.to_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAlias:
    """A tensor that is not written, as loaders make it from ``of``; unless ``shared``, their bytes must be compared."""

    source: str
    target: str
    of: str
    of_source: str
    dtype: str
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CastError:
    """How far a cast moved the values; exact decimals of binary numbers.  ``flushed`` counts those that became 0."""

    max_abs: str
    max_rel: str
    flushed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformPlan:
    """The whole decision; every entry of the source is in one of the three.  Sorted by released name."""

    tensors: tuple[PlannedTensor, ...]
    aliases: tuple[PlannedAlias, ...]
    omitted: tuple[tuple[str, str], ...]

    def transforms(self, errors: Mapping[str, CastError]) -> tuple[Transform, ...]:
        """Return what is recorded, sorted by source name; ``errors`` by released name, one for each cast."""
        done = [_written(one, errors.get(one.target)) for one in self.tensors]
        done += [
            Transform(
                source=one.source,
                action=Action.ALIAS,
                target=one.target,
                of=one.of,
                from_dtype=one.dtype,
                to_dtype=one.dtype,
                reason="weights.tied",
            )
            for one in self.aliases
        ]
        done += [
            Transform(source=name, action=Action.OMITTED, reason=f"weights.omit: {pattern}")
            for name, pattern in self.omitted
        ]
        return tuple(sorted(done, key=lambda one: one.source))


def released_names(entries: Sequence[StoredTensor], weights: Weights, kind: Kind) -> frozenset[str]:
    """Return the names that a release would have, as far as they can be told without the architecture."""
    kept = [entry.name for entry in entries if _omitting(entry.name, weights) is None]
    names = [renamed(bare(name), weights.rename) for name in kept]
    return frozenset(adapters.as_saved(names).values() if kind is Kind.ADAPTER else names)


def plan_transforms(
    entries: Sequence[StoredTensor], weights: Weights, *, kind: Kind, expected: Expected | None
) -> TransformPlan:
    """Decide; raises ConfigInvalid that names the tensors and the key of the description that settles it.

    ``expected`` are the architecture's tensors, None where it is unknown.
    """
    omitted = {entry.name: pattern for entry in entries if (pattern := _omitting(entry.name, weights)) is not None}
    kept = [entry for entry in entries if entry.name not in omitted]
    _refuse_unspeakable(entry.name for entry in entries)
    _refuse_idle("weights.omit", weights.omit, [bare(entry.name) for entry in entries])
    _refuse_unfit(kept)
    targets = _targets(kept, weights, kind, expected)
    by_target = {targets[entry.name]: entry for entry in kept}
    _refuse_training_state(targets, expected)
    _raise_first(ties.faults(weights.tied, by_target, expected))
    dropped = ties.aliases(weights.tied, by_target)
    written = {name: entry for name, entry in by_target.items() if name not in dropped}
    _refuse_other_architecture(written, by_target, expected)
    casts = _casts(written, weights.cast)
    return TransformPlan(
        tensors=tuple(_planned(name, written[name], casts[name], targets) for name in sorted(written)),
        aliases=tuple(
            PlannedAlias(
                source=by_target[name].name,
                target=name,
                of=dropped[name].of,
                of_source=by_target[dropped[name].of].name,
                dtype=by_target[name].dtype,
                shared=dropped[name].shared,
            )
            for name in sorted(dropped)
        ),
        omitted=tuple(sorted(omitted.items())),
    )


def _omitting(name: str, weights: Weights) -> str | None:
    """Return the pattern that leaves an entry out, if one does."""
    plain = bare(name)
    return next((pattern for pattern in weights.omit if fnmatchcase(plain, pattern)), None)


def _refuse_idle(field: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """Refuse a pattern that nothing meets: it was meant for a name that is spelled otherwise."""
    every = tuple(names)
    idle = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in every)]
    if idle:
        raise ConfigInvalid(f"{field}: {idle[0]!r} matches no name", hint="correct the pattern, or remove it")


def _refuse_unspeakable(names: Iterable[str]) -> None:
    """Refuse names that no document could hold, or that would do something to a terminal."""
    for name in names:
        if len(name) > MAX_NAME or not name.isprintable():
            fault = f"{len(name)} characters" if len(name) > MAX_NAME else "characters that cannot be shown"
            raise ConfigInvalid(
                f"source.entries: the name {name[:80]!a} has {fault} (at most {MAX_NAME}, all printable)",
                hint="give it another name where it is saved, or correct [[weights.rename]]",
            )


def _refuse_unfit(entries: Sequence[StoredTensor]) -> None:
    unfit = [entry for entry in entries if entry.unfit]
    if unfit:
        raise ConfigInvalid(
            f"source.entries: {unfit[0].name} is {unfit[0].unfit}, which cannot be released "
            f"({len(unfit)} such: {listed(entry.name for entry in unfit)})",
            hint="name the state dict of the model alone, or leave the entries out by weights.omit",
        )


def _targets(
    entries: Sequence[StoredTensor], weights: Weights, kind: Kind, expected: Expected | None
) -> dict[str, str]:
    """Return the released name of each entry; no two are the same."""
    names = [entry.name for entry in entries]
    known = frozenset(expected.shapes) if expected is not None else None
    plain = unwrapped(names, renames=weights.rename, known=known, named=lambda name: _named(name, weights, kind))
    for number, rename in enumerate(weights.rename):
        earlier = weights.rename[:number]
        if not any(renamed(name, earlier).startswith(rename.prefix) for name in plain.values()):
            raise ConfigInvalid(
                f"weights.rename.{number}.prefix: no name starts with {rename.prefix!r}",
                hint="names are without wrapper parts, and earlier renames are done; correct the prefix",
            )
    targets = {name: renamed(plain[name], weights.rename) for name in names}
    if kind is Kind.ADAPTER:
        _refuse_collisions(targets)
        saved = adapters.as_saved(list(targets.values()))
        targets = {name: saved[target] for name, target in targets.items()}
    else:
        _refuse_adapter(targets.values(), known)
    _refuse_unspeakable(targets.values())
    _refuse_collisions(targets)
    _refuse_residue(targets.values(), known)
    return targets


def _named(name: str, weights: Weights, kind: Kind) -> str:
    after = renamed(name, weights.rename)
    return adapters.saved_name(after) if kind is Kind.ADAPTER else after


def _refuse_collisions(targets: Mapping[str, str]) -> None:
    first: dict[str, str] = {}
    for source, target in targets.items():
        other = first.setdefault(target, source)
        if other != source:
            raise ConfigInvalid(
                f"weights: {other} and {source} would both be released as {target}",
                hint="leave one out by weights.omit, or tell them apart by [[weights.rename]]",
            )


def _refuse_residue(targets: Iterable[str], known: frozenset[str] | None) -> None:
    """Refuse what still looks wrapped: a part that only wrappers have, or names that are none."""
    for target in targets:
        marks = (WRAPPERS - {"module"}) & set(target.split("."))
        if (marks or not all(target.split("."))) and target not in (known or ()):
            what = f"still has {min(marks)} in it" if marks else "has an empty part"
            raise ConfigInvalid(f"weights: the released name {target!r} {what}", hint="correct [[weights.rename]]")


def _refuse_adapter(targets: Iterable[str], known: frozenset[str] | None) -> None:
    found = [name for name in adapters.traces(targets) if name not in (known or ())]
    if found:
        raise ConfigInvalid(
            f"kind: {listed(found)}: tensors of an adapter, or of a model that has one in it, are no whole model",
            hint='merge the adapter before it is published, or release it as kind = "adapter"',
        )


def _refuse_training_state(targets: Mapping[str, str], expected: Expected | None) -> None:
    known = expected.shapes if expected is not None else {}
    found = [
        source
        for source, target in targets.items()
        if target not in known and any(part.lower() in _TRAINING for part in source.split("."))
    ]
    if found:
        raise ConfigInvalid(
            f"source.entries: {listed(found)}: these are a training's own state (optimizer, RNG), not weights",
            hint="name the state dict of the model alone, or leave them out by weights.omit",
        )


def _refuse_other_architecture(
    written: Mapping[str, StoredTensor], present: Mapping[str, StoredTensor], expected: Expected | None
) -> None:
    """Compare names and shapes with the architecture, all of them."""
    if expected is None:
        return
    unknown, missing = expected.unknown(frozenset(present)), expected.missing(frozenset(written))
    wrong = [
        f"{name} has shape {list(one.shape)} where {list(expected.shapes[name])} is due"
        for name, one in sorted(present.items())
        if name in expected.shapes and one.shape != expected.shapes[name]
    ]
    faults = [
        f"{len(unknown)} unknown to it: {listed(unknown)}" if unknown else "",
        f"{len(missing)} missing: {listed(missing)}" if missing else "",
        "; ".join(wrong[:3]),
    ]
    if any(faults):
        raise ConfigInvalid(
            f"architecture: the tensors are not those of the architecture: {'; '.join(filter(None, faults))}",
            hint="correct weights.rename, weights.omit or source.entries, or the config",
        )


def _casts(written: Mapping[str, StoredTensor], cast: Cast | None) -> dict[str, tuple[str, str]]:
    """Return (dtype after, why) of each; only floating tensors of 16 to 64 bits are ever cast."""
    if cast is None:
        return {name: (entry.dtype, "") for name, entry in written.items()}
    for pattern in cast.allow:
        met = [name for name in written if fnmatchcase(name, pattern)]
        if not any(written[name].dtype in FLOATING for name in met):
            what = f"{met[0]} is {written[met[0]].dtype}, and only floating tensors are cast" if met else "no such name"
            raise ConfigInvalid(f"weights.cast.allow: {pattern!r}: {what}", hint="correct the pattern, or remove it")
    _refuse_idle("weights.cast.keep", cast.keep, written)
    return {name: _cast(name, entry.dtype, cast) for name, entry in written.items()}


def _cast(name: str, dtype: str, cast: Cast) -> tuple[str, str]:
    kept_by = next((pattern for pattern in cast.keep if fnmatchcase(name, pattern)), None)
    allowed_by = next((pattern for pattern in cast.allow if fnmatchcase(name, pattern)), None)
    if allowed_by is None:
        return dtype, ""
    if dtype not in FLOATING:
        return dtype, "not a floating tensor: never cast"
    if kept_by is not None:
        return dtype, f"weights.cast.keep: {kept_by}"
    return CAST_TO[cast.dtype], f"weights.cast.allow: {allowed_by}"


def _planned(name: str, entry: StoredTensor, cast: tuple[str, str], targets: Mapping[str, str]) -> PlannedTensor:
    to_dtype, why = cast
    return PlannedTensor(
        source=entry.name,
        target=targets[entry.name],
        from_dtype=entry.dtype,
        to_dtype=to_dtype,
        shape=entry.shape,
        reason="; ".join(filter(None, (why, _renaming(entry.name, name)))),
    )


def _renaming(source: str, target: str) -> str:
    if source == target:
        return ""
    return "wrapper parts taken away" if bare(source) == target else "renamed"


def _written(one: PlannedTensor, error: CastError | None) -> Transform:
    return Transform(
        source=one.source,
        action=Action.CAST if one.cast else Action.KEPT,
        target=one.target,
        from_dtype=one.from_dtype,
        to_dtype=one.to_dtype,
        max_abs_error=error.max_abs if error else None,
        max_rel_error=error.max_rel if error else None,
        reason=one.reason,
    )


def _raise_first(faults: Iterator[tuple[str, str]]) -> None:
    """Raise with every fault named, and the remedy of the first."""
    found = list(faults)
    if found:
        raise ConfigInvalid("; ".join(fault for fault, _ in found[:5]), hint=found[0][1])
