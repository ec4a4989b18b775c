"""The search for a store's knee, on simulated links: where it ends, how soon, and that it stays there."""

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tiers.errors import TierUnavailable
from tiers.gate import WINDOW_SECONDS, Gate
from tiers.knee import FEW, PATIENCE, Search, Window, give_up, judge
from tiers.testing import ManualClock

MIB = 1 << 20
CEILING = 16
LONG = 900.0
"""Seconds of a simulated upload."""


@dataclass(frozen=True, slots=True)
class Link:
    """What passes at some width, in MiB a second; ``size`` is that of a request, ``noise`` a part of the speed."""

    speed: Callable[[int], float]
    size: int = 8 * MIB
    noise: float = 0.0


def waiting(cap: float, size: int = 8 * MIB, *, one: float | None = None, round_trip: float = 0.04) -> Link:
    """Return a link of ``cap`` MiB a second on which requests wait for a round trip; ``one`` bounds a connection."""
    mib = size / MIB
    alone = mib / (round_trip + mib / (one or cap))
    return Link(lambda width: min(cap, width * alone), size)


LINKS = {
    "25 MiB/s, 40 ms": (waiting(25), {4}),
    "100 MiB/s, 40 ms, large parts": (waiting(100), {4}),
    "100 MiB/s, 40 ms, requests of 1 MiB": (waiting(100, MIB), {6, 4}),
    "100 MiB/s, 40 ms, small files": (waiting(100, MIB // 16), {16}),
    "100 MiB/s, each connection 10": (waiting(100, one=10), {9, 13}),
    "a local disk": (Link(lambda _: 900.0, 64 * MIB), {4}),
    "a server with two cores": (Link(lambda width: 100.0 * min(width, 2) * 0.98 ** max(0, width - 2), 8 * MIB), {4}),
}


class Sender:
    """Keeps a gate full for as long as it is told to, and notes its width."""

    def __init__(self, link: Link, *, ceiling: int = CEILING, seed: int = 1) -> None:
        self.link = link
        self.clock = ManualClock()
        self.gate = Gate("t", ceiling, threading.Event(), self.clock)
        self.random = random.Random(seed)
        self.widths: list[tuple[float, int]] = [(0.0, self.gate.width)]

    def send(self, seconds: float, *, busy: float = 1.0) -> None:
        end = self.clock.monotonic() + seconds
        until, blow = 0.0, 1.0
        while (now := self.clock.monotonic()) < end:
            width = self.gate.width
            if now >= until:  # a link's speed changes every few seconds
                until, blow = now + 3.0, 1.0 + self.random.uniform(-self.link.noise, self.link.noise)
            speed = self.link.speed(width) * blow * MIB
            self.gate._inside = max(1, round(busy * width))
            self.clock.advance(self.link.size / speed)
            self.gate.carried(self.link.size, self.clock.monotonic() - width * self.link.size / speed)
            if self.gate.width != width:
                self.widths.append((self.clock.monotonic(), self.gate.width))

    def spent_at(self, since: float) -> dict[int, float]:
        """Return the share of the time since then that each width had."""
        end = self.clock.monotonic()
        times = [*self.widths, (end, 0)]
        found: dict[int, float] = {}
        for (start, width), (stop, _) in itertools.pairwise(times):
            found[width] = found.get(width, 0.0) + max(0.0, stop - max(start, since)) / (end - since)
        return found

    def changes(self, since: float) -> int:
        return sum(1 for moment, _ in self.widths if moment > since)


@pytest.mark.parametrize("name", LINKS)
def test_it_ends_near_the_knee_and_stays(name: str) -> None:
    link, knees = LINKS[name]
    sender = Sender(link)
    sender.send(LONG / 4 if link.size < MIB else LONG)
    spent = sender.spent_at(since=60.0)
    settled = max(spent, key=lambda width: spent[width])
    assert settled in knees, spent
    assert spent[settled] > 0.9
    assert link.speed(settled) >= 0.97 * max(link.speed(width) for width in range(1, CEILING + 1)) or settled == FEW
    assert sender.changes(since=60.0) <= 12  # a look at either side now and then, and back


def test_two_cores_are_left_at_few_which_costs_little() -> None:
    link, _ = LINKS["a server with two cores"]
    assert link.speed(FEW) >= 0.95 * link.speed(2)


def test_it_is_there_soon() -> None:
    """Small files over a long way: the gate is at its ceiling within seconds."""
    sender = Sender(LINKS["100 MiB/s, 40 ms, small files"][0])
    sender.send(8 * WINDOW_SECONDS)
    assert sender.gate.width == CEILING


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_drive_it(seed: int) -> None:
    """A link whose speed is up to 15 % off, for seconds at a time: nearly always near the knee, seldom moving."""
    link = Link(waiting(100, MIB).speed, MIB, noise=0.15)
    sender = Sender(link, seed=seed)
    sender.send(LONG)
    spent = sender.spent_at(since=120.0)
    mean = sum(share * link.speed(width) for width, share in spent.items())
    assert mean >= 0.9 * 100, spent
    assert sender.changes(since=120.0) <= 40
    assert sum(share for width, share in spent.items() if width > 9) < 0.2, spent


def test_a_link_that_changes_is_found_again() -> None:
    """What one connection carries falls to a third: the next looks find that more are worth it."""
    sender = Sender(waiting(100, one=30))
    sender.send(300.0)
    assert sender.gate.width == FEW
    sender.link = waiting(100, one=8)
    sender.send(LONG)
    spent = sender.spent_at(since=600.0)
    assert max(spent, key=lambda width: spent[width]) >= 9


def test_a_gate_that_is_not_full_says_nothing() -> None:
    """Two senders cannot tell what four would do."""
    sender = Sender(LINKS["100 MiB/s, 40 ms, small files"][0])
    sender.send(10.0, busy=0.5)
    assert sender.widths == [(0.0, FEW)]


def test_requests_that_knew_another_width_are_not_counted() -> None:
    """What was under way when the gate was widened would speak for neither width."""
    sender = Sender(LINKS["100 MiB/s, 40 ms, small files"][0])
    while sender.gate.width == FEW:
        sender.send(0.001)
    assert sender.gate.width == 6
    sender.gate._inside = 6
    for _ in range(50):
        sender.clock.advance(0.1)
        sender.gate.carried(MIB, began=0.0)
    assert sender.gate.width == 6


def test_the_ceiling_is_the_operators() -> None:
    sender = Sender(LINKS["100 MiB/s, 40 ms, small files"][0], ceiling=3)
    sender.send(10.0)
    assert {width for _, width in sender.widths} == {3}


def test_throttling_ends_a_trial_and_halves() -> None:
    link = LINKS["100 MiB/s, 40 ms, small files"][0]
    sender = Sender(link)
    sender.send(1.5)
    assert sender.gate.width == 6  # on trial
    with pytest.raises(TierUnavailable), sender.gate.judged():
        raise TierUnavailable("slow down", tier="t", operation="put", key="k", throttled=True)
    assert sender.gate.width == 3
    sender.send(PATIENCE * WINDOW_SECONDS / 2)
    assert sender.gate.width == 3  # nothing is tried while the store asks for less
    for _ in range(200):
        with sender.gate.judged():
            pass
    assert sender.gate.width == 4  # what the search had, once the store bears it


def window(rate: float, mean: int = MIB) -> Window:
    return Window(bytes=int(rate * MIB), requests=max(1, int(rate * MIB) // mean), seconds=1.0)


def test_one_step_after_the_other() -> None:
    """Up while a step brings a third of what it could; back when it does not, and then patience."""
    first = judge(Search(width=4), window(100), floor=4, ceiling=16)
    assert (first.width, first.before) == (6, 4)
    second = judge(first, window(120), floor=4, ceiling=16)
    assert (second.width, second.before) == (9, 6)
    third = judge(second, window(125), floor=4, ceiling=16)
    assert (third.width, third.before, third.rest, third.patience) == (6, None, PATIENCE, 2 * PATIENCE)
    resting = judge(third, window(119), floor=4, ceiling=16)
    assert (resting.width, resting.rest) == (6, PATIENCE - 1)
    assert give_up(second).width == 6


def test_other_work_is_not_compared() -> None:
    """Large parts end, small files begin: slower, whatever the width; the search starts again from here."""
    trial = judge(Search(width=4), window(100, 8 * MIB), floor=4, ceiling=16)
    small = judge(trial, window(6, MIB // 16), floor=4, ceiling=16)
    assert (small.width, small.before) == (6, None)
    assert judge(small, window(6, MIB // 16), floor=4, ceiling=16).width == 9
