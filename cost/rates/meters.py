"""Meters of a tier: brackets, allowances, requests, retrieval, and what else a bill counts.

Prices are in the card's currency.  A "unit" is the tier's ``bytes_per_unit``.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from cost.errors import RateMissing
from cost.rates.parts import (
    Broken,
    ByteCount,
    Count,
    Day,
    Days,
    HttpsUrl,
    Many,
    Part,
    Price,
    Quantity,
    Seconds,
    Slug,
    Text,
    free_rule,
    one_of,
)
from cost.rates.terms import (
    AllowanceUnit,
    BracketOrder,
    ClockBasis,
    EarlyDeleteMode,
    Granularity,
    Operation,
    Period,
    RoundingOrder,
    Scope,
    Support,
    Trigger,
    Visibility,
)
from cost.units import ByteUnit, Rounding, RoundLevel, add, plain

_UNITS: dict[AllowanceUnit, ByteUnit] = {
    AllowanceUnit.GB_MONTH: ByteUnit.GB,
    AllowanceUnit.GIB_MONTH: ByteUnit.GIB,
    AllowanceUnit.TB_MONTH: ByteUnit.TB,
    AllowanceUnit.TIB_MONTH: ByteUnit.TIB,
    AllowanceUnit.GB: ByteUnit.GB,
    AllowanceUnit.GIB: ByteUnit.GIB,
    AllowanceUnit.TB: ByteUnit.TB,
    AllowanceUnit.TIB: ByteUnit.TIB,
}


class Sourced(Part):
    """A meter; ``source_url`` and ``as_of`` where they differ from the card's."""

    source_url: Annotated[HttpsUrl | None, Field(description="https URL, where it is not the card's")] = None
    as_of: Annotated[Day | None, Field(description="day it was read, where it is not the card's")] = None
    notes: Text | None = None


class Bracket(Part):
    """A price up to a cumulative number of units; the last bracket of a list has no ``up_to``.

    ``width`` is optional and only checks ``up_to``: a table of "next 450 TB" is easily
    copied as if it were cumulative.
    """

    up_to: Annotated[Quantity | None, Field(description='cumulative units, such as "51200"; none on the last')] = None
    width: Annotated[Quantity | None, Field(description="units in this bracket alone, as a check of up_to")] = None
    unit_price: Annotated[Price, Field(description='decimal string, such as "0.023"')]
    free: Annotated[bool, Field(description="true where the price is zero on purpose")] = False

    def rules(self) -> Iterator[Broken]:
        """Yield a zero price that was not meant."""
        yield from free_rule(self.free, {"unit_price": self.unit_price})


def bracket_rules(at: str, brackets: tuple[Bracket, ...]) -> Iterator[Broken]:
    """Yield what is wrong with the bounds: not cumulative, not increasing, or no open end."""
    if not brackets:
        yield Broken((at,), "no bracket", "give at least one bracket, the last one without up_to")
        return
    lower = Decimal(0)
    for index, bracket in enumerate(brackets):
        last = index == len(brackets) - 1
        yield from _bound_rules((at, index), bracket, lower, last=last)
        if bracket.up_to is not None:
            lower = bracket.up_to


def _bound_rules(at: tuple[str, int], bracket: Bracket, lower: Decimal, *, last: bool) -> Iterator[Broken]:
    if last and bracket.up_to is not None:
        yield Broken((*at, "up_to"), bracket.up_to, "the last bracket is open: add one without up_to after it")
    elif not last and bracket.up_to is None:
        told = f", which is {plain(add(lower, bracket.width))}" if bracket.width is not None else ""
        yield Broken((*at, "up_to"), "nothing", f"give the cumulative bound (all units from zero){told}")
    elif bracket.up_to is not None and bracket.up_to <= lower:
        told = plain(add(lower, bracket.up_to))
        right = f"bounds are cumulative and increase: if this is a width, up_to is {told}"
        yield Broken((*at, "up_to"), bracket.up_to, right)
    elif bracket.up_to is not None and bracket.width is not None and add(lower, bracket.width) != bracket.up_to:
        right = f"up_to is cumulative: {plain(lower)} + width; the width of this one is {plain(bracket.up_to - lower)}"
        yield Broken((*at, "width"), bracket.width, right)
    if last and bracket.width is not None:
        yield Broken((*at, "width"), bracket.width, "the last bracket is open: remove its width")


class Billing(Part):
    """Rounding of a quantity to whole increments, in the meter's own unit, before it is priced."""

    increment: Annotated[Quantity, Field(description='units billed at once, such as "1" or "1000000"')]
    rounding: Annotated[Rounding, one_of(Rounding)]
    level: Annotated[RoundLevel, one_of(RoundLevel)]


