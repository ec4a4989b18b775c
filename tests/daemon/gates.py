"""Tiers that hold a request until a test lets it go, or behave in a way that the test chooses."""

import threading
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from tiers.bodies import Body
from tiers.clock import Clock
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore, MemoryTier
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Fencing, Key, ObjectInfo, Tier
from tiers.retrying import RetryPolicy
from tiers.testing.passthrough import PassThroughTier

LIMIT = 30.0
Opener = Callable[[TierSpec, Clock, Meter, threading.Event], Tier]


class Gate:
    """``reached`` is set once a put of a matching key arrives; it goes on when ``opened`` is."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self, key: str) -> None:
        if fnmatchcase(key, self.key):
            self.reached.set()
            assert self.opened.wait(LIMIT), "the test never opened the gate"


class GatedTier(PassThroughTier):
    """A tier with a gate before its puts."""

    def __init__(self, inner: Tier, gate: Gate) -> None:
        super().__init__(inner)
        self.gate = gate

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self.gate.pass_through(key)
        return self.inner.put(key, body)


def gated(gate: Gate) -> Opener:
    """Return an opener of whatever is configured, behind the gate."""

    def opener(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        return open_tier(spec, clock=clock, meter=meter, stop=stop, below=lambda tier: GatedTier(tier, gate))

    return opener


def impatient(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
    """Open a tier without a second try."""
    hasty = TierSpec(name=spec.name, url=spec.url, connections=spec.connections, retry=RetryPolicy(attempts=1))
    return open_tier(hasty, clock=clock, meter=meter, stop=stop)


def advisory(store: MemoryStore, closed: list[str]) -> Opener:
    """Return an opener of tiers that cannot keep two writers apart; ``closed`` tells which were closed."""

    class AdvisoryTier(PassThroughTier):
        def close(self) -> None:
            closed.append(self.name)

    can = replace(MEMORY_CAPABILITIES, fencing=Fencing.ADVISORY)
    return lambda spec, _clock, _meter, _stop: AdvisoryTier(MemoryTier(spec.name, store, capabilities=can))
