"""Whole machines for end-to-end tests: a store, its configuration, and tiers that can be watched and hurt."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from replicate import RunStore
from replicate.config import Config, TierConfig
from replicate.engine import Replicator
from replicate.generation.local import LocalGeneration
from replicate.layout import GenerationId, RemoteRun, run_name
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.opening import tier_spec
from replicate.outcomes import ReplicateReport
from replicate.restore import RestoreReport, RestoreRequest
from tiers.clock import Clock, SystemClock
from tiers.metered import Meter, MeteredTier, Usage
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Tier, walk
from tiers.retrying import RetryPolicy

RUN = run_name("flow")
REMOTE = RemoteRun(RUN)
Hook = Callable[[Tier], Tier]


def unchanged(tier: Tier) -> Tier:
    """Do nothing to a tier."""
    return tier


def payload(update: int, size: int = 3000) -> dict[str, bytes]:
    """Return the files of an update: bytes that no other update has."""
    return {
        "model.bin": random.Random(update).randbytes(size),
        "optim/state.bin": random.Random(-update).randbytes(size // 3),
        "meta.json": b'{"update":%d}' % update,
    }


@dataclass(slots=True)
class Place:
    """A remote place, and how it is reached; ``hook`` stands between machines and the tier, above the retry's."""

    settings: TierConfig
    hook: Hook = unchanged
    meter: Meter = field(default_factory=Meter)

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.settings.name

    def open(self, spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        """Open it as a session does, counted once more by this place's own meter."""
        quick = replace(spec, retry=RetryPolicy(attempts=2, base=0.01))
        return open_tier(
            quick, clock=clock, meter=meter, stop=stop, below=lambda tier: self.hook(MeteredTier(tier, self.meter))
        )

    @contextmanager
    def raw(self) -> Iterator[Tier]:
        """Reach it without hook and meter."""
        with closing(open_tier(tier_spec(self.settings), clock=SystemClock())) as tier:
            yield tier

    def stored(self) -> set[str]:
        """Return every key of the run."""
        with self.raw() as tier:
            return {str(info.key) for info in walk(tier, f"{RUN}/")}

    def log(self) -> LogView:
        """Read the log."""
        with self.raw() as tier:
            return Logbook(tier, REMOTE).read()

    def live(self) -> list[GenerationId]:
        """Return what is committed, newest first."""
        return sorted((commit.id for commit in self.log().live), reverse=True)

    def delete(self, key: str) -> None:
        """Remove an object behind everybody's back."""
        with self.raw() as tier:
            found = [info.key for info in walk(tier, f"{RUN}/") if info.key == key]
            assert len(found) == 1, f"{key} is not there"
            tier.delete(found[0])


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of the run: a folder that is its disk, and the places that it knows."""

    folder: Path
    places: Sequence[Place]

    @property
    def config(self) -> Config:
        """What its ckptier.toml says."""
        return Config(
            run=RUN,
            store="runs",
            tier=tuple(place.settings for place in self.places),
            source=self.folder / "ckptier.toml",
        )

    @property
    def store(self) -> RunStore:
        """The store, as a training script opens it."""
        return RunStore(self.config.local.root, hash_workers=1)

    @property
    def engine(self) -> Replicator:
        """The verbs, over hooked and metered tiers."""
        return Replicator(self.config, opener=self._open)

    def _open(self, spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        (place,) = (place for place in self.places if place.name == spec.name)
        return place.open(spec, clock, meter, stop)

    def publish(
        self, update: int, files: Mapping[str, bytes] | None = None, folders: Sequence[str] = ()
    ) -> GenerationId:
        """Publish a generation."""
        publication = self.store.publish(next_update=update)
        with publication as directory:
            for folder in folders:
                (directory / folder).mkdir(parents=True)
            for path, data in (payload(update) if files is None else files).items():
                (directory / path).parent.mkdir(parents=True, exist_ok=True)
                (directory / path).write_bytes(data)
        assert publication.generation is not None
        return publication.generation.id

    def replicate(self) -> ReplicateReport:
        """Replicate once."""
        return self.engine.replicate_once()

    def push(self, *updates: int) -> list[GenerationId]:
        """Publish and replicate, which has to succeed everywhere."""
        made = [self.publish(update) for update in updates]
        assert self.replicate().exit_code == 0
        return made

    def restore(self, **request: object) -> RestoreReport:
        """Restore with the given request fields."""
        return self.engine.restore(RestoreRequest(**request))  # type: ignore[arg-type]

    def resumed(self) -> LocalGeneration:
        """Return what training would go on from."""
        return self.store.resume()


def spent(place: Place, work: Callable[[], object]) -> Usage:
    """Return what some work asked of a place."""
    before = place.meter.snapshot()
    work()
    return place.meter.snapshot() - before
