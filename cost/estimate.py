"""From a plan and dated cards to an estimate: a pure function of values, whose lines add up to its total.

A plausible estimate is not a bill: what a card leaves open becomes a range, and what was
assumed is listed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import add

from cost.errors import PlanInvalid, RateMissing
from cost.ledger import Ledger
from cost.pricing import requests, retrieval, storage, transfers, volumes
from cost.pricing.autotier import accesses
from cost.pricing.book import Book
from cost.pricing.lines import Line
from cost.pricing.periods import Months, instant_of
from cost.pricing.pools import Demand, settle
from cost.pricing.volumes import Volume
from cost.rates.model import Freshness, RateCard
from cost.rates.terms import Metering, SourceKind
from cost.schedule import RunPlan, expand, left_behind
from cost.units import divide, total
from cost.usage import NOTHING, Usage


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to estimate: runs, or a ledger of what was measured, with the usage around them.

    ``seats`` counts people where a plan is paid by seat.  ``generations`` and ``restores`` are
    what totals are divided by for people; 0 takes them from the runs and from the retrievals
    and restore legs.  ``allow_stale`` admits cards that are too old.  ``currency`` is that of
    the first card unless it is given.
    """

    plan_id: str
    runs: tuple[RunPlan, ...] = ()
    ledger: Ledger | None = None
    usage: Usage = NOTHING
    volumes: tuple[Volume, ...] = ()
    seats: int = 1
    generations: int = 0
    restores: int = 0
    allow_stale: bool = False
    currency: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """A card that an estimate rests on."""

    card_id: str
    as_of: date
    age_days: int
    source_kind: SourceKind
    source_url: str
    freshness: Freshness


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum of lines; ``low`` equals ``high`` unless a card leaves the metering open."""

    low: Decimal
    high: Decimal

    @property
    def expected(self) -> Decimal | None:
        """The one amount, or None: between the ends of a range nothing is more likely than anything else."""
        return self.low if self.low == self.high else None

    def over(self, count: int) -> "Amount":
        """Return the amount for each of ``count``; raises UnitInvalid for none."""
        return Amount(divide(self.low, count), divide(self.high, count))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a plan costs.  ``start`` and ``end`` are seconds since 1970; taxes are excluded.

    ``liabilities`` are not in the total: what deleting everything at the end would add.
    """

    plan_id: str
    currency: str
    today: date
    start: int
    end: int
    cards: tuple[CardUse, ...]
    lines: tuple[Line, ...]
    liabilities: tuple[Line, ...]
    banners: tuple[str, ...]
    assumptions: tuple[str, ...]
    ledger: Ledger
    generations: int
    restores: int

    @property
    def total(self) -> Amount:
        """The exact sum of all lines."""
        return add_up(self.lines)

    @property
    def open_liability(self) -> Amount:
        """The exact sum of the liabilities."""
        return add_up(self.liabilities)

    def by(self, key: Callable[[Line], str]) -> dict[str, Amount]:
        """Return sums by tier, category, reason, label, month or whatever ``key`` says; they add up to the total."""
        found: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            found[key(line)].append(line)
        return {name: add_up(lines) for name, lines in found.items()}

    @property
    def per_generation(self) -> Amount | None:
        """All but what restores cost, for each generation; None where there are none."""
        if not self.generations:
            return None
        return add_up(line for line in self.lines if line.about.label != transfers.RESTORE).over(self.generations)

    @property
    def per_restore(self) -> Amount | None:
        """What lines labelled as restores cost, for each restore; None where there are none."""
        if not self.restores:
            return None
        return add_up(line for line in self.lines if line.about.label == transfers.RESTORE).over(self.restores)


def add_up(lines: Iterable[Line]) -> Amount:
    """Return the exact sum."""
    chosen = tuple(lines)
    return Amount(total(line.low.amount for line in chosen), total(line.high.amount for line in chosen))


def estimate(plan: Plan, cards: Sequence[RateCard], today: date) -> Estimate:
    """Return what ``plan`` costs by ``cards``, read on ``today``.

    Raises RateMissing for what no card prices, CardStale and OutsideWindow for cards that
    cannot be used, CurrencyMixed without a dated exchange rate, PlanInvalid for a plan that
    cannot be carried out.
    """
    if not cards:
        raise RateMissing("no rate card is given", hint="name at least one; none is built in")
    book = Book(tuple(cards), plan.currency or cards[0].currency)
    ledger = _ledger(plan, book)
    months = Months(*_span(plan, ledger))
    volumes.require(book, plan.volumes, ledger)
    baselines = {each.meter: Fraction(each.quantity) for each in plan.usage.baselines}
    lines = (*settle(_demands(plan, book, ledger, months), baselines), *volumes.lines(book, plan.volumes, months))
    _require_meters(baselines, lines)
    used = _used(book, plan, lines, months, today)
    return Estimate(
        plan_id=plan.plan_id,
        currency=book.currency,
        today=today,
        start=months.start,
        end=months.end,
        cards=tuple(_use(card, today) for card in used),
        lines=lines,
        liabilities=settle(storage.liabilities(book, ledger, months), {}),
        banners=tuple(_banners(used, today)),
        assumptions=tuple(_assumptions(plan, book, ledger)),
        ledger=ledger,
        generations=plan.generations or sum(len(run.instants) for run in plan.runs),
        restores=plan.restores or len(plan.usage.retrievals),
    )


