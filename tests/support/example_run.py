"""The run of the worked examples, R7B: 98 GB every two hours for 30 days, the last 3 and every 12th kept."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from support.example_rates import TODAY

from cost.estimate import Amount, Estimate, Plan, estimate
from cost.ledger import Ending, Interval, Ledger, Reason
from cost.pricing.lines import Category, Line
from cost.rates.model import RateCard
from cost.rates.terms import Operation, TransferPath
from cost.schedule import LeftBehind, ObjectGroup, RunPlan, TierPlan
from cost.units import half_up
from cost.usage import Requests, Retrieval, Transfer, Usage

START = int(datetime(2026, 4, 1, tzinfo=UTC).timestamp())
"""April 2026: a month of 720 hours."""
HOUR = 3600
DAY = 24 * HOUR
RANKS = 32
RANK_BYTES = 3_062_500_000
GENERATION = RANKS * RANK_BYTES
OBJECTS = (ObjectGroup(bytes=RANK_BYTES, count=RANKS),)
"""The 32 rank objects; the examples leave the bytes of the 3 small ones out."""
NOTHING_LEFT = LeftBehind()


def r7b(tier: str, *, hours: int = 2, start: int = START, **changes: Any) -> RunPlan:
    """Return the run on one tier; ``changes`` are those of its tier plan."""
    settings: dict[str, Any] = {"keep_last": 3, "keep_every": 12, "leaves": NOTHING_LEFT, **changes}
    plan = TierPlan(tier=tier, **settings)
    return RunPlan(start=start, horizon=30 * DAY, cadence=hours * HOUR, objects=OBJECTS, tiers=(plan,))


def stored(tier: str, size: int, days: float, **changes: Any) -> Interval:
    """Return one object that lies in a tier from the start on, alive unless told."""
    start = changes.pop("start", START)
    table: dict[str, Any] = {
        "tier": tier,
        "bytes": size,
        "objects": 1,
        "start": start,
        "end": start + int(days * DAY),
        "reason": Reason.LAST_K,
        "ending": Ending.ALIVE,
        "entered": start,
        "created": start,
    }
    return Interval(**{**table, **changes})


def ledger(*intervals: Interval) -> Ledger:
    """Return a ledger that is just long enough."""
    return Ledger(intervals, min(each.start for each in intervals), max(each.end for each in intervals))


def priced(plan: Plan | RunPlan | Ledger | Usage, *cards: RateCard, today: date = TODAY) -> Estimate:
    """Return the estimate of a plan, or of a part of one."""
    if isinstance(plan, RunPlan):
        plan = Plan(plan_id="example", runs=(plan,))
    elif isinstance(plan, Ledger):
        plan = Plan(plan_id="example", ledger=plan)
    elif isinstance(plan, Usage):
        plan = Plan(plan_id="example", usage=plan)
    return estimate(plan, cards, today)


def requests(tier: str, operation: Operation, count: int, **changes: Any) -> Requests:
    """Return requests within the run."""
    return Requests(tier=tier, operation=operation, count=count, at=START, **changes)


def transfer(to_zone: str, path: TransferPath, size: int, from_zone: str = "aws", label: str = "") -> Usage:
    """Return one leg within the run."""
    leg = Transfer(from_zone=from_zone, to_zone=to_zone, path=path, bytes=size, at=START, label=label)
    return Usage(transfers=(leg,))


def retrieval(tier: str, mode: str, *, generations: int = 1, keep_days: int = 0, objects: int = 35) -> Usage:
    """Return a restore of whole generations within the run."""
    size = generations * GENERATION
    taken = Retrieval(tier=tier, mode=mode, bytes=size, objects=objects, at=START, keep_days=keep_days)
    return Usage(retrievals=(taken,))


def shown(value: Amount | Decimal | Fraction, places: int = 6) -> str:
    """Return a certain amount or quantity, rounded half up for people."""
    if isinstance(value, Amount):
        assert value.expected is not None
        value = value.expected
    if isinstance(value, Fraction):
        value = Decimal(value.numerator) / Decimal(value.denominator)
    return f"{half_up(value, places):f}"


def category(result: Estimate, which: Category, places: int = 6) -> str:
    """Return what one category of lines costs."""
    return shown(result.by(lambda line: line.about.category).get(which, Amount(Decimal(0), Decimal(0))), places)


def quantity(result: Estimate, wanted: Callable[[Line], bool] = lambda _: True) -> Fraction:
    """Return the quantity of some lines."""
    return sum((line.low.quantity for line in result.lines if wanted(line)), Fraction(0))
