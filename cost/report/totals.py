"""What a reader asks of an estimate first: for the run, a month, a generation, a restore, a terabyte protected."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from cost.estimate import Amount, Estimate, Plan, add_up
from cost.ledger import Ending, Interval, Reason
from cost.pricing.brackets import NOTHING
from cost.pricing.lines import Line
from cost.pricing.periods import Months, second
from cost.pricing.transfers import RESTORE
from cost.units import ByteUnit, Month, divide, multiply

COMMITTED = frozenset({Reason.LAST_K, Reason.MILESTONE, Reason.PINNED, Reason.REPLICA})
"""What a restore can be made from; the rest is parts, leftovers and copies."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Amounts for people; None where there is nothing to divide by.

    ``per_retained`` divides by the generations that are there at the end, ``per_generation`` by
    all that were written; both leave restores out.  ``per_protected`` is for 10^12 bytes that
    could be restored, held for a month; a generation counts once, however many tiers have it.
    """

    total: Amount
    per_month: Amount | None
    per_generation: Amount | None
    per_retained: Amount | None
    per_restore: Amount | None
    per_protected: Amount | None
    liability: Amount
    retained: int


def totals(estimate: Estimate, plan: Plan) -> Totals:
    """Return the totals of an estimate of ``plan``."""
    kept = retained(estimate.ledger.intervals)
    whole = add_up(line for line in estimate.lines if not of_restores(line))
    return Totals(
        total=estimate.total,
        per_month=by_month(estimate, plan),
        per_generation=whole.over(estimate.generations) if estimate.generations else None,
        per_retained=whole.over(kept) if kept else None,
        per_restore=per_restore(estimate),
        per_protected=_over(estimate.total, protected(estimate)),
        liability=estimate.open_liability,
        retained=kept,
    )


def of_restores(line: Line) -> bool:
    """Tell whether a line is for restores: labelled so, or for the copies that a thaw leaves."""
    return line.about.label == RESTORE or line.about.reason == Reason.RESTORED_COPY


def per_restore(estimate: Estimate) -> Amount | None:
    """Return what one restore costs, temporary copies included; None where there are none."""
    if not estimate.restores:
        return None
    return add_up(line for line in estimate.lines if of_restores(line)).over(estimate.restores)


def retained(intervals: Iterable[Interval]) -> int:
    """Return how many generations are there at the end; those of a measured ledger without ordinals do not count."""
    last = {each.generation for each in intervals if each.ending is Ending.ALIVE and each.reason in COMMITTED}
    return len(last - {0})


def protected(estimate: Estimate) -> Fraction:
    """Return the terabytes that could be restored, times calendar months."""
    spans: dict[int, list[Interval]] = defaultdict(list)
    for each in estimate.ledger.intervals:
        if each.reason in COMMITTED and each.start < each.end:
            spans[each.generation].append(each)
    months = Months(estimate.start, estimate.end)
    sums = [0] * len(months.all)
    for generation, intervals in spans.items():
        for start, end, bytes_ in _once(intervals) if generation else _each(intervals):
            _spread(sums, months, (start, end), bytes_)
    lengths = [end - start for start, end in zip(months.bounds, months.bounds[1:], strict=False)]
    return sum((Fraction(each, length) for each, length in zip(sums, lengths, strict=True)), NOTHING) / int(ByteUnit.TB)


def _each(intervals: Iterable[Interval]) -> Iterable[tuple[int, int, int]]:
    return ((each.start, each.end, each.bytes * each.objects) for each in intervals)


def _once(intervals: list[Interval]) -> Iterable[tuple[int, int, int]]:
    """Yield spans of one generation with the bytes of the tier that has most of it then."""
    if len({each.tier for each in intervals}) == 1:
        yield from _each(intervals)
        return
    edges = sorted({at for each in intervals for at in (each.start, each.end)})
    for start, end in itertools.pairwise(edges):
        levels: dict[str, int] = defaultdict(int)
        for each in intervals:
            if each.start <= start < each.end:
                levels[each.tier] += each.bytes * each.objects
        yield start, end, max(levels.values(), default=0)


def _spread(sums: list[int], months: Months, span: tuple[int, int], bytes_: int) -> None:
    start, end = span
    first = months.all.index(months.of(start))
    for index in range(first, len(sums)):
        low, high = months.bounds[index], months.bounds[index + 1]
        if low >= end:
            return
        sums[index] += bytes_ * (min(end, high) - max(start, low))


def covered(start: int, end: int) -> dict[Month, Fraction]:
    """Return the part of each calendar month that a span covers."""
    found = {}
    for month in Months(start, end).all:
        first, last = second(month.start), second(month.end)
        found[month] = Fraction(max(0, min(end, last) - max(start, first)), last - first)
    return found


def by_month(estimate: Estimate, plan: Plan) -> Amount | None:
    """Return the total for one month of the plan's runs, parts of months counting as such; None for no time."""
    start = min((run.start for run in plan.runs), default=estimate.start)
    end = max((run.end for run in plan.runs), default=estimate.end)
    return _over(estimate.total, sum(covered(start, end).values(), NOTHING))


def _over(amount: Amount, units: Fraction) -> Amount | None:
    return scaled(amount, 1 / units) if units else None


def scaled(amount: Amount, factor: Fraction) -> Amount:
    """Return the amount times a fraction, to 60 significant digits."""

    def times(value: Decimal) -> Decimal:
        return divide(multiply(value, factor.numerator), factor.denominator)

    return Amount(times(amount.low), times(amount.high))
