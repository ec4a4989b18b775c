"""How many requests may be out at once: a gate that narrows when the store asks for it."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tiers.errors import TierUnavailable

_log = logging.getLogger(__name__)

SUCCESSES_TO_WIDEN = 4
"""For each request that may be out at once, how many successes in a row let one more out."""
STOP_POLL = 0.25
"""Seconds between looks at the stop event while a thread waits for a slot."""


class Gate:
    """How many requests may be out at once: halved where the store asks to slow down, widened slowly.

    ``ceiling`` is where it starts and ends.  A burst of refusals halves it once: those of
    requests that began before it was last narrowed say nothing new.  A thread that is
    inside already may enter again, so that reading a body from the same tier cannot
    wait for itself.
    """

    def __init__(self, name: str, ceiling: int, stop: threading.Event) -> None:
        self._name = name
        self._ceiling = ceiling
        self._stop = stop
        self._changed = threading.Condition()
        self._width = ceiling
        self._inside = 0
        self._successes = 0
        self._epoch = 0
        self._held = threading.local()

    @property
    def width(self) -> int:
        """How many requests may be out at once now."""
        return self._width

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
            with self._changed:
                self._inside -= 1
                self._changed.notify()

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

    def _enter(self, operation: str, key: str) -> None:
        with self._changed:
            while self._inside >= self._width:
                if self._stop.is_set():
                    raise TierUnavailable("stopped", tier=self._name, operation=operation, key=key)
                self._changed.wait(STOP_POLL)
            self._inside += 1

    def _narrow(self, epoch: int) -> None:
        with self._changed:
            self._successes = 0
            if epoch != self._epoch:
                return
            self._epoch += 1
            self._width = max(1, self._width // 2)
        _log.warning(
            "%s: the store asks to slow down: %d of %d requests at once", self._name, self._width, self._ceiling
        )

    def _widen(self) -> None:
        if self._width == self._ceiling:
            return
        with self._changed:
            self._successes += 1
            if self._width < self._ceiling and self._successes >= SUCCESSES_TO_WIDEN * self._width:
                self._successes = 0
                self._width += 1
                self._changed.notify()
