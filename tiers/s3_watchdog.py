"""Ends requests that make no progress, whichever side it is that stalls, and says which.

The timeouts of sockets are for one operation each: a peer that takes or gives a byte a
minute is never late for any of them.  So every request is also watched from outside, by
one thread for the process, which ends those that are over by shutting their socket down:
the only thing that wakes a thread that is blocked in it.

What counts is bytes: less than :data:`STEP` within ``stall`` seconds is no progress.  Time
that is ours (reading the local file, waiting for bandwidth) does not count.
"""

import socket
import threading
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from tiers.clock import Clock, SystemClock

STEP = 256 * 1024
"""Bytes that have to move within the time allowed, or the end be reached."""
LEAST_RATE = 16 * 1024
"""Bytes a second that a body is given time for as a whole, where no deadline is configured."""
IDLE_SECONDS = 30.0
"""After so long without a request the thread ends; the next request starts another."""
LOOKS = 8
"""How often the thread looks within the shortest time allowed, so that no stall lasts an eighth longer."""


class Phase(StrEnum):
    """Where a request is.  The values are what is said of one that ends there."""

    PREPARING = "before it was sent"
    CONNECTING = "while the connection was being made"
    SENDING = "while the store took the body"
    WAITING = "while the store owed its answer"
    RECEIVING = "while the store sent the object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a request may take, in seconds.

    ``stall``: without progress.  ``answer``: from the last byte sent to the end of the
    answer's head, or of an answer that is no object.  ``deadline``: as a whole, None
    meaning as long as its bytes take at :data:`LEAST_RATE`.
    """

    stall: float
    answer: float
    deadline: float | None = None

    def whole(self, size: int) -> float:
        """Return the time for a request that moves ``size`` bytes."""
        return self.deadline if self.deadline is not None else 2 * self.answer + self.stall + size / LEAST_RATE


_current: ContextVar["Transfer | None"] = ContextVar("tiers.s3_watchdog.current", default=None)


def current_transfer() -> "Transfer | None":
    """Return the request that this thread is making."""
    return _current.get()


class Transfer:
    """One request, from its beginning to the last byte of its answer.  ``size`` is what it moves, in bytes.

    Its time runs only while the store, or the way to it, is what is waited for.
    """

    def __init__(self, limits: Limits, clock: Clock, size: int) -> None:
        self._limits = limits
        self._clock = clock
        self._size = size
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._phase = Phase.PREPARING
        self._moved = self._moved_at_mark = 0
        self._ran = self._mark = 0.0
        self._running_since: float | None = None
        self.verdict = ""

    def enter(self, phase: Phase, connected: socket.socket | None = None) -> None:
        """Begin a phase; ``connected`` replaces the socket to end it by."""
        with self._lock:
            if connected is not None:
                self._socket = connected
            if phase is not self._phase and phase is not Phase.WAITING:
                self._moved = self._moved_at_mark = 0
            self._phase = phase
            self._run(running=True)
            self._mark = self._ran  # its time has been brought up to this moment

    def expect(self, size: int) -> None:
        """Say how many bytes of an object are to be received."""
        with self._lock:
            self._size = size

    def moved(self, count: int) -> None:
        """Count bytes that went out or came in."""
        with self._lock:
            self._moved += count
            if self._moved - self._moved_at_mark >= STEP:
                self._moved_at_mark = self._moved
                self._mark = self._time()

    def held(self) -> "_Held":
        """Take time that is ours and not the store's, within a block."""
        return _Held(self)

    def hold(self) -> bool:
        """Let no time pass; return whether it did."""
        with self._lock:
            was_running = self._running_since is not None
            self._run(running=False)
            return was_running

    def go_on(self, *, running: bool) -> None:
        """Let time pass again, if it did."""
        with self._lock:
            self._run(running=running)

    def rest(self) -> None:
        """Let no time pass until the next phase is entered."""
        with self._lock:
            self._run(running=False)

    def judge(self) -> str:
        """Return why the request is over; empty while it is not."""
        with self._lock:
            spent = self._time()
            idle = spent - self._mark
            if self._running_since is None:
                return ""
            if idle > (self._limits.answer if self._phase is Phase.WAITING else self._limits.stall):
                return self._words(f"no progress for {idle:.3g} s")
            if spent > self._limits.whole(self._size):
                return self._words(f"not done within {spent:.3g} s")
            return ""

    def end_by(self, verdict: str) -> None:
        """Wake whoever is blocked in the socket; the request fails, and ``verdict`` is the reason."""
        with self._lock:
            self.verdict = verdict
            if self._socket is not None:
                with suppress(OSError):  # the other side, or its own thread, closed it a moment ago
                    # Past the TLS layer, which the blocked thread is in the middle of.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _run(self, *, running: bool) -> None:
        now = self._clock.monotonic()
        if self._running_since is not None:
            self._ran += now - self._running_since
        self._running_since = now if running else None

    def _time(self) -> float:
        return self._ran + (self._clock.monotonic() - self._running_since if self._running_since is not None else 0.0)

    def _words(self, what: str) -> str:
        total = f" of {self._size}" if self._size else ""
        return f"{what} {self._phase}; {self._moved}{total} bytes had moved"


