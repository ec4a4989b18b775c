"""Which bytes lay where, from when to when and why: exact integers, summed in one sweep.

An :class:`Interval` stands for any number of equal objects that came and went together.
Instants are whole seconds since 1970 in UTC and intervals are half open: an object deleted
at the very end of a month is billed in that month and in no other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from cost.errors import PlanInvalid

DAY = 86_400


class Reason(StrEnum):
    """Why bytes are stored."""

    LAST_K = "last-k"
    MILESTONE = "milestone"
    PINNED = "pinned"
    REPLICA = "replica"
    STAGED = "staged"
    INCOMPLETE_UPLOAD = "incomplete-upload"
    NONCURRENT = "noncurrent"
    SOFT_DELETED = "soft-deleted"
    GIT_HISTORY = "git-history"
    RESTORED_COPY = "restored-copy"


PARTS = frozenset({Reason.STAGED, Reason.INCOMPLETE_UPLOAD})
"""Bytes that are no objects yet: no minimum size, overhead or minimum duration applies to them."""

LEFT_BEHIND = frozenset({Reason.NONCURRENT, Reason.SOFT_DELETED, Reason.GIT_HISTORY})
"""What a deletion leaves: it appears as the deleted object goes, never beside it."""


class Ending(StrEnum):
    """What happened at the end of an interval.

    ``KEPT``: the bytes stay in the class for another reason, so no minimum duration ends.
    ``ALIVE``: the ledger ends, the object does not.
    """

    ALIVE = "alive"
    KEPT = "kept"
    DELETED = "deleted"
    OVERWRITTEN = "overwritten"
    TRANSITIONED = "transitioned"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """``objects`` equal objects of ``bytes`` each, in one tier, for one reason.

    ``entered`` is when they came into the tier's class and ``created`` when they were last
    written: minimum durations count from one or the other.  ``generation`` is an ordinal, 0 for none.
    """

    tier: str
    bytes: int
    objects: int
    start: int
    end: int
    reason: Reason
    ending: Ending
    entered: int
    created: int
    generation: int = 0

    def __post_init__(self) -> None:
        if not self.created <= self.entered <= self.start <= self.end or self.bytes < 0 or self.objects < 0:
            raise PlanInvalid(
                f"{self.tier}: {self.objects} objects of {self.bytes} bytes cannot be stored "
                f"from {self.start} to {self.end} (entered {self.entered}, created {self.created})",
                hint="an object is created, enters a class, is stored and ends, in this order",
            )

    @property
    def seconds(self) -> int:
        """Whole seconds that it lasted."""
        return self.end - self.start


Weigh = Callable[[Interval], int]
"""Bytes that an interval counts for: what is stored, or what a tier bills for it."""

Key = Callable[[Interval], str]


def raw_bytes(interval: Interval) -> int:
    """Return the bytes that are really stored."""
    return interval.bytes * interval.objects


def by_reason(interval: Interval) -> str:
    """Return the reason, the key that sums are usually kept under."""
    return interval.reason


@dataclass(frozen=True, slots=True)
class Step:
    """Bytes by reason from an instant on, until the next step."""

    at: int
    levels: Mapping[str, int]


@dataclass(frozen=True)
class Ledger:
    """Intervals between two instants.  Raises PlanInvalid for one that reaches outside."""

    intervals: tuple[Interval, ...]
    start: int
    end: int

    def __post_init__(self) -> None:
        for each in self.intervals:
            if each.start < self.start or each.end > self.end:
                raise PlanInvalid(f"{each.tier}: {each.start} to {each.end} lies outside {self.start} to {self.end}")

    @cached_property
    def by_tier(self) -> Mapping[str, tuple[Interval, ...]]:
        """The intervals of each tier, tiers in order of their first interval."""
        found: dict[str, list[Interval]] = defaultdict(list)
        for each in self.intervals:
            found[each.tier].append(each)
        return MappingProxyType({tier: tuple(intervals) for tier, intervals in found.items()})

    def of(self, tier: str) -> tuple[Interval, ...]:
        """Return one tier's intervals; none for a tier that stored nothing."""
        return self.by_tier.get(tier, ())

    def __add__(self, other: "Ledger") -> "Ledger":
        """Join two ledgers of one run; the result spans both."""
        return Ledger(self.intervals + other.intervals, min(self.start, other.start), max(self.end, other.end))


