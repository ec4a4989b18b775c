"""How many bytes a second may pass, in each direction of a tier, and how far apart writes of one key are."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tiers.clock import Clock
from tiers.timetable import Timetable

BURST_BYTES = 1024 * 1024
BURST_SECONDS = 0.05
"""What may pass at once after a pause: as much as the rate brings in this time, and never more than those bytes."""
UNLIMITED_PIECE = 1024 * 1024
"""Bytes that are taken at a time while there is no limit, so that one that begins is noticed."""
ASK_AGAIN = 60.0
"""Seconds after which the wall clock is looked at again: it may have been set meanwhile."""


class Bandwidth:
    """At most so many bytes a second, smoothly; one for each direction of a tier.

    A schedule rather than a pot: each taker is told when its bytes are due, in the order
    of asking, so that threads share the rate and cannot starve each other.  Under a
    timetable the schedule is laid out over its boundaries: what is due beyond one is due
    at the rate that holds there, also in the middle of a transfer.  ``rate`` None is no
    limit.  ``also`` is asked after each wait for leave to go on, and waits by itself (a share of the CPU).
    """

    def __init__(
        self,
        rate: int | Timetable | None,
        clock: Clock,
        stop: threading.Event,
        also: Callable[[], bool] | None = None,
    ) -> None:
        if isinstance(rate, int) and rate < 1:
            raise ValueError(f"not a rate: {rate} bytes a second")
        self._limit = rate
        self._clock = clock
        self._stop = stop
        self._also = also
        self._lock = threading.Lock()
        self._due = clock.monotonic()
        self._now: _Holding | None = None

    @property
    def piece(self) -> int:
        """How many bytes should be taken at a time now."""
        if isinstance(self._limit, Timetable):
            with self._lock:
                return _piece(self._holding(self._clock.monotonic()).rate)
        return _piece(self._limit)

    def take(self, count: int) -> bool:
        """Wait until ``count`` bytes may have passed; False where the stop event ended it."""
        if self._limit is not None:
            with self._lock:
                now = self._clock.monotonic()
                self._due = self._laid_out(count, now)
                delay = self._due - now
            if delay > 0 and self._clock.wait(delay, self._stop):
                return False
        return self._also is None or self._also()

    def _laid_out(self, count: int, now: float) -> float:
        """Return when ``count`` more bytes will have passed."""
        rate = self._holding(now).rate
        # What was not used is not saved, but for one piece: no burst after a pause.
        due = max(self._due, now - (_piece(rate) / rate if rate else 0.0))
        left = float(count)
        while left > 0:
            holding = self._holding(max(due, now))
            if holding.rate is None:
                return due
            due, left = min(due + left / holding.rate, holding.until), left - (holding.until - due) * holding.rate
        return due

    def _holding(self, moment: float) -> "_Holding":
        """Return what holds at a moment of the monotonic clock."""
        if not isinstance(self._limit, Timetable):
            return _Holding(self._limit, -math.inf, math.inf)
        known = self._now
        now = self._clock.monotonic()
        if known is not None and known.since <= moment < known.until and now - known.asked < ASK_AGAIN:
            return known
        wall = self._clock.now() + timedelta(seconds=moment - now)
        tariff = self._limit.at(wall)
        until = math.inf if tariff.until is None else moment + max(0.001, (tariff.until - wall).total_seconds())
        found = _Holding(tariff.rate, moment, until, now)
        if moment <= now:  # what is looked up ahead is not kept: the next taker starts from now again
            self._now = found
        return found


@dataclass(frozen=True, slots=True)
class _Holding:
    """A rate, from when until when by the monotonic clock, and when the timetable was asked."""

    rate: int | None
    since: float
    until: float
    asked: float = 0.0


def _piece(rate: int | None) -> int:
    return UNLIMITED_PIECE if rate is None else max(1, min(BURST_BYTES, int(rate * BURST_SECONDS)))


class KeySpacing:
    """Keeps writes of one key apart by ``interval`` seconds, for stores that refuse them otherwise; 0 for no such."""

    def __init__(self, interval: float, clock: Clock) -> None:
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}

    def wait(self, key: str) -> None:
        """Wait for the turn of a write to ``key``."""
        if not self._interval:
            return
        with self._lock:
            now = self._clock.monotonic()
            self._due = {known: due for known, due in self._due.items() if due > now}
            turn = self._due.get(key, now)
            self._due[key] = turn + self._interval
        if turn > now:
            self._clock.wait(turn - now)
