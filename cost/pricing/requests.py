"""Requests by class, attempt by attempt as the card bills them, and lifecycle transitions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction

from cost.ledger import Ledger
from cost.pricing.book import Book, allowances
from cost.pricing.brackets import flat
from cost.pricing.lines import About, Category
from cost.pricing.periods import Months
from cost.pricing.pools import Demand, Meter, point
from cost.rates.meters import UNMETERED
from cost.rates.model import RateCard
from cost.rates.terms import STAGING_OPERATIONS, Operation
from cost.units import Month
from cost.usage import Requests


def demands(book: Book, requests: Iterable[Requests], months: Months) -> Iterator[Demand]:
    """Yield what requests are billed for, in requests; raises RateMissing for one without a class or status rule."""
    sums: dict[tuple[str, Operation, int, str, Month], int] = defaultdict(int)
    for each in requests:
        sums[each.tier, each.operation, each.status, each.label, months.of(each.at)] += each.count
    for (ref, operation, status, label, month), count in sums.items():
        card, meter, metered = _meter(book, ref, operation)
        billed = count if not metered or card.bills(status) else 0
        about = About(tier=ref, category=Category.REQUESTS, reason=meter.name.rpartition("/")[2], label=label)
        yield point(meter, month, about, Fraction(billed))


def _meter(book: Book, ref: str, operation: Operation) -> tuple[RateCard, Meter, bool]:
    card, tier = book.tier(ref)
    rate = card.request(tier.tier_id, operation)
    if operation in STAGING_OPERATIONS and tier.staging_request_tier is not None:
        tier = card.tier(tier.staging_request_tier)
    name = "unmetered" if rate is UNMETERED else tier.operations.get(operation) or card.operations[operation]
    free = allowances(card, tier.tier_id, tier.free_allowance, name, Fraction(1))
    prices = flat(rate.price, rate.unit_count)
    meter = book.meter(
        card, f"{tier.tier_id}/requests/{name}", "request", prices, billing=rate.billing, allowances=free
    )
    return card, meter, rate is not UNMETERED


def transitions(book: Book, ledger: Ledger, months: Months) -> Iterator[Demand]:
    """Yield one request for each object that a lifecycle rule moved into a tier; raises RateMissing."""
    for ref, intervals in ledger.by_tier.items():
        moved = [each for each in intervals if each.created < each.entered == each.start]
        if not moved:
            continue
        card, tier = book.tier(ref)
        rate = tier.transition_into()
        meter = book.meter(card, f"{tier.tier_id}/transitions", "object", flat(rate.price, rate.unit_count))
        for each in moved:
            about = About(tier=ref, category=Category.TRANSITIONS, reason=each.reason)
            yield point(meter, months.of(each.start), about, Fraction(each.objects))
