"""What happened, for tests to read; and the end of everything, for whoever waits."""

import itertools
import socket
import threading
from collections.abc import Iterable

from tiers.testing.s3_emulator.faults import LONGEST_PAUSE, Fired, Request
from tiers.testing.s3_emulator.lies import Told

SETTLE_LIMIT = 10.0
"""Seconds that a reader of the record waits for requests in flight."""


class Record:
    """Requests in the order in which they began, faults and lies in that of their deeds; used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._requests: dict[int, Request] = {}
        self._begun = itertools.count()
        self._fired: list[Fired] = []
        self._told: list[Told] = []
        self._broken: list[BaseException] = []
        self._busy = 0
        self._stop = threading.Event()
        self._clients: set[socket.socket] = set()

    @property
    def stopping(self) -> bool:
        """Whether the end has begun."""
        return self._stop.is_set()

    @property
    def requests(self) -> list[Request]:
        """All requests; waits until nothing is in flight but what a fault holds."""
        with self._lock:
            self._lock.wait_for(lambda: self._busy == 0, SETTLE_LIMIT)
            return [request for _, request in sorted(self._requests.items(), key=lambda entry: entry[0])]

    @property
    def fired(self) -> list[Fired]:
        """The faults that acted."""
        with self._lock:
            return list(self._fired)

    @property
    def told(self) -> list[Told]:
        """The lies that were told."""
        with self._lock:
            return list(self._told)

    @property
    def broken(self) -> list[BaseException]:
        """Failures of the emulator itself."""
        with self._lock:
            return list(self._broken)

    def begin(self) -> int:
        """Note that a request is in flight; return its number."""
        with self._lock:
            self._busy += 1
            return next(self._begun)

    def end(self, number: int, request: Request) -> None:
        """Note what became of it."""
        with self._lock:
            self._busy -= 1
            self._requests[number] = request
            self._lock.notify_all()

    def fire(self, fired: Fired) -> None:
        """Note that a fault acts."""
        with self._lock:
            self._fired.append(fired)

    def tell(self, told: Told) -> None:
        """Note that a lie is told."""
        with self._lock:
            self._told.append(told)

    def fail(self, error: BaseException) -> None:
        """Note a failure of the emulator itself."""
        with self._lock:
            self._broken.append(error)

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than is bearable, nor past the end."""
        with self._lock:
            self._busy -= 1
            self._lock.notify_all()
        self._stop.wait(min(seconds, LONGEST_PAUSE))
        with self._lock:
            self._busy += 1

    def forget(self) -> None:
        """Start the record anew."""
        with self._lock:
            self._lock.wait_for(lambda: self._busy == 0, SETTLE_LIMIT)
            self._requests.clear()
            self._fired.clear()
            self._told.clear()

    def track(self, client: socket.socket) -> None:
        """Know a connection that has to be cut at the end."""
        with self._lock:
            self._clients.add(client)

    def untrack(self, client: socket.socket) -> None:
        """Forget a connection that ended."""
        with self._lock:
            self._clients.discard(client)

    def end_all(self) -> None:
        """Release what is paused and cut every connection."""
        self._stop.set()
        with self._lock:
            _cut(self._clients)


def _cut(clients: Iterable[socket.socket]) -> None:
    for client in clients:
        try:
            socket.socket.shutdown(client, socket.SHUT_RDWR)
        except OSError:  # the client was faster
            continue
