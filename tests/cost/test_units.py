"""Exact numbers: what is refused, what is exact, and where digits may end."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, Inexact
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost import units
from cost.errors import CurrencyMixed, UnitInvalid
from cost.units import ByteUnit, Money, Month, Rounding

amounts = st.decimals(min_value=0, max_value=10**15, places=12, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("text", ["0", "0.023", "000.10", "123456789012345678.123456789012345678"])
def test_decimals_are_what_they_spell(text: str) -> None:
    assert units.parse_decimal(text) == Decimal(text)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (0.023, '"0.023"'),
        (5, '"5"'),
        (True, "decimal string"),
        (None, "decimal string"),
        (float("nan"), "decimal string"),
        ("NaN", "digits"),
        ("inf", "digits"),
        ("Infinity", "digits"),
        ("1e-3", '"0.001"'),
        ("1_000", "digits"),
        (" 1", "digits"),
        ("1\n", "digits"),
        ("+1", '"1"'),
        (".5", '"0.5"'),
        ("1.", "digits"),
        ("", "digits"),
        ("٣", "digits"),
        ("0.0230000000000000000001", "digits"),
        ("1000000000000000000000", "digits"),
        ("1e999999999", "digits"),
        ("-0.023", "not negative"),
        ("-0", "not negative"),
    ],
)
def test_anything_else_is_refused_with_the_right_spelling(value: object, hint: str) -> None:
    with pytest.raises(UnitInvalid) as caught:
        units.parse_decimal(value)
    assert hint in caught.value.hint


@given(st.lists(amounts, max_size=20))
def test_sums_are_exact_in_any_order(values: list[Decimal]) -> None:
    assert units.total(values) == units.total(reversed(values))
    assert Fraction(units.total(values)) == sum(map(Fraction, values))


@given(amounts, amounts)
def test_products_are_exact(left: Decimal, right: Decimal) -> None:
    assert Fraction(units.multiply(left, right)) == Fraction(left) * Fraction(right)


def test_what_would_lose_digits_raises() -> None:
    with pytest.raises(Inexact):
        units.add(Decimal("1e600"), Decimal("1e-600"))


def test_quotients_have_sixty_digits() -> None:
    assert units.divide(2, 3) == Decimal("0." + "6" * 59 + "7")
    assert units.divide(42_259_901_212_262_400, 2**30 * 744) == 52_900
    with pytest.raises(UnitInvalid, match="zero"):
        units.divide(1, 0)


@pytest.mark.parametrize(
    ("value", "increment", "rounding", "expected"),
    [
        ("1.1", "1", Rounding.UP, "2"),
        ("2", "1", Rounding.UP, "2"),
        ("0", "1", Rounding.UP, "0"),
        ("1000001", "1000000", Rounding.UP, "2000000"),
        ("2.5", "1", Rounding.HALF_UP, "3"),
        ("2.4999", "1", Rounding.HALF_UP, "2"),
        ("0.3", "0.25", Rounding.UP, "0.50"),
        ("1.1", "1", Rounding.NONE, "1.1"),
    ],
)
def test_rounding_to_increments(value: str, increment: str, rounding: Rounding, expected: str) -> None:
    assert units.round_to(Decimal(value), Decimal(increment), rounding) == Decimal(expected)


def test_an_increment_of_zero_is_refused() -> None:
    with pytest.raises(UnitInvalid, match="not positive"):
        units.round_to(Decimal(1), Decimal(0), Rounding.UP)


def test_money_adds_within_one_currency() -> None:
    dollars = Money(Decimal("0.1"), "USD")
    assert units.total_money([dollars] * 10, "USD") == Money(Decimal(1), "USD")
    assert dollars * 3 - dollars == Money(Decimal("0.2"), "USD")
    assert dollars.over(4) == Money(Decimal("0.025"), "USD")
    assert str(Money(Decimal("2.345"), "EUR")) == "2.35 EUR"
    assert dollars < dollars * 2 <= dollars * 2


@pytest.mark.parametrize("operation", ["__add__", "__sub__", "__lt__", "__le__"])
def test_money_of_two_currencies_never_meets(operation: str) -> None:
    with pytest.raises(CurrencyMixed, match="USD and EUR"):
        getattr(Money(Decimal(1), "USD"), operation)(Money(Decimal(1), "EUR"))


def test_byte_units_are_named() -> None:
    assert [(unit.label, int(unit)) for unit in ByteUnit] == [
        ("GB", 1_000_000_000),
        ("GiB", 1_073_741_824),
        ("TB", 1_000_000_000_000),
        ("TiB", 1_099_511_627_776),
    ]
    assert all(str(int(unit)) in units.BYTE_UNITS and unit.label in units.BYTE_UNITS for unit in ByteUnit)


def test_months_know_their_hours() -> None:
    assert [Month(2026, month).hours() for month in (2, 3, 4)] == [672, 744, 720]
    assert Month(2028, 2).hours() == 696
    assert Month(2026, 3).hours(730) == 730
    assert Month(2026, 12).next == Month(2027, 1)
    assert Month(2026, 3).end == datetime(2026, 4, 1, tzinfo=UTC)
    assert Month.of(units.parse_instant("2026-03-31T23:30:00-01:00")) == Month(2026, 4)
    assert str(Month(2026, 3)) == "2026-03"


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01",
        "2026-03-01T00:00:00",
        "2026-02-30T00:00:00Z",
        "2026-03-01T25:00:00Z",
        "now",
        "",
        "2026-W01-1T00:00Z",
    ],
)
def test_instants_have_a_zone_and_exist(text: str) -> None:
    with pytest.raises(UnitInvalid, match="no instant"):
        units.parse_instant(text)


def test_instants_are_utc() -> None:
    there = units.parse_instant("2026-03-01T01:00:00+01:00")
    assert there == datetime(2026, 3, 1, tzinfo=UTC)
    assert units.rfc3339(there) == "2026-03-01T00:00:00Z"
    assert units.parse_instant(there) == there
    with pytest.raises(UnitInvalid):
        units.parse_instant(datetime(2026, 3, 1))  # noqa: DTZ001 - the point of it
    assert units.microseconds(timedelta(hours=1)) == 3_600_000_000


@pytest.mark.parametrize("value", ["2026-02-30", "26-01-01", "20260101", 20260101, datetime(2026, 1, 1, tzinfo=UTC)])
def test_days_are_days(value: object) -> None:
    with pytest.raises(UnitInvalid, match="no date"):
        units.parse_day(value)
    assert units.parse_day("2026-02-28") == units.parse_day(date(2026, 2, 28))


@pytest.mark.parametrize(("value", "text"), [("1.500", "1.5"), ("100", "100"), ("0.000", "0"), ("1E+3", "1000")])
def test_plain_digits(value: str, text: str) -> None:
    assert units.plain(Decimal(value)) == text
