"""C26: saves come faster than deletes and uploads end; what training had last is on the tier all the same."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from daemon.stage import LIMIT, Machine, inside, live, publish, until, volume_view

from replicate.errors import ExitCode
from tiers.bodies import Body
from tiers.clock import Clock
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, ObjectInfo, Tier
from tiers.testing.passthrough import PassThroughTier

UPLOAD, DELETE = 0.05, 0.08
"""Seconds that each request takes, in the case's proportion to a save."""
SAVES = 12


class Slow(PassThroughTier):
    """A tier that takes its time; ``deletes`` counts what it was asked to delete."""

    def __init__(self, inner: Tier, clock: Clock, deletes: list[str]) -> None:
        super().__init__(inner)
        self.clock, self.deletes = clock, deletes

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self.clock.wait(UPLOAD)
        return self.inner.put(key, body)

    def delete(self, key: Key) -> None:
        self.deletes.append(str(key))
        self.clock.wait(DELETE)
        self.inner.delete(key)


def slow(deletes: list[str]) -> Callable[[TierSpec, Clock, Meter, threading.Event], Tier]:
    def opener(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        one = replace(spec, connections=1)
        return open_tier(one, clock=clock, meter=meter, stop=stop, below=lambda tier: Slow(tier, clock, deletes))

    return opener


def test_c26_the_last_generation_is_committed_however_slow_deletes_are(tmp_path: Path) -> None:
    """Some in between are skipped as the backlog says, and counted; that something waits can be seen meanwhile."""
    machine, deletes = Machine(tmp_path / "machine"), list[str]()
    volume = {**machine.volume(), "keep_last": 1, "retire_delay_seconds": 0, "mode": "rename"}
    machine.configure(volume, poll_seconds=0.02, backlog=2)
    behind = 0
    with inside(machine, opener=slow(deletes)) as running:
        newest = ""
        for update in range(1, SAVES + 1):
            newest = publish(machine.root, update, 500)
            tier = machine.tier("vol")
            behind += tier is None or tier.newest is None or tier.newest.generation != newest
        until(lambda: newest in live(volume_view(machine.folder / "vol")), "the last one is committed")
        until(lambda: deletes, "older ones are deleted")
        assert running.drained(LIMIT) is ExitCode.OK
    assert live(volume_view(machine.folder / "vol"))[-1] == newest
    assert behind > 0, "how far the tier is behind is shown"
    tier = machine.tier("vol")
    assert tier is not None
    assert tier.waiting == ()
    assert tier.newest is not None
    assert tier.newest.generation == newest
