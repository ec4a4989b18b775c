"""One tier of a card: a storage class, a volume or a plan, with all its meters."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from cost.errors import PlanInvalid, RateMissing
from cost.rates.meters import (
    UNMETERED,
    AccessControls,
    AutoTransition,
    Billing,
    Bracket,
    FreeAllowance,
    MinDuration,
    MonitoringFee,
    Noncurrent,
    PerObjectOverhead,
    Plan,
    Provisioned,
    Quota,
    RequestClass,
    RetrievalMode,
    Sourced,
    TransitionRequest,
    bracket_rules,
    find_mode,
)
from cost.rates.parts import Broken, ByteCount, BytesPerUnit, Days, HoursOfMonth, Many, Slug, Text, one_of
from cost.rates.terms import (
    DAEMON_OPERATIONS,
    BracketMode,
    Metering,
    Operation,
    RequestBilling,
    Retrieval,
    Scope,
    TierKind,
)
from cost.units import HOURS_PER_DAY, ByteUnit, MonthHours

OperationName = Annotated[Operation, one_of(Operation)]
_WHOLE_DAYS = "write the days of the month times 24, such as 720 for a 30-day month"


class Tier(Sourced):
    """One ``[[tier]]``.  Read rates through the methods: they raise RateMissing instead of returning zero."""

    tier_id: Annotated[Slug, Field(description="short name, unique on the card")]
    storage_class: Annotated[Text, Field(description="the exact string of the provider's API")]
    kind: Annotated[TierKind, one_of(TierKind)]
    metering: Annotated[Metering, one_of(Metering), Field(description="how bytes become a billed quantity")]
    bytes_per_unit: Annotated[BytesPerUnit, Field(description="bytes in one billed unit; there is no default")]
    month_hours: Annotated[HoursOfMonth | None, Field(description='"calendar", 720, 730 or hours')] = None

    storage_brackets: Annotated[Many[Bracket], Field(description="prices per unit and month (gib_hour: per hour)")]
    bracket_mode: Annotated[BracketMode, one_of(BracketMode)]
    bracket_pool: Annotated[Scope, one_of(Scope), Field(description="whose usage fills the brackets")]
    storage_billing: Billing | None = None
    free_allowance: Many[FreeAllowance] = ()

    min_billable_object_bytes: ByteCount = 0
    per_object_overhead: Many[PerObjectOverhead] = ()
    min_duration: MinDuration | None = None
    staging_tier: Annotated[Slug | None, Field(description="tier_id that holds parts in progress")] = None
    staging_request_tier: Annotated[Slug | None, Field(description="tier_id whose classes bill their requests")] = None

    request_billing: Annotated[RequestBilling, one_of(RequestBilling)]
    request_classes: dict[Slug, RequestClass] = Field(default_factory=dict)
    operations: dict[OperationName, Slug] = Field(default_factory=dict, description="overrides of the card's")
    transition_request: TransitionRequest | None = None

    retrieval: Annotated[Retrieval, one_of(Retrieval), Field(description="none, immediate or restore")]
    retrieval_modes: Many[RetrievalMode] = ()
    retrieval_billing: Billing | None = None
    temp_copy_tier: Annotated[Slug | None, Field(description="tier_id that bills restored copies")] = None
    temp_copy_min_days: Days | None = None

    monitoring: MonitoringFee | None = None
    auto_transitions: Many[AutoTransition] = ()
    provisioned: Provisioned | None = None
    plan: Plan | None = None
    quota: Quota | None = None
    noncurrent: Noncurrent | None = None
    access: AccessControls

    @property
    def month(self) -> MonthHours:
        """The month basis; an hourly price has none, and counts every hour of the calendar."""
        return "calendar" if self.month_hours is None else self.month_hours

    def retrieval_mode(self, mode: str) -> RetrievalMode:
        """Return the mode by name; raises RateMissing."""
        return find_mode(self.retrieval_modes, mode, self.tier_id)

    def transition_into(self) -> TransitionRequest:
        """Return the price of moving one object here by a rule; raises RateMissing."""
        if self.transition_request is None:
            raise RateMissing(
                f"{self.tier_id}: no rate for lifecycle transitions into it",
                hint="add [tier.transition_request] to the card, or upload to the tier directly",
            )
        return self.transition_request

    def require_object(self, size: int, part_size: int | None) -> None:
        """Raise PlanInvalid where the quota forbids an object of ``size`` bytes sent in such parts."""
        quota = self.quota
        if quota is None:
            return
        if quota.max_object_bytes is not None and size > quota.max_object_bytes:
            limit = f"the limit is {quota.max_object_bytes}"
            raise PlanInvalid(
                f"{self.tier_id}: an object of {size} bytes, and {limit}", hint="split it, or another tier"
            )
        if part_size is not None:
            _require_parts(self.tier_id, quota, size, part_size)

    def rules(self) -> Iterator[Broken]:
        """Yield what is inconsistent within the tier; references to other tiers are the card's rules."""
        yield from bracket_rules("storage_brackets", self.storage_brackets)
        yield from _month_rules(self)
        yield from _kind_rules(self)
        yield from _retrieval_rules(self)
        yield from _request_rules(self)
        yield from _allowance_rules(self)


