"""Writers that meet at a chosen request, and what is told of one that has to stay out."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from flows.machines import REMOTE, Machine, Place

from replicate.errors import ExitCode
from replicate.log import Claim, Entry
from replicate.logbook import Logbook
from replicate.outcomes import TierResult
from tiers.bodies import Body
from tiers.clock import SystemClock
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload, walk
from tiers.testing.passthrough import PassThroughTier

LIMIT = 60.0
RESTARTS = 5
"""How often a service manager starts a daemon again that was told to stay out."""


class SkewedClock(SystemClock):
    """A machine whose wall clock is wrong by so many hours."""

    def __init__(self, hours: float) -> None:
        self._skew = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._skew


class Meeting(PassThroughTier):
    """Holds a create of a key until everybody has come to theirs, once."""

    def __init__(self, inner: Tier, key: str, barrier: threading.Barrier, came: list[str]) -> None:
        super().__init__(inner)
        self.key, self.barrier, self.came = key, barrier, came
        self._met = False

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        if key == self.key and not self._met:
            self._met = True
            self.came.append(self.key)
            self.barrier.wait()
        return self.inner.create(key, data)


class Stall(PassThroughTier):
    """Before the create of a key, once: ``act``, as if this process had stood still meanwhile."""

    def __init__(self, inner: Tier, key: str, act: Callable[[], object], came: list[str]) -> None:
        super().__init__(inner)
        self.key, self.act, self.came = key, act, came

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        if key == self.key and not self.came:
            self.came.append(key)
            self.act()
        return self.inner.create(key, data)


class Writes(PassThroughTier):
    """Notes every request that could change anything."""

    def __init__(self, inner: Tier, seen: list[str]) -> None:
        super().__init__(inner)
        self.seen = seen

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self.seen.append(f"put {key}")
        return self.inner.put(key, body)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        self.seen.append(f"create {key}")
        return self.inner.create(key, data)

    def delete(self, key: Key) -> None:
        self.seen.append(f"delete {key}")
        self.inner.delete(key)

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        self.seen.append(f"begin {key}")
        return self.inner.begin_upload(key, size=size, part_size=part_size)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        self.seen.append(f"complete {upload.key}")
        return self.inner.complete(upload, parts)


def hooked(place: Place, hook: Callable[[Tier], Tier]) -> Place:
    """Return the same place, reached by another machine in its own way."""
    return Place(place.settings, hook=hook)


def via(machine: Machine, hook: Callable[[Tier], Tier]) -> Machine:
    """Return the machine with a hook before its only place."""
    (place,) = machine.places
    return Machine(machine.folder, (hooked(place, hook),))


def outcome(machine: Machine) -> TierResult:
    """Replicate once; returns what became of the only tier."""
    (result,) = machine.replicate().results
    return result


def code(result: TierResult) -> ExitCode:
    return result.failure.exit_code if result.failure is not None else ExitCode.OK


def check_stays_out(machine: Machine) -> None:
    """Restart a fenced writer as a service manager does: exit 7 each time, and nothing is ever written."""
    seen: list[str] = []
    fenced = via(machine, lambda tier: Writes(tier, seen))
    for _ in range(RESTARTS):
        result = outcome(fenced)
        assert code(result) is ExitCode.FENCED, result
    assert seen == [], "it claims again by itself"


def digests(place: Place, *, under: str = "") -> dict[str, str]:
    """Return the digest of every key of the run but the hint."""
    found = {}
    with place.raw() as tier:
        for info in walk(tier, f"{REMOTE.run}/{under}"):
            if info.key != REMOTE.head:
                with tier.open(info.key) as stream:
                    found[str(info.key)] = hashlib.sha256(stream.read()).hexdigest()
    return found


def entries(place: Place) -> list[Entry]:
    """Read the whole log, which has to be one chain without a refused entry."""
    with place.raw() as tier:
        book = Logbook(tier, REMOTE)
        view = book.read(thorough=True)
        assert not view.damaged
        assert not view.refused
        return [book.entry(slot)[0] for slot in range(view.next_slot)]


def claims(place: Place) -> list[tuple[int, int]]:
    """Return term and attempt of each claim."""
    return [(entry.term, entry.attempt) for entry in entries(place) if isinstance(entry.body, Claim)]
