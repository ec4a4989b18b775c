"""Bytes that come back: retrieval meters by mode, temporary copies, and whether a target can be met."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from fractions import Fraction

from cost.errors import PlanInvalid
from cost.ledger import DAY, Ending, Interval, Ledger, Reason
from cost.pricing.book import Book, allowances
from cost.pricing.brackets import flat
from cost.pricing.lines import About, Category
from cost.pricing.periods import Months
from cost.pricing.pools import Demand, point
from cost.rates.meters import RetrievalMode
from cost.rates.terms import Retrieval as Kind
from cost.rates.tier import Tier
from cost.usage import Retrieval


def mode_of(tier: Tier, name: str) -> RetrievalMode | None:
    """Return the mode that is meant; None where the tier charges nothing for reading.  Raises RateMissing."""
    if tier.retrieval is Kind.NONE and not name:
        return None
    if name or len(tier.retrieval_modes) != 1:
        return tier.retrieval_mode(name)
    return tier.retrieval_modes[0]


def demands(book: Book, retrievals: Iterable[Retrieval], months: Months) -> Iterator[Demand]:
    """Yield bytes and restore initiations; raises RateMissing for a mode that the card does not have."""
    for each in retrievals:
        card, tier = book.tier(each.tier)
        mode = mode_of(tier, each.mode)
        if mode is None:
            continue
        about = About(tier=each.tier, category=Category.RETRIEVAL, reason=mode.mode, label=each.label)
        month = months.of(each.at)
        name = f"{tier.tier_id}/retrieval/{mode.mode}"
        base = Fraction(int(tier.bytes_per_unit))
        free = allowances(card, tier.tier_id, tier.free_allowance, "retrieval", base)
        unit, prices = tier.bytes_per_unit.label, flat(mode.unit_price)
        meter = book.meter(card, name, unit, prices, billing=tier.retrieval_billing, allowances=free)
        yield point(meter, month, about, each.bytes / base)
        if mode.request_price is not None and mode.request_unit_count is not None:
            prices = flat(mode.request_price, mode.request_unit_count)
            meter = book.meter(card, f"{name}/restores", "restore", prices)
            yield point(meter, month, about, Fraction(each.objects))


def copies(book: Book, retrievals: Iterable[Retrieval]) -> Ledger | None:
    """Return the temporary copies that restores make, in the tier that bills them; None without any.

    Objects of one restore are counted as equal in size, the first one larger by what does not divide.
    """
    intervals = []
    for each in retrievals:
        card, tier = book.tier(each.tier)
        if tier.retrieval is not Kind.RESTORE or tier.temp_copy_tier is None:
            continue
        if not each.objects:
            raise PlanInvalid(f"{each.tier}: a restore of no objects", hint="give the number of objects restored")
        seconds = max(each.keep_days, tier.temp_copy_min_days or 0) * DAY
        size, rest = divmod(each.bytes, each.objects)
        for bytes_, count in ((size + rest, 1), (size, each.objects - 1)):
            if count:
                intervals.append(_copy(f"{card.card_id}/{tier.temp_copy_tier}", bytes_, count, (each.at, seconds)))
    if not intervals:
        return None
    return Ledger(tuple(intervals), min(each.start for each in intervals), max(each.end for each in intervals))


def _copy(tier: str, bytes_: int, count: int, when: tuple[int, int]) -> Interval:
    at, seconds = when
    return Interval(
        tier=tier,
        bytes=bytes_,
        objects=count,
        start=at,
        end=at + seconds,
        reason=Reason.RESTORED_COPY,
        ending=Ending.KEPT,
        entered=at,
        created=at,
    )


class Verdict(StrEnum):
    """Whether a tier can meet a recovery target."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    CONDITIONAL = "conditional"
    FAIL = "fail"


def verdict(tier: Tier, mode_name: str, target_s: int) -> tuple[Verdict, str]:
    """Tell whether the first byte comes within ``target_s`` seconds at worst, and why.

    Conditional: it would, but the provider may refuse the mode or limits its objects' size.
    """
    mode = mode_of(tier, mode_name)
    if mode is None:
        return Verdict.PASS, "bytes come back at once"
    if mode.latency_max_s is None:
        return Verdict.FAIL, f"{mode.mode}: the card gives no latency"
    if mode.latency_max_s > target_s:
        return (
            Verdict.FAIL,
            f"{mode.mode}: up to {mode.latency_max_s} s before the first byte, the target is {target_s} s",
        )
    if tier.retrieval is Kind.RESTORE and (not mode.guaranteed or mode.object_size_limit is not None):
        return Verdict.CONDITIONAL, f"{mode.mode}: {mode.latency_max_s} s where the provider does not refuse"
    return Verdict.PASS, f"{mode.mode}: at most {mode.latency_max_s} s before the first byte"
