"""Stored bytes as billed quantities, by the tier's metering; early deletions; what leaving now would cost."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cost.errors import RateMissing
from cost.ledger import PARTS, Ending, Interval, Ledger, Reason, Weigh, byte_seconds, days, peaks, raw_bytes
from cost.pricing.autotier import FREQUENT, Access, Accesses, by_subtier, monitored
from cost.pricing.book import Book, allowances
from cost.pricing.brackets import NOTHING, Prices, flat
from cost.pricing.lines import About, Category
from cost.pricing.periods import Months, month_seconds
from cost.pricing.pools import Allowance, Demand, Meter, point
from cost.rates.meters import MinDuration
from cost.rates.model import RateCard
from cost.rates.terms import (
    BracketOrder,
    ClockBasis,
    EarlyDeleteMode,
    Granularity,
    Metering,
    RoundingOrder,
    TierKind,
    Trigger,
)
from cost.rates.tier import Tier
from cost.units import HOURS_PER_DAY, SECONDS_PER_HOUR, Month

SELF = "self"
_TRIGGERS = {
    Ending.DELETED: Trigger.DELETE,
    Ending.OVERWRITTEN: Trigger.OVERWRITE,
    Ending.TRANSITIONED: Trigger.TRANSITION,
    Ending.ABORTED: Trigger.ABORT,
}
_SECONDS = {Granularity.HOUR: SECONDS_PER_HOUR, Granularity.DAY: HOURS_PER_DAY * SECONDS_PER_HOUR}


@dataclass(frozen=True, slots=True)
class Measured:
    """Quantities by reason, one for each month; ``high`` is ``low`` where the metering is known."""

    low: dict[str, list[Fraction]]
    high: dict[str, list[Fraction]]


def storage_meter(book: Book, card: RateCard, tier: Tier, month: Month, seats: int = 1) -> Meter:
    """Return what bills stored bytes in a tier; a plan's included bytes are its first allowance."""
    per_hour = month.hours(tier.month) if tier.metering is Metering.GIB_HOUR else 1
    base = Fraction(int(tier.bytes_per_unit), per_hour)
    free = allowances(card, tier.tier_id, tier.free_allowance, "storage", base)
    if tier.plan is not None:
        included = Allowance(
            pool=f"{card.card_id}/{tier.tier_id}/included",
            quantity=Fraction(tier.plan.included_bytes * _seats(tier, seats)) / base,
            base=base,
            rounding=RoundingOrder.BEFORE,
            brackets=BracketOrder.BEFORE,
        )
        free = (included, *free)
    return book.meter(
        card,
        f"{tier.tier_id}/storage",
        _unit(tier),
        _prices(tier),
        billing=tier.storage_billing,
        allowances=free,
    )


def _unit(tier: Tier) -> str:
    return f"{tier.bytes_per_unit.label}-{'hour' if tier.metering is Metering.GIB_HOUR else 'month'}"


def _prices(tier: Tier) -> Prices:
    return Prices(tier.storage_brackets, tier.bracket_mode)


def _seats(tier: Tier, seats: int) -> int:
    return seats if tier.plan is not None and tier.plan.fee_per == "seat" else 1


def billable(tier: Tier) -> Weigh:
    """Return what an interval counts for in a tier: its minimum size and overhead there, parts as they are."""
    least = tier.min_billable_object_bytes
    extra = sum(each.bytes for each in tier.per_object_overhead if each.billed_at == SELF)

    def weigh(interval: Interval) -> int:
        if interval.reason in PARTS:
            return interval.bytes * interval.objects
        return (max(interval.bytes, least) + extra) * interval.objects

    return weigh if least or extra else raw_bytes


