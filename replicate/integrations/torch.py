"""Capture and restore everything that the next update of a torch training depends on.

    training = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler,
                             generators={"loader": rng}, next_update=500)
    publish(store, training, contract=contract)
    ...
    training = TrainingState(model=model, ...)           # fresh objects, built first
    clocks = restore(training, load(store.resume(contract=contract)))

The payload is ``payload.pt`` and loads with ``weights_only=True``: NumPy states are
stored as plain lists and integers.  Sources of randomness are restored last, because
building objects draws from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from replicate import canonical
from replicate.digests import digest_file
from replicate.errors import CapabilityMissing, IntegrityFailure, UsageError
from replicate.generation.local import LocalGeneration
from replicate.generation.store import RunStore
from replicate.generation.validate import PAYLOAD
from replicate.integrations import randomness

FORMAT = 1


@runtime_checkable
class Stateful(Protocol):
    """What has a state to be saved: modules, optimizers, schedules, scalers, samplers."""

    def state_dict(self) -> Any:
        """Return the state."""
        ...

    def load_state_dict(self, state: Any, /) -> Any:
        """Take the state over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """The objects of one training, all of them that are used.

    ``generators`` are named numpy or torch Generators besides the global ones.
    ``sampler`` and each of ``extra`` (EMA, early stopping, best metric …) are objects
    with state_dict, or plain values, which restore hands back.
    """

    model: torch.nn.Module
    optimizer: Stateful
    next_update: int
    tokens_seen: int | None = None
    scheduler: Stateful | None = None
    scaler: Stateful | None = None
    sampler: Any = None
    generators: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The clocks to continue from, and those values that were saved as plain ones."""

    next_update: int
    tokens_seen: int | None
    sampler: Any
    extra: dict[str, Any]


def capture(training: TrainingState) -> dict[str, Any]:
    """Return the whole restart state.  Its tensors are the live ones: save or copy it before the next update."""
    optional = {"scheduler": training.scheduler, "scaler": training.scaler}
    return {
        "format": FORMAT,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        **{name: None if one is None else one.state_dict() for name, one in optional.items()},
        "sampler": _state(training.sampler),
        "extra": {name: _state(one) for name, one in training.extra.items()},
        "rng": randomness.capture(training.generators),
        "next_update": training.next_update,
        "tokens_seen": training.tokens_seen,
    }


def restore(training: TrainingState, payload: Mapping[str, Any]) -> Restored:
    """Load a payload into objects that were built as they were before; returns the clocks.

    Everything is compared first: a component that only one side has, and a changed
    device topology, is an error that names it, and nothing has been loaded then.  The
    clocks of ``training`` are ignored.
    """
    _check(training, payload)
    training.model.load_state_dict(payload["model"])
    training.optimizer.load_state_dict(payload["optimizer"])
    for name in ("scheduler", "scaler"):
        one = getattr(training, name)
        if one is not None:
            one.load_state_dict(payload[name])
    sampler = _load_state(training.sampler, payload["sampler"])
    extra = {name: _load_state(training.extra.get(name), state) for name, state in payload["extra"].items()}
    randomness.restore(payload["rng"], training.generators)
    return Restored(
        next_update=payload["next_update"], tokens_seen=payload["tokens_seen"], sampler=sampler, extra=extra
    )


def _check(training: TrainingState, payload: Mapping[str, Any]) -> None:
    if payload.get("format") != FORMAT:
        raise CapabilityMissing(
            f"the payload has format {payload.get('format')!r}, this version reads {FORMAT}",
            hint="load it with the version of ckptier that wrote it",
        )
    keys = ("model", "optimizer", "scheduler", "scaler", "sampler", "extra", "rng", "next_update", "tokens_seen")
    absent = [key for key in keys if key not in payload]
    if absent:
        raise IntegrityFailure(
            f"missing restart state: {', '.join(absent)}", hint="this is no full state; resume from another generation"
        )
    for name in ("scheduler", "scaler"):
        _check_both(name, given=getattr(training, name) is not None, saved=payload[name] is not None)
    _check_part("sampler", training.sampler, payload["sampler"])
    for name in sorted({*training.extra} | {*payload["extra"]}):
        _check_part(f"extra {name!r}", training.extra.get(name), payload["extra"].get(name, {"value": None}))
    randomness.check(payload["rng"], training.generators)


def _check_part(name: str, one: Any, saved: Mapping[str, Any]) -> None:
    """Compare a part that may be an object with a state or a plain value; only the latter need not be given."""
    stateful = "state_dict" in saved
    if stateful or isinstance(one, Stateful):
        _check_both(name, given=isinstance(one, Stateful), saved=stateful)


def _check_both(name: str, *, given: bool, saved: bool) -> None:
    if given and not saved:
        raise UsageError(
            f"the checkpoint holds no state of the {name}", hint="leave it out, and start it afresh knowingly"
        )
    if saved and not given:
        raise UsageError(
            f"the checkpoint holds the state of the {name}, and none was given",
            hint="build it as before and pass it in TrainingState",
        )


def _state(one: Any) -> Any:
    return {"state_dict": one.state_dict()} if isinstance(one, Stateful) else {"value": one}


def _load_state(one: Any, saved: Any) -> Any:
    if "state_dict" in saved and isinstance(one, Stateful):
        one.load_state_dict(saved["state_dict"])
        return one
    return saved.get("value", saved.get("state_dict"))


def save_payload(directory: Path, state: Mapping[str, Any]) -> Path:
    """Write ``payload.pt`` and make sure of nothing else: sealing flushes and digests it."""
    path = directory / PAYLOAD
    torch.save(dict(state), path)
    return path


def publish(
    store: RunStore,
    training: TrainingState,
    *,
    contract: Mapping[str, str] | None = None,
    background: bool = False,
    **options: Any,
) -> LocalGeneration | None:
    """Publish the whole restart state; returns the generation unless it is sealed later or in the ``background``.

    ``options`` are those of RunStore.publish.
    """
    said = {"contract": contract, "payload": "torch", "tokens_seen": training.tokens_seen, **options}
    if background:
        store.publish_async(capture(training), writer=save_payload, next_update=training.next_update, **said)
        return None
    publication = store.publish(next_update=training.next_update, **said)
    with publication as directory:
        save_payload(directory, capture(training))
    return publication.generation


def load(generation: LocalGeneration) -> dict[str, Any]:
    """Load a generation's payload with ``weights_only=True``, tensors on the CPU; there is no other way to."""
    path = generation.files / PAYLOAD
    try:
        payload = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise IntegrityFailure(
            f"{path} cannot be loaded: {error}",
            hint=f"`ckptier verify` checks it; resume passes over {generation.id} then",
        ) from error
    if not isinstance(payload, dict):
        raise IntegrityFailure(f"{path} holds a {type(payload).__name__}", hint="save it with save_payload")
    return payload


def contract_of(**parts: Any) -> dict[str, str]:
    """Digest what gives the state its meaning: ``contract_of(config={...}, tokenizer=Path("tokenizer.json"))``.

    A Path is digested by its bytes, text and bytes as they are, anything else as
    canonical JSON, in which a float is spelled as Python's repr.
    """
    return {name: _digest(name, part) for name, part in parts.items()}


def _digest(name: str, part: Any) -> str:
    if isinstance(part, Path):
        return digest_file(part, part.stat().st_size).sha256
    if isinstance(part, (bytes, str)):
        return canonical.sha256(part if isinstance(part, bytes) else part.encode())
    try:
        return canonical.sha256(canonical.dump(_spelled(part)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"contract part {name!r}: {error}", hint="pass plain data, text, bytes or a Path") from error


def _spelled(value: Any) -> Any:
    """Replace floats, which have no canonical form, by a spelling that no text has by accident."""
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {key: _spelled(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(inner) for inner in value]
    return value
