"""What moves the total: one thing changed at a time, by how much it then costs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from cost.errors import PlanInvalid
from cost.estimate import Amount, Plan, estimate
from cost.rates.model import RateCard
from cost.report.cadence import at_cadence, resized
from cost.report.words import span
from cost.schedule import TierPlan
from cost.usage import Transfer


@dataclass(frozen=True, kw_only=True)
class Variation:
    """One change of a plan and what it is called: "keep_last", "3 to 6"."""

    name: str
    change: str
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """What the total becomes under each variation of one thing; ``base`` is the plan's own."""

    name: str
    base: Amount
    outcomes: tuple[tuple[str, Amount], ...]

    @property
    def reach(self) -> Decimal:
        """The furthest that the upper end moves, either way."""
        return max((abs(amount.high - self.base.high) for _, amount in self.outcomes), default=Decimal(0))


def sensitivity(
    plan: Plan, cards: Sequence[RateCard], today: date, variations: Sequence[Variation] = ()
) -> tuple[Swing, ...]:
    """Return the swings by reach, the largest first; ``variations`` are the usual ones unless given.

    A variation that cannot be carried out, such as a run that no longer fits its volume, is left
    out; a missing rate is an error as ever.
    """
    base = estimate(plan, cards, today).total
    found: dict[str, list[tuple[str, Amount]]] = {}
    for each in variations or tuple(usual(plan)):
        try:
            outcome = estimate(each.plan, cards, today).total
        except PlanInvalid:
            continue
        found.setdefault(each.name, []).append((each.change, outcome))
    swings = [Swing(name=name, base=base, outcomes=tuple(outcomes)) for name, outcomes in found.items()]
    return tuple(sorted(swings, key=lambda swing: (-swing.reach, swing.name)))


def usual(plan: Plan) -> Iterator[Variation]:
    """Yield the changes that people ask about: size, retention, milestones, cadence, and bytes over the network."""
    for ratio, text in ((Fraction(1, 2), "half"), (Fraction(2), "double")):
        yield Variation(name="bytes of a generation", change=text, plan=resized(plan, ratio))
    if len(plan.runs) != 1:
        return
    (run,) = plan.runs
    yield from _tiers(plan, "keep last", lambda tier: tier.keep_last, _with_last)
    yield from _tiers(plan, "milestone every", lambda tier: tier.keep_every, _with_every)
    if run.cadence is not None:
        for cadence in (run.cadence // 2, run.cadence * 2):
            if 0 < cadence <= run.horizon:
                yield Variation(name="cadence", change=span(cadence), plan=at_cadence(plan, cadence))
    if plan.usage.transfers:
        again = replace(plan.usage, transfers=tuple(_resent(each) for each in plan.usage.transfers))
        yield Variation(name="bytes sent again", change="10 %", plan=replace(plan, usage=again))


def _tiers(
    plan: Plan, name: str, read: Callable[[TierPlan], int | None], write: Callable[[TierPlan, int], TierPlan]
) -> Iterator[Variation]:
    """Yield half and double of a count of every tier; tiers without it stay as they are."""
    (run,) = plan.runs
    for ratio in (Fraction(1, 2), Fraction(2)):
        tiers, shown = [], []
        for tier in run.tiers:
            now = read(tier)
            count = None if now is None else max(1, round(now * ratio))
            tiers.append(tier if count is None else write(tier, count))
            shown += [] if count is None or count == now else [str(count)]
        if shown:
            changed = replace(plan, runs=(replace(run, tiers=tuple(tiers)),))
            yield Variation(name=name, change=", ".join(dict.fromkeys(shown)), plan=changed)


def _with_last(tier: TierPlan, count: int) -> TierPlan:
    return replace(tier, keep_last=count)


def _with_every(tier: TierPlan, count: int) -> TierPlan:
    return replace(tier, keep_every=count)


def _resent(leg: Transfer) -> Transfer:
    return replace(leg, bytes=leg.bytes + leg.bytes // 10)
