"""The rates of the worked examples, as cards: examples with their dates, not anyone's prices."""

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from cost.rates.model import RateCard

TODAY = date(2026, 4, 2)
GB = 10**9
GIB = 2**30

Table = dict[str, Any]

TIER_1 = (
    *("PutObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CopyObject", "CompleteMultipartUpload"),
    "ListParts",
)
TIER_2 = ("GetObject", "HeadObject")
FREE = ("DeleteObject", "AbortMultipartUpload")
OPERATIONS = {
    **dict.fromkeys(TIER_1, "write"),
    **dict.fromkeys(TIER_2, "read"),
    **dict.fromkeys(FREE, "free"),
    "ListObjectsV2": "list",
}
ACCESS = {"visibility": "private", "signed_urls": "yes", "object_lock": "no", "audit_log": "no"}
NO_COST: Table = {"unit_count": 1, "price": "0", "free": True}


def brackets(*bounds: tuple[str | None, str]) -> list[Table]:
    """Return cumulative brackets of (bound, price); None is the open end."""
    found: list[Table] = []
    for up_to, price in bounds:
        bracket: Table = {"unit_price": price}
        if up_to is not None:
            bracket["up_to"] = up_to
        if Decimal(price) == 0:
            bracket["free"] = True
        found.append(bracket)
    return found


def tier(tier_id: str, prices: str | list[Table], **changes: Any) -> Table:
    """Return an object tier in GiB-months of 720 hours with unmetered requests, changed as told."""
    table: Table = {
        "tier_id": tier_id,
        "storage_class": tier_id.upper(),
        "kind": "object",
        "metering": "byte_hours_fixed_month",
        "bytes_per_unit": GIB,
        "month_hours": 720,
        "storage_brackets": brackets((None, prices)) if isinstance(prices, str) else prices,
        "bracket_mode": "graduated",
        "bracket_pool": "account",
        "request_billing": "unmetered",
        "retrieval": "none",
        "access": ACCESS,
    }
    table.update(changes)
    return {key: value for key, value in table.items() if value is not None}


def classes(write: str, read: str, per: int, listing: str | None = None) -> Table:
    """Return billed requests: writes, reads, lists (as writes unless told), and what is free."""
    prices = {"write": write, "read": read, "list": listing or write}
    return {
        "request_billing": "billed",
        "request_classes": {
            **{name: {"unit_count": per, "price": price} for name, price in prices.items()},
            "free": NO_COST,
        },
    }


def minimum(days: int, mode: str = "remaining_prorated") -> Table:
    """Return a minimum duration by the hour from the entry into the class."""
    triggers = ["delete", "overwrite", "transition"]
    return {
        "days": days,
        "mode": mode,
        "granularity": "hour",
        "triggers": triggers,
        "clock_basis": "class_entry",
    }


def mode(name: str, price: str, latency: int, request: str | None = None, **changes: Any) -> Table:
    """Return a retrieval mode; ``request`` is its price per 1,000 restores."""
    table: Table = {"mode": name, "unit_price": price, "latency_max_s": latency, "guaranteed": True, **changes}
    if request is not None:
        table.update(request_price=request, request_unit_count=1000)
    if Decimal(price) == 0:
        table["free"] = True
    return table


def allowance(quantity: str, unit: str, applies_to: str, order: str = "after_rounding") -> Table:
    """Return a monthly free allowance of the account, taken off before the brackets."""
    return {
        "quantity": quantity,
        "unit": unit,
        "period": "month",
        "applies_to": applies_to,
        "scope": "account",
        "rounding_order": order,
        "bracket_order": "before_brackets",
    }


def up(increment: str) -> Table:
    """Return the rounding of a month's total up to whole increments."""
    return {"increment": increment, "rounding": "up", "level": "month"}


def card(card_id: str, *tiers: Table, **changes: Any) -> RateCard:
    """Return a card of example rates."""
    table: Table = {
        "schema": 1,
        "id": card_id,
        "provider": card_id,
        "product": "example",
        "region": "example-1",
        "billing_account_scope": "account",
        "currency": "USD",
        "as_of": "2026-03-01",
        "source_url": "https://example.com/prices",
        "source_kind": "example",
        "price_basis": "list",
        "taxes": "excluded",
        "tier": list(tiers),
        **changes,
    }
    return RateCard.model_validate(table)


EGRESS = brackets(("10240", "0.09"), ("51200", "0.085"), ("153600", "0.07"), (None, "0.05"))


def leg(to_zone: str, path: str, prices: list[Table], **changes: Any) -> Table:
    """Return one entry of the transfer matrix, from ``aws``, in GiB."""
    return {
        "from_zone": "aws",
        "to_zone": to_zone,
        "path": path,
        "direction_charged": "out",
        "bytes_per_unit": GIB,
        "brackets": prices,
        "bracket_mode": "graduated",
        "bracket_pool": "account",
        **changes,
    }


LEGS = (
    leg("internet", "internet", EGRESS, free_allowance=[allowance("100", "GiB", "transfer")]),
    leg("aws-2", "cross_region", brackets((None, "0.02"))),
    leg("s3", "nat", brackets((None, "0.045"))),
    leg("s3", "gateway_endpoint", brackets((None, "0"))),
)
S3_BRACKETS = brackets(("51200", "0.023"), ("512000", "0.022"), (None, "0.021"))
ARCHIVE: Table = {"kind": "archive_object", "retrieval": "restore", "temp_copy_tier": "standard"}
OVERHEAD = [{"bytes": 32768, "billed_at": "self"}, {"bytes": 8192, "billed_at": "standard"}]
RESETS = ["GetObject", "ListParts", "CompleteMultipartUpload"]


