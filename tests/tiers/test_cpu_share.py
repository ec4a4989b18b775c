"""A share of the CPU: whoever ran ahead waits, nobody starves, and nothing is saved up."""

import threading

import pytest

from tiers.bodies import BytesBody
from tiers.cpu_share import BURST_SECONDS, LONGEST_WAIT, CpuShare, usable_cpus
from tiers.errors import TierUnavailable
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key
from tiers.testing import ManualClock, content


class Work:
    """CPU time that a test spends."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.used = 0.0

    def spent(self) -> float:
        return self.used

    def do(self, seconds: float, threads: int = 1) -> None:
        """Let so many threads be busy for so long."""
        self.used += seconds * threads
        self.clock.advance(seconds)


def shared(share: float, cpus: int = 2) -> tuple[CpuShare, Work, ManualClock]:
    clock = ManualClock()
    work = Work(clock)
    return CpuShare(share, clock, threading.Event(), cpus=cpus, spent=work.spent), work, clock


@pytest.mark.parametrize(("share", "threads"), [(0.04, 1), (0.04, 2), (0.5, 2), (0.25, 1)])
def test_the_share_is_kept_over_time(share: float, threads: int) -> None:
    bound, work, clock = shared(share)
    for _ in range(2000):
        work.do(0.001, threads)
        assert bound.take()
    assert work.used / clock.monotonic() == pytest.approx(2 * share, rel=0.06)


def test_within_the_share_nobody_waits() -> None:
    bound, work, clock = shared(0.5)
    for _ in range(100):
        work.do(0.001)
        clock.advance(0.001)
        assert bound.take()
    assert clock.waits == []


def test_idle_time_is_not_saved_up() -> None:
    bound, work, clock = shared(0.1)
    clock.advance(3600)
    assert bound.take()
    work.do(1.0)
    assert bound.take()
    assert sum(clock.waits) == pytest.approx(1.0 / 0.2 - 1.0 - BURST_SECONDS, abs=0.01)
    assert max(clock.waits) <= LONGEST_WAIT


def test_lifting_frees_who_waits_at_the_next_look() -> None:
    bound, work, clock = shared(0.01)
    work.do(10)
    bound.lift()
    assert bound.take()
    assert clock.waits == []


def test_stop_ends_waiting() -> None:
    clock, stop = ManualClock(), threading.Event()
    work = Work(clock)
    bound = CpuShare(0.1, clock, stop, spent=work.spent)
    stop.set()
    work.do(10)
    assert not bound.take()


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="not a share"):
        CpuShare(share, ManualClock(), threading.Event())
    assert usable_cpus() >= 1


def test_bodies_ask_for_leave_both_ways_also_without_a_bandwidth() -> None:
    asked: list[None] = []

    def leave() -> bool:
        asked.append(None)
        return True

    tier = open_tier(TierSpec(name="t", url="memory://cpu-share", leave=leave), clock=ManualClock())
    data = content(3_000_000)
    tier.put(Key("a"), BytesBody(data))
    up = len(asked)
    assert up >= 2
    with tier.open(Key("a")) as stream:
        assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == data
    assert len(asked) >= up + 3
    tier.close()


def test_no_leave_means_stopped() -> None:
    spec = TierSpec(name="t", url="memory://cpu-share-stopped", leave=lambda: False)
    tier = open_tier(spec, clock=ManualClock())
    with pytest.raises(TierUnavailable, match="stopped"):
        tier.put(Key("a"), BytesBody(b"x"))
    tier.close()
