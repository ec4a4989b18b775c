"""Which tier: candidates for one run, each estimated whole, ranked by whether it will do and then by what it costs.

What cannot do the job comes last, whatever its price: an archive that is slower than the
recovery target, a public repository, a store that is too small.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from cost.errors import PlanInvalid
from cost.estimate import Amount, Estimate, Plan, add_up, estimate
from cost.ledger import PARTS, Ending, Interval, Reason, peaks
from cost.pricing.book import Book
from cost.pricing.brackets import NOTHING
from cost.pricing.lines import Category, Line
from cost.pricing.retrieval import Verdict, mode_of, verdict
from cost.rates.model import Quota, RateCard
from cost.rates.terms import EarlyDeleteMode, Visibility
from cost.rates.tier import Tier
from cost.report.totals import by_month, per_restore
from cost.report.words import byte_text, money, span
from cost.units import ByteUnit
from cost.usage import Usage

TRANSFERS = frozenset({Category.UPLOAD_TRANSFER, Category.RESTORE_TRANSFER})
KEPT = frozenset({Category.STORAGE, Category.STAGING})
_GONE = frozenset({Ending.DELETED, Ending.OVERWRITTEN, Ending.TRANSITIONED})
_ORDER = (Verdict.PASS, Verdict.CONDITIONAL, Verdict.FAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a tier has to do: the run trains again ``recover_within`` seconds after its machine is gone.

    ``detect``, ``provision`` and ``load`` are seconds beside the tier's own; ``bandwidths`` are
    bytes per second of everything in the way (network, disk), of which the slowest counts.
    """

    recover_within: int
    bandwidths: tuple[int, ...]
    detect: int = 0
    provision: int = 0
    load: int = 0
    private: bool = True

    def __post_init__(self) -> None:
        if min(self.recover_within, self.detect, self.provision, self.load) < 0:
            raise PlanInvalid("a span of the recovery target is negative", hint="give spans in seconds, from 0")
        if not self.bandwidths or min(self.bandwidths) < 1:
            raise PlanInvalid("no bandwidth to restore with", hint="give at least one, in bytes per second")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to store the run: a whole plan with all its usage, priced by its own cards.

    ``restore_from`` is the tier that a restore reads, the first of the plan's first run unless
    given, and ``mode`` its retrieval mode.  ``restored_bytes`` are those of one restore, one
    generation unless given.
    """

    name: str
    plan: Plan
    cards: tuple[RateCard, ...]
    restore_from: str = ""
    mode: str = ""
    restored_bytes: int = 0

    @property
    def source(self) -> str:
        """The tier that a restore reads; raises PlanInvalid where nothing says which."""
        if self.restore_from:
            return self.restore_from
        if not self.plan.runs:
            raise PlanInvalid(f"{self.name}: no tier to restore from", hint="name it")
        return self.plan.runs[0].tiers[0].tier

    @property
    def size(self) -> int:
        """Bytes of one restore."""
        return self.restored_bytes or (self.plan.runs[0].generation_bytes if self.plan.runs else 0)


class Check(StrEnum):
    """What a candidate is judged by."""

    RECOVERY = "recovery"
    QUOTA = "quota"
    ACCESS = "access"
    MIN_DURATION = "minimum duration"
    MIN_SIZE = "minimum size"
    EGRESS = "egress"


DECIDING = frozenset({Check.RECOVERY, Check.QUOTA, Check.ACCESS})
"""Checks that make a candidate infeasible; what the others find is in the price already."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check and its reason; ``conditional`` says what it depends on, or costs."""

    check: Check
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTime:
    """Seconds from the loss to training again, between the best and the worst case; the worst is judged."""

    low: int
    high: int
    target: int
    verdict: Verdict
    reason: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One candidate with what it costs; ``estimate`` is None for a plan that the tier cannot carry out."""

    candidate: Candidate
    estimate: Estimate | None
    restore: RestoreTime
    findings: tuple[Finding, ...]

    @property
    def standing(self) -> Verdict:
        """The worst verdict of the checks that decide."""
        return max((f.verdict for f in self.findings if f.check in DECIDING), key=_ORDER.index, default=Verdict.PASS)

    @property
    def reason(self) -> str:
        """Why the standing is what it is; empty for a pass."""
        decided = [f.reason for f in self.findings if f.check in DECIDING and f.verdict is self.standing]
        return "" if self.standing is Verdict.PASS else "; ".join(decided)

    def finding(self, check: Check) -> Finding | None:
        """Return what a check found, the worst where there are several tiers; None where it does not apply."""
        found = [each for each in self.findings if each.check is check]
        return max(found, key=lambda each: _ORDER.index(each.verdict), default=None)

    @property
    def total(self) -> Amount | None:
        """Everything, egress and restores included."""
        return None if self.estimate is None else self.estimate.total

    @property
    def egress(self) -> Amount | None:
        """What the network costs, uploads and restores."""
        return self._sum(lambda line: line.about.category in TRANSFERS)

    @property
    def without_egress(self) -> Amount | None:
        """Everything but the network."""
        return self._sum(lambda line: line.about.category not in TRANSFERS)

    @property
    def per_month(self) -> Amount | None:
        """The total by calendar months, parts of them counting as such."""
        if self.estimate is None:
            return None
        return by_month(self.estimate, self.candidate.plan)

    @property
    def per_restore(self) -> Amount | None:
        """What one restore costs, temporary copies included; None where the plan has none."""
        return None if self.estimate is None else per_restore(self.estimate)

    @property
    def gb_months(self) -> tuple[Fraction, Fraction] | None:
        """What is billed as stored, in units of 10^9 bytes held for a month, from lowest to highest."""
        if self.estimate is None:
            return None
        kept = [line for line in self.estimate.lines if line.about.category in KEPT]
        low = sum((line.low.quantity * _gb_months(line) for line in kept), NOTHING)
        return low, sum((line.high.quantity * _gb_months(line) for line in kept), NOTHING)

    def _sum(self, wanted: Callable[[Line], bool]) -> Amount | None:
        return None if self.estimate is None else add_up(line for line in self.estimate.lines if wanted(line))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows by rank: what will do first, then what may, then what will not; cheapest first in each."""

    needs: Needs
    currency: str
    today: date
    rows: tuple[Row, ...]

    @property
    def feasible(self) -> tuple[Row, ...]:
        """The rows that are not ruled out."""
        return tuple(row for row in self.rows if row.standing is not Verdict.FAIL)


