"""How much of the machine's CPU this process may use: work waits where it ran ahead of its share."""

import os
import threading
import time
from collections.abc import Callable

from tiers.clock import Clock

BURST_SECONDS = 0.5
"""What may be spent at once after a pause: the share of so many seconds, so that idle time is not saved up."""
SHORTEST_WAIT = 0.002
"""Seconds: a smaller debt is carried on, since waking up costs CPU too."""
LONGEST_WAIT = 0.5
"""Seconds of waiting in one piece, after which it is looked again whether the share still holds."""


def usable_cpus() -> int:
    """Return how many CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuShare:
    """At most ``share`` of ``cpus`` processors, over the CPU time of the whole process and all its threads.

    Whoever is about to do a piece of work calls :meth:`take`, which waits while the process
    has used more than came in.  All wait for the same debt and go on together, so nobody
    starves.  CPU that is used elsewhere counts too; that of child processes does not.
    """

    def __init__(
        self,
        share: float,
        clock: Clock,
        stop: threading.Event,
        *,
        cpus: int | None = None,
        spent: Callable[[], float] = time.process_time,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"not a share: {share}")
        self._rate = share * (cpus or usable_cpus())
        self._clock = clock
        self._stop = stop
        self._spent = spent
        self._lock = threading.Lock()
        self._lifted = False
        self._at = clock.monotonic()
        self._seen = spent()
        self._saved = 0.0

    def take(self) -> bool:
        """Wait until the process is within its share; False where the stop event ended it."""
        while (debt := self._debt()) > SHORTEST_WAIT:
            if self._clock.wait(min(debt, LONGEST_WAIT), self._stop):
                return False
        return True

    def lift(self) -> None:
        """Let everything pass from now on: the machine goes away soon, and what is left has to leave it."""
        self._lifted = True

    def _debt(self) -> float:
        """Return the seconds that have to pass until what was used has come in."""
        with self._lock:
            now, spent = self._clock.monotonic(), self._spent()
            came_in, used = (now - self._at) * self._rate, spent - self._seen
            self._at, self._seen = now, spent
            self._saved = min(BURST_SECONDS * self._rate, self._saved + came_in - used)
            return 0.0 if self._lifted else -self._saved / self._rate
