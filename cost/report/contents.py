"""What a report has in it, put together once; text, JSON and HTML only write it down."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cost.budget import Judgement
from cost.compare import Comparison, Needs, RestoreTime, restore_time
from cost.estimate import Amount, CardUse, Estimate, Plan
from cost.pricing.book import Book
from cost.pricing.lines import Category, Line
from cost.rates.model import RateCard
from cost.rates.terms import Metering
from cost.reconcile import Reconciliation
from cost.report.cadence import CadenceStudy
from cost.report.sensitivity import Swing
from cost.report.totals import Totals, totals


@dataclass(frozen=True, slots=True)
class Basis:
    """What a gigabyte and a month are for a tier, and how its bytes are metered."""

    tier: str
    unit: str
    month: str
    metering: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that can be shown; what is None or empty is left out.

    ``bound`` is (K+M)·S: the bytes that retention alone would allow to be committed at once, all
    tiers together.  ``recovery`` is the time of a restore from each tier of the plan.
    """

    plan: Plan
    estimate: Estimate
    totals: Totals
    bases: tuple[Basis, ...]
    formulas: Mapping[str, str]
    bound: int | None
    recovery: Mapping[str, RestoreTime]
    comparison: Comparison | None
    judgements: tuple[Judgement, ...]
    cadence: CadenceStudy | None
    sensitivity: tuple[Swing, ...]
    reconciliation: Reconciliation | None
    version: str
    digest: str

    @property
    def title(self) -> str:
        """The heading."""
        return f"Cost of {self.estimate.plan_id}"

    @property
    def cards(self) -> tuple[CardUse, ...]:
        """Every card that something in the report rests on, candidates' included."""
        return tuple(
            dict.fromkeys((*self.estimate.cards, *(each for found in self._estimates for each in found.cards)))
        )

    @property
    def banners(self) -> tuple[str, ...]:
        """What has to be said about those cards."""
        mine = self.estimate.banners
        return tuple(dict.fromkeys((*mine, *(text for found in self._estimates for text in found.banners))))

    @property
    def _estimates(self) -> tuple[Estimate, ...]:
        rows = () if self.comparison is None else self.comparison.rows
        return tuple(row.estimate for row in rows if row.estimate is not None)

    def breakdowns(self) -> dict[str, dict[str, Amount]]:
        """Return the sums by tier and category, by reason, month and label; each adds up to the total.

        Months in their order, the others from the dearest on.
        """
        return {
            "tier and category": self._dearest(lambda line: f"{tier_of(line)} · {line.about.category}"),
            "reason": self._dearest(reason_of),
            "month": dict(sorted(self.estimate.by(lambda line: str(line.month)).items())),
            "label": self._dearest(lambda line: line.about.label or "unlabelled"),
        }

    def _dearest(self, key: Callable[[Line], str]) -> dict[str, Amount]:
        return dict(sorted(self.estimate.by(key).items(), key=lambda each: (-each[1].high, each[0])))


def reason_of(line: Line) -> str:
    """Return why bytes are stored, or what else a line is for: requests by class, legs, fees."""
    about = line.about
    stored = about.category in {Category.STORAGE, Category.STAGING}
    return about.reason if stored else f"{about.category} {about.reason}".rstrip()


def tier_of(line: Line) -> str:
    """Return the tier that a line is shown under; a fee of no tier goes by its card."""
    return line.about.tier or line.card


def report(
    plan: Plan,
    estimate: Estimate,
    cards: Sequence[RateCard],
    *,
    needs: Needs | None = None,
    comparison: Comparison | None = None,
    judgements: Sequence[Judgement] = (),
    cadence: CadenceStudy | None = None,
    sensitivity: Sequence[Swing] = (),
    reconciliation: Reconciliation | None = None,
    version: str = "",
) -> Report:
    """Return the report of an estimate of ``plan`` by ``cards``.

    ``needs`` adds the recovery time of each of the plan's tiers; ``version`` is that of the tool.
    """
    book = Book(tuple(cards), estimate.currency)
    return Report(
        plan=plan,
        estimate=estimate,
        totals=totals(estimate, plan),
        bases=tuple(_bases(book, estimate)),
        formulas={line.meter: formula(book, line) for line in (*estimate.lines, *estimate.liabilities)},
        bound=bound(plan),
        recovery={} if needs is None else _recovery(book, plan, needs),
        comparison=comparison,
        judgements=tuple(judgements),
        cadence=cadence,
        sensitivity=tuple(sensitivity),
        reconciliation=reconciliation,
        version=version,
        digest=_digest(estimate.assumptions, estimate.cards),
    )