class FreeAllowance(Sourced):
    """A quantity that costs nothing each period.

    ``applies_to`` is ``storage``, ``retrieval``, ``transfer`` or the name of a request class.
    Allowances that name the same ``pool`` are one allowance.
    """

    quantity: Quantity
    unit: Annotated[AllowanceUnit, one_of(AllowanceUnit)]
    period: Annotated[Period, one_of(Period)]
    applies_to: Annotated[Slug, Field(description='"storage", "retrieval", "transfer" or a request class')]
    scope: Annotated[Scope, one_of(Scope), Field(description="whose usage shares it")]
    rounding_order: Annotated[RoundingOrder, one_of(RoundingOrder)]
    bracket_order: Annotated[BracketOrder, one_of(BracketOrder)]
    pool: Slug | None = None

    @property
    def byte_unit(self) -> ByteUnit | None:
        """Bytes in one unit; None where requests are counted."""
        return _UNITS.get(self.unit)

    @property
    def by_month(self) -> bool:
        """Whether the unit is bytes held for a month."""
        return self.unit.value.endswith("-month")

    def rules(self) -> Iterator[Broken]:
        """Yield a unit that cannot measure what the allowance is for."""
        if self.applies_to == "storage":
            fits, right = self.by_month, "stored bytes are counted in GB-month, GiB-month, TB-month or TiB-month"
        elif self.applies_to in {"retrieval", "transfer"}:
            fits, right = (
                self.byte_unit is not None and not self.by_month,
                "moved bytes are counted in GB, GiB, TB, TiB",
            )
        else:
            fits, right = self.byte_unit is None, 'requests are counted in "request"'
        if not fits:
            yield Broken(("unit",), self.unit.value, right)


class RequestClass(Sourced):
    """A price per ``unit_count`` requests.  ``billing`` counts in requests."""

    unit_count: Annotated[Count, Field(description="requests that the price is for: 1000, 10000, 1000000")]
    price: Annotated[Price, Field(description='decimal string, such as "0.005"')]
    free: bool = False
    billing: Billing | None = None

    def rules(self) -> Iterator[Broken]:
        """Yield a zero price that was not meant."""
        yield from free_rule(self.free, {"price": self.price})


UNMETERED = RequestClass(unit_count=1, price=Decimal(0), free=True)
"""The class of every request to a tier that declares its requests unmetered."""


class PerObjectOverhead(Part):
    """Bytes billed on top of every object, at the tier itself (``self``) or at another one."""

    bytes: Annotated[int, Field(ge=1, le=2**40)]
    billed_at: Annotated[Slug, Field(description='"self" or a tier_id of this card')]


class MinDuration(Sourced):
    """The minimum stay, and what leaving earlier costs."""

    days: Days
    mode: Annotated[EarlyDeleteMode, one_of(EarlyDeleteMode)]
    granularity: Annotated[Granularity, one_of(Granularity)]
    triggers: Annotated[Many[Annotated[Trigger, one_of(Trigger)]], Field(min_length=1)]
    clock_basis: Annotated[ClockBasis, one_of(ClockBasis)]

    def rules(self) -> Iterator[Broken]:
        """Yield a trigger that is named twice."""
        if len(set(self.triggers)) != len(self.triggers):
            yield Broken(("triggers",), ", ".join(self.triggers), "name each trigger once")


class RetrievalMode(Sourced):
    """One way to get bytes back: its prices and how long the first byte takes, in seconds."""

    mode: Slug
    unit_price: Annotated[Price, Field(description='decimal string per unit, such as "0.01"')]
    request_price: Price | None = None
    request_unit_count: Count | None = None
    free: bool = False
    latency_min_s: Annotated[Seconds, Field(description="seconds until the first byte, at best")] = 0
    latency_max_s: Annotated[Seconds | None, Field(description="seconds until the first byte, at worst")] = None
    max_bytes_per_s: Count | None = None
    object_size_limit: Count | None = None
    guaranteed: Annotated[bool, Field(description="false where the provider may refuse or only says typically")]

    def rules(self) -> Iterator[Broken]:
        """Yield zero prices not meant, half a request price, inverted latencies."""
        yield from free_rule(self.free, {"unit_price": self.unit_price, "request_price": self.request_price})
        if (self.request_price is None) != (self.request_unit_count is None):
            at = "request_price" if self.request_price is None else "request_unit_count"
            yield Broken((at,), "nothing", "request_price and request_unit_count belong together: give both")
        if self.latency_max_s is not None and self.latency_max_s < self.latency_min_s:
            yield Broken(("latency_max_s",), self.latency_max_s, f"at least latency_min_s, {self.latency_min_s}")


class TransitionRequest(Sourced):
    """The price of one request per object that a lifecycle rule moves into the tier.  ``billing`` counts requests."""

    unit_count: Count
    price: Price
    free: bool = False
    billing: Billing | None = None

    def rules(self) -> Iterator[Broken]:
        """Yield a zero price that was not meant."""
        yield from free_rule(self.free, {"price": self.price})


class MonitoringFee(Sourced):
    """The monthly price per ``unit_count`` objects of at least ``min_object_bytes``."""

    unit_count: Count
    price: Price
    free: bool = False
    min_object_bytes: ByteCount

    def rules(self) -> Iterator[Broken]:
        """Yield a zero price that was not meant."""
        yield from free_rule(self.free, {"price": self.price})


