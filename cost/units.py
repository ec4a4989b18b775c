"""Exact numbers: decimals from text, bytes and months by explicit name, money with its currency.

Sums and products are exact or raise; quotients are made in one function, :func:`divide`,
so that a reader can find every place where digits end.  Nothing here reads a clock.
"""

import calendar
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import (
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Clamped,
    Context,
    Decimal,
    DivisionByZero,
    FloatOperation,
    Inexact,
    InvalidOperation,
    Overflow,
    Subnormal,
    Underflow,
)
from enum import IntEnum, StrEnum
from typing import Any, Literal

from cost.errors import CurrencyMixed, UnitInvalid

_HARMFUL = [InvalidOperation, DivisionByZero, Overflow, Underflow, Clamped, Subnormal, FloatOperation]
_EXACT = Context(prec=512, traps=[*_HARMFUL, Inexact])
_DIVISION = Context(prec=60, rounding=ROUND_HALF_EVEN, traps=_HARMFUL)
_ROUND_HALF = Context(prec=512, rounding=ROUND_HALF_UP, traps=_HARMFUL)

ZERO = Decimal(0)
ONE = Decimal(1)
_DIGITS = 18
_DECIMAL = re.compile(rf"[0-9]{{1,{_DIGITS}}}(\.[0-9]{{1,{_DIGITS}}})?")
DECIMAL_PATTERN = rf"^[0-9]{{1,{_DIGITS}}}(\.[0-9]{{1,{_DIGITS}}})?$"
"""What :func:`parse_decimal` takes, for schemas."""

HOURS_PER_DAY = 24
SECONDS_PER_HOUR = 3600


def parse_decimal(text: object) -> Decimal:
    """Return the number that a string such as ``"0.023"`` spells, exactly.

    Raises UnitInvalid for anything but digits with an optional fraction of up to 18 digits
    each: floats and integers, NaN, infinities, signs and exponents; ``hint`` has the right spelling.
    """
    if not isinstance(text, str):
        raise UnitInvalid(f"{text} is not a string", hint=f'write it as a decimal string: "{_spelled(text)}"')
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if text.startswith("-"):
        raise UnitInvalid(f"{text!r} is negative", hint='write a decimal string that is not negative, such as "0.023"')
    raise UnitInvalid(f"{text!r} is no finite decimal", hint=f'write digits such as "{_spelled(text)}"')


def _spelled(value: object) -> str:
    """Return the decimal digits that were probably meant, or an example."""
    try:
        number = _EXACT.create_decimal(str(value))
    except (InvalidOperation, Inexact):
        return "0.023"
    plain = f"{number:f}" if number.is_finite() and abs(number.adjusted()) <= _DIGITS else ""
    return plain if _DECIMAL.fullmatch(plain) else "0.023"


def total(values: Iterable[Decimal]) -> Decimal:
    """Return the exact sum."""
    result = ZERO
    for value in values:
        result = _EXACT.add(result, value)
    return result


