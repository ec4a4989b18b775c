"""What something costs, as commands show it beside what they do: values only, no rates.

Amounts are exact decimals in one currency; ``low`` and ``high`` differ where a card leaves the
metering open.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

_CENT = Decimal("0.01")
_LEAST = Decimal("0.005")
_ROUNDING = Context(prec=60, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that is paid for: ``what`` in words, ``monthly`` where it is paid again each month."""

    what: str
    low: Decimal
    high: Decimal
    monthly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The money of one tier.  ``notes`` say what is not priced and why, and what the figures rest on.

    ``warning`` says why there are no figures, or why they are old.
    """

    tier: str
    currency: str = ""
    items: tuple[Item, ...] = ()
    notes: tuple[str, ...] = ()
    warning: str = ""


def amount_text(low: Decimal, high: Decimal, currency: str) -> str:
    """Write an amount with cents, half up; more digits where it would read as nothing though it is not."""
    if low == high:
        return f"{_figure(low)} {currency}"
    return f"{_figure(low)} to {_figure(high)} {currency}"


def _figure(value: Decimal) -> str:
    if value == 0 or value >= _LEAST:
        return f"{_ROUNDING.quantize(value, _CENT):f}"
    return f"{_ROUNDING.create_decimal(f'{value:.2e}'):f}"


def money_lines(priced: Priced) -> list[str]:
    """Return the lines that a command shows below a tier."""
    shown = [
        f"{one.what} {amount_text(one.low, one.high, priced.currency)}{' a month' if one.monthly else ''}"
        for one in priced.items
    ]
    lines = [f"cost: {', '.join(shown)}"] if shown else []
    lines += [f"cost: {note}" for note in priced.notes]
    return lines + ([f"warning: {priced.warning}"] if priced.warning else [])
