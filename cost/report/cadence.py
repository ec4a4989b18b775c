"""Cost against cadence: what the provider gets, what lost work costs, and where both together are least."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from cost.cadence import Machine, money_period, waste
from cost.errors import PlanInvalid
from cost.estimate import Amount, Plan, estimate
from cost.pricing.transfers import RESTORE
from cost.rates.model import RateCard
from cost.report.totals import by_month
from cost.schedule import RunPlan, TierPlan
from cost.units import ZERO
from cost.usage import Usage

LARGEST_WASTE = 1.0
"""Cadences at which first-order waste is all of the time are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CadencePoint:
    """One cadence in seconds; amounts are for a month.  ``lost`` is zero without a burn rate."""

    cadence: int
    bill: Amount
    lost: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class CadenceStudy:
    """The points by cadence, and the best one (T*) in seconds; None where it cannot be told."""

    points: tuple[CadencePoint, ...]
    best: float | None
    current: int
    currency: str


def study(
    plan: Plan,
    cards: Sequence[RateCard],
    today: date,
    *,
    machine: Machine | None = None,
    burn_per_hour: Decimal = ZERO,
    cadences: Sequence[int] = (),
) -> CadenceStudy:
    """Estimate a plan of one run at several cadences.

    Milestones keep their distance in time.  Uploads, and their requests, grow with the number of
    generations.  ``burn_per_hour`` is what the job costs while it runs; with ``machine`` it
    prices the time lost to checkpoints and repeated work, to first order.
    """
    if len(plan.runs) != 1 or plan.runs[0].cadence is None:
        raise PlanInvalid(f"{plan.plan_id}: cadence is studied for one run that has one", hint="give cadence")
    base = plan.runs[0].cadence
    now = estimate(plan, cards, today)
    per_generation = now.per_generation
    best = None
    if machine is not None and machine.blocked > 0:
        q = ZERO if per_generation is None or not burn_per_hour else per_generation.high
        best = money_period(machine.blocked, machine.mtti, q, burn_per_hour / 3600 if burn_per_hour else Decimal(1))
    wanted = sorted({*(cadences or _around(best or base, plan.runs[0].horizon)), base})
    points = tuple(
        CadencePoint(
            cadence=each,
            bill=_bill(plan, cards, today, each),
            lost=_lost(machine, burn_per_hour, each),
        )
        for each in wanted
        if machine is None or waste(each, machine.blocked, machine.mtti) < LARGEST_WASTE
    )
    return CadenceStudy(points=points, best=best, current=base, currency=now.currency)


def _around(middle: float, horizon: int) -> list[int]:
    """Return whole minutes from a sixteenth of ``middle`` to sixteen times it, two to an octave."""
    spans = (middle * math.sqrt(2) ** step for step in range(-8, 9))
    return [max(60, round(each / 60) * 60) for each in spans if each <= horizon]


def _bill(plan: Plan, cards: Sequence[RateCard], today: date, cadence: int) -> Amount:
    changed = at_cadence(plan, cadence)
    result = estimate(changed, cards, today)
    return by_month(result, changed) or result.total


def _lost(machine: Machine | None, burn_per_hour: Decimal, cadence: int) -> Decimal:
    if machine is None or not burn_per_hour:
        return ZERO
    part = waste(cadence, machine.blocked, machine.mtti)
    return burn_per_hour * 730 * Decimal(str(part))


def at_cadence(plan: Plan, cadence: int) -> Plan:
    """Return the plan of one run with another cadence; what belongs to a generation is scaled with their number."""
    (run,) = plan.runs
    if run.cadence is None:
        raise PlanInvalid(f"{plan.plan_id}: a list of commits has no cadence to change", hint="give cadence")
    factor = Fraction(run.cadence, cadence)
    tiers = tuple(_milestones(tier, factor) for tier in run.tiers)
    changed = replace(run, cadence=cadence, tiers=tiers)
    return replace(plan, runs=(changed,), usage=_scaled(plan.usage, _ratio(run, changed)))


def _milestones(tier: TierPlan, factor: Fraction) -> TierPlan:
    if tier.keep_every is None:
        return tier
    return replace(tier, keep_every=max(1, round(tier.keep_every * factor)), pins=frozenset())


def _ratio(before: RunPlan, after: RunPlan) -> Fraction:
    return Fraction(len(after.instants), max(1, len(before.instants)))


def _scaled(usage: Usage, ratio: Fraction) -> Usage:
    """Return the usage with uploads for another number of generations; restores stay."""
    requests = tuple(
        each if each.label == RESTORE else replace(each, count=math.ceil(each.count * ratio)) for each in usage.requests
    )
    transfers = tuple(
        each if each.label == RESTORE else replace(each, bytes=math.ceil(each.bytes * ratio))
        for each in usage.transfers
    )
    return replace(usage, requests=requests, transfers=transfers)


def resized(plan: Plan, ratio: Fraction) -> Plan:
    """Return the plan with generations of another size; bytes scale, counts of requests do not."""
    runs = tuple(
        replace(run, objects=tuple(replace(each, bytes=round(each.bytes * ratio)) for each in run.objects))
        for run in plan.runs
    )
    usage = replace(
        plan.usage,
        transfers=tuple(replace(each, bytes=round(each.bytes * ratio)) for each in plan.usage.transfers),
        retrievals=tuple(replace(each, bytes=round(each.bytes * ratio)) for each in plan.usage.retrievals),
    )
    return replace(plan, runs=runs, usage=usage)
