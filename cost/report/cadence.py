"""Cost against cadence: what the provider gets, what lost work costs, and where both together are least."""

import math
from collections.abc import Mapping, Sequence
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
from cost.units import ONE, SECONDS_PER_HOUR, ZERO, divide, multiply, subtract
from cost.usage import Usage

_CLOSE = 0.15
_MOST = 20_000
HOURS_PER_MONTH = 730
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
    best = None
    if machine is not None and machine.blocked > 0:
        q = one_more(plan, cards, today) if burn_per_hour else ZERO
        best = money_period(
            machine.blocked, machine.mtti, q, divide(burn_per_hour, SECONDS_PER_HOUR) if burn_per_hour else ONE
        )
    others = cadences or [each for each in _around(best or base, plan.runs[0].horizon) if abs(each / base - 1) > _CLOSE]
    wanted = sorted({*others, base})
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


def one_more(plan: Plan, cards: Sequence[RateCard], today: date) -> Decimal:
    """Return what a generation more costs, from the plan at half its cadence; never below zero.

    Requests and uploads, above all: the last K take as many bytes however often they are
    replaced, and milestones keep their distance.
    """
    denser = at_cadence(plan, max(1, (plan.runs[0].cadence or 1) // 2))
    more = len(denser.runs[0].instants) - len(plan.runs[0].instants)
    if more < 1:
        return ZERO
    extra = subtract(estimate(denser, cards, today).total.high, estimate(plan, cards, today).total.high)
    return max(ZERO, divide(extra, more))


def _around(middle: float, horizon: int) -> list[int]:
    """Return whole minutes from a sixteenth of ``middle`` to sixteen times it, where generations are not too many."""
    spans = (max(60, round(middle * math.sqrt(2) ** step / 60) * 60) for step in range(-8, 9))
    return [each for each in spans if horizon / _MOST <= each <= horizon]


def _bill(plan: Plan, cards: Sequence[RateCard], today: date, cadence: int) -> Amount:
    changed = at_cadence(plan, cadence)
    result = estimate(changed, cards, today)
    return by_month(result, changed) or result.total


def _lost(machine: Machine | None, burn_per_hour: Decimal, cadence: int) -> Decimal:
    if machine is None or not burn_per_hour:
        return ZERO
    part = waste(cadence, machine.blocked, machine.mtti)
    return multiply(multiply(burn_per_hour, HOURS_PER_MONTH), Decimal(str(part)))


def at_cadence(plan: Plan, cadence: int) -> Plan:
    """Return the plan of one run with another cadence.

    What goes to a tier only now and then, and what stays there, keeps its distance in time; requests
    and bytes that belong to a tier's generations are scaled with their number.
    """
    (run,) = plan.runs
    if run.cadence is None:
        raise PlanInvalid(f"{plan.plan_id}: a list of commits has no cadence to change", hint="give cadence")
    factor = Fraction(run.cadence, cadence)
    changed = replace(run, cadence=cadence, tiers=tuple(_spaced(tier, factor) for tier in run.tiers))
    ratios = {
        before.tier: Fraction(_received(changed, after), max(1, _received(run, before)))
        for before, after in zip(run.tiers, changed.tiers, strict=True)
    }
    whole = Fraction(len(changed.instants), max(1, len(run.instants)))
    return replace(plan, runs=(changed,), usage=_scaled(plan.usage, ratios, whole))


def _spaced(tier: TierPlan, factor: Fraction) -> TierPlan:
    every = tier.every if tier.every == 1 else max(1, round(tier.every * factor))
    if tier.keep_every is None:
        return replace(tier, every=every)
    return replace(
        tier, every=every, keep_every=every * max(1, round(tier.keep_every * factor / every)), pins=frozenset()
    )


def _received(run: RunPlan, tier: TierPlan) -> int:
    return len(run.instants) // tier.every


def _scaled(usage: Usage, ratios: Mapping[str, Fraction], whole: Fraction) -> Usage:
    """Return the usage with uploads for another number of generations; restores stay."""
    requests = tuple(
        each if each.label == RESTORE else replace(each, count=math.ceil(each.count * ratios.get(each.tier, whole)))
        for each in usage.requests
    )
    transfers = tuple(
        each if each.label == RESTORE else replace(each, bytes=math.ceil(each.bytes * ratios.get(each.tier, whole)))
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