class AutoTransition(Sourced):
    """A move to a cheaper sub-tier after days without access; ``resets_on`` counts as access."""

    after_days_without_access: Days
    to: Slug
    unit_price: Price
    free: bool = False
    resets_on: Annotated[Many[Annotated[Operation, one_of(Operation)]], Field(min_length=1)]

    def rules(self) -> Iterator[Broken]:
        """Yield a zero price that was not meant."""
        yield from free_rule(self.free, {"unit_price": self.unit_price})


class Provisioned(Sourced):
    """A volume that is paid for by its size, whatever lies on it; sizes in bytes."""

    min_bytes: Count
    max_bytes: Count
    step_bytes: Count
    grow_only: bool
    charge_when_stopped: bool
    iops_price: Price | None = None
    throughput_price: Price | None = None
    snapshot_price: Price | None = None
    free: bool = False

    def rules(self) -> Iterator[Broken]:
        """Yield inverted sizes and zero prices not meant."""
        if self.max_bytes < self.min_bytes:
            yield Broken(("max_bytes",), self.max_bytes, f"at least min_bytes, {self.min_bytes}")
        extras = {
            "iops_price": self.iops_price,
            "throughput_price": self.throughput_price,
            "snapshot_price": self.snapshot_price,
        }
        yield from free_rule(self.free, extras)


class Plan(Sourced):
    """A subscription: bytes included in a fee, the rest bought in steps of the tier's ``billing``.

    ``storage_brackets`` price the units above ``included_bytes``, per month.
    """

    name: Text
    fee: Price
    fee_period: Annotated[Period, one_of(Period)]
    fee_per: Literal["account", "seat"]
    free: bool = False
    included_bytes: ByteCount

    def rules(self) -> Iterator[Broken]:
        """Yield a zero fee that was not meant."""
        yield from free_rule(self.free, {"fee": self.fee})


class Quota(Sourced):
    """Limits that refuse; none of them has a price.  Sizes in bytes."""

    max_bytes: Count | None = None
    max_objects: Count | None = None
    max_objects_per_prefix: Count | None = None
    max_object_bytes: Count | None = None
    max_parts: Count | None = None
    min_part_bytes: ByteCount | None = None
    max_part_bytes: Count | None = None
    requests: Annotated[Count | None, Field(description="requests in every requests_window_s")] = None
    requests_window_s: Count | None = None

    def rules(self) -> Iterator[Broken]:
        """Yield limits that contradict each other."""
        if (self.requests is None) != (self.requests_window_s is None):
            at = "requests" if self.requests is None else "requests_window_s"
            yield Broken((at,), "nothing", "requests and requests_window_s belong together: give both")
        if self.max_part_bytes is not None and self.max_part_bytes < (self.min_part_bytes or 0):
            yield Broken(("max_part_bytes",), self.max_part_bytes, f"at least min_part_bytes, {self.min_part_bytes}")
        if self.max_object_bytes is not None and self.max_part_bytes is not None and self.max_parts is not None:
            most = self.max_part_bytes * self.max_parts
            if most < self.max_object_bytes:
                right = f"{self.max_parts} parts of max_part_bytes hold {most} bytes: raise a part limit or lower this"
                yield Broken(("max_object_bytes",), self.max_object_bytes, right)


class Noncurrent(Sourced):
    """Bytes that no listing shows and that are billed all the same."""

    versioning: Annotated[bool, Field(description="true where an overwrite or delete keeps the old bytes")]
    noncurrent_days: Annotated[Days | None, Field(description="until they are removed; none means never")] = None
    soft_delete_days: Annotated[int, Field(ge=0, le=36500)] = 0
    keeps_history: Annotated[bool, Field(description="true where history holds bytes until it is rewritten")] = False
    abort_incomplete_days: Annotated[Days | None, Field(description="none means parts stay for ever")] = None

    def rules(self) -> Iterator[Broken]:
        """Yield days for versions that are not kept."""
        if self.noncurrent_days is not None and not self.versioning:
            yield Broken(("noncurrent_days",), self.noncurrent_days, "remove it, or set versioning = true")


class AccessControls(Part):
    """What protects the bytes, for the tier table; it has no price."""

    visibility: Annotated[Visibility, one_of(Visibility)]
    signed_urls: Annotated[Support, one_of(Support)]
    object_lock: Annotated[Support, one_of(Support)]
    audit_log: Annotated[Support, one_of(Support)]


def find_mode(modes: tuple[RetrievalMode, ...], mode: str, where: str) -> RetrievalMode:
    """Return the mode by name; raises RateMissing, whose hint lists those there are."""
    for known in modes:
        if known.mode == mode:
            return known
    names = ", ".join(known.mode for known in modes) or "none"
    raise RateMissing(f"{where}: no retrieval mode {mode!r}", hint=f"modes of the card: {names}")
