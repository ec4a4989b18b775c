"""Bytes that no listing shows and that are billed: incomplete uploads, noncurrent versions, history.

Cases C49, C98 and C101, as far as estimating goes.
"""

from typing import Any

import pytest
from support.example_rates import GB, brackets, card, hub, s3, tier
from support.example_run import DAY, HOUR, START, ledger, priced, shown, stored

from cost.ledger import Reason, byte_seconds, peaks
from cost.pricing.lines import Category
from cost.rates.model import RateCard
from cost.schedule import (
    AbandonedUpload,
    LeftBehind,
    ObjectGroup,
    RewrittenObject,
    RunPlan,
    TierPlan,
    expand,
    left_behind,
)

TB = 10**12
TEN_GB = (ObjectGroup(bytes=10 * GB),)


def run(tier_plan: TierPlan, objects: tuple[ObjectGroup, ...] = TEN_GB, generations: int = 20) -> RunPlan:
    """Return a run of a day's cadence, held to 30 days."""
    horizon = generations * DAY
    return RunPlan(
        start=START, horizon=horizon, hold=30 * DAY - horizon, cadence=DAY, objects=objects, tiers=(tier_plan,)
    )


def bucket(noncurrent: dict[str, object] | None = None) -> RateCard:
    return card("bucket", tier("t", "0.023", **({} if noncurrent is None else {"noncurrent": noncurrent})))


def crashed(at: int) -> AbandonedUpload:
    return AbandonedUpload(at=START + at * HOUR, bytes=5 * GB)


@pytest.mark.parametrize(
    ("policy", "gb_days"),
    [
        (None, 5 * (30 + 29 + 28)),
        ({"versioning": False, "abort_incomplete_days": 7}, 3 * 5 * 7),
    ],
)
def test_c49_parts_of_three_crashed_uploads_are_billed_until_a_rule_aborts_them(
    policy: dict[str, object] | None, gb_days: int
) -> None:
    plan = run(TierPlan(tier="t", keep_last=2, abandoned=(crashed(0), crashed(24), crashed(48))))
    result = priced(plan, bucket(policy))
    hidden = [line for line in result.lines if line.about.reason == Reason.INCOMPLETE_UPLOAD]
    assert {line.about.category for line in hidden} == {Category.STAGING}
    assert sum(line.low.quantity for line in hidden) * 2**30 * 30 == gb_days * GB
    assert sum(line.low.amount for line in hidden) > 0


def test_c49_what_is_aborted_within_a_minimum_duration_costs_nothing_more() -> None:
    abandoned = (AbandonedUpload(at=START, bytes=5 * GB, aborted_after=DAY),)
    plan = run(TierPlan(tier="sia", keep_last=30, abandoned=abandoned))
    result = priced(plan, s3())
    assert not [line for line in result.lines if line.about.category is Category.EARLY_DELETE]


def test_c98_noncurrent_versions_are_counted_where_the_bucket_keeps_them() -> None:
    """20 generations of 10 GB, two kept, and a small object that is overwritten a thousand times."""
    rewritten = (RewrittenObject(bytes=100_000, at=tuple(START + index * 1000 for index in range(1000))),)
    plan = run(TierPlan(tier="t", keep_last=2, rewritten=rewritten))
    visible = priced(plan, bucket())
    billed = priced(plan, bucket({"versioning": True}))
    assert visible.total.low < billed.total.low / 4
    last = [sum(each.bytes * each.objects for each in billed.ledger.intervals if each.end == billed.end)]
    assert last == [20 * 10 * GB + 1000 * 100_000]
    listed = [
        each.bytes * each.objects
        for each in billed.ledger.intervals
        if each.end == billed.end and each.reason is not Reason.NONCURRENT
    ]
    assert sum(listed) == 2 * 10 * GB + 100_000
    by_reason = billed.by(lambda line: line.about.reason)
    assert by_reason[Reason.NONCURRENT].low > by_reason[Reason.LAST_K].low


def test_c98_the_lifecycle_rule_that_expires_versions_frees_them() -> None:
    plan = run(TierPlan(tier="t", keep_last=2))
    kept = priced(plan, bucket({"versioning": True})).total.low
    expired = priced(plan, bucket({"versioning": True, "noncurrent_days": 1})).total.low
    assert priced(plan, bucket()).total.low < expired < kept / 3


def test_c98_what_the_bucket_really_does_goes_before_the_card() -> None:
    plan = run(TierPlan(tier="t", keep_last=2, leaves=LeftBehind()))
    assert priced(plan, bucket({"versioning": True})).total == priced(plan, bucket()).total


def test_c101_files_deleted_from_a_repository_are_still_billed() -> None:
    """10 generations of 5 GB, two visible: 50 GB counted."""
    policy: dict[str, Any] = {"noncurrent": {"versioning": True, "keeps_history": True}}
    five = (ObjectGroup(bytes=5 * GB),)
    repository = run(TierPlan(tier="private", keep_last=2), five, 10)
    held = priced(repository, hub(**policy))
    (peak,) = peaks(held.ledger.intervals, [START, START + 30 * DAY])
    assert peak == 50 * GB
    shown_there = [each for each in held.ledger.intervals if each.end == held.end and each.reason is Reason.LAST_K]
    assert sum(each.bytes for each in shown_there) == 10 * GB
    assert left_behind(hub(**policy).tiers[0]).history


def test_c101_history_outgrows_the_plan_and_a_bucket_does_not() -> None:
    policy: dict[str, Any] = {"noncurrent": {"versioning": True, "keeps_history": True}}
    large = (ObjectGroup(bytes=500 * GB),)
    plan = run(TierPlan(tier="private", keep_last=2), large, 10)
    assert shown(priced(plan, hub("plan_increment", **policy)).total, 2) == "81.00"
    assert shown(priced(plan, hub("plan_increment")).total, 2) == "27.00"


def test_history_takes_the_place_of_what_is_deleted() -> None:
    tier_plan = TierPlan(tier="t", keep_last=1, leaves=LeftBehind(history=True))
    sums = byte_seconds(expand(run(tier_plan, generations=2)).intervals, [START, START + 30 * DAY])
    assert sum(total for (total,) in sums.values()) == 10 * GB * DAY * (29 + 28)


def test_cards_are_what_they_are_made_of() -> None:
    assert brackets(("1", "2"), (None, "0"))[1]["free"]
    assert ledger(stored("t", TB, 1)).of("u") == ()
