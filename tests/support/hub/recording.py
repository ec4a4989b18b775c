"""What came in, and what is to go wrong."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from support.faults import LONGEST_PAUSE, Fault, Fired, Schedule
from support.hub.endpoints import Operation, Surface

SETTLE_LIMIT = 10.0
"""Seconds that reading the record waits for requests in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request.  ``path`` is unquoted and without its query, ``token`` a name; ``status`` is None where none was sent.

    ``received`` and ``sent`` are bytes of bodies.  ``writes`` says that it would have changed something.
    """

    operation: Operation
    surface: Surface
    method: str
    path: str
    headers: Mapping[str, str]
    writes: bool
    token: str | None = None
    status: int | None = None
    received: int = 0
    sent: int = 0


class Recorder:
    """The record and the schedule of faults, for any number of threads."""

    def __init__(self) -> None:
        self.fired: list[Fired] = []
        self._seen: list[Seen] = []
        self._schedule: Schedule[Fault] = Schedule()
        self._lock = threading.Condition()
        self._busy = 0
        self._stop = threading.Event()

    @property
    def seen(self) -> list[Seen]:
        """All requests in order of their ends, once nothing is in flight but what a fault holds."""
        with self._lock:
            self._lock.wait_for(lambda: self._busy == 0, SETTLE_LIMIT)
            return list(self._seen)

    def forget(self) -> None:
        """Empty the record; the schedule stays."""
        with self._lock:
            self._lock.wait_for(lambda: self._busy == 0, SETTLE_LIMIT)
            self._seen.clear()

    def inject(self, *faults: Fault) -> None:
        """Add faults; each fires once, and counts from now."""
        self._schedule.add(faults)

    def due(self, operation: Operation, method: str, path: str) -> Fault | None:
        """Count a request against the schedule; return the fault whose turn it is."""
        return self._schedule.match(operation, path, method)

    def begin(self) -> None:
        """Note that a request is in flight."""
        with self._lock:
            self._busy += 1

    def end(self, seen: Seen, *, status: int | None, token: str | None, received: int, sent: int) -> None:
        """Note what became of it."""
        with self._lock:
            self._busy -= 1
            self._seen.append(replace(seen, status=status, token=token, received=received, sent=sent))
            self._lock.notify_all()

    def fire(self, fault: Fault, seen: Seen) -> None:
        """Note that a fault acts."""
        with self._lock:
            self.fired.append(Fired(fault=fault, operation=seen.operation, key=seen.path))

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than is bearable, nor past the end."""
        with self._lock:
            self._busy -= 1
            self._lock.notify_all()
        self._stop.wait(min(seconds, LONGEST_PAUSE))
        with self._lock:
            self._busy += 1

    def stop(self) -> None:
        """Release what is held."""
        self._stop.set()
