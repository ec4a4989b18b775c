"""A rehearsal for the demonstration's trainer: fresh objects, load, the next batch, one update.

`ckptier rehearse` calls ``rehearse`` in a process of its own.  What it returns is compared with what
it returned the last time for the same generation, so everything in it has to follow from the
restored state alone: no time, no path, no number drawn from an unseeded source.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from replicate.demo.training import Training, TrainingConfig, build
from replicate.integrations.torch import TrainingState, restore


def rehearse(directory: Path) -> dict[str, Any]:
    """Make the update that a restart from the restored files would make first."""
    training = build(TrainingConfig())
    payload = torch.load(directory / "payload.pt", weights_only=True, map_location="cpu")
    state = TrainingState(
        model=training.model,
        optimizer=training.optimizer,
        scheduler=training.schedule,
        generators={"noise": training.noise},
        next_update=0,
        extra={"loss": ""},
    )
    restored = restore(state, payload)
    training.next_update, training.tokens_seen = restored.next_update, restored.tokens_seen or 0
    seen = {
        "contract": training.contract,
        "weights": digest(training),
        "rng": training.rng_digest(),
        "clocks": {"next_update": training.next_update, "tokens_seen": training.tokens_seen},
    }
    step = training.step()
    return {
        **seen,
        "batch": step.batch,
        "lr": step.learning_rate,
        "loss": step.loss,
        "updated_weights": digest(training),
    }


def digest(training: Training) -> str:
    """Name the weights and buffers by their bytes."""
    found = hashlib.sha256()
    for name, value in training.model.state_dict().items():
        found.update(name.encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()
