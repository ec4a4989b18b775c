"""Asking for what a store holds, rather than what this machine still remembers of it.

Reading back right after writing proves little where the kernel answers from its page
cache.  Whoever proves something opens and reads inside :func:`reading_the_medium`.  A tier
on a filesystem then goes around the cache as far as it can, and notes how far that was;
no other tier needs to know of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tiers.protocol import Verification

_ORDER = tuple(Verification)


class MediumReading:
    """What reading in one block proves.  One thread uses it."""

    def __init__(self) -> None:
        self._weakest: Verification | None = None

    @property
    def proof(self) -> Verification:
        """The weakest of the ways in which bytes were read; READ_BACK where no tier said more."""
        return self._weakest or Verification.READ_BACK

    def note(self, proof: Verification) -> None:
        """Say how bytes are read from here on; for tiers."""
        if self._weakest is None or _ORDER.index(proof) > _ORDER.index(self._weakest):
            self._weakest = proof


_current: ContextVar[MediumReading | None] = ContextVar("reading_the_medium", default=None)


@contextmanager
def reading_the_medium() -> Iterator[MediumReading]:
    """Let what this thread opens and reads in the block come from the store itself, where a tier can do that.

    Ask for the ``proof`` after the last byte.
    """
    reading = MediumReading()
    token = _current.set(reading)
    try:
        yield reading
    finally:
        _current.reset(token)


def current_reading() -> MediumReading | None:
    """Return the block that this thread is in, for a tier that can read around caches."""
    return _current.get()
