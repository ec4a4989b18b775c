"""What every table of a card is made of: a strict frozen base, and scalars that say how to write them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from cost.errors import UnitInvalid
from cost.units import BYTE_UNITS, DECIMAL_PATTERN, ByteUnit, MonthHours, parse_day, parse_decimal, plain

WRONG_VALUE = "wrong_value"
BROKEN_RULES = "broken_rules"
_SLUG = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_DAY_FORM = "write a day that exists as YYYY-MM-DD"


Path = tuple[str | int, ...]
"""Where a value stands in a file: keys, and indices of arrays."""


class Broken(NamedTuple):
    """A rule that a table breaks: at which key under it, what stands there, what would be right."""

    at: Path
    found: object
    right: str


@dataclass(frozen=True, slots=True)
class FloatLiteral:
    """A TOML float as it was written; no field of a card takes one."""

    text: str

    def __str__(self) -> str:
        return self.text


class Part(BaseModel):
    """A frozen table of a card: unknown keys are errors, and all broken rules are reported at once.

    Subclasses yield what is inconsistent between their fields from :meth:`rules`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)

    def rules(self) -> Iterator[Broken]:
        """Yield the rules between fields that this table breaks."""
        yield from ()

    @model_validator(mode="after")
    def _obey(self) -> Self:
        broken = tuple(self.rules())
        if broken:
            raise PydanticCustomError(BROKEN_RULES, "inconsistent", {"broken": broken})
        return self


def wrong(right: str) -> PydanticCustomError:
    """Return the error of a value for which ``right`` says what to write instead."""
    return PydanticCustomError(WRONG_VALUE, "is wrong", {"right": right})


def _as_decimal(value: Any) -> Decimal:
    text = plain(value) if isinstance(value, Decimal) and value.is_finite() else value
    try:
        return parse_decimal(text)
    except UnitInvalid as error:
        raise wrong(error.hint) from error


def _positive(value: Any) -> Decimal:
    number = _as_decimal(value)
    if number == 0:
        raise wrong('write a decimal string above zero, such as "1"')
    return number


def _as_day(value: Any) -> date:
    try:
        return parse_day(value)
    except UnitInvalid as error:
        raise wrong(_DAY_FORM) from error


def _as_byte_unit(value: Any) -> ByteUnit:
    if isinstance(value, int) and not isinstance(value, bool) and value in tuple(ByteUnit):
        return ByteUnit(value)
    raise wrong(f"write the bytes in one billed unit: {BYTE_UNITS}")


def _as_month_hours(value: Any) -> MonthHours:
    if value == "calendar":
        return "calendar"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 24 * 31:
        return value
    raise wrong('write "calendar", 720, 730 or another whole number of hours up to 744')


def _as_https(value: Any) -> str:
    refusal = wrong("write the https URL where the price can be read, without credentials")
    if not isinstance(value, str) or not value.isprintable() or re.search(r"\s", value):
        raise refusal
    try:
        parts = urlsplit(value)
    except ValueError as error:
        raise refusal from error
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
        raise refusal
    return value


def _as_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise wrong("write a string of printable characters that is not empty")
    return value


def _matching(pattern: str, right: str) -> Callable[[Any], str]:
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise wrong(right)
        return value

    return check


_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_DECIMAL_SCHEMA = {"type": "string", "pattern": DECIMAL_PATTERN}
_DAY_SCHEMA = {"type": "string", "format": "date"}

Price = Annotated[Decimal, PlainValidator(_as_decimal), WithJsonSchema(_DECIMAL_SCHEMA)]
"""A price in the card's currency, from a decimal string; zero needs ``free = true`` beside it."""
Quantity = Annotated[Decimal, PlainValidator(_positive), WithJsonSchema(_DECIMAL_SCHEMA)]
"""A quantity above zero, from a decimal string."""
Day = Annotated[date, PlainValidator(_as_day), WithJsonSchema(_DAY_SCHEMA)]
BytesPerUnit = Annotated[
    ByteUnit, PlainValidator(_as_byte_unit), WithJsonSchema({"type": "integer", "enum": [int(u) for u in ByteUnit]})
]
HoursOfMonth = Annotated[
    MonthHours,
    PlainValidator(_as_month_hours),
    WithJsonSchema({"anyOf": [{"const": "calendar"}, {"type": "integer", "minimum": 1, "maximum": 744}]}),
]
HttpsUrl = Annotated[str, PlainValidator(_as_https), WithJsonSchema({"type": "string", "pattern": "^https://"})]
Text = Annotated[str, PlainValidator(_as_text), WithJsonSchema(_TEXT_SCHEMA)]
Slug = Annotated[
    str,
    PlainValidator(_matching(_SLUG, "write a name of a-z, 0-9, dot, dash and underscore, up to 63 characters")),
    WithJsonSchema({"type": "string", "pattern": _SLUG}),
]
Currency = Annotated[
    str,
    PlainValidator(_matching(r"^[A-Z]{3}$", 'write an ISO 4217 code of three capitals, such as "USD"')),
    WithJsonSchema({"type": "string", "pattern": "^[A-Z]{3}$"}),
]
Sha256 = Annotated[
    str,
    PlainValidator(_matching(r"^[0-9a-f]{64}$", "write the SHA-256 of the saved page as 64 lower-case hex digits")),
    WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
]
ByteCount = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=1, le=2**63 - 1)]
Seconds = Annotated[int, Field(ge=0, le=10**9)]
Days = Annotated[int, Field(ge=1, le=36500)]

_Term = TypeVar("_Term", bound=StrEnum)


def one_of(terms: type[_Term]) -> Any:
    """Return a validator that turns a string into a member of ``terms``, or lists them."""
    known = ", ".join(f'"{term.value}"' for term in terms)

    def convert(value: Any) -> _Term:
        try:
            return terms(value)
        except ValueError as error:
            raise wrong(f"write one of {known}") from error

    return BeforeValidator(convert)


def free_rule(free: bool, prices: dict[str, Decimal | None]) -> Iterator[Broken]:  # noqa: FBT001 - it is the field
    """Yield what is wrong between ``free`` and the prices beside it: zero is only ever said on purpose."""
    zeros = [name for name, price in prices.items() if price == 0]
    if free and not zeros:
        yield Broken(("free",), "true", 'remove it, or write the price that is free as "0"')
    if not free:
        yield from (
            Broken((name,), prices[name], "write the price, or add free = true beside it where it is really free")
            for name in zeros
        )


_T = TypeVar("_T")
Many = Annotated[tuple[_T, ...], Field(strict=False)]
"""An array or array of tables, kept as a tuple."""
