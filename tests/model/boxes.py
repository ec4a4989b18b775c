"""One machine of the model: a disk, a clock that may be wrong, an open session, and the seam it can be killed at."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

from model.chronicle import Chronicle

from replicate import RunStore
from replicate.clearing import Clearing
from replicate.commit import Replication
from replicate.config import Config, TierConfig
from replicate.generation import locks
from replicate.layout import LocalRun, RemoteRun, run_name
from replicate.restore import RestoreOptions, RestoreReport, RestoreRequest, restore
from replicate.reuse import Least
from replicate.session import Session
from tiers.clock import Clock
from tiers.effects import Effect, Moment, observing
from tiers.metered import Meter, MeteredTier
from tiers.opening import TierSpec
from tiers.protocol import Tier
from tiers.testing import Fault, FaultyTier, ManualClock

RUN = run_name("model")
REMOTE = RemoteRun(RUN)
DELAY = 3600.0
KEEP = 2
"""What the tier ``near`` keeps, and the least that it keeps."""


class Killed(BaseException):
    """The process is no more: raised at the fatal effect, and at every one that follows."""


class JumpingClock(ManualClock):
    """A machine's clock: wall time may jump, what it measures does not."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)


@dataclass
class Fall:
    """Kills at the n-th announced effect, and from then on lets nothing reach a disk or a tier any more."""

    at: int
    count: int = 0

    @property
    def fallen(self) -> bool:
        return self.count >= self.at

    def __call__(self, _effect: Effect, what: str, _moment: Moment) -> None:
        self.count += 1
        if self.fallen:
            raise Killed(what)


@dataclass
class Pause:
    """Runs something else at the n-th remote request, before or after it: the process was stopped there."""

    at: int
    when: Moment
    act: Callable[[], None]
    count: int = 0

    @property
    def happened(self) -> bool:
        return self.count >= self.at

    def __call__(self, effect: Effect, _what: str, moment: Moment) -> None:
        if effect is Effect.REMOTE and moment is self.when:
            self.count += 1
            if self.count == self.at:
                with observing(lambda _effect, _what, _moment: None):
                    self.act()


class ReusingSession(Session):
    """Every leaf is worth a copy here, however small."""

    def _replication(self, name: str) -> Replication:
        replication = super()._replication(name)
        replication.stock.least = Least(part=1, alone=1)
        return replication


@dataclass
class Box:
    """One machine."""

    name: str
    folder: Path
    chronicles: Sequence[Chronicle]
    clock: JumpingClock = field(default_factory=JumpingClock)
    open_session: Session | None = None
    weather: dict[str, FaultyTier] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    faults_fired: int = 0

    @property
    def config(self) -> Config:
        near, far = (TierConfig(name=one.name, url=f"memory://{one.name}", connections=1) for one in self.chronicles)
        near = near.model_copy(update={"keep_last": KEEP, "min_generations": KEEP, "retire_delay_seconds": DELAY})
        far = far.model_copy(update={"part_size": 64})  # smaller than any configuration may say: large files, in small
        return Config(
            run=RUN,
            store="runs",
            keep_last=3,
            backlog=1000,
            hash_workers=1,
            tier=(near, far),
            source=self.folder / "ckptier.toml",
        )

    @property
    def local(self) -> LocalRun:
        return LocalRun(self.folder / "runs" / RUN)

    @property
    def store(self) -> RunStore:
        return RunStore(self.local.root, clock=self.clock, hash_workers=1)

    def session(self) -> Session:
        """Return the process that replicates here, starting one where none runs."""
        if self.open_session is None:
            self.weather.clear()
            self.open_session = ReusingSession(self.config, clock=self.clock, stop=Event(), opener=self.opener)
            self.open_session.tracker._connection.execute("PRAGMA synchronous=OFF")  # no power fails here
        return self.open_session

    def opener(self, spec: TierSpec, _clock: Clock, meter: Meter, _stop: Event) -> Tier:
        return self._tier(spec.name, meter)

    def _tier(self, name: str, meter: Meter) -> Tier:
        (chronicle,) = (one for one in self.chronicles if one.name == name)
        faulty = self.weather[name] = FaultyTier(chronicle.tier(self.name), ())
        return MeteredTier(faulty, meter)

    def stop(self) -> None:
        """End the process in order."""
        session, self.open_session = self.open_session, None
        if session is not None:
            session.close()

    def forget(self) -> None:
        """Lose the tracker."""
        self.stop()
        for path in self.local.root.glob("tracker.sqlite*"):
            path.unlink()
        self.seen.clear()

    def become_a_copy_of(self, other: "Box", *, with_tracker: bool) -> None:
        """Go on from a copy of another machine's disk."""
        self.stop()
        if other.open_session is not None:
            other.stop()
        shutil.rmtree(self.local.root, ignore_errors=True)
        shutil.copytree(other.local.root, self.local.root)
        self.seen = dict(other.seen)
        if not with_tracker:
            self.forget()

    @contextmanager
    def under(self, faults: Sequence[Fault], name: str) -> Iterator[None]:
        """Let one tier have a bad day while the block runs; counts what happened."""
        faulty = self.weather.get(name)
        if faulty is None:
            yield
            return
        before = len(faulty.fired)
        faulty.schedule = tuple(faults)
        faulty._seen = [0] * len(faults)
        try:
            yield
        finally:
            faulty.schedule, faulty._seen = (), []
            self.faults_fired += len(faulty.fired) - before

    def restore(self, request: RestoreRequest, faults: Sequence[Fault] = ()) -> RestoreReport:
        """Restore as a process of its own does; ``faults`` are those of the first tier."""
        tiers = [MeteredTier(FaultyTier(one.tier(self.name), ()), Meter()) for one in self.chronicles]
        if faults:
            tiers[0] = MeteredTier(faulty := FaultyTier(self.chronicles[0].tier(self.name), faults), Meter())
        try:
            options = RestoreOptions(workers=1, buffer_bytes=64, margin=0)
            return restore(request, tiers, self.local, self.clock, remote=REMOTE, options=options)
        finally:
            if faults:
                self.faults_fired += len(faulty.fired)

    @property
    def clearing(self) -> Clearing:
        return Clearing(self.config, clock=self.clock, opener=self.opener)

    def given_up(self, tier: str) -> frozenset[str]:
        """Return the prefixes that the tracker says were abandoned."""
        if self.open_session is None:
            return frozenset()
        return frozenset(one.prefix for one in self.open_session.tracker.abandoned(tier))

    def die(self, act: Callable[[], object], at: int) -> bool:
        """Do something and be killed at its n-th effect; True where it came to that.  The process is gone after it."""
        fall = Fall(at)
        before = _descriptors(self.folder)
        with observing(fall):
            try:
                act()
            except Killed:
                assert fall.fallen
        session, self.open_session = self.open_session, None
        if session is not None:
            session.tracker.close()
            session._lock.release()
        for fd in _descriptors(self.folder) - before:
            locks._files.close(fd)  # what a dying process holds is let go
        return fall.fallen


def _descriptors(folder: Path) -> set[int]:
    """Return the descriptors of open files below a folder."""
    found = set()
    for link in list(Path("/proc/self/fd").iterdir()):
        try:
            target = link.readlink()
        except OSError:
            continue  # that of this very listing
        if target.is_relative_to(folder):
            found.add(int(link.name))
    return found
