"""Settles what was used in a month: allowances, rounding and brackets over all that shares a meter.

Every amount is the difference that our usage makes to the account's: the cost of baseline
and usage less the cost of the baseline alone.  It is split over lines by quantity.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from cost.pricing.brackets import NOTHING, Prices, Slice, amount, as_decimal
from cost.pricing.lines import About, Charge, Line, charge
from cost.rates.meters import Billing
from cost.rates.terms import BracketOrder, RoundingOrder
from cost.units import Month, Rounding, RoundLevel, add, subtract, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Units that are free each month.  Allowances of one ``pool`` are one, counted in ``base`` units."""

    pool: str
    quantity: Fraction
    base: Fraction
    rounding: RoundingOrder
    brackets: BracketOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One price list of one card; whatever shares ``name`` in a month is billed together."""

    name: str
    card: str
    unit: str
    currency: str
    prices: Prices
    allowances: tuple[Allowance, ...] = ()
    billing: Billing | None = None
    exchange: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A quantity on a meter in a month.  ``high`` differs where the card leaves the metering open."""

    meter: Meter
    month: Month
    about: About
    quantity: Fraction
    high: Fraction


def point(meter: Meter, month: Month, about: About, quantity: Fraction) -> Demand:
    """Return the demand for one certain quantity."""
    return Demand(meter=meter, month=month, about=about, quantity=quantity, high=quantity)


Quantity = Callable[[Demand], Fraction]


def settle(demands: Iterable[Demand], baselines: Mapping[str, Fraction]) -> tuple[Line, ...]:
    """Return one line for each meter, month and purpose.  ``baselines`` are by meter name, each month."""
    merged = _merge(demands)
    low = _settle(merged, baselines, lambda demand: demand.quantity)
    ranged = any(demand.quantity != demand.high for demand in merged)
    high = _settle(merged, baselines, lambda demand: demand.high) if ranged else low
    return tuple(
        Line(
            card=demand.meter.card,
            meter=demand.meter.name,
            about=demand.about,
            month=demand.month,
            unit=demand.meter.unit,
            price_currency=demand.meter.currency,
            low=below,
            high=above,
        )
        for demand, below, above in zip(merged, low, high, strict=True)
    )


def _merge(demands: Iterable[Demand]) -> list[Demand]:
    """Add up what has meter, month and purpose in common; what is zero is left out."""
    merged: dict[tuple[str, Month, About], Demand] = {}
    for each in demands:
        if each.quantity or each.high:
            key = (each.meter.name, each.month, each.about)
            known = merged.get(key)
            merged[key] = (
                each
                if known is None
                else replace(known, quantity=known.quantity + each.quantity, high=known.high + each.high)
            )
    return list(merged.values())


@dataclass(slots=True)
class _Free:
    """What is left of each allowance in each month, in base units."""

    left: dict[tuple[str, Month], Fraction] = field(default_factory=dict)

    def available(self, allowance: Allowance, month: Month) -> Fraction:
        return self.left.get((allowance.pool, month), allowance.quantity * allowance.base) / allowance.base

    def take(self, allowance: Allowance, month: Month, units: Fraction) -> None:
        left = self.available(allowance, month) - units
        self.left[allowance.pool, month] = left * allowance.base


def _settle(demands: list[Demand], baselines: Mapping[str, Fraction], quantity: Quantity) -> list[Charge]:
    groups: dict[tuple[str, Month], list[int]] = defaultdict(list)
    for index, demand in enumerate(demands):
        groups[demand.meter.name, demand.month].append(index)
    free = _Free()
    charges: dict[int, Charge] = {}
    for (name, month), members in groups.items():
        meter = demands[members[0]].meter
        used = [quantity(demands[index]) for index in members]
        by_line = meter.billing if meter.billing is not None and meter.billing.level is RoundLevel.LINE else None
        weights = [rounded(each, by_line) for each in used]
        slices = _charged(meter, month, sum(weights, NOTHING), baselines.get(name, NOTHING), free)
        charges.update(zip(members, _split(slices, used, weights, meter.exchange), strict=True))
    return [charges[index] for index in range(len(demands))]


def _split(
    slices: tuple[Slice, ...], used: list[Fraction], weights: list[Fraction], exchange: Fraction
) -> list[Charge]:
    """Return a meter's charge by line, in proportion to the weights.

    The last digits, which no division keeps, go to the heaviest line, so that lines add up to what the
    meter costs as a whole.
    """
    whole = sum(weights, NOTHING)
    charges = []
    for quantity, weight in zip(used, weights, strict=True):
        share = weight / whole if whole else NOTHING
        parts = tuple(replace(each, quantity=each.quantity * share) for each in slices) if share else ()
        charges.append(charge(quantity, parts, exchange))
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    missing = subtract(as_decimal(amount(slices) * exchange), total(each.amount for each in charges))
    corrected = add(charges[heaviest].amount, missing)
    charges[heaviest] = replace(charges[heaviest], amount=corrected)
    return charges


def _charged(meter: Meter, month: Month, used: Fraction, baseline: Fraction, free: _Free) -> tuple[Slice, ...]:
    billing = meter.billing if meter.billing is not None and meter.billing.level is RoundLevel.MONTH else None
    upper = baseline + used
    allowed = sum((free.available(each, month) for each in meter.allowances), NOTHING)
    tariff = _Tariff(meter, billing, allowed)
    left = min(allowed, tariff.counted(upper))
    for each in meter.allowances:
        taken = min(left, free.available(each, month))
        free.take(each, month, taken)
        left -= taken
    return tariff.slices(tariff.position(baseline), tariff.position(upper))


@dataclass(frozen=True, slots=True)
class _Tariff:
    """How a month's quantity becomes a position in the brackets.  All allowances of a meter take the first's order."""

    meter: Meter
    billing: Billing | None
    free: Fraction

    @property
    def _rounds_first(self) -> bool:
        return bool(self.meter.allowances) and self.meter.allowances[0].rounding is RoundingOrder.AFTER

    @property
    def _inside(self) -> bool:
        return bool(self.meter.allowances) and self.meter.allowances[0].brackets is BracketOrder.AFTER

    def counted(self, quantity: Fraction) -> Fraction:
        """Return the quantity that the allowance is taken off."""
        return rounded(quantity, self.billing) if self._rounds_first else quantity

    def position(self, quantity: Fraction) -> Fraction:
        """Return how far ``quantity`` reaches in the brackets."""
        counted = self.counted(quantity)
        above = max(NOTHING, counted - self.free)
        if not self._rounds_first:
            above = rounded(above, self.billing)
        return above + min(counted, self.free) if self._inside else above

    def slices(self, lower: Fraction, upper: Fraction) -> tuple[Slice, ...]:
        """Return what lies between two positions; units inside the brackets that are free cost nothing."""
        if not self._inside:
            return self.meter.prices.slices(lower, upper)
        paid = self.meter.prices.slices(max(lower, self.free), max(upper, self.free))
        unpaid = self.meter.prices.slices(min(lower, self.free), min(upper, self.free))
        return (*(replace(each, free=True) for each in unpaid), *paid)


def rounded(quantity: Fraction, billing: Billing | None) -> Fraction:
    """Return the quantity in whole increments, as the card rounds; unchanged without a rule."""
    if billing is None or billing.rounding is Rounding.NONE:
        return quantity
    increment = Fraction(billing.increment)
    steps, rest = divmod(quantity, increment)
    up = rest > 0 if billing.rounding is Rounding.UP else rest * 2 >= increment
    return (steps + (1 if up else 0)) * increment
