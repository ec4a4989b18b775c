"""What an estimate consists of: lines, each with its quantity, its prices and what it is for."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from cost.pricing.brackets import Slice, amount, as_decimal
from cost.units import Month


class Category(StrEnum):
    """What kind of meter a line is on."""

    STORAGE = "storage"
    STAGING = "staging"
    EARLY_DELETE = "early-delete"
    REQUESTS = "requests"
    TRANSITIONS = "transitions"
    RETRIEVAL = "retrieval"
    UPLOAD_TRANSFER = "upload-transfer"
    RESTORE_TRANSFER = "restore-transfer"
    MONITORING = "monitoring"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a line is for: the tier of the plan, the kind of meter, why, and a name of the caller's."""

    tier: str
    category: Category
    reason: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """A quantity that was used, and the units of it that were charged, by price.

    ``amount`` is exact up to 60 significant digits; money is rounded only for people to read.
    """

    quantity: Fraction
    slices: tuple[Slice, ...]
    amount: Decimal


def charge(quantity: Fraction, slices: tuple[Slice, ...], factor: Fraction = Fraction(1)) -> Charge:
    """Return the charge of some slices; ``factor`` is an exchange rate, applied to the amount alone."""
    return Charge(quantity, slices, as_decimal(amount(slices) * factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; ``low`` and ``high`` are the same charge unless the card leaves the metering open.

    ``unit`` is that of the quantity and of the prices in ``slices``, which are in ``price_currency``.
    """

    card: str
    meter: str
    about: About
    month: Month
    unit: str
    price_currency: str
    low: Charge
    high: Charge

    @property
    def is_range(self) -> bool:
        """Whether there is no single amount."""
        return self.low.amount != self.high.amount

    @property
    def amount(self) -> Decimal | None:
        """The amount; None where there is only a range."""
        return None if self.is_range else self.low.amount
