"""When within a month money falls due: lines are by month, and each is spread over the days that caused it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cost.estimate import Estimate, Plan
from cost.ledger import DAY, by_reason, byte_seconds
from cost.pricing.lines import Category, Line
from cost.pricing.periods import Months, second
from cost.units import SECONDS_PER_HOUR

_BYTES = frozenset({Category.STORAGE, Category.STAGING, Category.EARLY_DELETE, Category.MONITORING})
_BINS = 240


@dataclass(frozen=True)
class Accrual:
    """An estimate over time; ``bounds`` are instants, those of months among them."""

    estimate: Estimate
    plan: Plan

    @cached_property
    def bounds(self) -> list[int]:
        """Bounds of periods of equal length, cut at months."""
        start, end = self.estimate.start, max(self.estimate.end, self.estimate.start + 1)
        step = max(SECONDS_PER_HOUR, -(-(end - start) // _BINS))
        if step > DAY:
            step = -(-step // DAY) * DAY
        return sorted({*range(start, end, step), end, *(at for at in Months(start, end).bounds if start < at < end)})

    def cumulative(self, key: Callable[[Line], str]) -> dict[str, list[float]]:
        """Return, for each key, what has been spent at each bound, by the upper end of ranges; for drawing only."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(self.bounds) - 1))
        for line in self.estimate.lines:
            mine = sums[key(line)]
            weights = self._weights(line)
            whole = sum(weights)
            for index, weight in enumerate(weights):
                if weight:
                    mine[index] += float(line.high.amount) * weight / whole
        return {name: _running(values) for name, values in sums.items()}

    def _weights(self, line: Line) -> list[int]:
        """Return how much of a line each period causes; evenly over the month where nothing tells."""
        month = (second(line.month.start), second(line.month.end))
        found = self._stored.get((line.about.tier, line.about.reason)) if line.about.category in _BYTES else None
        if found is None:
            found = self._used(line)
        inside = [
            weight if month[0] <= at < month[1] else 0 for weight, at in zip(found, self.bounds[:-1], strict=True)
        ]
        if any(inside):
            return inside
        lengths = [max(0, min(b, month[1]) - max(a, month[0])) for a, b in self._periods]
        return lengths if any(lengths) else [b - a for a, b in self._periods]

    @cached_property
    def _periods(self) -> list[tuple[int, int]]:
        return list(zip(self.bounds[:-1], self.bounds[1:], strict=True))

    @cached_property
    def _stored(self) -> dict[tuple[str, str], list[int]]:
        found = {}
        for ref, intervals in self.estimate.ledger.by_tier.items():
            for reason, sums in byte_seconds(intervals, self.bounds, key=by_reason).items():
                found[ref, str(reason)] = sums
        return found

    def _used(self, line: Line) -> list[int]:
        about, usage = line.about, self.plan.usage
        events: Iterable[tuple[int, int]] = ()
        if about.category is Category.REQUESTS:
            events = ((e.at, e.count) for e in usage.requests if (e.tier, e.label) == (about.tier, about.label))
        elif about.category in {Category.UPLOAD_TRANSFER, Category.RESTORE_TRANSFER}:
            events = ((e.at, e.bytes) for e in usage.transfers if (e.tier, e.label) == (about.tier, about.label))
        elif about.category is Category.RETRIEVAL:
            events = ((e.at, e.bytes) for e in usage.retrievals if e.tier == about.tier)
        return self._binned(events)

    def _binned(self, events: Iterable[tuple[int, int]]) -> list[int]:
        weights = [0] * (len(self.bounds) - 1)
        ordered = sorted(events)
        index = 0
        for at, weight in ordered:
            while index + 1 < len(weights) and self.bounds[index + 1] <= at:
                index += 1
            weights[index] += weight
        return weights


def _running(values: Sequence[float]) -> list[float]:
    found = [0.0]
    for value in values:
        found.append(found[-1] + value)
    return found