def compare(candidates: Sequence[Candidate], needs: Needs, today: date, *, currency: str = "") -> Comparison:
    """Return the candidates by rank; a range is ranked by its upper end.

    Raises what an estimate raises, a missing rate above all.  A plan that a tier cannot carry
    out makes that candidate infeasible and stops nobody else.
    """
    if not candidates:
        raise PlanInvalid("nothing to compare", hint="name at least one tier with its rate card")
    chosen = currency or candidates[0].plan.currency or candidates[0].cards[0].currency
    rows = [_row(each, needs, today, chosen) for each in candidates]
    return Comparison(needs=needs, currency=chosen, today=today, rows=tuple(sorted(rows, key=_rank)))


def _rank(row: Row) -> tuple[int, bool, Decimal, str]:
    total = row.total
    return _ORDER.index(row.standing), total is None, total.high if total else Decimal(0), row.candidate.name


def _row(candidate: Candidate, needs: Needs, today: date, currency: str) -> Row:
    book = Book(candidate.cards, currency)
    timing = restore_time(book.tier(candidate.source)[1], candidate.mode, candidate.size, needs)
    found = [Finding(Check.RECOVERY, timing.verdict, timing.reason)]
    result: Estimate | None = None
    try:
        result = estimate(replace(candidate.plan, currency=currency), candidate.cards, today)
    except PlanInvalid as error:
        found.append(Finding(Check.QUOTA, Verdict.FAIL, error.message))
        refs: Iterable[str] = dict.fromkeys(tier.tier for run in candidate.plan.runs for tier in run.tiers)
        found.extend(access(book.tier(ref)[1], needs) for ref in refs)
    else:
        found.extend(_findings(candidate, book, result, needs))
    return Row(candidate=candidate, estimate=result, restore=timing, findings=tuple(found))


