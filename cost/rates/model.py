"""A rate card: one provider, product, region and price book, on the day that a person read it.

Every name of a card that other modules need can be imported from here.
"""

from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from cost.errors import CardStale, OutsideWindow, RateMissing
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
)
from cost.rates.network import BilledStatus, FixedFee, FxRate, StatusException, Transfer
from cost.rates.parts import (
    Broken,
    Currency,
    Day,
    HttpsUrl,
    Many,
    Part,
    Path,
    Sha256,
    Slug,
    Text,
    one_of,
)
from cost.rates.rules import card_rules, header_rules
from cost.rates.terms import (
    STAGING_OPERATIONS,
    Operation,
    PriceBasis,
    Scope,
    SourceKind,
    TransferPath,
)
from cost.rates.tier import OperationName, Tier, request_class

__all__ = [
    "SCHEMA",
    "UNMETERED",
    "AccessControls",
    "AutoTransition",
    "BilledStatus",
    "Billing",
    "Bracket",
    "CardHeader",
    "FixedFee",
    "FreeAllowance",
    "Freshness",
    "FxRate",
    "MinDuration",
    "MonitoringFee",
    "Noncurrent",
    "Part",
    "PerObjectOverhead",
    "Plan",
    "Provisioned",
    "Quota",
    "RateCard",
    "RequestClass",
    "RetrievalMode",
    "StatusException",
    "Tier",
    "Transfer",
    "TransitionRequest",
]

SCHEMA = 1
"""The major version of the card format; a card with another one is refused."""
REFUSE_FACTOR = 4
"""Times ``max_age_days`` beyond which a card is refused for estimates."""


class Freshness(StrEnum):
    """How old the prices are: usable, usable with a warning, or refused."""

    FRESH = "fresh"
    STALE = "stale"
    TOO_OLD = "too_old"


class CardHeader(Part):
    """What a card says about itself: whose prices, where they were read and when."""

    schema_version: Annotated[Literal[1], Field(alias="schema", description=f"write schema = {SCHEMA}")]
    card_id: Annotated[Slug, Field(alias="id", description="short unique name; it stands in every report line")]
    provider: Slug
    product: Text
    region: Annotated[Slug, Field(description='the region; "global" only where the provider has none')]
    regionless: Annotated[bool, Field(description='true where the provider has no regions; allows "global"')] = False
    billing_account_scope: Annotated[Scope, one_of(Scope)]
    currency: Annotated[Currency, Field(description='ISO 4217 code, such as "USD"')]
    as_of: Annotated[Day, Field(description="the day a person read the prices, YYYY-MM-DD")]
    effective_from: Day | None = None
    effective_to: Annotated[Day | None, Field(description="the first day that is not covered")] = None
    max_age_days: Annotated[int, Field(ge=1, le=3650)] = 90
    source_url: Annotated[HttpsUrl, Field(description="https URL where the price can be read")]
    source_kind: Annotated[SourceKind, one_of(SourceKind)]
    source_digest: Sha256 | None = None
    entered_by: Text | None = None
    reviewed_by: Text | None = None
    price_basis: Annotated[PriceBasis, one_of(PriceBasis)]
    taxes: Annotated[Literal["excluded"], Field(description='write taxes = "excluded"')]
    notes: Text | None = None

    @property
    def banner(self) -> str | None:
        """The line that every report has to show; None for prices from the provider itself."""
        if self.source_kind is SourceKind.EXAMPLE:
            return f"{self.card_id}: EXAMPLE rates of {self.as_of}, not your prices"
        if self.source_kind is SourceKind.THIRD_PARTY:
            return f"{self.card_id}: rates of {self.as_of} from a third party, not from {self.provider}"
        return None

    def rules(self) -> Iterator[Broken]:
        """Yield what is inconsistent in the header."""
        yield from header_rules(self)


