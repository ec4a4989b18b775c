"""How many bytes a second may pass, in each direction of a tier, and how far apart writes of one key are."""

import threading

from tiers.clock import Clock

BURST_BYTES = 256 * 1024
BURST_SECONDS = 0.05
"""What may pass at once after a pause: as much as the rate brings in this time, and never more than those bytes."""


class Bandwidth:
    """At most ``rate`` bytes a second, smoothly; one for each direction of a tier.

    A schedule rather than a pot: each taker is told when its bytes are due, in the order
    of asking, so that threads share the rate and cannot starve each other.
    """

    def __init__(self, rate: int, clock: Clock, stop: threading.Event) -> None:
        if rate < 1:
            raise ValueError(f"not a rate: {rate} bytes a second")
        self.piece = max(1, min(BURST_BYTES, int(rate * BURST_SECONDS)))
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._due = clock.monotonic()

    def take(self, count: int) -> bool:
        """Wait until ``count`` bytes may have passed; False where the stop event ended it."""
        with self._lock:
            now = self._clock.monotonic()
            # What was not used is not saved, but for one piece: no burst after a pause.
            self._due = max(self._due, now - self.piece / self._rate) + count / self._rate
            delay = self._due - now
        return not (delay > 0 and self._clock.wait(delay, self._stop))


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