class _Held:
    """Blocks like this one are entered for every piece of a body: as a class they cost a third of a generator."""

    __slots__ = ("_transfer", "_was_running")

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    def __enter__(self) -> None:
        self._was_running = self._transfer.hold()

    def __exit__(self, *_raised: object) -> None:
        self._transfer.go_on(running=self._was_running)


class Watchdog:
    """Watches transfers from one thread, which lives while there are any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._watched: dict[Transfer, float] = {}
        self._thread: threading.Thread | None = None
        self._sleeps = 0.0

    def request(self, limits: Limits, size: int = 0) -> "_Request":
        """Watch what this thread asks for inside the block, to which the transfer is given."""
        return _Request(self, limits, Transfer(limits, self._clock, size))

    def watching(self, transfer: Transfer, limits: Limits) -> "_Watching":
        """Watch a transfer while the block runs; afterwards its socket may serve another, and is left alone."""
        return _Watching(self, transfer, limits)

    def begin(self, transfer: Transfer, limits: Limits) -> None:
        """Watch a transfer until :meth:`end`."""
        with self._changed:
            interval = min(limits.stall, limits.answer, limits.deadline or limits.stall) / LOOKS
            self._watched[transfer] = interval
            if self._thread is None or not self._thread.is_alive():  # never started, ended, or lost in a fork
                self._thread = threading.Thread(target=self._loop, name="ckptier-watchdog", daemon=True)
                self._thread.start()
            elif interval < self._sleeps:
                self._changed.notify()

    def end(self, transfer: Transfer) -> None:
        """Leave a transfer alone."""
        with self._changed:
            del self._watched[transfer]

    def look(self) -> None:
        """End what is over."""
        with self._changed:  # held throughout: a transfer that leaves meanwhile gives its socket to the next one
            for transfer in self._watched:
                verdict = transfer.judge()
                if verdict:
                    transfer.end_by(verdict)

    def _loop(self) -> None:
        with self._changed:
            while self._watched or self._sleep(IDLE_SECONDS):
                self.look()
                self._sleep(min(self._watched.values(), default=0.0))
            self._thread = None

    def _sleep(self, seconds: float) -> bool:
        self._sleeps = seconds
        return self._changed.wait(seconds)


class _Request:
    __slots__ = ("_limits", "_token", "_transfer", "_watchdog")

    def __init__(self, watchdog: Watchdog, limits: Limits, transfer: Transfer) -> None:
        self._watchdog = watchdog
        self._limits = limits
        self._transfer = transfer

    def __enter__(self) -> Transfer:
        self._watchdog.begin(self._transfer, self._limits)
        self._token = _current.set(self._transfer)
        return self._transfer

    def __exit__(self, *_raised: object) -> None:
        _current.reset(self._token)
        self._watchdog.end(self._transfer)


class _Watching:
    __slots__ = ("_about", "_watchdog")

    def __init__(self, watchdog: Watchdog, transfer: Transfer, limits: Limits) -> None:
        self._watchdog = watchdog
        self._about = transfer, limits

    def __enter__(self) -> None:
        self._watchdog.begin(*self._about)

    def __exit__(self, *_raised: object) -> None:
        self._watchdog.end(self._about[0])


WATCHDOG = Watchdog(SystemClock())
"""The one of this process; sockets know no other time than the machine's."""
