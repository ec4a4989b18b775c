"""Reading from several tiers at once: whose turn a worker takes, so that a slow tier never has the last leaf.

Every worker draws from the one queue, so a fast tier gets more by itself.  Only at the end does that not
suffice: a slow tier would still be at its last leaf when the others have nothing left to do.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from replicate.restore.sources import Source


def in_turn(sources: Sequence[Source], worker: int) -> Sequence[Source]:
    """Return sources with another tier first for each worker; what lies here stays before all."""
    here = [source for source in sources if not source.again]
    tiers = [source for source in sources if source.again]
    first = worker % len(tiers) if tiers else 0
    return [*here, *tiers[first:], *tiers[:first]]


def in_time(mine: float | None, others: float, leaf: int, remaining: int) -> bool:
    """Whether a leaf would be here before the other tiers had fetched all that remains, itself included.

    Rates in bytes a second: ``mine`` of one worker (None where not known yet), ``others`` of all others together.
    """
    return mine is None or others <= 0 or leaf / mine <= (remaining + leaf) / others


@dataclass(slots=True)
class _Rate:
    moved: int = 0
    seconds: float = 0.0

    @property
    def value(self) -> float | None:
        return self.moved / self.seconds if self.seconds > 0 else None


@dataclass(slots=True)
class Spread:
    """What each tier was seen to deliver to one worker, and the order that follows; for any number of threads."""

    sources: Sequence[Source]
    workers: int
    _rates: dict[str, _Rate] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, place: str, moved: int, seconds: float) -> None:
        """Count what a worker fetched from a place, and how long it took."""
        with self._lock:
            rate = self._rates.setdefault(place, _Rate())
            rate.moved += moved
            rate.seconds += seconds

    def order(self, worker: int, leaf: int, remaining: int) -> Sequence[Source]:
        """Return the places for a worker's next leaf, where ``remaining`` bytes are not begun besides."""
        turn = in_turn(self.sources, worker)
        home = next((source.name for source in turn if source.again), None)
        rates = self._seen()
        if home is None or len(rates) < 2:  # noqa: PLR2004 - what is compared are two
            return turn
        others = sum(rate * self._crew(name) for name, rate in rates.items() if name != home)
        if in_time(rates.get(home), others, leaf, remaining):
            return turn
        return sorted(turn, key=lambda source: -rates.get(source.name, 0.0) if source.again else float("-inf"))

    def _seen(self) -> Mapping[str, float]:
        with self._lock:
            return {name: rate.value for name, rate in self._rates.items() if rate.value is not None}

    def _crew(self, name: str) -> int:
        tiers = [source.name for source in self.sources if source.again]
        return sum(1 for worker in range(self.workers) if tiers and tiers[worker % len(tiers)] == name)
