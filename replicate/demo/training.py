"""A training run whose every input is accounted for, so that it can be continued bit for bit.

An update is a function of: weights and buffers, AdamW's moments, the schedule, the
position in the data, and four sources of randomness: torch's generator (dropout),
Python's (where a byte is replaced by noise), NumPy's global one (by which byte) and a
named generator of its own (whether at all).
"""

import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from replicate import canonical
from replicate.demo import model as model_source
from replicate.demo.model import ByteTransformer, Corpus, Shape

DRAWS = 8
"""How many numbers of each random source a comparison looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """What defines the run.  ``horizon`` is the length of the schedule in updates."""

    seed: int = 1234
    shape: Shape = field(default_factory=Shape)
    batch: int = 16
    corpus_bytes: int = 1_000_000
    learning_rate: float = 3e-3
    warmup: int = 10
    horizon: int = 400
    noise: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Text and its continuation, (batch, context) each; ``starts`` are offsets into the corpus."""

    inputs: Tensor
    targets: Tensor
    starts: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Name of the batch: which pieces of the corpus, in which order."""
        return canonical.sha256(canonical.dump(list(self.starts)))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one update did.  ``rng`` names the state of every random source after it."""

    update: int
    loss: float
    learning_rate: float
    batch: str
    rng: str


class Training:
    """The live run.  Made by :func:`build`, advanced by :meth:`step`."""

    def __init__(self, config: TrainingConfig, corpus: Corpus) -> None:
        self.config = config
        self.corpus = corpus
        self.model = ByteTransformer(config.shape)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.learning_rate, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, _factor(config))
        self.noise = torch.Generator().manual_seed(config.seed + 1)
        self.next_update = 0
        self.tokens_seen = 0
        self.loss = math.nan
        self._order: tuple[int, Tensor] | None = None

    @property
    def pieces(self) -> int:
        """Number of training examples in the corpus."""
        return (len(self.corpus.text) - 1) // self.config.shape.context

    @property
    def contract(self) -> dict[str, str]:
        """Digests of what gives the state its meaning."""
        sources = [Path(module).read_bytes() for module in (__file__, str(model_source.__file__))]
        return {
            "config": canonical.sha256(canonical.dump(_without_floats(asdict(self.config)))),
            "tokenizer": "bytes-256",
            "data": self.corpus.digest,
            "code": canonical.sha256(b"\0".join(sources)),
        }

    def starts(self, update: int) -> tuple[int, ...]:
        """Return the offsets of an update's examples: a function of seed and position, of nothing else."""
        per_epoch = self.pieces // self.config.batch
        epoch, position = divmod(update, per_epoch)
        if self._order is None or self._order[0] != epoch:
            shuffle = torch.Generator().manual_seed(self.config.seed * 1_000_003 + epoch)
            self._order = epoch, torch.randperm(self.pieces, generator=shuffle)
        chosen = self._order[1][position * self.config.batch : (position + 1) * self.config.batch]
        return tuple(int(index) * self.config.shape.context for index in chosen)

    def next_batch(self) -> Batch:
        """Return the batch of the next update, without noise; asking changes nothing."""
        starts = self.starts(self.next_update)
        length = self.config.shape.context
        rows = torch.stack([self.corpus.text[start : start + length + 1] for start in starts]).long()
        return Batch(inputs=rows[:, :-1].clone(), targets=rows[:, 1:], starts=starts)

    def step(self, before_optimizer: Callable[[], None] | None = None) -> Step:
        """Make one update.  ``before_optimizer`` is called where gradients exist and weights are still old."""
        update = self.next_update
        batch = self.next_batch()
        rate = float(self.schedule.get_last_lr()[0])
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(self._with_noise(batch.inputs))
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        if before_optimizer is not None:
            before_optimizer()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = float(loss.detach())
        self.next_update += 1
        self.tokens_seen += batch.inputs.numel()
        return Step(update=update, loss=self.loss, learning_rate=rate, batch=batch.digest, rng=self.rng_digest())

    def rng_digest(self) -> str:
        """Name the state of every random source; asking changes nothing."""
        return canonical.sha256(canonical.dump(self.draws()))[:16]

    def draws(self) -> dict[str, list[int]]:
        """Return what each random source would yield next; asking changes nothing."""
        python = random.Random()  # noqa: S311 - a copy of the source that training uses
        python.setstate(random.getstate())
        numpy = np.random.RandomState()  # the global source is of this kind
        numpy.set_state(np.random.get_state())  # noqa: NPY002
        return {
            "torch": _torch_draws(torch.get_rng_state()),
            "python": [python.getrandbits(32) for _ in range(DRAWS)],
            "numpy": [int(value) for value in numpy.randint(2**31, size=DRAWS)],
            "noise": _torch_draws(self.noise.get_state()),
        }

    def _with_noise(self, inputs: Tensor) -> Tensor:
        """Replace a byte in some examples, drawing from three sources that have to be restored."""
        chosen = torch.rand(len(inputs), generator=self.noise) < self.config.noise
        for row in torch.nonzero(chosen).flatten().tolist():
            column = random.randrange(inputs.shape[1])  # noqa: S311 - Python's source is used on purpose
            inputs[row, column] = int(np.random.randint(256))  # noqa: NPY002 - and NumPy's global one
        return inputs


def build(config: TrainingConfig, corpus: Corpus | None = None) -> Training:
    """Seed every source, then construct fresh objects.  A resume restores into what this returns."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    random.seed(config.seed)
    np.random.seed(config.seed)  # noqa: NPY002 - the global source is restart state too
    torch.manual_seed(config.seed)
    return Training(config, corpus or Corpus.of_standard_library(config.corpus_bytes))


def _factor(config: TrainingConfig) -> Callable[[int], float]:
    """Linear warmup, then a cosine down to a tenth."""

    def factor(update: int) -> float:
        if update < config.warmup:
            return (update + 1) / config.warmup
        progress = min(1.0, (update - config.warmup) / max(1, config.horizon - config.warmup))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))

    return factor


def _torch_draws(state: Tensor) -> list[int]:
    generator = torch.Generator()
    generator.set_state(state)
    return torch.randint(2**31, (DRAWS,), generator=generator).tolist()


def _without_floats(value: Any) -> Any:
    """Spell floats out in hex: canonical JSON has none."""
    if isinstance(value, dict):
        return {key: _without_floats(item) for key, item in value.items()}
    return value.hex() if isinstance(value, float) else value