def add(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact sum of two."""
    return _EXACT.add(left, right)


def subtract(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact difference."""
    return _EXACT.subtract(left, right)


def multiply(left: Decimal | int, right: Decimal | int) -> Decimal:
    """Return the exact product."""
    return _EXACT.multiply(Decimal(left), Decimal(right))


def divide(dividend: Decimal | int, divisor: Decimal | int) -> Decimal:
    """Return the quotient to 60 significant digits, the one place where digits may end.

    Raises UnitInvalid for a divisor of zero.
    """
    if divisor == 0:
        raise UnitInvalid(f"{dividend} cannot be divided by zero", hint="every unit count and month has to be positive")
    return _DIVISION.divide(Decimal(dividend), Decimal(divisor))


class Rounding(StrEnum):
    """How a quantity becomes a whole number of increments."""

    UP = "up"
    HALF_UP = "half_up"
    NONE = "none"


class RoundLevel(StrEnum):
    """Whether each line is rounded, or the month's total."""

    LINE = "line"
    MONTH = "month"


def round_to(value: Decimal, increment: Decimal, rounding: Rounding) -> Decimal:
    """Return ``value`` as a multiple of ``increment``; exact, and unchanged under ``none``.

    Give it one quotient of exact totals: quotients that were added up may lie a hair above
    a whole number, which rounding up would bill.
    """
    if rounding is Rounding.NONE:
        return value
    if increment <= 0:
        raise UnitInvalid(f"increment {increment} is not positive", hint='write a positive decimal such as "1"')
    whole, rest = _EXACT.divmod(value, increment)
    above = rest > 0 if rounding is Rounding.UP else multiply(rest, 2) >= increment
    return _EXACT.multiply(_EXACT.add(whole, ONE if above else ZERO), increment)


def half_up(value: Decimal, places: int) -> Decimal:
    """Return ``value`` with ``places`` decimals for people to read; the full digits stay in JSON."""
    return _ROUND_HALF.quantize(value, Decimal(1).scaleb(-places))


def plain(value: Decimal) -> str:
    """Return every digit without an exponent or trailing zeros: how JSON carries decimals."""
    text = f"{value:f}"
    if "." not in text:
        return text
    stripped = text.rstrip("0").rstrip(".")
    return "0" if stripped in {"", "-0"} else stripped


@dataclass(frozen=True, slots=True)
class Money:
    """An exact amount in one currency (ISO 4217).  Sums of two currencies raise CurrencyMixed."""

    amount: Decimal
    currency: str

    def __add__(self, other: "Money") -> "Money":
        return Money(_EXACT.add(self.amount, self._same(other)), self.currency)

    def __sub__(self, other: "Money") -> "Money":
        return Money(_EXACT.subtract(self.amount, self._same(other)), self.currency)

    def __mul__(self, factor: Decimal | int) -> "Money":
        return Money(multiply(self.amount, factor), self.currency)

    def __lt__(self, other: "Money") -> bool:
        return self.amount < self._same(other)

    def __le__(self, other: "Money") -> bool:
        return self.amount <= self._same(other)

    def __str__(self) -> str:
        return f"{half_up(self.amount, 2)} {self.currency}"

    def over(self, divisor: Decimal | int) -> "Money":
        """Return the amount divided, to 60 significant digits."""
        return Money(divide(self.amount, divisor), self.currency)

    def _same(self, other: "Money") -> Decimal:
        if other.currency != self.currency:
            raise CurrencyMixed(
                f"{self.currency} and {other.currency} cannot be added",
                hint="give a dated [[fx]] rate, or use cards of one currency",
            )
        return other.amount


def total_money(amounts: Iterable[Money], currency: str) -> Money:
    """Return the exact sum; zero in ``currency`` when there are none."""
    result = Money(ZERO, currency)
    for amount in amounts:
        result = result + amount
    return result


class ByteUnit(IntEnum):
    """What "a gigabyte" is on a bill; no default, since it differs between providers."""

    GB = 10**9
    GIB = 2**30
    TB = 10**12
    TIB = 2**40

    @property
    def label(self) -> str:
        """The unit as people write it: GB, GiB, TB, TiB."""
        return self.name.replace("IB", "iB")


BYTE_UNITS = "1000000000 (GB), 1073741824 (GiB), 1000000000000 (TB) or 1099511627776 (TiB)"
"""The allowed multipliers, for messages."""

MonthHours = int | Literal["calendar"]
"""Hours that a price per month is divided by: the calendar month's own, or a fixed number."""


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month in UTC."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @classmethod
    def of(cls, instant: datetime) -> "Month":
        """Return the month that an aware instant lies in."""
        there = instant.astimezone(UTC)
        return cls(there.year, there.month)

    @property
    def start(self) -> datetime:
        """First instant."""
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """First instant after it."""
        return self.next.start

    @property
    def next(self) -> "Month":
        """The month after."""
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def days(self) -> int:
        """Days in it, leap years included."""
        return calendar.monthrange(self.year, self.month)[1]

    def hours(self, basis: MonthHours = "calendar") -> int:
        """Return the hours that a monthly price covers, under a card's ``month_hours``."""
        return self.days * HOURS_PER_DAY if basis == "calendar" else basis


_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)")


def parse_instant(value: Any) -> datetime:
    """Return an RFC 3339 instant, from text or an aware datetime, in UTC.

    Raises UnitInvalid for local times, dates that do not exist and other forms.
    """
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    raise UnitInvalid(f"{value!s} is no instant", hint="write RFC 3339 with its zone, such as 2026-03-01T00:00:00Z")


def rfc3339(instant: datetime) -> str:
    """Return an aware instant in UTC with a Z; fractions of a second only where there are any."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_day(value: Any) -> date:
    """Return a calendar day from a date or ``YYYY-MM-DD``; raises UnitInvalid for anything else."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise UnitInvalid(f"{value!s} is no date", hint="write a day that exists as YYYY-MM-DD, such as 2026-03-01")


MICROSECOND = timedelta(microseconds=1)


def microseconds(span: timedelta) -> int:
    """Return a span as an exact integer, the unit that ledgers count time in."""
    return span // MICROSECOND
