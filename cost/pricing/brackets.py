"""Bracket arithmetic: what a run of units costs, given the units that came before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from cost.rates.meters import Bracket
from cost.rates.terms import BracketMode
from cost.units import divide

NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Slice:
    """Units that were charged at one price, for ``per`` of them.

    ``free`` ones fell into an allowance inside the brackets.
    """

    quantity: Fraction
    unit_price: Decimal
    per: int = 1
    free: bool = False

    @property
    def amount(self) -> Fraction:
        """The exact price of the slice."""
        return NOTHING if self.free else self.quantity * Fraction(self.unit_price) / self.per


@dataclass(frozen=True, slots=True)
class Prices:
    """Cumulative brackets and how they are read; bounds count units, prices are for ``per`` units."""

    brackets: tuple[Bracket, ...]
    mode: BracketMode = BracketMode.GRADUATED
    per: int = 1

    def slices(self, lower: Fraction, upper: Fraction) -> tuple[Slice, ...]:
        """Return the units from ``lower`` to ``upper``, by price.

        Graduated: each unit at the price of its own bracket.  Volume: all of them at the
        price of the bracket that ``upper`` reached, a bound itself still being in the lower one.
        """
        if upper <= lower:
            return ()
        if self.mode is BracketMode.VOLUME:
            return (Slice(upper - lower, self._reached(upper), self.per),)
        found = []
        below = NOTHING
        for bracket in self.brackets:
            top = upper if bracket.up_to is None else min(upper, Fraction(bracket.up_to))
            start = max(lower, below)
            if top > start:
                found.append(Slice(top - start, bracket.unit_price, self.per))
            below = max(below, top)
        return tuple(found)

    def _reached(self, position: Fraction) -> Decimal:
        return next(b.unit_price for b in self.brackets if b.up_to is None or position <= Fraction(b.up_to))


def flat(unit_price: Decimal, per: int = 1) -> Prices:
    """Return the brackets of a meter that has a single price, for ``per`` units."""
    return Prices((Bracket(unit_price=unit_price, free=unit_price == 0),), per=per)


def amount(slices: Sequence[Slice]) -> Fraction:
    """Return what slices cost together, exactly."""
    return sum((each.amount for each in slices), NOTHING)


def as_decimal(value: Fraction) -> Decimal:
    """Return a fraction as a decimal of up to 60 significant digits: where exact arithmetic ends."""
    return divide(value.numerator, value.denominator)
