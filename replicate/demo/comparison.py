"""Whether two training states are the same, and if not, where they part first.

Comparisons come in causal order: a difference further up explains those below it, so
the first one that is unequal is the one to look at.  Tensors are compared by their bits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from replicate.causal import Comparison, Stage, first_difference
from replicate.comparing.tensors import difference, flat
from replicate.demo.training import Training

__all__ = ["STAGES", "Comparison", "Stage", "State", "compare", "dump", "first_difference", "load", "state_of"]

STAGES = (
    Stage.CONTRACT,
    Stage.WEIGHTS,
    Stage.OPTIMIZER,
    Stage.RNG,
    Stage.BATCH,
    Stage.CLOCKS,
    Stage.RATE,
    Stage.LOSS,
)
"""What a state of the demonstration consists of."""
State = dict[str, Any]
"""What :func:`state_of` returns: plain values and tensors that a restricted load accepts."""


def state_of(training: Training) -> State:
    """Copy everything that decides how training goes on, and name what it would do next.

    Three of the random sources belong to the process: ask before another training is built in it.
    """
    return {
        Stage.CONTRACT.value: training.contract,
        Stage.WEIGHTS.value: {name: value.detach().clone() for name, value in training.model.state_dict().items()},
        Stage.OPTIMIZER.value: {name: _copied(value) for name, value in flat("", training.optimizer.state_dict())},
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
    return [item for stage in STAGES for item in _stage(stage, a[stage.value], b[stage.value])]


def _stage(stage: Stage, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Comparison]:
    for name in (*a, *(name for name in b if name not in a)):
        if name in a and name in b:
            detail = difference(a[name], b[name])
        else:
            detail = f"only in the {'first' if name in a else 'second'}"
        yield Comparison(stage=stage, name=name, equal=not detail, detail=detail)


def _copied(value: Any) -> Any:
    """Return a leaf that goes on standing where training goes on, and that a restricted load accepts."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.hex() if isinstance(value, float) else value
