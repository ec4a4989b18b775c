"""What leaves a tier: transfer by path, fixed fees, exchange rates, and which answers are billed."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from cost.rates.meters import Billing, Bracket, FreeAllowance, Sourced, bracket_rules
from cost.rates.parts import (
    Broken,
    BytesPerUnit,
    Currency,
    Day,
    HttpsUrl,
    Many,
    Part,
    Price,
    Quantity,
    Slug,
    Text,
    free_rule,
    one_of,
)
from cost.rates.terms import BracketMode, Direction, Scope, TransferPath


class StatusException(Part):
    """One HTTP status that is billed, or not, against the ranges; ``reason`` says when."""

    status: Annotated[int, Field(ge=100, le=599)]
    billed: bool
    reason: Text


class BilledStatus(Part):
    """Which answers are billed: ranges such as ``2xx``, then exceptions by status."""

    ranges: Annotated[Many[Literal["1xx", "2xx", "3xx", "4xx", "5xx"]], Field(min_length=1)]
    exceptions: Many[StatusException] = ()

    def bills(self, status: int) -> bool:
        """Tell whether an answer with this HTTP status is on the bill."""
        for exception in self.exceptions:
            if exception.status == status:
                return exception.billed
        return f"{status // 100}xx" in self.ranges

    def rules(self) -> Iterator[Broken]:
        """Yield a status that is excepted twice."""
        statuses = [exception.status for exception in self.exceptions]
        for index, status in enumerate(statuses):
            if status in statuses[:index]:
                yield Broken(("exceptions", index, "status"), status, "give each status once")


class Transfer(Sourced):
    """What bytes cost from one zone to another along one path, per unit; one ``[[transfer]]``.

    Zones are names of the user's: a region, ``internet``, ``same-region``.  Entries that
    name the same ``pool`` fill their brackets and free allowance together.
    """

    from_zone: Slug
    to_zone: Slug
    path: Annotated[TransferPath, one_of(TransferPath)]
    direction_charged: Annotated[Direction, one_of(Direction)]
    bytes_per_unit: Annotated[BytesPerUnit, Field(description="bytes in one billed unit; there is no default")]
    brackets: Many[Bracket]
    bracket_mode: Annotated[BracketMode, one_of(BracketMode)]
    bracket_pool: Annotated[Scope, one_of(Scope)]
    billing: Billing | None = None
    free_allowance: Many[FreeAllowance] = ()
    pool: Slug | None = None

    def rules(self) -> Iterator[Broken]:
        """Yield bad bounds, and allowances of something else."""
        yield from bracket_rules("brackets", self.brackets)
        for index, allowance in enumerate(self.free_allowance):
            if allowance.applies_to != "transfer":
                yield Broken(("free_allowance", index, "applies_to"), allowance.applies_to, 'write "transfer"')


class FixedFee(Sourced):
    """A price per hour for having something at all, such as a NAT gateway."""

    id: Slug
    path: Annotated[TransferPath, one_of(TransferPath)]
    price_per_hour: Price
    free: bool = False

    def rules(self) -> Iterator[Broken]:
        """Yield a zero price that was not meant."""
        yield from free_rule(self.free, {"price_per_hour": self.price_per_hour})


class FxRate(Part):
    """A dated exchange rate: one unit of ``from_currency`` is ``rate`` units of ``to_currency``."""

    from_currency: Currency
    to_currency: Currency
    rate: Quantity
    as_of: Day
    source_url: HttpsUrl

    def rules(self) -> Iterator[Broken]:
        """Yield a rate of a currency to itself."""
        if self.from_currency == self.to_currency:
            yield Broken(("to_currency",), self.to_currency, "name another currency than from_currency")