def byte_seconds(
    intervals: Iterable[Interval], bounds: Sequence[int], weigh: Weigh = raw_bytes, key: Key = by_reason
) -> dict[str, list[int]]:
    """Return, for each key, the exact byte-seconds between each bound and the next.

    Linear in the number of intervals and bounds: changes are collected by instant and
    swept once.  The sums over all periods equal the sum over intervals of bytes times seconds
    as far as the bounds reach.
    """
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for each in intervals:
        if each.start < each.end:
            bytes_ = weigh(each)
            mine = changes[key(each)]
            mine[each.start] += bytes_
            mine[each.end] -= bytes_
    return {name: _integrate(mine, bounds) for name, mine in changes.items()}


def _integrate(changes: Mapping[int, int], bounds: Sequence[int]) -> list[int]:
    """Return the integral of a step function, given by its changes, over each period."""
    sums = [0] * (len(bounds) - 1)
    level = 0
    since = bounds[0]
    period = 0
    for at in [*sorted(changes), bounds[-1]]:
        until = min(max(at, bounds[0]), bounds[-1])
        while since < until:
            stop = min(until, bounds[period + 1])
            sums[period] += level * (stop - since)
            since = stop
            if since == bounds[period + 1] and period + 1 < len(sums):
                period += 1
        level += changes.get(at, 0)
    return sums


def peaks(intervals: Iterable[Interval], bounds: Sequence[int], weigh: Weigh = raw_bytes) -> list[int]:
    """Return the highest number of bytes at any instant of each period.

    What comes at an instant is there before what is deleted at the same one is gone, since a
    new generation is committed before an old one is deleted; parts become their object and
    deleted objects become noncurrent ones without counting twice.
    """
    arrivals: dict[int, int] = defaultdict(int)
    departures: dict[int, int] = defaultdict(int)
    commits: set[int] = set()
    for each in intervals:
        if each.start < each.end:
            bytes_ = weigh(each)
            if each.reason in LEFT_BEHIND:
                departures[each.start] += bytes_
            else:
                arrivals[each.start] += bytes_
                commits.add(each.start)
            (arrivals if each.reason in PARTS else departures)[each.end] -= bytes_
    return _highest(arrivals, departures, commits, bounds)


def _highest(
    arrivals: Mapping[int, int], departures: Mapping[int, int], commits: set[int], bounds: Sequence[int]
) -> list[int]:
    highest = [0] * (len(bounds) - 1)
    level = 0
    period = 0
    for at in [*sorted(arrivals.keys() | departures.keys()), bounds[-1]]:
        while period < len(highest) and bounds[period] < at:  # what lay there before ``at``
            highest[period] = max(highest[period], level)
            if bounds[period + 1] > at:
                break
            period += 1
        before = level + arrivals.get(at, 0)
        level = before + departures.get(at, 0)
        if period < len(highest) and bounds[period] <= at:
            highest[period] = max(highest[period], level, before if at in commits else 0)
    return highest


def series(intervals: Iterable[Interval], weigh: Weigh = raw_bytes, key: Key = by_reason) -> Iterator[Step]:
    """Yield the bytes by reason after each change, in order; the last step has none left."""
    changes: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for each in intervals:
        if each.start < each.end:
            changes[each.start][key(each)] += weigh(each)
            changes[each.end][key(each)] -= weigh(each)
    levels: dict[str, int] = defaultdict(int)
    for at in sorted(changes):
        for name, change in changes[at].items():
            levels[name] += change
        yield Step(at, MappingProxyType({name: level for name, level in levels.items() if level}))


def days(start: int, end: int) -> list[int]:
    """Return the bounds of all UTC days that an interval touches, one at least."""
    last = max(end, start + 1) + DAY - 1
    return list(range(start - start % DAY, last - last % DAY + 1, DAY))
