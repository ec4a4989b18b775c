"""Estimate against what was counted: for every meter, how much is due to quantity and how much to rates, exactly.

Both sides are a :class:`Side`.  :func:`counted` makes one from a plan or from the metering wrapper's
counts; whatever reads a bill's export one day makes another, and nothing else changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from cost.errors import CurrencyMixed, ReconcileInvalid
from cost.estimate import CardUse, Estimate, Plan
from cost.ledger import Ending, byte_seconds
from cost.pricing.book import Book
from cost.pricing.brackets import NOTHING
from cost.pricing.lines import Category, Line
from cost.rates.model import RateCard
from cost.rates.terms import RequestBilling, SourceKind
from cost.units import Month

_NEAR = Fraction(15, 10_000)
_GONE = frozenset({Ending.DELETED, Ending.OVERWRITTEN})
_MIX_UPS = (
    (Fraction(2**30, 10**9), "1.0737: GB (10^9) and GiB (2^30) mixed up?"),
    (Fraction(2**40, 10**12), "1.0995, about 1.1: TB (10^12) and TiB (2^40) mixed up?"),
    (Fraction(730, 720), "1.0139: months of 730 and 720 hours mixed up?"),
    (Fraction(744, 720), "1.0333: months of 744 and 720 hours mixed up?"),
    (Fraction(744, 730), "1.0192: months of 744 and 730 hours mixed up?"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """How far a quantity, or a rate that changed, may be off, as fractions."""

    storage: Decimal = Decimal("0.02")
    requests: Decimal = Decimal("0.01")
    egress: Decimal = Decimal("0.05")

    def limit(self, category: Category) -> Decimal:
        """Return the gate of a category: retrieval counts as egress, transitions as requests, the rest as storage."""
        if category in {Category.REQUESTS, Category.TRANSITIONS}:
            return self.requests
        if category in {Category.UPLOAD_TRANSFER, Category.RESTORE_TRANSFER, Category.RETRIEVAL}:
            return self.egress
        return self.storage


GATES = Gates()


class Drift(StrEnum):
    """What kind of difference a meter shows."""

    NONE = "none"
    RATE = "rate drift"
    BRACKET = "bracket or allowance"
    QUANTITY = "quantity drift"
    MISSING = "missing meter"
    PHANTOM = "phantom"
    TIMING = "timing"


class Key(NamedTuple):
    """What is set against each other: one kind of charge on one meter of one tier in one month."""

    tier: str
    meter: str
    category: Category
    month: Month


_Meter = tuple[str, str, Category]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterLine:
    """What a meter came to.  ``high`` differs where a card leaves the metering open.

    ``prices`` are the list prices that were charged, each with the units that it is for: where all of
    one side's are among the other's, no rate has changed.  None where only money is known, as on a bill.
    """

    key: Key
    unit: str
    quantity: Fraction
    amount: Fraction
    high: Fraction
    high_amount: Fraction
    prices: frozenset[tuple[Decimal, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What was counted for a tier whatever it costs.  ``mean_age`` is that of deleted objects, in seconds."""

    tier: str
    attempts: int
    billable: int
    bytes_moved: int
    byte_seconds: int
    deleted: int
    mean_age: Fraction | None


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a reconciliation; also the seam for a bill.

    ``lines`` are under the names of our meters, at most one for a key.  ``unmapped`` names every
    meter of the source that has no counterpart: one is enough to fail.  A bill has neither
    ``cards`` nor ``tallies``.
    """

    name: str
    currency: str
    lines: tuple[MeterLine, ...]
    unmapped: tuple[str, ...] = ()
    cards: tuple[CardUse, ...] = ()
    tallies: tuple[Tally, ...] = ()


def counted(name: str, plan: Plan, estimate: Estimate, cards: Sequence[RateCard]) -> Side:
    """Return a side from a plan and its estimate.

    For what happened, ``plan`` holds the ledger of real intervals and, as usage, every
    attempt with the status that came back.
    """
    return Side(
        name=name,
        currency=estimate.currency,
        lines=meter_lines(estimate),
        cards=estimate.cards,
        tallies=_tallies(plan, estimate, Book(tuple(cards), estimate.currency)),
    )


def meter_lines(estimate: Estimate) -> tuple[MeterLine, ...]:
    """Return the lines of an estimate added up by key, whatever their labels and reasons."""
    found: dict[Key, list[Line]] = defaultdict(list)
    for line in estimate.lines:
        found[Key(line.about.tier, line.meter, line.about.category, line.month)].append(line)
    return tuple(
        MeterLine(
            key=key,
            unit=lines[0].unit,
            quantity=sum((line.low.quantity for line in lines), NOTHING),
            amount=sum((Fraction(line.low.amount) for line in lines), NOTHING),
            high=sum((line.high.quantity for line in lines), NOTHING),
            high_amount=sum((Fraction(line.high.amount) for line in lines), NOTHING),
            prices=frozenset(
                (each.unit_price, each.per) for line in lines for each in line.high.slices if not each.free
            ),
        )
        for key, lines in found.items()
    )


def _tallies(plan: Plan, estimate: Estimate, book: Book) -> tuple[Tally, ...]:
    usage, ledger = plan.usage, estimate.ledger
    refs = [*ledger.by_tier, *(each.tier for each in usage.requests), *(each.tier for each in usage.transfers)]
    found = []
    for ref in dict.fromkeys(refs):
        mine = [each for each in usage.requests if each.tier == ref]
        gone = [each for each in ledger.of(ref) if each.ending in _GONE]
        deleted = sum(each.objects for each in gone)
        lived = sum(each.objects * (each.end - each.created) for each in gone)
        stored = byte_seconds(ledger.of(ref), [ledger.start, max(ledger.end, ledger.start + 1)])
        found.append(
            Tally(
                tier=ref,
                attempts=sum(each.count for each in mine),
                billable=sum(each.count for each in mine if _bills(book, ref, each.status)),
                bytes_moved=sum(each.bytes for each in usage.transfers if each.tier == ref),
                byte_seconds=sum(sum(each) for each in stored.values()),
                deleted=deleted,
                mean_age=Fraction(lived, deleted) if deleted else None,
            )
        )
    return tuple(found)


def _bills(book: Book, ref: str, status: int) -> bool:
    card, tier = book.tier(ref)
    return tier.request_billing is RequestBilling.BILLED and card.bills(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """One meter: ``delta`` is exactly ``quantity_effect`` plus ``rate_effect``.

    Quantity: (Qa-Qe)·Pe.  Rate: (Pa-Pe)·Qa, with P the average price.  ``deviation`` is what the gate judges,
    None where there is nothing to compare with.  ``hint`` names a likely mix-up of units.
    """

    key: Key
    unit: str
    expected: Fraction
    actual: Fraction
    expected_amount: Fraction
    actual_amount: Fraction
    quantity_effect: Fraction
    rate_effect: Fraction
    drift: Drift
    deviation: Fraction | None
    limit: Decimal
    passed: bool
    hint: str = ""

    @property
    def delta(self) -> Fraction:
        """What was paid more than expected."""
        return self.actual_amount - self.expected_amount


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """All meters, the largest difference first, and the counts of both sides."""

    expected_name: str
    actual_name: str
    currency: str
    rows: tuple[Variance, ...]
    tallies: tuple[tuple[Tally | None, Tally | None], ...]

    @property
    def passed(self) -> bool:
        """Whether every meter is within its gate."""
        return all(row.passed for row in self.rows)

    @property
    def failed(self) -> tuple[Variance, ...]:
        """The meters that are not."""
        return tuple(row for row in self.rows if not row.passed)

    @property
    def delta(self) -> Fraction:
        """The exact sum of all differences."""
        return sum((row.delta for row in self.rows), NOTHING)


def reconcile(expected: Side, actual: Side, gates: Gates = GATES) -> Reconciliation:
    """Set what was expected against what happened.

    Raises ReconcileInvalid for example cards and for meters that nothing is known about, and CurrencyMixed.
    """
    _require(expected, actual)
    before, after = _by_key(expected), _by_key(actual)
    moved = _moved(before, after, gates)
    rows = [
        _variance(key, before.get(key), after.get(key), gates, moved=key[:3] in moved)
        for key in dict.fromkeys((*before, *after))
    ]
    theirs = {each.tier: each for each in actual.tallies}
    ours = {each.tier: each for each in expected.tallies}
    return Reconciliation(
        expected_name=expected.name,
        actual_name=actual.name,
        currency=expected.currency,
        rows=tuple(sorted(rows, key=lambda row: (-abs(row.delta), row.key))),
        tallies=tuple((ours.get(tier), theirs.get(tier)) for tier in dict.fromkeys((*ours, *theirs))),
    )


def _require(expected: Side, actual: Side) -> None:
    examples = [each.card_id for each in (*expected.cards, *actual.cards) if each.source_kind is SourceKind.EXAMPLE]
    if examples:
        raise ReconcileInvalid(
            f"{', '.join(dict.fromkeys(examples))}: example rates are nobody's bill",
            hint="copy the card, read every price at its source, and set source_kind and as_of",
        )
    unmapped = [*expected.unmapped, *actual.unmapped, *(each.unit for each in actual.lines if not each.key.meter)]
    if unmapped:
        raise ReconcileInvalid(
            f"{actual.name}: no meter is known for {', '.join(dict.fromkeys(unmapped))}",
            hint="map each of them to a meter of a card: what is not mapped is not reconciled",
        )
    if expected.currency != actual.currency:
        raise CurrencyMixed(
            f"{expected.name} is in {expected.currency} and {actual.name} in {actual.currency}",
            hint="estimate in the currency of the bill, with a dated [[fx]] rate",
        )


def _by_key(source: Side) -> dict[Key, MeterLine]:
    found = {line.key: line for line in source.lines}
    if len(found) != len(source.lines):
        raise ReconcileInvalid(f"{source.name}: a meter appears twice in a month", hint="add its lines up first")
    return found


def _moved(before: Mapping[Key, MeterLine], after: Mapping[Key, MeterLine], gates: Gates) -> set[_Meter]:
    """Return the meters that come to the same over all months, within their gate, and span several."""

    def sums(lines: Mapping[Key, MeterLine]) -> dict[_Meter, Fraction]:
        found: dict[_Meter, Fraction] = defaultdict(Fraction)
        for key, line in lines.items():
            found[key[:3]] += line.high
        return found

    ours, theirs = sums(before), sums(after)
    months: dict[_Meter, set[Month]] = defaultdict(set)
    limits = {}
    for key in (*before, *after):
        months[key[:3]].add(key.month)
        limits[key[:3]] = Fraction(gates.limit(key.category))
    return {
        meter
        for meter, seen in months.items()
        if len(seen) > 1 and ours.get(meter) and abs(theirs.get(meter, NOTHING) / ours[meter] - 1) <= limits[meter]
    }


def _variance(key: Key, ours: MeterLine | None, theirs: MeterLine | None, gates: Gates, *, moved: bool) -> Variance:
    actual, paid = (NOTHING, NOTHING) if theirs is None else (theirs.high, theirs.high_amount)
    expected, due = _expected(ours, theirs)
    limit = gates.limit(key.category)
    old = due / expected if expected else None
    new = paid / actual if actual else None
    rate_effect = NOTHING if old is None or new is None else (new - old) * actual
    quantity_effect = paid - due - rate_effect
    listed = _same_list(ours, theirs)
    deviation = abs(actual / expected - 1) if expected else None
    if deviation is not None and not listed and old and new is not None:
        deviation = max(deviation, abs(new / old - 1))
    inside = ours is not None and theirs is not None and ours.quantity <= actual <= ours.high
    off = deviation is None or deviation > Fraction(limit)
    within = not off or moved or (inside and ours is not None and ours.quantity != ours.high)
    drift = _drift((expected, actual), quantity_effect, rate_effect, listed=listed)
    return Variance(
        key=key,
        unit=(ours or theirs or _NO_LINE).unit,
        expected=expected,
        actual=actual,
        expected_amount=due,
        actual_amount=paid,
        quantity_effect=quantity_effect,
        rate_effect=rate_effect,
        drift=Drift.TIMING if moved and off else drift,
        deviation=deviation,
        limit=limit,
        passed=within,
        hint=_hint(key.category, ((expected, actual), (old or NOTHING, new or NOTHING))),
    )


def _expected(ours: MeterLine | None, theirs: MeterLine | None) -> tuple[Fraction, Fraction]:
    """Return quantity and amount of the end of a range that is nearer to what happened."""
    if ours is None:
        return NOTHING, NOTHING
    if theirs is not None and theirs.quantity == theirs.high:
        below, above = abs(theirs.high - ours.quantity), abs(ours.high - theirs.high)
        if below < above:
            return ours.quantity, ours.amount
    return ours.high, ours.high_amount


def _same_list(ours: MeterLine | None, theirs: MeterLine | None) -> bool:
    one, other = (None if line is None else line.prices for line in (ours, theirs))
    return one is not None and other is not None and (one <= other or other <= one)


def _drift(pair: tuple[Fraction, Fraction], quantity: Fraction, rate: Fraction, *, listed: bool) -> Drift:
    expected, actual = pair
    if not expected and not actual:
        return Drift.NONE
    if not expected or not actual:
        return Drift.MISSING if actual else Drift.PHANTOM
    if not listed and abs(rate) > abs(quantity):
        return Drift.RATE
    if expected != actual:
        return Drift.QUANTITY
    return Drift.BRACKET if rate else Drift.NONE


def _hint(category: Category, pairs: Iterable[tuple[Fraction, Fraction]]) -> str:
    """Return the mix-up that explains a ratio of bytes or of their prices; requests have no units to mix up."""
    if category in {Category.REQUESTS, Category.TRANSITIONS, Category.FIXED}:
        return ""
    for one, other in pairs:
        if one and other:
            ratio = max(one / other, other / one)
            for factor, text in _MIX_UPS:
                if abs(ratio / factor - 1) <= _NEAR:
                    return f"ratio near {text}"
    return ""


_NO_LINE = MeterLine(
    key=Key("", "", Category.FIXED, Month(1970, 1)),
    unit="",
    quantity=NOTHING,
    amount=NOTHING,
    high=NOTHING,
    high_amount=NOTHING,
)