def _ledger(plan: Plan, book: Book) -> Ledger:
    parts = [expand(_with_policies(run, book)) for run in plan.runs]
    parts += [each for each in (plan.ledger, retrieval.copies(book, plan.usage.retrievals)) if each is not None]
    if parts:
        return reduce(add, parts)
    instants = (*plan.usage.instants, *(at for volume in plan.volumes for at in (volume.sizes[0].at, volume.end)))
    if not instants:
        raise PlanInvalid(f"{plan.plan_id}: nothing to estimate", hint="give a run, a ledger, usage or a volume")
    return Ledger((), min(instants), max(instants))


def _require_meters(baselines: Mapping[str, Fraction], lines: Iterable[Line]) -> None:
    """Raise PlanInvalid for baseline usage of a meter that nothing is billed on: most likely a slip of the pen."""
    known = {line.meter for line in lines}
    for meter in baselines:
        if meter not in known:
            raise PlanInvalid(f"baseline of {meter!r}, which nothing is billed on", hint=f"one of {sorted(known)}")


def _with_policies(run: RunPlan, book: Book) -> RunPlan:
    """Return the run with what its tiers' cards say about deletions, where the plan does not."""
    tiers = tuple(
        tier if tier.leaves is not None else replace(tier, leaves=left_behind(book.tier(tier.tier)[1]))
        for tier in run.tiers
    )
    return replace(run, tiers=tiers)


def _span(plan: Plan, ledger: Ledger) -> tuple[int, int]:
    edges = [ledger.start, ledger.end, *plan.usage.instants]
    edges += [at for volume in plan.volumes for at in (*(size.at for size in volume.sizes), volume.end)]
    return min(edges), max(edges)


def _demands(plan: Plan, book: Book, ledger: Ledger, months: Months) -> Iterator[Demand]:
    usage = plan.usage
    tiering = any(book.tier(ref)[1].auto_transitions for ref in ledger.by_tier)
    touched = accesses(usage.requests) if tiering else {}
    yield from storage.demands(book, ledger, months, plan.seats, touched)
    yield from requests.demands(book, usage.requests, months)
    yield from requests.transitions(book, ledger, months)
    yield from retrieval.demands(book, usage.retrievals, months)
    yield from transfers.demands(book, usage.transfers, months)
    yield from transfers.fees(book, usage.fees, months)
    yield from transfers.subscriptions(book, ledger, months, plan.seats)


def _used(book: Book, plan: Plan, lines: Sequence[Line], months: Months, today: date) -> tuple[RateCard, ...]:
    """Return the cards that price something, after checking that each may be used for all of the plan's days."""
    names = {line.card for line in lines} | {book.tier(tier.tier)[0].card_id for run in plan.runs for tier in run.tiers}
    used = tuple(card for card in book.cards if card.card_id in names)
    for card in used:
        if not plan.allow_stale:
            card.require_usable(today)
        for at in (months.start, max(months.start, months.end - 1)):
            card.require_effective(instant_of(at).date())
    return used


def _use(card: RateCard, today: date) -> CardUse:
    return CardUse(
        card_id=card.card_id,
        as_of=card.oldest_as_of,
        age_days=card.age_days(today),
        source_kind=card.source_kind,
        source_url=card.source_url,
        freshness=card.freshness(today),
    )


def _banners(cards: Iterable[RateCard], today: date) -> Iterator[str]:
    for card in cards:
        if card.banner is not None:
            yield card.banner
        if card.freshness(today) is not Freshness.FRESH:
            yield f"{card.card_id}: STALE, prices were read {card.age_days(today)} days ago"


def _assumptions(plan: Plan, book: Book, ledger: Ledger) -> Iterator[str]:
    """Yield what the figures rest on and no provider confirms."""
    yield "amounts exclude taxes and credits; months are calendar months in UTC"
    if plan.runs:
        yield "generations are committed at once, at their instants; parts in flight fill evenly"
    for ref in ledger.by_tier:
        tier = book.tier(ref)[1]
        if tier.metering is Metering.UNSPECIFIED:
            yield f"{ref}: the card leaves the metering open: from the month's average to its peak"
        if tier.metering is Metering.PLAN_INCREMENT:
            yield f"{ref}: billed on the month's peak"
        if tier.metering is Metering.DAILY_PEAK_AVG and tier.min_duration is not None:
            yield f"{ref}: each object is billed for its own stay and the minimum, not by daily peaks"
        if tier.min_duration is not None:
            yield f"{ref}: what is kept after a deletion counts towards the minimum duration"
