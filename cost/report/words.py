"""How amounts, bytes and spans are written for people.  Nothing is rounded before it comes here."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from cost.estimate import Amount
from cost.units import half_up

CENTS, FINE = 2, 4
_BYTES = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_SPANS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def decimals(value: Decimal, places: int = CENTS) -> str:
    """Return a number with thousands separated, rounded half up; never a zero for what is not zero.

    Amounts below a cent get two digits more than the zeros they begin with.
    """
    if value and abs(value) < Decimal(1).scaleb(-places):
        places = 1 - value.adjusted()
    return f"{half_up(value, places):,f}"


def number(value: Fraction, places: int = CENTS) -> str:
    """Return a fraction as :func:`decimals` would."""
    return decimals(Decimal(value.numerator) / Decimal(value.denominator), places)


def quantity(value: Fraction) -> str:
    """Return a whole number as such, and anything else to four places."""
    return number(value, 0 if value.denominator == 1 else FINE)


def money(amount: Amount | Decimal, currency: str = "") -> str:
    """Return an amount, or both ends of a range."""
    if isinstance(amount, Decimal):
        amount = Amount(amount, amount)
    low, high = decimals(amount.low), decimals(amount.high)
    text = low if amount.expected is not None or low == high else f"{low} to {high}"
    return f"{text} {currency}".rstrip()


def byte_text(count: int) -> str:
    """Return bytes in decimal units, to a tenth."""
    for label, unit in _BYTES:
        if count >= unit:
            return f"{half_up(Decimal(count) / unit, 1).normalize():,f} {label}"
    return f"{count} B"


def span(seconds: int) -> str:
    """Return a span in its two largest units, rounded up."""
    for index, (label, unit) in enumerate(_SPANS):
        if seconds < unit:
            continue
        if index == len(_SPANS) - 1:
            return f"{seconds} {label}"
        small_label, small = _SPANS[index + 1]
        steps = -(-seconds // small)
        whole, rest = divmod(steps, unit // small)
        return f"{whole} {label} {rest} {small_label}" if rest else f"{whole} {label}"
    return "0 s"


def day_text(at: int) -> str:
    """Return the UTC day of an instant in seconds since 1970."""
    return datetime.fromtimestamp(at, tz=UTC).date().isoformat()


def printable(text: str) -> str:
    """Return text without anything that a terminal, a page or a reader could take for more than text."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def short(text: str, most: int) -> str:
    """Return printable text of at most ``most`` characters, the rest as an ellipsis."""
    text = printable(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
