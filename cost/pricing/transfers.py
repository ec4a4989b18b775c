"""Every leg of the network, priced where it leaves, and what costs by the hour or month for being there."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from cost.errors import PlanInvalid
from cost.ledger import Ledger
from cost.pricing.book import Book, allowances
from cost.pricing.brackets import Prices, flat
from cost.pricing.lines import About, Category
from cost.pricing.periods import Months, second
from cost.pricing.pools import Demand, point
from cost.rates.terms import Direction, Period, TierKind
from cost.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from cost.usage import FeeUse, Transfer

RESTORE = "restore"
"""The label of legs that bring state back."""


def demands(book: Book, legs: Iterable[Transfer], months: Months) -> Iterator[Demand]:
    """Yield the bytes of each leg; raises RateMissing for one that no card has.

    Entries of one pool share brackets and allowance.  Where both directions are charged, a leg
    leaves one zone and enters another, and counts twice.
    """
    for leg in legs:
        card, entry = book.leg(leg)
        base = Fraction(int(entry.bytes_per_unit))
        route = f"{entry.from_zone}:{entry.to_zone}:{entry.path}"
        free = allowances(card, entry.pool or route, entry.free_allowance, "transfer", base)
        prices = Prices(entry.brackets, entry.bracket_mode)
        name, unit = f"transfer/{entry.pool or route}", entry.bytes_per_unit.label
        meter = book.meter(card, name, unit, prices, billing=entry.billing, allowances=free)
        category = Category.RESTORE_TRANSFER if leg.label == RESTORE else Category.UPLOAD_TRANSFER
        about = About(tier=leg.tier, category=category, reason=route, label=leg.label)
        times = 2 if entry.direction_charged is Direction.BOTH else 1
        yield point(meter, months.of(leg.at), about, times * leg.bytes / base)


def fees(book: Book, uses: Iterable[FeeUse], months: Months) -> Iterator[Demand]:
    """Yield hourly fees, every hour begun counting whole; raises RateMissing."""
    for use in uses:
        if use.end < use.start:
            raise PlanInvalid(f"fee {use.fee} ends before it starts", hint="give start and end in order")
        card, fee = book.fee(use.fee)
        meter = book.meter(card, f"fee/{fee.id}", "hour", flat(fee.price_per_hour))
        about = About(tier="", category=Category.FIXED, reason=fee.path, label=fee.id)
        for month in months.all:
            start, end = max(use.start, second(month.start)), min(use.end, second(month.end))
            if start < end:
                yield point(meter, month, about, Fraction(-(-(end - start) // SECONDS_PER_HOUR)))


def subscriptions(book: Book, ledger: Ledger, months: Months, seats: int) -> Iterator[Demand]:
    """Yield the fee of each plan that something is stored under, for every period begun."""
    paid: set[str] = set()
    for ref in ledger.by_tier:
        card, tier = book.tier(ref)
        plan = tier.plan
        name = f"{tier.tier_id}/plan"
        if tier.kind is not TierKind.PLAN_QUOTA or plan is None or f"{card.card_id}/{name}" in paid:
            continue
        paid.add(f"{card.card_id}/{name}")
        meter = book.meter(card, name, f"{plan.fee_per}-{plan.fee_period}", flat(plan.fee))
        about = About(tier=ref, category=Category.FIXED, reason="plan", label=plan.name)
        for month in months.all:
            hours = {Period.MONTH: 1, Period.DAY: month.days, Period.HOUR: month.days * HOURS_PER_DAY}[plan.fee_period]
            yield point(meter, month, about, Fraction(hours * (seats if plan.fee_per == "seat" else 1)))
