"""Objects that were verified, journalled many at a time."""

import threading

from replicate.layout import GenerationId
from replicate.tracker import Tracker
from tiers.clock import Clock

BATCH_OBJECTS = 256
BATCH_SECONDS = 5.0
"""How many verified objects, and for how long, may be known to this process alone.

What is lost with it costs nothing but a look: a resumed upload stats every object in any
case, and finds this one by the store's own digest, or reads it back.
"""


class VerifiedBatch:
    """Collects what was verified of one upload, and writes it down in one transaction.

    A manifest says how each object was proved, so ``close`` comes before it is written: a
    process that finds one there must find the same in the journal.
    """

    def __init__(self, tracker: Tracker, tier: str, generation: GenerationId, clock: Clock) -> None:
        self._tracker = tracker
        self._tier = tier
        self._generation = generation
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, str] = {}
        self._since = 0.0

    def add(self, path: str, means: str) -> None:
        """Note a verified object; it is written once enough of them, or the oldest for long enough, have waited."""
        now = self._clock.monotonic()
        with self._lock:
            if not self._waiting:
                self._since = now
            self._waiting[path] = means
            due = self._take() if len(self._waiting) >= BATCH_OBJECTS or now - self._since >= BATCH_SECONDS else {}
        if due:
            self._tracker.objects_verified(self._tier, self._generation, due)

    def close(self) -> None:
        """Write what still waits; raises LocalDisk where the journal cannot be written."""
        with self._lock:
            due = self._take()
        if due:
            self._tracker.objects_verified(self._tier, self._generation, due)

    def _take(self) -> dict[str, str]:
        due, self._waiting = self._waiting, {}
        return due
