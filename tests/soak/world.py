"""The run that a soak works on: one place, the machine that trains now, and what was ever saved."""

import itertools
import random
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from flows.machines import RUN, Machine, Place
from soak.invariants import Auditor, Live, demand
from soak.verdicts import HarnessError

from replicate.engine import Replicator
from replicate.errors import NothingFound
from replicate.layout import GenerationId
from replicate.outcomes import ReplicateReport
from replicate.restore import RestoreReport, RestoreRequest
from tiers.bodies import BytesBody
from tiers.clock import Clock, SystemClock
from tiers.metered import Meter
from tiers.opening import TierSpec
from tiers.protocol import Key, Tier, walk

Hook = Callable[[Tier], Tier]
KEEP = 3
ALIEN = "not-ours/keep.bin"
"""Lies beside the run; nothing of ours may touch it."""


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass(slots=True)
class World:
    """One place and its run.  ``saved_here``: what the present machine's store was given."""

    place: Place
    folder: Path
    random: random.Random
    auditor: Auditor = field(default_factory=lambda: Auditor(str(RUN)))
    live: dict[str, Live] = field(default_factory=dict)
    saved_here: set[str] = field(default_factory=set)
    rounds: int = 0
    update: int = 0
    saved_bytes: int = 0
    _names: "itertools.count[int]" = field(default_factory=itertools.count)
    _machine: Machine | None = None

    @property
    def name(self) -> str:
        """The kind of place."""
        return self.place.name

    @property
    def machine(self) -> Machine:
        """The machine that trains now."""
        if self._machine is None:
            self._machine = self.new_machine()
        return self._machine

    def new_machine(self) -> Machine:
        """Return one with an empty disk."""
        folder = self.folder / f"machine-{next(self._names)}"
        folder.mkdir()
        return Machine(folder, (self.place,))

    def move_to(self, machine: Machine) -> Machine:
        """Let another machine go on; returns the one that trained until now."""
        before, self._machine = self.machine, machine
        self.saved_here = {str(one.id) for one in machine.store.generations()}
        return before

    def save(self, machine: Machine | None = None) -> GenerationId:
        """Publish a generation with bytes that no other has."""
        self.update += self.random.randint(1, 50)
        files = self._files()
        made = (machine or self.machine).publish(self.update, files)
        self.auditor.published[str(made)] = files
        if machine is None or machine == self._machine:
            self.saved_here.add(str(made))
        self.saved_bytes += sum(map(len, files.values()))
        return made

    def _files(self) -> dict[str, bytes]:
        files = {
            "model.bin": self.random.randbytes(self.random.randint(1, 20_000)),
            "optim/state.bin": self.random.randbytes(self.random.randint(0, 3_000)),
        }
        if self.random.random() < 0.5:
            files["optim/deep/er/empty"] = b""
        return files

    def engine(
        self, hook: Hook | None = None, clock: Clock | None = None, machine: Machine | None = None
    ) -> Replicator:
        """Return the verbs of a machine, through a hook of this call's own."""

        def opener(spec: TierSpec, at: Clock, meter: Meter, stop: threading.Event) -> Tier:
            # The clock of a store is its own; only the machine's is wrong.
            mine = replace(self.place, hook=hook) if hook is not None else self.place
            return mine.open(spec, at, meter, stop)

        return Replicator((machine or self.machine).config, clock=clock or SystemClock(), opener=opener)

    def replicate(self, hook: Hook | None = None, clock: Clock | None = None) -> ReplicateReport:
        """Replicate from the present machine."""
        return self.engine(hook, clock).replicate_once()

    def stored(self) -> dict[str, bytes]:
        """Return everything that lies at the place."""
        with self.place.raw() as tier:
            found = {}
            for info in walk(tier, ""):
                with tier.open(info.key) as stream:
                    found[str(info.key)] = stream.read()
            return found

    def audit(self) -> None:
        """Check everything that can be seen now."""
        stored = self.stored()
        demand(stored.pop(ALIEN, None) == b"alien", f"I9: {ALIEN} was touched")
        self.live = self.auditor.audit(stored)
        tracker = self.machine.config.local.root / "tracker.sqlite"
        for generation in self.auditor.check_tracker(tracker, self.place.name):
            self.auditor.acknowledge(generation)
        with suppress(NothingFound):
            present = {str(one.id) for one in self.machine.store.generations()}
            self.auditor.check_local(present, self.saved_here)

    def recover(self) -> None:
        """Let the present machine finish without any fault: all that it saved, and retention keeps, is committed."""
        report = self.replicate()
        demand(report.exit_code == 0, f"recovery ends with {report.exit_code}: {report.results}")
        self.audit()
        newest = max(str(one.id) for one in self.machine.store.generations())
        demand(newest in self.live, f"{newest} is the newest of the store and was not committed")

    def restore_elsewhere(self, hook: Hook | None = None, **request: object) -> RestoreReport:
        """Restore into a folder of a machine that has nothing, and compare with what was saved."""
        guest = self.new_machine()
        target = guest.folder / "restored"
        try:
            asked = RestoreRequest(to=target, **request)  # type: ignore[arg-type]
            report = self.engine(hook, machine=guest).restore(asked)
            demand(report.generation is not None, "nothing was restored")
            expected = self.auditor.published[str(report.generation)]
            demand(read_tree(target) == dict(expected), f"I11: {report.generation} was restored with other bytes")
            self.auditor.checks["I11"] += 1
            return report
        finally:
            shutil.rmtree(guest.folder)

    def newest(self) -> str:
        """Return the newest committed generation."""
        return max(self.live)


def begin(place: Place, folder: Path, seed: int) -> World:
    """Return a world with one committed generation, and something that is none of ours beside it."""
    world = World(place, folder, random.Random(seed))
    with place.raw() as tier:
        tier.put(Key(ALIEN), BytesBody(b"alien"))
    world.save()
    try:
        world.recover()
    except AssertionError:
        raise
    except Exception as error:
        raise HarnessError(f"{place.name} cannot be used at all: {error}") from error
    return world


def settings_of(machine: Machine) -> Path:
    """Write the machine's ckptier.toml, for a process of its own."""
    (place,) = machine.places
    values: Mapping[str, object] = {
        key: value
        for key, value in place.settings.model_dump(exclude_defaults=True).items()
        if isinstance(value, (str, int, float, bool))
    }
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    text = "\n".join([f'run = "{RUN}"', 'store = "runs"', "hash_workers = 1", "nice = 0", "[[tier]]", *lines])
    path = machine.folder / "ckptier.toml"
    path.write_text(text + "\n")
    return path


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