def s3(metering: Mapping[str, Any] | None = None, standard: Sequence[Table] = S3_BRACKETS) -> RateCard:
    """Return the S3 example card: all classes, by months of 720 hours unless told."""
    basis = dict(metering or {})
    immediate = "immediate"
    return card(
        "s3",
        tier("standard", list(standard), **classes("0.005", "0.0004", 1000), **basis),
        tier(
            "sia",
            "0.0125",
            **classes("0.01", "0.001", 1000, listing="0.005"),
            min_duration=minimum(30),
            min_billable_object_bytes=131072,
            retrieval=immediate,
            retrieval_modes=[mode("get", "0.01", 1)],
            transition_request={"unit_count": 1000, "price": "0.01"},
            **basis,
        ),
        tier(
            "gir",
            "0.004",
            min_duration=minimum(90),
            min_billable_object_bytes=131072,
            retrieval=immediate,
            retrieval_modes=[mode("get", "0.03", 1)],
            **basis,
        ),
        tier(
            "gfr",
            "0.0036",
            min_duration=minimum(90),
            per_object_overhead=OVERHEAD,
            staging_tier="standard",
            staging_request_tier="standard",
            **classes("0.03", "0.0004", 1000, listing="0.005"),
            retrieval_modes=[
                mode("expedited", "0.03", 300, "10", guaranteed=False),
                mode("standard", "0.01", 18000, "0.03"),
                mode("bulk", "0", 43200, "0"),
            ],
            transition_request={"unit_count": 1000, "price": "0.03"},
            **ARCHIVE,
            **basis,
        ),
        tier(
            "gda",
            "0.00099",
            min_duration=minimum(180),
            per_object_overhead=OVERHEAD,
            staging_tier="standard",
            **classes("0.05", "0.0004", 1000, listing="0.005"),
            retrieval_modes=[mode("standard", "0.02", 43200, "0.10"), mode("bulk", "0.0025", 172800, "0.025")],
            transition_request={"unit_count": 1000, "price": "0.05"},
            **ARCHIVE,
            **basis,
        ),
        tier(
            "int",
            "0.023",
            monitoring={"unit_count": 1000, "price": "0.0025", "min_object_bytes": 131072},
            auto_transitions=[
                {"after_days_without_access": 30, "to": "infrequent", "unit_price": "0.0125", "resets_on": RESETS},
                {"after_days_without_access": 90, "to": "archive-instant", "unit_price": "0.004", "resets_on": RESETS},
            ],
            **classes("0.005", "0.0004", 1000),
            **basis,
        ),
        billed_status={"ranges": ["2xx", "4xx"]},
        operations=OPERATIONS,
        transfer=list(LEGS),
        fixed_fee=[{"id": "nat-gateway", "path": "nat", "price_per_hour": "0.045"}],
    )


def _r2_classes(write: str, read: str) -> Table:
    table = classes(write, read, 1_000_000)
    for name in ("write", "read"):
        table["request_classes"][name]["billing"] = up("1000000")
    del table["request_classes"]["list"]
    return table


def r2() -> RateCard:
    """Return the R2 example card: daily peaks over 30 days, whole units, an allowance on Standard only."""
    basis: Table = {"metering": "daily_peak_avg", "bytes_per_unit": GB, "storage_billing": up("1")}
    free = [
        allowance("10", "GB-month", "storage"),
        allowance("1000000", "request", "write"),
        allowance("10000000", "request", "read"),
    ]
    return card(
        "r2",
        tier("standard", "0.015", free_allowance=free, **_r2_classes("4.50", "0.36"), **basis),
        tier(
            "ia",
            "0.01",
            min_duration=minimum(30, "as_if_full"),
            retrieval="immediate",
            retrieval_modes=[mode("get", "0.01", 1)],
            retrieval_billing=up("1"),
            **_r2_classes("9.00", "0.90"),
            **basis,
        ),
        billed_status={
            "ranges": ["2xx", "4xx"],
            "exceptions": [{"status": 401, "billed": False, "reason": "no valid signature"}],
        },
        operations={**OPERATIONS, "ListObjectsV2": "write"},
    )


def gcs() -> RateCard:
    """Return the GCS example card: a price per GiB and hour, and egress at 0.12."""
    return card(
        "gcs",
        tier(
            "gcs",
            "0.000027397",
            metering="gib_hour",
            month_hours=None,
            noncurrent={"versioning": False, "soft_delete_days": 7},
            **classes("0.005", "0.0004", 1000),
        ),
        billed_status={"ranges": ["2xx", "4xx"]},
        operations=OPERATIONS,
        transfer=[leg("internet", "internet", brackets((None, "0.12")), from_zone="gcs")],
    )


def hub(metering: str = "unspecified", **changes: Any) -> RateCard:
    """Return the Hub's PRO plan: 1 TB in it, whole TB above, metering not documented."""
    return card(
        "hub",
        tier(
            "private",
            "18",
            kind="plan_quota",
            metering=metering,
            bytes_per_unit=10**12,
            month_hours="calendar",
            storage_billing=up("1"),
            plan={
                "name": "PRO",
                "fee": "9",
                "fee_period": "month",
                "fee_per": "account",
                "included_bytes": 10**12,
            },
            **changes,
        ),
        source_kind="third_party",
    )


def volume(tier_id: str, prices: list[Table], unit: int, **changes: Any) -> RateCard:
    """Return a card with one provisioned volume that can only grow."""
    provisioned = {
        "min_bytes": unit,
        "max_bytes": 4000 * unit,
        "step_bytes": unit,
        "grow_only": True,
        "charge_when_stopped": True,
    }
    return card(
        tier_id,
        tier(
            tier_id,
            prices,
            kind="volume_provisioned",
            metering="provisioned_hours",
            bytes_per_unit=unit,
            provisioned=provisioned,
            **changes,
        ),
    )
