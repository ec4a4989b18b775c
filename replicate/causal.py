"""The order in which a training state comes about, and what two of them differ in.

A difference further up explains those below it: other weights give another loss, another
learning rate gives other updated weights.  So the first one that is unequal is the one to look at.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """What is compared, in causal order; what has no place in it comes last."""

    CONTRACT = "contract"
    ENVIRONMENT = "environment"
    WEIGHTS = "weights and buffers"
    OPTIMIZER = "optimizer state"
    RNG = "random draws"
    BATCH = "next batch"
    CLOCKS = "clocks"
    RATE = "learning rate"
    LOSS = "loss"
    GRADIENTS = "gradients"
    UPDATED = "updated weights"
    OTHER = "other"


ORDER = {stage: number for number, stage in enumerate(Stage)}
_WORDS = {
    Stage.CONTRACT: ("contract", "config", "tokenizer", "data", "code"),
    Stage.ENVIRONMENT: ("environment",),
    Stage.WEIGHTS: ("weights", "buffers", "model", "module", "parameters", "ema"),
    Stage.OPTIMIZER: ("optimizer", "optim", "moments", "scaler"),
    Stage.RNG: ("rng", "random", "draws", "generators"),
    Stage.BATCH: ("batch", "sampler", "dataloader"),
    Stage.CLOCKS: ("clocks", "clock", "next", "tokens", "update", "step", "epoch"),
    Stage.RATE: ("lr", "rate", "learning", "schedule", "scheduler"),
    Stage.LOSS: ("loss",),
    Stage.GRADIENTS: ("gradients", "gradient", "grad", "grads"),
    Stage.UPDATED: ("updated", "after"),
}
_STAGES = {word: stage for stage, words in _WORDS.items() for word in words}
_FIRST_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One thing that was compared; ``detail`` says how it differs, or is empty."""

    stage: Stage
    name: str
    equal: bool
    detail: str = ""


def stage_of(name: str) -> Stage:
    """Tell where a name belongs by its first word that says it: ``weights.head``, ``next_update``, ``extra.loss``."""
    words = (_FIRST_WORD.match(part) for part in name.lower().split("."))
    return next((_STAGES[word[0]] for word in words if word and word[0] in _STAGES), Stage.OTHER)


def in_order(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Sort by stage; within one the order stays."""
    return tuple(sorted(comparisons, key=lambda one: ORDER[one.stage]))


def first_difference(comparisons: Iterable[Comparison]) -> Comparison | None:
    """Return the difference that explains the others, or None where all is equal."""
    return next((one for one in comparisons if not one.equal), None)
