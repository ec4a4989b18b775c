"""Automatic tiering: objects that nobody reads move to cheaper sub-tiers, and an access brings them back."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from cost.ledger import DAY, PARTS, Ending, Interval, byte_seconds
from cost.pricing.book import Book
from cost.pricing.brackets import flat
from cost.pricing.lines import About, Category
from cost.pricing.periods import Months, month_seconds
from cost.pricing.pools import Demand, point
from cost.rates.model import RateCard
from cost.rates.terms import Operation
from cost.rates.tier import Tier
from cost.usage import Requests

FREQUENT = ""
"""The sub-tier that objects are in at first, which the tier's own brackets price."""


class Access(NamedTuple):
    """An operation that restarts the clock of one generation, or of everything where ``generation`` is 0."""

    at: int
    generation: int
    operation: Operation


Accesses = Mapping[str, Sequence[Access]]
"""By tier of the plan, in order of time."""


def accesses(requests: Iterable[Requests]) -> Accesses:
    """Return what touches stored objects; of the requests without a generation only GetObject does."""
    found: dict[str, list[Access]] = defaultdict(list)
    for each in requests:
        if each.count and (each.generation or each.operation is Operation.GET_OBJECT):
            found[each.tier].append(Access(each.at, each.generation, each.operation))
    return {ref: sorted(touches) for ref, touches in found.items()}


def by_subtier(tier: Tier, intervals: Iterable[Interval], touches: Sequence[Access]) -> dict[str, list[Interval]]:
    """Return the intervals cut where objects change their sub-tier; small objects and parts stay frequent.

    The whole of an object moves at each age and comes back at each access, as the card's
    ``resets_on`` has it; objects below the size that is monitored never move.
    """
    resets = {operation for step in tier.auto_transitions for operation in step.resets_on}
    touched: dict[int, list[int]] = defaultdict(list)
    for touch in touches:
        if touch.operation in resets:
            touched[touch.generation].append(touch.at)
    least = 0 if tier.monitoring is None else tier.monitoring.min_object_bytes
    found: dict[str, list[Interval]] = defaultdict(list)
    for each in intervals:
        if each.reason in PARTS or each.bytes < least:
            found[FREQUENT].append(each)
            continue
        mine = touched[0] + touched[each.generation] if each.generation else touched[0]
        for name, piece in _pieces(tier, each, sorted(at for at in mine if each.created < at < each.end)):
            found[name].append(piece)
    return found


def _pieces(tier: Tier, interval: Interval, touched: Sequence[int]) -> Iterator[tuple[str, Interval]]:
    ages = [(0, FREQUENT), *((step.after_days_without_access * DAY, step.to) for step in tier.auto_transitions)]
    for since, until in zip([interval.entered, *touched], [*touched, interval.end], strict=True):
        leaves = [*(since + age for age, _ in ages[1:]), until]
        for (age, name), leave in zip(ages, leaves, strict=True):
            start, end = max(interval.start, since + age), min(leave, until)
            if start < end:
                ending = interval.ending if end == interval.end else Ending.KEPT
                yield name, replace(interval, start=start, end=end, ending=ending)


def monitored(
    book: Book, where: tuple[RateCard, Tier, str], intervals: Iterable[Interval], months: Months
) -> Iterator[Demand]:
    """Yield the fee for watching each object that is large enough to be moved, by object-months."""
    card, tier, ref = where
    fee = tier.monitoring
    if fee is None:
        return
    large = [each for each in intervals if each.reason not in PARTS and each.bytes >= fee.min_object_bytes]
    sums = byte_seconds(large, months.bounds, lambda each: each.objects)
    meter = book.meter(card, f"{tier.tier_id}/monitoring", "object-month", flat(fee.price, fee.unit_count))
    for reason, seconds in sums.items():
        about = About(tier=ref, category=Category.MONITORING, reason=reason)
        for month, each in zip(months.all, seconds, strict=True):
            quantity = Fraction(each, month_seconds(month, tier.month))
            yield point(meter, month, about, quantity)
