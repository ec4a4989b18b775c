"""What goes next: two lanes of work, and a budget of bytes.  Decided from values alone; whoever uses it locks."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

MIB = 1 << 20
SMALL_BYTES = MIB
"""Files of at most this size that go in one request have a lane of their own."""
IN_FLIGHT_BYTES = 512 * MIB
"""What the requests of large objects that are under way may hold together: eight leaves of the usual size.

It bounds what a process that is killed sends again.  Small files come on top, a MiB a thread at most.
"""


class Lane(StrEnum):
    """Where a piece of work queues."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One step of one object.

    ``place`` is the object's in the plan, ``step`` the place within it: what comes first goes
    first.  ``size`` is what it holds in flight, in bytes.  ``run`` does it, and returns what
    can be done then.
    """

    place: int
    step: int
    lane: Lane
    size: int = 0
    run: "Callable[[], Sequence[Work]]" = field(repr=False)


class Lanes:
    """The work that waits and what is under way.

    ``objects`` are first steps in the plan's order, by lane; they are asked for one by one, so
    that a plan of any length takes no room here.  What an object leads to goes before objects
    that were not begun.  Where both lanes wait, the one with less under way goes next, and they
    take turns where that is equal: neither waits for the other's end.  ``budget`` bounds the
    bytes of the large lane in flight; one that is larger goes alone.
    """

    def __init__(self, objects: Mapping[Lane, Iterable[Work]], budget: int = IN_FLIGHT_BYTES) -> None:
        self._budget = budget
        self._ready: dict[Lane, list[tuple[int, int, int, Work]]] = {lane: [] for lane in Lane}
        self._unbegun: dict[Lane, Iterator[Work]] = {lane: iter(objects.get(lane, ())) for lane in Lane}
        self._serial = count()
        self._running = dict.fromkeys(Lane, 0)
        self._in_flight = 0
        self._last = Lane.SMALL
        for lane in Lane:
            self._begin_next(lane)

    @property
    def finished(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not (any(self._running.values()) or any(self._ready.values()))

    @property
    def waiting(self) -> bool:
        """Whether something could go now."""
        return self._admissible(Lane.SMALL) or self._admissible(Lane.LARGE)

    def add(self, works: Iterable[Work]) -> None:
        """Queue what an object leads to."""
        for work in works:
            heapq.heappush(self._ready[work.lane], (work.place, work.step, next(self._serial), work))

    def take(self) -> Work | None:
        """Take what goes next; None where nothing may."""
        lane = self._next_lane()
        if lane is None:
            return None
        work = heapq.heappop(self._ready[lane])[-1]
        self._last = lane
        self._running[lane] += 1
        self._in_flight += self._charge(work)
        if not self._ready[lane]:
            self._begin_next(lane)
        return work

    def done(self, work: Work) -> None:
        """Note that a piece of work has ended."""
        self._running[work.lane] -= 1
        self._in_flight -= self._charge(work)

    def drop(self) -> None:
        """Forget all that waits."""
        for lane in Lane:
            self._ready[lane].clear()
            self._unbegun[lane] = iter(())

    def _next_lane(self) -> Lane | None:
        small, large = self._admissible(Lane.SMALL), self._admissible(Lane.LARGE)
        if not (small and large):
            return Lane.SMALL if small else Lane.LARGE if large else None
        ahead = self._running[Lane.SMALL] - self._running[Lane.LARGE]
        if ahead:
            return Lane.LARGE if ahead > 0 else Lane.SMALL
        return Lane.LARGE if self._last is Lane.SMALL else Lane.SMALL

    def _begin_next(self, lane: Lane) -> None:
        for work in self._unbegun[lane]:
            self.add([work])
            return

    def _admissible(self, lane: Lane) -> bool:
        if not self._ready[lane]:
            return False
        charge = self._charge(self._ready[lane][0][-1])
        return not charge or not self._in_flight or self._in_flight + charge <= self._budget

    def _charge(self, work: Work) -> int:
        return work.size if work.lane is Lane.LARGE else 0