def restore_time(tier: Tier, mode_name: str, size: int, needs: Needs) -> RestoreTime:
    """Return how long a restore of ``size`` bytes takes; raises RateMissing for a mode that the card does not have."""
    mode = mode_of(tier, mode_name)
    widths = list(needs.bandwidths)
    if mode is not None and mode.max_bytes_per_s is not None:
        widths.append(mode.max_bytes_per_s)
    moving = -(-size // min(widths))
    fixed = needs.detect + needs.provision + moving + needs.load
    first, last = (0, 0) if mode is None else (mode.latency_min_s, mode.latency_max_s or 0)
    judged, why = verdict(tier, mode_name, needs.recover_within)
    if judged is not Verdict.FAIL and fixed + last > needs.recover_within:
        judged = Verdict.FAIL
    over = f"up to {span(fixed + last)}" if judged is Verdict.FAIL else f"{span(fixed + last)} at most"
    reason = f"{over} until it trains again, the target is {span(needs.recover_within)}"
    if mode is not None and last:
        reason += f" ({mode.mode}: {span(first)} to {span(last)} before the first byte)"
    if judged is Verdict.CONDITIONAL:
        reason += "; the provider may refuse it" if not (mode and mode.guaranteed) else ""
        if mode is not None and mode.object_size_limit is not None:
            reason += f"; for objects below {byte_text(mode.object_size_limit)}"
    if mode is not None and mode.latency_max_s is None:
        reason = why
    return RestoreTime(low=fixed + first, high=fixed + last, target=needs.recover_within, verdict=judged, reason=reason)


def _findings(candidate: Candidate, book: Book, result: Estimate, needs: Needs) -> Iterator[Finding]:
    stored = {
        ref: intervals
        for ref, intervals in result.ledger.by_tier.items()
        if any(each.reason is not Reason.RESTORED_COPY for each in intervals)
    }
    for ref, intervals in stored.items():
        tier = book.tier(ref)[1]
        found = [
            access(tier, needs),
            quota(tier, intervals, candidate.plan),
            *_minimum_duration(tier, ref, intervals, result),
            *_minimum_size(tier, intervals),
        ]
        where = f"{tier.tier_id}: " if len(stored) > 1 else ""
        yield from (replace(each, reason=where + each.reason) for each in found)
    yield _egress(result, candidate.plan.usage)


def access(tier: Tier, needs: Needs) -> Finding:
    """Tell whether what is stored stays private, and what protects it."""
    if needs.private and tier.access.visibility is Visibility.PUBLIC:
        return Finding(Check.ACCESS, Verdict.FAIL, f"{tier.storage_class} is public: anyone could read the state")
    lock, log = tier.access.object_lock, tier.access.audit_log
    return Finding(Check.ACCESS, Verdict.PASS, f"{tier.access.visibility}; object lock {lock}, audit log {log}")


def quota(tier: Tier, intervals: Sequence[Interval], plan: Plan) -> Finding:
    """Tell whether what is stored at any time fits the tier's limits."""
    limits = tier.quota
    if limits is None:
        return Finding(Check.QUOTA, Verdict.PASS, "the card names no limit")
    for what, found, limit, shown in _measures(limits, intervals, plan):
        if limit is not None and found > limit:
            return Finding(Check.QUOTA, Verdict.FAIL, f"{what} {shown(found)}, the limit is {shown(limit)}")
    sent = sum(each.count for each in plan.usage.requests)
    each_time = -(-sent // max(1, sum(len(run.instants) for run in plan.runs)))
    if limits.requests is not None and limits.requests_window_s is not None and each_time > limits.requests:
        least = span(each_time * limits.requests_window_s // limits.requests)
        reason = f"{each_time:,} requests a generation take {least} or more at the allowed rate"
        return Finding(Check.QUOTA, Verdict.CONDITIONAL, reason)
    return Finding(Check.QUOTA, Verdict.PASS, "within the limits of the card")


Measure = tuple[str, int, int | None, Callable[[int], str]]


def _measures(limits: Quota, intervals: Sequence[Interval], plan: Plan) -> Iterator[Measure]:
    if not intervals:
        return
    bounds = [min(each.start for each in intervals), max(each.end for each in intervals) + 1]
    whole = [each for each in intervals if each.reason not in PARTS]
    yield "stored at once:", peaks(intervals, bounds)[0], limits.max_bytes, byte_text
    yield "objects at once:", peaks(whole, bounds, lambda each: each.objects)[0], limits.max_objects, "{:,}".format
    largest = max((each.bytes for each in whole), default=0)
    yield "largest object:", largest, limits.max_object_bytes, byte_text
    under = max((sum(group.count for group in run.objects) for run in plan.runs), default=0)
    yield "objects under one prefix:", under, limits.max_objects_per_prefix, "{:,}".format


def _minimum_duration(tier: Tier, ref: str, intervals: Sequence[Interval], result: Estimate) -> Iterator[Finding]:
    rule = tier.min_duration
    if rule is None or rule.mode is EarlyDeleteMode.NONE:
        return
    stays = [each.end - each.entered for each in intervals if each.ending in _GONE and each.reason not in PARTS]
    shortest = f"the shortest stay is {span(min(stays))}" if stays else "nothing is deleted in the plan"
    early = _of(result.lines, ref)
    due = _of(result.liabilities, ref)
    if not early.high and not due.high:
        yield Finding(Check.MIN_DURATION, Verdict.PASS, f"{rule.days} days are kept: {shortest}")
        return
    parts = [f"{rule.days} days: {shortest}"]
    parts += [f"leaving early costs {money(early, result.currency)}"] if early.high else []
    parts += [f"{money(due, result.currency)} more if all were deleted at the end"] if due.high else []
    yield Finding(Check.MIN_DURATION, Verdict.CONDITIONAL, "; ".join(parts))


def _of(lines: Iterable[Line], ref: str) -> Amount:
    return add_up(line for line in lines if line.about.tier == ref and line.about.category is Category.EARLY_DELETE)


def _minimum_size(tier: Tier, intervals: Sequence[Interval]) -> Iterator[Finding]:
    extra = sum(each.bytes for each in tier.per_object_overhead)
    least = tier.min_billable_object_bytes
    if not least and not extra:
        return
    small = [each for each in intervals if each.reason not in PARTS and each.bytes < least]
    reasons = [f"objects below {least:,} bytes are billed as that"] if small else []
    reasons += [f"{extra:,} bytes more are billed for each object"] if extra else []
    found = Verdict.CONDITIONAL if reasons else Verdict.PASS
    yield Finding(Check.MIN_SIZE, found, "; ".join(reasons) or f"no object is below {least:,} bytes")


def _egress(result: Estimate, usage: Usage) -> Finding:
    if not usage.transfers:
        return Finding(Check.EGRESS, Verdict.CONDITIONAL, "no network leg in the plan: none is priced")
    costs = result.by(lambda line: line.about.category)
    parts = [
        f"{name} {money(costs[category], result.currency)}"
        for name, category in (("uploads", Category.UPLOAD_TRANSFER), ("restores", Category.RESTORE_TRANSFER))
        if category in costs and costs[category].high
    ]
    if parts:
        return Finding(Check.EGRESS, Verdict.CONDITIONAL, "the network costs: " + ", ".join(parts))
    return Finding(Check.EGRESS, Verdict.PASS, "nothing is charged on the legs of the plan")


def _gb_months(line: Line) -> Fraction:
    """Return how many units of 10^9 bytes and a month one unit of a storage line is."""
    label, _, period = line.unit.rpartition("-")
    unit = next(each for each in ByteUnit if each.label == label)
    return Fraction(int(unit), int(ByteUnit.GB) * (line.month.hours() if period == "hour" else 1))
