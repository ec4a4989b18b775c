"""Candidates for a comparison from one plan: the same run, moved to another tier."""

from dataclasses import dataclass, replace

from cost.compare import Candidate
from cost.errors import PlanInvalid
from cost.estimate import Plan
from cost.ledger import peaks
from cost.pricing.book import Book
from cost.pricing.transfers import RESTORE
from cost.pricing.volumes import Size, Volume
from cost.rates.model import RateCard
from cost.rates.terms import Retrieval as Kind
from cost.rates.terms import TierKind, TransferPath
from cost.rates.tier import Tier
from cost.schedule import RunPlan, expand, left_behind
from cost.usage import Transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The leg that bytes take between the run and a tier; a card has to price it."""

    from_zone: str
    to_zone: str
    path: TransferPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where to: the tier as ``card/tier``, the retrieval mode, and the routes there and back.

    Without a route the plan's legs of that direction are left out, and the comparison says so.
    """

    tier: str
    mode: str = ""
    upload: Route | None = None
    restore: Route | None = None
    name: str = ""


def moved(plan: Plan, cards: tuple[RateCard, ...], move: Move) -> Candidate:
    """Return a plan of one tier as a candidate on another one.

    Requests keep their counts; a tier whose parts have other sizes needs a plan of its own.
    Restores have to stand in the plan as retrievals, also where its tier charges nothing
    for them.  A provisioned volume gets the least size that holds the run.
    """
    before = {tier.tier for run in plan.runs for tier in run.tiers}
    if len(before) != 1:
        raise PlanInvalid(
            f"{plan.plan_id}: {len(before)} tiers, one can be moved", hint="write a candidate for each by hand"
        )
    book = Book(cards, plan.currency or cards[0].currency)
    tier = book.tier(move.tier)[1]
    runs = tuple(
        replace(run, tiers=tuple(replace(each, tier=move.tier, leaves=None) for each in run.tiers)) for run in plan.runs
    )
    mode = move.mode if tier.retrieval is not Kind.NONE else ""
    usage = replace(
        plan.usage,
        requests=tuple(replace(each, tier=move.tier) for each in plan.usage.requests),
        retrievals=tuple(replace(each, tier=move.tier, mode=mode) for each in plan.usage.retrievals),
        transfers=tuple(leg for each in plan.usage.transfers if (leg := _along(each, move)) is not None),
    )
    volumes = _volumes(tier, move.tier, runs)
    name = move.name or move.tier + (f" ({mode})" if mode and len(tier.retrieval_modes) > 1 else "")
    return Candidate(name=name, plan=replace(plan, runs=runs, usage=usage, volumes=volumes), cards=cards, mode=mode)


def _along(leg: Transfer, move: Move) -> Transfer | None:
    route = move.restore if leg.label == RESTORE else move.upload
    if route is None:
        return None
    return replace(leg, tier=move.tier, from_zone=route.from_zone, to_zone=route.to_zone, path=route.path)


def _volumes(tier: Tier, ref: str, runs: tuple[RunPlan, ...]) -> tuple[Volume, ...]:
    if tier.kind is not TierKind.VOLUME_PROVISIONED or tier.provisioned is None:
        return ()
    leaves = left_behind(tier)
    start, end = min(run.start for run in runs), max(run.end for run in runs)
    needed = 0
    for run in runs:
        ledger = expand(replace(run, tiers=tuple(replace(each, leaves=leaves) for each in run.tiers)))
        needed += peaks(ledger.intervals, [ledger.start, ledger.end + 1])[0]
    step = tier.provisioned.step_bytes
    size = min(max(-(-needed // step) * step, tier.provisioned.min_bytes), tier.provisioned.max_bytes)
    return (Volume(tier=ref, sizes=(Size(at=start, bytes=size),), end=end),)