def demands(book: Book, ledger: Ledger, months: Months, seats: int, accesses: Accesses) -> Iterator[Demand]:
    """Yield what storage is billed for: bytes, parts in their staging tier, overhead, early deletions."""
    for ref, intervals in ledger.by_tier.items():
        card, tier = book.tier(ref)
        if tier.kind is TierKind.VOLUME_PROVISIONED:
            continue
        here = _Place(book, card, tier, ref, seats)
        host = tier if tier.staging_tier is None else card.tier(tier.staging_tier)
        parts = [each for each in intervals if each.reason in PARTS and host is not tier]
        whole = [each for each in intervals if each.reason not in PARTS] if parts else intervals
        if tier.auto_transitions:
            yield from _automatic(here, whole, months, accesses.get(ref, ()))
        else:
            yield from _stored(here, measure(tier, whole, billable(tier), months), months)
        yield from _stored(_Place(book, card, host, ref, seats), measure(host, parts, billable(host), months), months)
        yield from _overheads(here, intervals, months)
        yield from _early(here, intervals, months)


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose bytes (``ref`` of the plan) are billed at which tier."""

    book: Book
    card: RateCard
    tier: Tier
    ref: str
    seats: int


def _stored(place: _Place, measured: Measured, months: Months, label: str = "") -> Iterator[Demand]:
    for index, month in enumerate(months.all):
        meter = storage_meter(place.book, place.card, place.tier, month, place.seats)
        for reason, low in measured.low.items():
            category = Category.STAGING if reason in PARTS else Category.STORAGE
            about = About(tier=place.ref, category=category, reason=reason, label=label)
            high = measured.high[reason][index]
            yield Demand(meter=meter, month=month, about=about, quantity=low[index], high=high)


def _automatic(
    place: _Place, intervals: Sequence[Interval], months: Months, accesses: Sequence[Access]
) -> Iterator[Demand]:
    """Yield storage where the provider moves what nobody reads to cheaper sub-tiers."""
    tier = place.tier
    for name, stored in by_subtier(tier, intervals, accesses).items():
        measured = measure(tier, stored, billable(tier), months)
        if name == FREQUENT:
            yield from _stored(place, measured, months)
            continue
        step = next(each for each in tier.auto_transitions if each.to == name)
        unit = f"{tier.bytes_per_unit.label}-month"
        meter = place.book.meter(place.card, f"{tier.tier_id}/storage/{name}", unit, flat(step.unit_price))
        for reason, quantities in measured.low.items():
            about = About(tier=place.ref, category=Category.STORAGE, reason=reason, label=name)
            for month, quantity in zip(months.all, quantities, strict=True):
                yield point(meter, month, about, quantity)
    yield from monitored(place.book, (place.card, tier, place.ref), intervals, months)


def _early(place: _Place, intervals: Sequence[Interval], months: Months) -> Iterator[Demand]:
    for (reason, month), quantity in early_deletions(place.tier, intervals, months).items():
        about = About(tier=place.ref, category=Category.EARLY_DELETE, reason=reason)
        yield point(storage_meter(place.book, place.card, place.tier, month, place.seats), month, about, quantity)


def _overheads(place: _Place, intervals: Sequence[Interval], months: Months) -> Iterator[Demand]:
    objects = [each for each in intervals if each.reason not in PARTS]
    for overhead in place.tier.per_object_overhead:
        if overhead.billed_at == SELF:
            continue
        host = place.card.tier(overhead.billed_at)
        measured = measure(host, objects, _each(overhead.bytes), months)
        yield from _stored(_Place(place.book, place.card, host, place.ref, place.seats), measured, months, "overhead")


def _each(size: int) -> Weigh:
    return lambda interval: interval.objects * size


def measure(tier: Tier, intervals: Sequence[Interval], weigh: Weigh, months: Months) -> Measured:
    """Return the billed quantities of some intervals, in units of the tier's storage prices.

    A daily peak is what the account held at most on each UTC day, and does not apply where a
    minimum duration does: then each object is billed for its own stay.  Plans in steps are
    billed on the month's peak; where the card leaves it open, from the month's average to its peak.
    """
    spans = byte_seconds(intervals, months.bounds, weigh)
    averages = {reason: _per_unit(tier, sums, months) for reason, sums in spans.items()}
    if tier.metering is Metering.DAILY_PEAK_AVG and tier.min_duration is None:
        averages = _shared(_daily_peaks(tier, intervals, weigh, months), spans)
    elif tier.metering in {Metering.PLAN_INCREMENT, Metering.UNSPECIFIED} and intervals:
        highest = _shared(
            [Fraction(peak, tier.bytes_per_unit) for peak in peaks(intervals, months.bounds, weigh)], spans
        )
        if tier.metering is Metering.PLAN_INCREMENT:
            return Measured(highest, highest)
        return Measured(_lower(averages, highest), highest)
    return Measured(averages, averages)


def _per_unit(tier: Tier, sums: list[int], months: Months) -> list[Fraction]:
    if tier.metering is Metering.GIB_HOUR:
        return [Fraction(each, tier.bytes_per_unit * SECONDS_PER_HOUR) for each in sums]
    return [
        Fraction(each, tier.bytes_per_unit * month_seconds(month, tier.month))
        for each, month in zip(sums, months.all, strict=True)
    ]


def _daily_peaks(tier: Tier, intervals: Iterable[Interval], weigh: Weigh, months: Months) -> list[Fraction]:
    """Return the mean of the daily peaks over the days that a month counts, for each month."""
    bounds = days(months.bounds[0], months.bounds[-1])
    sums: dict[Month, int] = defaultdict(int)
    for day, peak in zip(bounds, peaks(intervals, bounds, weigh), strict=False):
        sums[months.of(day)] += peak
    return [
        Fraction(sums[month] * HOURS_PER_DAY, tier.bytes_per_unit * month.hours(tier.month)) for month in months.all
    ]


def _shared(totals: list[Fraction], spans: dict[str, list[int]]) -> dict[str, list[Fraction]]:
    """Split a quantity that has no reasons of its own by the byte-seconds of each."""
    weights = [sum(column) for column in zip(*spans.values(), strict=True)]
    return {
        reason: [
            total * Fraction(each, weight) if weight else NOTHING
            for total, each, weight in zip(totals, sums, weights, strict=True)
        ]
        for reason, sums in spans.items()
    }


def _lower(averages: dict[str, list[Fraction]], highest: dict[str, list[Fraction]]) -> dict[str, list[Fraction]]:
    return {
        reason: [min(pair) for pair in zip(sums, highest[reason], strict=True)] for reason, sums in averages.items()
    }


def early_deletions(tier: Tier, intervals: Iterable[Interval], months: Months) -> dict[tuple[Reason, Month], Fraction]:
    """Return the quantities charged for what ended before the tier's minimum, by reason and month of the end."""
    rule = tier.min_duration
    if rule is None or rule.mode is EarlyDeleteMode.NONE:
        return {}
    weigh = billable(tier)
    endings = {ending for ending, trigger in _TRIGGERS.items() if trigger in rule.triggers}
    sums: dict[tuple[Reason, Month], int] = defaultdict(int)
    for each in intervals:
        if each.ending in endings and (each.reason not in PARTS or each.ending is Ending.ABORTED):
            missing = _remaining(rule, each)
            if missing:
                sums[each.reason, months.closing(each.end, each.start)] += weigh(each) * missing
    return {key: _quantity(tier, total, key[1]) for key, total in sums.items()}