def bound(plan: Plan) -> int | None:
    """Return (K+M)·S over all runs and tiers; None without a run.

    K is what is kept of the last ones, M the milestones and pins that the run comes to.
    """
    if not plan.runs:
        return None
    most = 0
    for run in plan.runs:
        for tier in run.tiers:
            received = range(tier.every, len(run.instants) + 1, tier.every)
            stays = {each for each in received if tier.keep_every and each % tier.keep_every == 0}
            stays.update(tier.pins.intersection(received))
            most += min(tier.keep_last + len(stays), len(received)) * run.generation_bytes
    return most


def _recovery(book: Book, plan: Plan, needs: Needs) -> dict[str, RestoreTime]:
    modes = {each.tier: each.mode for each in plan.usage.retrievals}
    found = {}
    for run in plan.runs:
        for each in run.tiers:
            tier = book.tier(each.tier)[1]
            mode = modes.get(each.tier, "") or (tier.retrieval_modes[0].mode if tier.retrieval_modes else "")
            found[each.tier] = restore_time(tier, mode, run.generation_bytes, needs)
    return found


def _bases(book: Book, estimate: Estimate) -> list[Basis]:
    found = []
    refs = [*estimate.ledger.by_tier, *(line.about.tier for line in estimate.lines if line.about.tier)]
    for ref in dict.fromkeys(refs):
        tier = book.tier(ref)[1]
        month = f"{tier.month} h" if isinstance(tier.month, int) else "calendar month"
        if tier.metering is Metering.GIB_HOUR:
            month = "priced by the hour"
        unit = f"1 {tier.bytes_per_unit.label} = {int(tier.bytes_per_unit):,} bytes"
        found.append(Basis(ref, unit, month, tier.metering.replace("_", " ")))
    return found


def formula(book: Book, line: Line) -> str:
    """Return the name of the calculation that a line's quantity came from."""
    category = line.about.category
    if line.unit in {"request", "object", "restore"}:
        return "count"
    if category in _PLAIN:
        return _PLAIN[category]
    tier = book.tier(line.about.tier)[1]
    if tier.metering is Metering.DAILY_PEAK_AVG and tier.min_duration is not None:
        return "byte-seconds-over-month"
    return _METERED[tier.metering]


_PLAIN = {
    Category.FIXED: "periods-times-fee",
    Category.UPLOAD_TRANSFER: "bytes",
    Category.RESTORE_TRANSFER: "bytes",
    Category.RETRIEVAL: "bytes",
    Category.MONITORING: "object-seconds-over-month",
    Category.EARLY_DELETE: "missing-byte-seconds-of-minimum",
}
_METERED = {
    Metering.BYTE_HOURS_CALENDAR: "byte-seconds-over-month",
    Metering.BYTE_HOURS_FIXED_MONTH: "byte-seconds-over-month",
    Metering.GIB_HOUR: "byte-seconds-over-hour",
    Metering.DAILY_PEAK_AVG: "mean-of-daily-peaks",
    Metering.PROVISIONED_HOURS: "provisioned-bytes-by-time",
    Metering.PLAN_INCREMENT: "peak-of-month",
    Metering.UNSPECIFIED: "mean-to-peak-of-month",
}


def _digest(assumptions: Sequence[str], cards: Sequence[CardUse]) -> str:
    """Return the SHA-256 over what the figures rest on: equal digests rest on the same."""
    basis = [list(assumptions), [[each.card_id, each.as_of.isoformat(), each.source_url] for each in cards]]
    return hashlib.sha256(json.dumps(basis, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
