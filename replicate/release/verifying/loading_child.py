"""In the child: load a release into its architecture in two ways, run it, and compare what it says.

Structural: tensors of the header parser, assigned to the modules on the meta device, every key
accounted for, ties tied, nothing left on meta.  Second loader: what users call (transformers,
peft, or safetensors' own library for a custom architecture).  Forward: both, and the source where
it is given, on fixed token ids, with one thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.release.bundle import Action, Transform
from replicate.release.verifying.building import library
from replicate.release.verifying.checks import Check, Verdict, judged, listed, not_done, words
from replicate.release.verifying.rawtensors import identical, read_tensors, source_entries
from replicate.release.verifying.routes import AdapterRoute, CustomRoute, FullRoute, Route
from replicate.release.verifying.sandbox import Answer

STRUCTURE, SECOND, FORWARD = "structural-load", "second-loader", "forward-pass"
TOKENS = 12
_TOLERATED = 8
"""Times the machine epsilon of the narrowest dtype of a cast, relative to the greatest logit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What is being loaded: the route for its kind, its raw tensors, and the source's by released names."""

    route: Route
    raw: Mapping[str, Any]
    source: Mapping[str, Any] | None
    casts: tuple[str, ...]


def run(arguments: dict[str, Any]) -> Answer:
    """Do the three checks; a check that needs one that failed is not done."""
    torch = library("torch")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    loading = _loading(arguments)
    checks: list[Check] = []
    for name, step in ((STRUCTURE, _structure), (SECOND, _second), (FORWARD, _forward)):
        broken = next((check.name for check in checks if check.verdict is not Verdict.PASSED), None)
        if broken:
            checks.append(not_done(name, f"not reached: {broken} did not pass"))
        else:
            checks.append(_checked(name, step, loading))
    return Answer(checks=tuple(checks))


def _checked(name: str, step: Callable[[Loading], str], loading: Loading) -> Check:
    try:
        return judged(name, (), step(loading))
    except CapabilityMissing as error:
        return not_done(name, f"{error.message}: {error.hint}")
    except IntegrityFailure as error:
        return judged(name, [error.message], "")
    except Exception as error:  # noqa: BLE001 - whatever a release provokes is the finding
        return judged(name, [words(error)], "")


def _loading(arguments: dict[str, Any]) -> Loading:
    raw = read_tensors(Path(arguments["tree"]), arguments["files"])
    transforms = [Transform.model_validate(one, strict=False) for one in arguments["transforms"]]
    casts = tuple(sorted({one.to_dtype for one in transforms if one.action is Action.CAST and one.to_dtype}))
    source = _renamed(arguments["source"], transforms) if arguments.get("source") else None
    kinds: dict[str, type[Route]] = {"full": FullRoute, "adapter": AdapterRoute, "custom": CustomRoute}
    return Loading(route=kinds[arguments["kind"]](arguments), raw=raw, source=source, casts=casts)


def _renamed(source: Mapping[str, Any], transforms: list[Transform]) -> dict[str, Any]:
    """Give the source's tensors the names of the release: the only thing that is taken from the record."""
    entries = source_entries(source)
    return {
        one.target: entries[one.source]
        for one in transforms
        if one.action in (Action.KEPT, Action.CAST) and one.target and one.source in entries
    }


def _structure(loading: Loading) -> str:
    names = frozenset(loading.raw)
    expected = loading.route.expected(names)
    faults = [f"the architecture needs {name}" for name in expected.missing(names)]
    faults += [f"the architecture has no {name}" for name in expected.unknown(names)]
    for name in sorted(names & set(expected.shapes)):
        shape = tuple(loading.raw[name].shape)
        if shape != expected.shapes[name]:
            faults.append(f"{name} has shape {list(shape)}, the architecture {list(expected.shapes[name])}")
    for keep, dropped in expected.tied:
        faults += [
            f"{name} and {keep} are tied in the architecture, and differ in the release"
            for name in dropped
            if name in loading.raw and keep in loading.raw and not identical(loading.raw[name], loading.raw[keep])
        ]
    if faults:
        raise IntegrityFailure(f"{listed(faults)}")
    left = loading.route.assigned_on_meta(loading.raw)
    if left:
        raise IntegrityFailure(f"still without data after loading and tying: {listed(left)}")
    tied = sum(len(dropped) for _, dropped in expected.tied)
    return f"{len(names)} tensors fill the architecture, {tied} names tied again, none left on meta"


