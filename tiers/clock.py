"""The only place that reads or waits for time; everything else is handed a Clock."""

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as a dependency, so that tests own it."""

    def now(self) -> datetime:
        """Wall time, timezone-aware UTC.  For records only: no safety rule uses it."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for durations and deadlines."""
        ...

    def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Wait up to ``seconds``; return early and True once ``stop`` is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return wall time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Sleep, or wait for ``stop``."""
        if stop is not None:
            return stop.wait(seconds)
        time.sleep(seconds)
        return False


def rfc3339(moment: datetime) -> str:
    """Format an aware time as RFC 3339 in UTC with milliseconds, e.g. ``2026-11-29T22:26:51.000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
