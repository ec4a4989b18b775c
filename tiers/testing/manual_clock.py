"""Time that a test owns."""

import threading
from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that moves only when it is told to or waited on; ``waits`` records the seconds asked for."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._elapsed = 0.0
        self.waits: list[float] = []

    def now(self) -> datetime:
        """Return the start plus what has passed."""
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        with self._lock:
            return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._elapsed += seconds

    def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
        """Let the seconds pass at once; True without letting them pass where ``stop`` is set."""
        self.waits.append(seconds)
        if stop is not None and stop.is_set():
            return True
        self.advance(seconds)
        return False