def _require_parts(tier_id: str, quota: Quota, size: int, part_size: int) -> None:
    if part_size < 1 or part_size < (quota.min_part_bytes or 0) or part_size > (quota.max_part_bytes or part_size):
        raise PlanInvalid(
            f"{tier_id}: parts of {part_size} bytes",
            hint=f"parts are from {quota.min_part_bytes or 1} to {quota.max_part_bytes or 'any number of'} bytes",
        )
    parts = -(-size // part_size)
    if quota.max_parts is not None and parts > quota.max_parts:
        least = -(-size // quota.max_parts)
        raise PlanInvalid(
            f"{tier_id}: {size} bytes in parts of {part_size} are {parts} parts, and {quota.max_parts} are allowed",
            hint=f"use parts of at least {least} bytes",
        )


def _month_rules(tier: Tier) -> Iterator[Broken]:
    hours = tier.month_hours
    if tier.metering is Metering.GIB_HOUR:
        if hours is not None:
            yield Broken(("month_hours",), hours, "remove it: gib_hour prices are per hour")
        if tier.bytes_per_unit is not ByteUnit.GIB:
            yield Broken(("bytes_per_unit",), int(tier.bytes_per_unit), "gib_hour prices 1073741824 bytes (GiB)")
    elif hours is None:
        yield Broken(("month_hours",), "nothing", 'say what a month is: "calendar", 720, 730 or hours')
    elif tier.metering is Metering.BYTE_HOURS_CALENDAR and hours != "calendar":
        yield Broken(("month_hours",), hours, 'byte_hours_calendar takes "calendar"; else use byte_hours_fixed_month')
    elif tier.metering is Metering.BYTE_HOURS_FIXED_MONTH and hours == "calendar":
        yield Broken(("month_hours",), '"calendar"', "byte_hours_fixed_month takes a number such as 720 or 730")
    elif tier.metering is Metering.DAILY_PEAK_AVG and hours != "calendar" and hours % HOURS_PER_DAY:
        yield Broken(("month_hours",), hours, _WHOLE_DAYS)


_KINDS: dict[TierKind, tuple[Metering, ...]] = {
    TierKind.OBJECT: (
        Metering.BYTE_HOURS_CALENDAR,
        Metering.BYTE_HOURS_FIXED_MONTH,
        Metering.GIB_HOUR,
        Metering.DAILY_PEAK_AVG,
        Metering.UNSPECIFIED,
    ),
    TierKind.VOLUME_PROVISIONED: (Metering.PROVISIONED_HOURS,),
    TierKind.PLAN_QUOTA: (Metering.PLAN_INCREMENT, Metering.UNSPECIFIED),
}
_KINDS[TierKind.ARCHIVE_OBJECT] = _KINDS[TierKind.FILESYSTEM_METERED] = _KINDS[TierKind.OBJECT]


def _kind_rules(tier: Tier) -> Iterator[Broken]:
    allowed = _KINDS[tier.kind]
    if tier.metering not in allowed:
        known = ", ".join(f'"{metering}"' for metering in allowed)
        yield Broken(("metering",), tier.metering.value, f"a tier of kind {tier.kind} is metered as {known}")
    tables: tuple[tuple[str, Any, TierKind], ...] = (
        ("provisioned", tier.provisioned, TierKind.VOLUME_PROVISIONED),
        ("plan", tier.plan, TierKind.PLAN_QUOTA),
    )
    for name, table, kind in tables:
        if table is None and tier.kind is kind:
            yield Broken((name,), "nothing", f"a tier of kind {kind} needs the table [tier.{name}]")
        if table is not None and tier.kind is not kind:
            yield Broken((name,), "a table", f'remove it, or write kind = "{kind}"')


def _retrieval_rules(tier: Tier) -> Iterator[Broken]:
    modes = tier.retrieval_modes
    if tier.retrieval is Retrieval.NONE:
        if modes:
            yield Broken(("retrieval_modes",), modes[0].mode, 'a tier with retrieval = "none" has no retrieval price')
        if tier.kind is TierKind.ARCHIVE_OBJECT:
            yield Broken(("retrieval",), '"none"', 'an archive has at least one mode: write "restore" or "immediate"')
    elif not modes or (tier.retrieval is Retrieval.IMMEDIATE and len(modes) > 1):
        right = "one mode for immediate, one or more for restore, each with its price and latency_max_s"
        yield Broken(("retrieval_modes",), f"{len(modes)} modes", right)
    if tier.retrieval is Retrieval.RESTORE and tier.temp_copy_tier is None:
        yield Broken(("temp_copy_tier",), "nothing", "name the tier_id that bills the restored copy")
    yield from _mode_rules(tier)


def _mode_rules(tier: Tier) -> Iterator[Broken]:
    names: set[str] = set()
    for index, mode in enumerate(tier.retrieval_modes):
        at = ("retrieval_modes", index)
        if mode.mode in names:
            yield Broken((*at, "mode"), mode.mode, "name each mode once")
        names.add(mode.mode)
        if mode.latency_max_s is None:
            yield Broken((*at, "latency_max_s"), "nothing", "give the seconds until the first byte, at worst")
        if tier.retrieval is Retrieval.RESTORE and mode.request_price is None:
            yield Broken((*at, "request_price"), "nothing", 'give it; "0" with free = true where it is free')


def _request_rules(tier: Tier) -> Iterator[Broken]:
    if tier.request_billing is RequestBilling.UNMETERED:
        for name, table in (("request_classes", tier.request_classes), ("operations", tier.operations)):
            if table:
                right = 'remove it, or write request_billing = "billed"'
                yield Broken((name,), ", ".join(map(str, table)), right)
    elif not tier.request_classes:
        yield Broken(("request_classes",), "nothing", "give at least one class with its unit_count and price")


def _allowance_rules(tier: Tier) -> Iterator[Broken]:
    known = {"storage", "retrieval", *tier.request_classes}
    for index, allowance in enumerate(tier.free_allowance):
        if allowance.applies_to not in known:
            right = f"write one of {', '.join(sorted(known))}"
            yield Broken(("free_allowance", index, "applies_to"), allowance.applies_to, right)


def request_class(tier: Tier, operation: Operation, shared: dict[Operation, str]) -> RequestClass:
    """Return what one ``operation`` costs; ``shared`` is the card's own map.  Raises RateMissing."""
    if tier.request_billing is RequestBilling.UNMETERED:
        return UNMETERED
    name = tier.operations.get(operation) or shared.get(operation)
    if name is None or name not in tier.request_classes:
        what = "is in no request class" if name is None else f"is in class {name!r}, which the tier has no rate for"
        raise RateMissing(
            f"{tier.tier_id}: {operation} {what}",
            hint="map it in [operations] or [tier.operations], and give the class its price; free is a class too",
        )
    return tier.request_classes[name]


def operation_rules(index: int, tier: Tier, shared: dict[Operation, str]) -> Iterator[Broken]:
    """Yield operations of the daemon without a class, and classes that the tier does not have."""
    if tier.request_billing is RequestBilling.UNMETERED:
        return
    classes = ", ".join(sorted(tier.request_classes))
    for operation in DAEMON_OPERATIONS:
        name = tier.operations.get(operation) or shared.get(operation)
        if name is None:
            right = f"map every operation that can be sent, free ones too, to one of {classes}"
            yield Broken(("tier", index, "operations", operation.value), "nothing", right)
        elif name not in tier.request_classes:
            yield Broken(("tier", index, "operations", operation.value), name, f"write a class of the tier: {classes}")
    for extra, name in tier.operations.items():
        if extra not in DAEMON_OPERATIONS and name not in tier.request_classes:
            yield Broken(("tier", index, "operations", extra.value), name, f"write a class of the tier: {classes}")