def _second(loading: Loading) -> str:
    model, state = loading.route.second()
    loading.route.keep(model)
    missing, unknown = set(loading.raw) - set(state), set(state) - set(loading.raw)
    droppable = loading.route.expected(frozenset(loading.raw)).droppable
    faults = [f"{name} was not loaded" for name in sorted(missing)]
    faults += [f"{name} appeared in loading" for name in sorted(unknown - droppable)]
    for name in sorted(set(loading.raw) & set(state)):
        raw, loaded = loading.raw[name], state[name]
        if loaded.dtype != raw.dtype and raw.dtype.is_floating_point:
            raw = raw.to(loaded.dtype)
        if not identical(raw, loaded.detach()):
            faults.append(f"{name} is not what the file holds")
    if faults:
        raise IntegrityFailure(listed(faults))
    return f"{loading.route.loader} loads all {len(loading.raw)} tensors as they are in the files"


def _forward(loading: Loading) -> str:
    torch = library("torch")
    route = loading.route
    ids = route.token_ids(TOKENS)
    said = _logits(route.kept(), ids)
    if not bool(torch.isfinite(said).all()):
        raise IntegrityFailure("the logits of the second loader are not all finite")
    ours = _logits(route.filled(loading.raw, like=route.kept()), ids)
    _agree("the header parser", ours, said, 0.0)
    if loading.source is None:
        return f"two loaders agree exactly on {ids.shape[1]} token ids; the source was not given"
    if not loading.casts:
        theirs = _logits(route.filled(loading.source, like=route.kept()), ids)
        _agree("the source", theirs, said, 0.0)
        return f"logits on {ids.shape[1]} token ids equal those of the source exactly (nothing was cast)"
    return _within_tolerance(loading, ids)


def _within_tolerance(loading: Loading, ids: Any) -> str:
    """Compare in the source's precision, so that only the rounding of the weights remains."""
    torch = library("torch")
    route, source = loading.route, loading.source or {}
    wide = max((one.dtype for one in source.values() if one.dtype.is_floating_point), key=lambda dtype: dtype.itemsize)
    theirs = _logits(route.filled(source, like=wide), ids)
    ours = _logits(route.filled(loading.raw, like=wide), ids)
    narrow = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
    epsilon = max(torch.finfo(narrow[name]).eps for name in loading.casts)
    tolerance = _TOLERATED * epsilon * float(theirs.abs().max())
    difference = _agree("the source", theirs, ours, tolerance)
    return (
        f"logits on {ids.shape[1]} token ids differ from those of the source by at most {difference:.3g}, "
        f"allowed {tolerance:.3g} ({_TOLERATED} times the epsilon of {'/'.join(loading.casts)}, times the greatest)"
    )


def _logits(model: Any, ids: Any) -> Any:
    torch = library("torch")
    model.eval()
    with torch.no_grad():
        said = model(ids)
    logits = said if isinstance(said, torch.Tensor) else getattr(said, "logits", None)
    if not isinstance(logits, torch.Tensor):
        raise IntegrityFailure(f"the forward pass returned a {type(said).__name__} without logits")
    return logits.double()


def _agree(whose: str, one: Any, other: Any, tolerance: float) -> float:
    if one.shape != other.shape:
        raise IntegrityFailure(f"logits have shape {list(other.shape)}, those of {whose} {list(one.shape)}")
    difference = float((one - other).abs().max())
    if not difference <= tolerance:  # NaN does not agree
        raise IntegrityFailure(
            f"logits differ from those of {whose} by up to {difference:.6g}, allowed {tolerance:.3g}"
        )
    return difference
