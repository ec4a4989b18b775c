"""A machine whose tier tells the time, and what must be true of retention at every moment."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from core.builders import FIRST, LEAF, REMOTE, LocalSource, Machine, RecordingTier, make_source
from core.checks import check_all

from replicate.layout import GenerationId
from replicate.log import LogState, Pin, Unpin
from replicate.logbook import Logbook
from replicate.prune import Pruner
from replicate.retention import Policy
from replicate.terms import Descent
from tiers.bodies import Body
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, ObjectInfo, ObjectPage, Part, Tier, Upload
from tiers.testing import Fault, ManualClock, PassThroughTier, content

DELAY = 3600.0


class ClockedTier(PassThroughTier):
    """A store with a clock of its own; ``deleted`` are the keys that it was asked to delete, in order."""

    def __init__(self, inner: Tier, clock: ManualClock | None) -> None:
        super().__init__(inner)
        self.clock = clock
        self.times: dict[str, datetime] = {}
        self.deleted: list[str] = []
        self.asked: list[tuple[str, str]] = []

    def put(self, key: Key, body: Body) -> ObjectInfo:
        return self._stamped(self.inner.put(key, body))

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        return self._stamped(self.inner.create(key, data))

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        return self._stamped(self.inner.complete(upload, parts))

    def stat(self, key: Key) -> ObjectInfo:
        self.asked.append(("stat", key))
        return self._told(self.inner.stat(key))

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        self.asked.append(("list_objects", prefix))
        page = self.inner.list_objects(prefix, token)
        return replace(page, objects=tuple(self._told(info) for info in page.objects))

    def delete(self, key: Key) -> None:
        self.deleted.append(key)
        self.inner.delete(key)

    def _stamped(self, info: ObjectInfo) -> ObjectInfo:
        if self.clock is not None:
            self.times[info.key] = self.clock.now()
        return info  # like S3, a write does not say when it was

    def _told(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, modified=self.times.get(info.key))


@dataclass
class Keep:
    """One machine with retention: what it publishes, commits and prunes."""

    machine: Machine
    folder: Path
    clock: ManualClock
    tier: ClockedTier
    policy: Policy
    delay: float = DELAY
    reading: frozenset[GenerationId] = frozenset()
    holds: dict[GenerationId, list[object]] = field(default_factory=dict)
    sources: dict[GenerationId, LocalSource] = field(default_factory=dict)

    @property
    def store(self) -> MemoryStore:
        return self.machine.store

    def pruner(self) -> Pruner:
        """Return what prunes now: after ``restart`` it is another process's."""
        return Pruner(
            log=self.machine.replication.log,
            policy=self.policy,
            delay=self.delay,
            connections=1,
            holds=lambda: dict(self.holds),  # type: ignore[arg-type]
            being_read=lambda: self.reading,
        )

    def publish(
        self, sequence: int, update: int | None = None, *, parent: GenerationId | None = None, descent: Descent = FIRST
    ) -> LocalSource:
        """Seal a generation of two files and commit it."""
        files = {"model.bin": content(3 * LEAF, seed=sequence), "rng.pt": content(9, seed=100 + sequence)}
        made = make_source(self.folder, files, sequence=sequence, next_update=update, parent=parent, descent=descent)
        self.sources[made.id] = made
        self.machine.descent = descent
        self.machine.run(made)
        return made

    def chain(self, count: int, *, first: int = 1, every: int = 100) -> list[GenerationId]:
        """Commit generations that descend from each other."""
        made: list[GenerationId] = []
        for sequence in range(first, first + count):
            parent = max(self.sources, default=None)
            made.append(self.publish(sequence, every * sequence, parent=parent).id)
        return made

    def restart(self, *faults: Fault) -> None:
        """Go on as a new process, which has read the log."""
        self.machine.start(*faults)
        self.machine.replication.log.refresh(self.machine.descent)

    @property
    def state(self) -> LogState:
        """Return the log as somebody new reads it."""
        state = Logbook(MemoryTier("reader", self.store), REMOTE).read().state
        assert state is not None
        return state

    def live(self) -> list[GenerationId]:
        return sorted(commit.id for commit in self.state.live)

    def keys(self, generation: GenerationId) -> list[str]:
        """Return what lies on the tier of a generation."""
        return sorted(key for key in self.store.objects if f"/{generation}.t" in key)

    def retire(self) -> list[GenerationId]:
        return [one.generation for one in self.pruner().retire(self.machine.descent)]

    def check(self) -> None:
        """Check I1 to I8 for everything that is on the tier."""
        check_all(self.store, self.sources, self.machine)


def keep_on(folder: Path, *, policy: Policy, told: bool = True) -> Keep:
    """Return a machine beside an empty tier, which tells the time unless ``told`` is False."""
    machine = Machine(folder / "one", MemoryStore())
    clock = machine.clock
    tier = ClockedTier(MemoryTier("remote", machine.store), clock if told else None)
    machine.recorder = RecordingTier(tier)
    machine.schedule()
    return Keep(machine, folder / "store", clock, tier, policy)


def say(store: MemoryStore, body: Pin | Unpin) -> None:
    """Write a pin as another machine would."""
    from core.intruders import add_entry  # noqa: PLC0415 - typed for what it is used for elsewhere

    add_entry(store, body)  # type: ignore[arg-type]
