"""How many requests may be out at once: a gate that looks for the knee, and narrows when the store asks for it."""

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tiers.clock import Clock
from tiers.errors import TierUnavailable
from tiers.knee import FEW, Search, Window, give_up, judge

_log = logging.getLogger(__name__)

SUCCESSES_TO_WIDEN = 4
"""For each request that may be out at once, how many successes in a row let one more out."""
STOP_POLL = 0.25
"""Seconds between looks at the stop event while a thread waits for a slot."""
PASSING_SECONDS = 0.02
"""How long a thread that waits may be passed by those that come: to hand over every slot costs more than it serves."""
WINDOW_SECONDS = 1.0
WINDOW_REQUESTS = 8
"""How long, and for how many requests (two rounds of the gate at least), is measured before it is judged."""
BUSY = 0.75
"""How full the gate has to be on average for a window to say anything about its width."""


class Gate:
    """How many requests may be out at once: as many as are worth it, and as the store bears; never above ``ceiling``.

    What they are worth is searched for from ``first`` on (:mod:`tiers.knee`), by what passes.
    What the store bears is halved where it asks to slow down, and widened slowly.  A burst of
    refusals halves it once: those of requests that began before it was last narrowed say
    nothing new.  A thread that is inside already may enter again, so that reading a body from
    the same tier cannot wait for itself.
    """

    def __init__(self, name: str, ceiling: int, stop: threading.Event, clock: Clock, *, first: int = FEW) -> None:
        self._name = name
        self._ceiling = ceiling
        self._stop = stop
        self._clock = clock
        self._lock = threading.RLock()
        self._line: deque[_Ticket] = deque()
        self._borne = ceiling
        self._floor = min(first, ceiling)
        self._search = Search(width=self._floor)
        self._passed = _Passed(clock.monotonic())
        self._inside = 0
        self._successes = 0
        self._epoch = 0
        self._held = threading.local()

    @property
    def width(self) -> int:
        """How many requests may be out at once now."""
        return min(self._borne, self._search.width)

    @contextmanager
    def slot(self, operation: str, key: str) -> Iterator[None]:
        """Hold one of the slots; raises TierUnavailable where the stop event is set while it is waited for."""
        if getattr(self._held, "one", False):
            yield
            return
        self._enter(operation, key)
        self._held.one = True
        try:
            yield
        finally:
            self._held.one = False
            with self._lock:
                self._inside -= 1
                self._call_next()

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Learn from what a request comes to."""
        epoch = self._epoch
        try:
            yield
        except TierUnavailable as error:
            if error.throttled:
                self._narrow(epoch)
            raise
        self._widen()

    @contextmanager
    def carrying(self, size: int) -> Iterator[None]:
        """Learn from how long a request takes that carries ``size`` bytes."""
        began = self.now()
        yield
        self.carried(size, began)

    def now(self) -> float:
        """Return the time by which requests are measured."""
        return self._clock.monotonic()

    def carried(self, size: int, began: float) -> None:
        """Note that a request which began then has carried ``size`` bytes; its slot is still held."""
        if not size:
            return
        with self._lock:
            now = self.now()
            if self._passed.note(size, began, now, self._inside):
                self._judge(now)

    def _judge(self, now: float) -> None:
        passed, before = self._passed, self.width
        if passed.requests < max(WINDOW_REQUESTS, 2 * before) or now - passed.since < WINDOW_SECONDS:
            return
        self._passed = _Passed(now, begun=True)
        if self._borne < self._search.width or passed.inside < BUSY * before * passed.requests:
            return
        window = Window(bytes=passed.bytes, requests=passed.requests, seconds=now - passed.since)
        self._search = judge(self._search, window, floor=self._floor, ceiling=self._ceiling)
        if self.width != before:
            _log.debug("%s: %d requests at once after %d", self._name, self.width, before)
            self._passed = _Passed(now)
            self._call_next()

    def _enter(self, operation: str, key: str) -> None:
        with self._lock:
            now = self.now()
            if not self._inside:
                self._passed = _Passed(now)  # a pause is no measure of anything
            if self._inside < self.width and (not self._line or now - self._line[0].since < PASSING_SECONDS):
                self._inside += 1
                return
            ticket = _Ticket(now)
            self._line.append(ticket)
        while not self._is_in(ticket):
            if self._stop.is_set():
                self._leave_line(ticket)
                raise TierUnavailable("stopped", tier=self._name, operation=operation, key=key)

    def _is_in(self, ticket: "_Ticket") -> bool:
        """Wait a while for a turn, and take it."""
        ticket.turn.wait(STOP_POLL)
        with self._lock:
            ticket.turn.clear()
            if self._line[0] is not ticket or self._inside >= self.width:
                return False
            self._line.popleft()
            self._inside += 1
            self._call_next()
            return True

    def _leave_line(self, ticket: "_Ticket") -> None:
        with self._lock:
            self._line.remove(ticket)
            self._call_next()

    def _call_next(self) -> None:
        if self._line and self._inside < self.width:
            self._line[0].turn.set()

    def _narrow(self, epoch: int) -> None:
        with self._lock:
            self._successes = 0
            if epoch != self._epoch:
                return
            self._epoch += 1
            self._borne = max(1, self.width // 2)
            self._search = give_up(self._search)
            self._passed = _Passed(self._clock.monotonic())
        _log.warning(
            "%s: the store asks to slow down: %d of %d requests at once", self._name, self.width, self._ceiling
        )

    def _widen(self) -> None:
        if self._borne == self._ceiling:
            return
        with self._lock:
            self._successes += 1
            if self._borne < self._ceiling and self._successes >= SUCCESSES_TO_WIDEN * self._borne:
                self._successes = 0
                self._borne += 1
                self._call_next()


class _Ticket:
    """The place of a thread in the line."""

    __slots__ = ("since", "turn")

    def __init__(self, since: float) -> None:
        self.since = since
        self.turn = threading.Event()


class _Passed:
    """What has passed the gate at one width, counted from the end of the first request that knew no other."""

    __slots__ = ("begun", "bytes", "inside", "requests", "since")

    def __init__(self, since: float, *, begun: bool = False) -> None:
        self.since = since
        self.begun = begun
        self.bytes = self.requests = self.inside = 0

    def note(self, size: int, began: float, now: float, inside: int) -> bool:
        """Count a request; False where nothing is counted yet."""
        if not self.begun:
            self.begun = began >= self.since
            self.since = now if self.begun else self.since
            return False
        self.bytes += size
        self.requests += 1
        self.inside += inside
        return True
