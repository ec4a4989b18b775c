"""When bytes leave a link: a token bucket over all of its connections, and a delay.  Nothing here waits."""

import math
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Bucket:
    """One direction.  ``rate`` in bytes a second (0: as fast as it goes), ``delay`` in seconds, ``burst`` in bytes.

    In any time t no more than ``burst + rate * t`` bytes leave.
    """

    rate: float
    delay: float
    burst: int = 64 * 1024
    _free: float = -math.inf

    def admit(self, now: float, size: int) -> float:
        """Take a piece that comes in now; returns when its last byte comes out at the far end.

        Never earlier than the piece before it.
        """
        if not self.rate:
            return now + self.delay
        self._free = max(self._free, now - self.burst / self.rate) + size / self.rate
        return max(now, self._free) + self.delay

    def backlog(self, now: float) -> float:
        """Seconds that a piece which comes in now would have to wait for others."""
        return max(0.0, self._free - now)