class RateCard(CardHeader):
    """One rate card.  Build it with ``load_cards``; ``schema``, ``id`` and ``tier`` are the keys in the file."""

    billed_status: Annotated[BilledStatus | None, Field(description="which answers are billed")] = None
    operations: dict[OperationName, Slug] = Field(default_factory=dict, description="operation = class, for all tiers")
    tiers: Annotated[Many[Tier], Field(alias="tier", min_length=1)]
    transfers: Annotated[Many[Transfer], Field(alias="transfer")] = ()
    fixed_fees: Annotated[Many[FixedFee], Field(alias="fixed_fee")] = ()
    fx: Many[FxRate] = ()

    @property
    def oldest_as_of(self) -> date:
        """The day of the oldest price on the card."""
        return min(day for _, day in self.days())

    def tier(self, tier_id: str) -> Tier:
        """Return a tier; raises RateMissing."""
        for tier in self.tiers:
            if tier.tier_id == tier_id:
                return tier
        known = ", ".join(tier.tier_id for tier in self.tiers)
        raise RateMissing(f"{self.card_id}: no tier {tier_id!r}", hint=f"tiers of the card: {known}")

    def request(self, tier_id: str, operation: Operation) -> RequestClass:
        """Return the class that bills ``operation`` on a tier, at its staging tier for parts; raises RateMissing."""
        tier = self.tier(tier_id)
        if operation in STAGING_OPERATIONS and tier.staging_request_tier is not None:
            tier = self.tier(tier.staging_request_tier)
        return request_class(tier, operation, self.operations)

    def transfer(self, from_zone: str, to_zone: str, path: TransferPath) -> Transfer:
        """Return the entry of a leg; raises RateMissing, also where a leg back would be known."""
        for entry in self.transfers:
            if (entry.from_zone, entry.to_zone, entry.path) == (from_zone, to_zone, path):
                return entry
        known = "; ".join(f"{e.from_zone} to {e.to_zone} by {e.path}" for e in self.transfers) or "none"
        raise RateMissing(
            f"{self.card_id}: no rate from {from_zone} to {to_zone} by {path}",
            hint=f"add a [[transfer]]; the card has: {known}",
        )

    def bills(self, status: int) -> bool:
        """Tell whether an answer with this HTTP status is billed; raises RateMissing where the card is silent."""
        if self.billed_status is None:
            raise RateMissing(f"{self.card_id}: billed_status is not given", hint="add [billed_status] to the card")
        return self.billed_status.bills(status)

    def require_effective(self, day: date) -> None:
        """Raise OutsideWindow unless the card covers ``day``."""
        late = self.effective_to is not None and day >= self.effective_to
        if late or (self.effective_from is not None and day < self.effective_from):
            window = f"{self.effective_from or 'any day'} until before {self.effective_to or 'any day'}"
            raise OutsideWindow(
                f"{self.card_id}: usage on {day}, and the card covers {window}", hint="add a card for it"
            )

    def age_days(self, today: date) -> int:
        """Return the age of the oldest price, in days."""
        return (today - self.oldest_as_of).days

    def freshness(self, today: date, *, refuse_factor: int = REFUSE_FACTOR) -> Freshness:
        """Tell whether the card may be used: stale above ``max_age_days``, too old above that many times it."""
        age = self.age_days(today)
        if age > self.max_age_days * refuse_factor:
            return Freshness.TOO_OLD
        return Freshness.STALE if age > self.max_age_days else Freshness.FRESH

    def require_usable(self, today: date, *, refuse_factor: int = REFUSE_FACTOR) -> None:
        """Raise CardStale where the prices are too old to estimate with."""
        if self.freshness(today, refuse_factor=refuse_factor) is Freshness.TOO_OLD:
            age, limit = self.age_days(today), self.max_age_days * refuse_factor
            message = f"{self.card_id}: prices were read {age} days ago, and {limit} is the limit"
            raise CardStale(message, as_of=self.oldest_as_of, age_days=age, limit_days=limit)

    def days(self) -> Iterator[tuple[Path, date]]:
        """Yield every day on which a price of the card was read, with its path in the file."""
        yield ("as_of",), self.as_of
        yield from (((*at, "as_of"), part.as_of) for at, part in self.sourced() if part.as_of is not None)
        yield from ((("fx", index, "as_of"), rate.as_of) for index, rate in enumerate(self.fx))

    def sourced(self) -> Iterator[tuple[Path, Sourced]]:
        """Yield every meter that may have its own source, with its path in the file."""
        for index, tier in enumerate(self.tiers):
            yield from _sourced(("tier", index), tier)
        for index, transfer in enumerate(self.transfers):
            yield from _sourced(("transfer", index), transfer)
        for index, fee in enumerate(self.fixed_fees):
            yield from _sourced(("fixed_fee", index), fee)

    def rules(self) -> Iterator[Broken]:
        """Yield what is inconsistent across the card."""
        yield from super().rules()
        yield from card_rules(self)


def _sourced(at: Path, part: Sourced) -> Iterator[tuple[Path, Sourced]]:
    """Yield a meter and the meters within it."""
    yield at, part
    for name in type(part).model_fields:
        value = getattr(part, name)
        inner: list[tuple[Path, Any]] = [((*at, name), value)]
        if isinstance(value, tuple):
            inner = [((*at, name, index), item) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            inner = [((*at, name, key), item) for key, item in value.items()]
        for where, item in inner:
            if isinstance(item, Sourced):
                yield from _sourced(where, item)
