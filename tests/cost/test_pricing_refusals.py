"""Values that make no sense are refused where they are made, and a line knows whether it is certain."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from support.example_rates import GIB, card, hub, minimum, mode, s3, tier, volume
from support.example_run import DAY, START, ledger, priced, requests, stored

from cost.cadence import daly_interval, money_period, mtti_interval, waste
from cost.errors import PlanInvalid, RateMissing
from cost.estimate import Estimate, Plan
from cost.ledger import Ending, Reason
from cost.pricing.retrieval import Verdict, verdict
from cost.pricing.volumes import Size, Volume
from cost.rates.terms import Operation, TransferPath
from cost.schedule import AbandonedUpload, LeftBehind, LifecycleRule, ObjectGroup, RunPlan, TierPlan, expand
from cost.units import ZERO
from cost.usage import Retrieval, Transfer, Usage

OBJECTS = (ObjectGroup(bytes=1),)


@pytest.mark.parametrize(
    "make",
    [
        lambda: requests("t", Operation.GET_OBJECT, -1),
        lambda: Transfer(from_zone="a", to_zone="b", path=TransferPath.NAT, bytes=-1, at=0),
        lambda: Retrieval(tier="t", bytes=1, objects=-1, at=0),
        lambda: ObjectGroup(bytes=-1),
        lambda: LeftBehind(soft_delete=-1),
        lambda: TierPlan(tier="t", keep_last=1, lifecycle=(LifecycleRule(after=0, tier="u"),)),
        lambda: RunPlan(start=0, horizon=9, cadence=0, objects=OBJECTS, tiers=()),
        lambda: RunPlan(start=0, horizon=9, cadence=1, objects=(), tiers=()),
        lambda: expand(
            RunPlan(
                start=START,
                horizon=9,
                cadence=1,
                objects=OBJECTS,
                tiers=(TierPlan(tier="t", keep_last=1, abandoned=(AbandonedUpload(at=1, bytes=1),)),),
            )
        ),
        lambda: mtti_interval(-1, 1),
        lambda: money_period(1, 1, ZERO, ZERO),
        lambda: waste(1, -1, 1),
        lambda: daly_interval(1, -1),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(PlanInvalid):
        make()


def test_a_line_is_a_point_or_a_range() -> None:
    (certain,) = priced(ledger(stored("standard", GIB, 30)), s3()).lines
    assert not certain.is_range
    assert certain.amount == certain.low.amount
    open_lines = priced(ledger(stored("private", 3 * 10**12, 7)), hub()).lines
    (uncertain,) = (line for line in open_lines if line.is_range)
    assert uncertain.amount is None


def test_sizes_for_what_is_no_volume_are_refused() -> None:
    bought = Volume(tier="standard", sizes=(Size(at=START, bytes=GIB),), end=START + DAY)
    with pytest.raises(PlanInvalid, match="no provisioned volume"):
        priced(Plan(plan_id="v", volumes=(bought,)), s3())


def test_a_volume_grows_in_the_middle_of_a_month() -> None:
    flat = volume("v", [{"unit_price": "0.1"}], GIB)
    sizes = (Size(at=START, bytes=10 * GIB), Size(at=START + 15 * DAY, bytes=20 * GIB))
    bought = Volume(tier="v", sizes=sizes, end=START + 30 * DAY)
    assert priced(Plan(plan_id="v", volumes=(bought,)), flat).total.low == Decimal("1.5")


def test_two_orders_for_one_allowance_are_refused() -> None:
    free = {
        "quantity": "1",
        "unit": "GiB-month",
        "period": "month",
        "applies_to": "storage",
        "scope": "account",
        "bracket_order": "before_brackets",
    }
    both = [{**free, "rounding_order": order} for order in ("before_rounding", "after_rounding")]
    with pytest.raises(PlanInvalid, match="differ in their orders"):
        priced(ledger(stored("t", GIB, 1)), card("c", tier("t", "1", free_allowance=both)))


def test_a_minimum_duration_on_a_plan_in_steps_cannot_be_estimated() -> None:
    odd = hub("plan_increment", min_duration=minimum(30))
    with pytest.raises(RateMissing, match="minimum duration"):
        priced(ledger(stored("private", GIB, 1, ending=Ending.DELETED)), odd)


def test_tiering_leaves_small_objects_and_parts_where_they_are() -> None:
    small = stored("int", 4096, 120)
    parts = stored("int", GIB, 120, reason=Reason.INCOMPLETE_UPLOAD)
    labels = {line.about.label for line in priced(ledger(small, parts), s3()).lines}
    assert labels == {""}


def test_reading_one_generation_touches_that_one() -> None:
    first = stored("int", GIB, 60, generation=1)
    second = stored("int", GIB, 60, generation=2)
    reading = replace(requests("int", Operation.GET_OBJECT, 1, generation=1), at=START + 29 * DAY)
    untouched = priced(ledger(first, second), s3())
    plan = Plan(plan_id="b", ledger=ledger(first, second), usage=Usage(requests=(reading,)))
    touched = priced(plan, s3())

    def cheap(result: Estimate) -> int:
        return sum(int(line.low.quantity * 30) for line in result.lines if line.about.label == "infrequent")

    assert cheap(untouched) == 60
    assert cheap(touched) == 31


def test_immediate_retrieval_passes_without_a_guarantee() -> None:
    loose = card("c", tier("t", "1", retrieval="immediate", retrieval_modes=[mode("get", "1", 1, guaranteed=False)]))
    assert verdict(loose.tiers[0], "", 60)[0] is Verdict.PASS
