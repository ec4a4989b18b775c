"""Whether two training states are the same, and if not, where they part first.

Comparisons come in causal order: a difference further up explains those below it, so
the first one that is unequal is the one to look at.  Tensors are compared by their bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from replicate.demo.training import Training

State = dict[str, Any]
"""What :func:`state_of` returns: plain values and tensors that a restricted load accepts."""


class Stage(StrEnum):
    """What is compared, in causal order."""

    CONTRACT = "contract"
    WEIGHTS = "weights and buffers"
    OPTIMIZER = "optimizer state"
    RNG = "random draws"
    BATCH = "next batch"
    CLOCKS = "clocks"
    RATE = "learning rate"
    LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One thing that was compared; ``detail`` says how it differs, or is empty."""

    stage: Stage
    name: str
    equal: bool
    detail: str = ""


def state_of(training: Training) -> State:
    """Copy everything that decides how training goes on, and name what it would do next.

    Three of the random sources belong to the process: ask before another training is built in it.
    """
    return {
        Stage.CONTRACT.value: training.contract,
        Stage.WEIGHTS.value: {name: value.detach().clone() for name, value in training.model.state_dict().items()},
        Stage.OPTIMIZER.value: dict(_flat("", training.optimizer.state_dict())),
        Stage.RNG.value: training.draws(),
        Stage.BATCH.value: {"starts": list(training.next_batch().starts)},
        Stage.CLOCKS.value: {"next_update": training.next_update, "tokens_seen": training.tokens_seen},
        Stage.RATE.value: {"rate": float(training.schedule.get_last_lr()[0]).hex()},
        Stage.LOSS.value: {"last": training.loss.hex()},
    }


def dump(state: State, path: Path) -> None:
    """Write a state for a later comparison, perhaps by another process."""
    torch.save(state, path)


def load(path: Path) -> State:
    """Read what :func:`dump` wrote."""
    return cast("State", torch.load(path, map_location="cpu", weights_only=True))


def compare(a: State, b: State) -> list[Comparison]:
    """Compare two states item by item, in causal order."""
    return [item for stage in Stage for item in _stage(stage, a[stage.value], b[stage.value])]


def first_difference(comparisons: list[Comparison]) -> Comparison | None:
    """Return the difference that explains the others, or None where all is equal."""
    return next((item for item in comparisons if not item.equal), None)


def _stage(stage: Stage, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Comparison]:
    for name in (*a, *(name for name in b if name not in a)):
        if name in a and name in b:
            detail = _difference(a[name], b[name])
        else:
            detail = f"only in the {'first' if name in a else 'second'}"
        yield Comparison(stage=stage, name=name, equal=not detail, detail=detail)


def _difference(a: Any, b: Any) -> str:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _tensor_difference(a, b)
    if isinstance(a, Tensor) or isinstance(b, Tensor) or a != b:
        return f"{_short(a)} against {_short(b)}"
    return ""


def _tensor_difference(a: Tensor, b: Tensor) -> str:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}"
    if torch.equal(_bits(a), _bits(b)):
        return ""
    differing = int((_bits(a).view(a.numel(), -1) != _bits(b).view(b.numel(), -1)).any(dim=1).sum())
    return f"{differing} of {a.numel()} values differ, by up to {float((a.double() - b.double()).abs().max()):.3g}"


def _bits(tensor: Tensor) -> Tensor:
    """View a tensor as bytes: 0.0 and -0.0 are not the same, and a NaN equals itself."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _short(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:60]


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested state under dotted names."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list):
        yield from _flat(prefix, dict(enumerate(value)))
    elif isinstance(value, Tensor):
        yield prefix, value.detach().clone()
    elif isinstance(value, float):
        yield prefix, value.hex()
    else:
        yield prefix, value