def liabilities(book: Book, ledger: Ledger, months: Months) -> Iterator[Demand]:
    """Yield what would be charged on top if all that is still there were deleted at the ledger's end."""
    month = months.of(max(ledger.start, ledger.end - 1))
    for ref, intervals in ledger.by_tier.items():
        card, tier = book.tier(ref)
        rule = tier.min_duration
        if rule is None or rule.mode is EarlyDeleteMode.NONE or Trigger.DELETE not in rule.triggers:
            continue
        weigh = billable(tier)
        sums: dict[Reason, int] = defaultdict(int)
        for each in intervals:
            if each.ending is Ending.ALIVE and each.reason not in PARTS:
                sums[each.reason] += weigh(each) * _remaining(rule, each)
        meter = book.meter(card, f"{tier.tier_id}/liability", _unit(tier), _prices(tier))
        for reason, total in sums.items():
            about = About(tier=ref, category=Category.EARLY_DELETE, reason=reason)
            yield point(meter, month, about, _quantity(tier, total, month))


def _remaining(rule: MinDuration, interval: Interval) -> int:
    """Return the seconds that are missing, in whole hours or days."""
    clock = interval.entered if rule.clock_basis is ClockBasis.CLASS_ENTRY else interval.created
    missing = max(0, clock + rule.days * _SECONDS[Granularity.DAY] - interval.end)
    step = _SECONDS[rule.granularity]
    return -(-missing // step) * step


def _quantity(tier: Tier, byte_seconds_: int, month: Month) -> Fraction:
    if tier.metering is Metering.GIB_HOUR:
        return Fraction(byte_seconds_, tier.bytes_per_unit * SECONDS_PER_HOUR)
    if tier.metering in {Metering.PROVISIONED_HOURS, Metering.PLAN_INCREMENT}:
        raise RateMissing(f"{tier.tier_id}: a minimum duration under {tier.metering}", hint="remove it from the card")
    return Fraction(byte_seconds_, tier.bytes_per_unit * month_seconds(month, tier.month))
