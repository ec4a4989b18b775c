"""Rules across a whole card: its header, references between tiers, and shared pools."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cost.rates.meters import FreeAllowance
from cost.rates.parts import Broken, Path
from cost.rates.sources import is_own_page, own_domains
from cost.rates.terms import Operation, RequestBilling, SourceKind, TierKind
from cost.rates.tier import Tier, operation_rules

if TYPE_CHECKING:
    from cost.rates.model import CardHeader, RateCard

_OBJECTS = (TierKind.OBJECT, TierKind.ARCHIVE_OBJECT)


def header_rules(header: "CardHeader") -> Iterator[Broken]:
    """Yield what a header says against itself."""
    start, end = header.effective_from, header.effective_to
    if start is not None and end is not None and start >= end:
        yield Broken(("effective_to",), end, f"a day after effective_from, {start}")
    if header.region == "global" and not header.regionless:
        right = 'name the region; "global" only with regionless = true, for a provider that has none'
        yield Broken(("region",), '"global"', right)
    if header.source_kind is SourceKind.CONTRACT:
        for name in ("entered_by", "reviewed_by"):
            if getattr(header, name) is None:
                yield Broken((name,), "nothing", "a contract needs the person's name here")
    yield from _page_rules(header, ("source_url",), header.source_url)


def _page_rules(header: "CardHeader", at: Path, url: str | None) -> Iterator[Broken]:
    if header.source_kind is not SourceKind.PROVIDER_PAGE or url is None or is_own_page(header.provider, url):
        return
    own = " or ".join(own_domains(header.provider)) or f"a site called {header.provider}"
    right = f'provider_page is a page of {own}; write source_kind = "third_party" for others'
    yield Broken(at, url, right)


def card_rules(card: "RateCard") -> Iterator[Broken]:
    """Yield every rule across tables that a card breaks whose tables are right one by one."""
    for at, part in card.sourced():
        yield from _page_rules(card, (*at, "source_url"), part.source_url)
    yield from _unique_rules(card)
    for index, tier in enumerate(card.tiers):
        yield from _reference_rules(card, index, tier)
        yield from operation_rules(index, tier, card.operations)
    yield from _operation_rules(card)
    yield from _pool_rules(card)


def _unique_rules(card: "RateCard") -> Iterator[Broken]:
    for name in ("tier_id", "storage_class"):
        seen: set[str] = set()
        for index, tier in enumerate(card.tiers):
            value = getattr(tier, name)
            if value in seen:
                yield Broken(("tier", index, name), value, f"each tier has its own {name}: rename or remove one")
            seen.add(value)
    legs: set[tuple[str, ...]] = set()
    for index, entry in enumerate(card.transfers):
        leg = (entry.from_zone, entry.to_zone, entry.path.value)
        if leg in legs:
            yield Broken(("transfer", index), " ".join(leg), "one entry for each from_zone, to_zone and path")
        legs.add(leg)
    fees: set[str] = set()
    for index, fee in enumerate(card.fixed_fees):
        if fee.id in fees:
            yield Broken(("fixed_fee", index, "id"), fee.id, "each fee has its own id")
        fees.add(fee.id)


def _reference_rules(card: "RateCard", index: int, tier: Tier) -> Iterator[Broken]:
    known = {each.tier_id: each for each in card.tiers}
    names = ", ".join(known)
    for name in ("staging_tier", "staging_request_tier", "temp_copy_tier"):
        value = getattr(tier, name)
        if value is not None and value not in known:
            yield Broken(("tier", index, name), value, f"write a tier_id of this card: {names}")
    for at, overhead in enumerate(tier.per_object_overhead):
        if overhead.billed_at not in {"self", *known}:
            where = ("tier", index, "per_object_overhead", at, "billed_at")
            yield Broken(where, overhead.billed_at, f'write "self" or a tier_id of this card: {names}')
    staging = known.get(tier.staging_request_tier or "")
    if staging is not None and staging.request_billing is RequestBilling.UNMETERED:
        at_staging = ("tier", index, "staging_request_tier")
        yield Broken(at_staging, staging.tier_id, "name a tier whose requests are billed")
    if tier.kind in _OBJECTS and tier.request_billing is RequestBilling.BILLED and card.billed_status is None:
        yield Broken(("billed_status",), "nothing", 'say which answers are billed: ranges = ["2xx", "4xx"]')


def _operation_rules(card: "RateCard") -> Iterator[Broken]:
    """Yield shared operations in a class that no tier has."""
    classes = {name for tier in card.tiers for name in tier.request_classes}
    for operation, name in card.operations.items():
        if name not in classes and not _overridden(card, operation):
            known = ", ".join(sorted(classes)) or "none"
            yield Broken(("operations", operation.value), name, f"write a class of the tiers: {known}")


def _overridden(card: "RateCard", operation: Operation) -> bool:
    return all(operation in tier.operations for tier in card.tiers)


def _pool_rules(card: "RateCard") -> Iterator[Broken]:
    """Yield allowances of one pool that differ, and transfers of one pool with other brackets."""
    pools: dict[str, FreeAllowance] = {}
    for at, part in card.sourced():
        if isinstance(part, FreeAllowance) and part.pool is not None:
            first = pools.setdefault(part.pool, part)
            if _terms(first) != _terms(part):
                yield Broken((*at, "pool"), part.pool, "allowances of one pool are one allowance: make them equal")
    brackets: dict[str, int] = {}
    for index, entry in enumerate(card.transfers):
        first_index = brackets.setdefault(entry.pool, index) if entry.pool is not None else index
        other = card.transfers[first_index]
        same = (other.brackets, other.bytes_per_unit, other.bracket_mode, other.bracket_pool)
        if same != (entry.brackets, entry.bytes_per_unit, entry.bracket_mode, entry.bracket_pool):
            yield Broken(("transfer", index, "pool"), entry.pool, "transfers of one pool have equal brackets and unit")


def _terms(allowance: FreeAllowance) -> dict[str, object]:
    return allowance.model_dump(exclude={"notes", "source_url", "as_of"})
