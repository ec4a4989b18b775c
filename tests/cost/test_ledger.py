"""The ledger conserves, and the schedule says what happens to each generation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.example_run import DAY, HOUR, START, ledger, stored

from cost.errors import PlanInvalid
from cost.ledger import (
    Ending,
    Interval,
    Ledger,
    Reason,
    byte_seconds,
    days,
    peaks,
    raw_bytes,
    series,
)
from cost.schedule import FOREVER, LeftBehind, LifecycleRule, ObjectGroup, RewrittenObject, RunPlan, TierPlan, expand

WHOLE = st.integers(0, 400)


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    found = []
    for _ in range(draw(st.integers(1, 8))):
        start, length = START + draw(WHOLE) * HOUR, draw(WHOLE) * HOUR
        changes = {"objects": draw(st.integers(0, 3)), "reason": draw(st.sampled_from(Reason))}
        found.append(stored("t", draw(st.integers(0, 9)), length / DAY, start=start, **changes))
    return found


@given(intervals())
def test_byte_seconds_are_conserved_over_any_bounds(found: list[Interval]) -> None:
    first, last = min(i.start for i in found), max(i.end for i in found)
    exact = sum(raw_bytes(i) * i.seconds for i in found)
    for bounds in (days(first, last), [first, last + 1], [first - 7, first + 1, first + 5000, last + 9]):
        sums = byte_seconds(found, bounds)
        assert sum(map(sum, sums.values())) == exact


@given(intervals())
def test_series_peaks_and_sums_agree(found: list[Interval]) -> None:
    last = max(i.end for i in found)
    steps = list(series(found))
    highest = max((sum(step.levels.values()) for step in steps), default=0)
    measured = peaks(found, days(START, last))
    assert max(measured) >= highest
    assert not steps or not steps[-1].levels
    bounds = days(START, last)
    for first, second, peak in zip(bounds, bounds[1:], measured, strict=False):
        sums = byte_seconds(found, [first, second])
        assert sum(total for (total,) in sums.values()) <= peak * DAY


@given(intervals())
def test_grouping_equal_objects_changes_nothing(found: list[Interval]) -> None:
    single = [
        stored("t", i.bytes, i.seconds / DAY, start=i.start, reason=i.reason) for i in found for _ in range(i.objects)
    ]
    bounds = days(START, max(i.end for i in found))

    def nonzero(sums: dict[str, list[int]]) -> dict[str, list[int]]:
        return {reason: each for reason, each in sums.items() if any(each)}

    assert nonzero(byte_seconds(found, bounds)) == nonzero(byte_seconds(single, bounds))
    assert peaks(found, bounds) == peaks(single, bounds)


def test_an_object_is_there_before_the_one_that_it_replaces_is_gone() -> None:
    old = stored("t", 10, 1.5, ending=Ending.DELETED)
    new = stored("t", 10, 1, start=START + 36 * HOUR)
    assert peaks([old, new], days(START, START + 3 * DAY)) == [10, 20, 10]


def test_what_ends_at_midnight_is_not_billed_the_next_day() -> None:
    assert peaks([stored("t", 10, 1)], days(START, START + 2 * DAY)) == [10, 0]


@pytest.mark.parametrize("reason", [Reason.NONCURRENT, Reason.SOFT_DELETED, Reason.GIT_HISTORY])
def test_what_a_deletion_leaves_takes_the_place_of_the_deleted(reason: Reason) -> None:
    deleted = stored("t", 10, 0.5, ending=Ending.KEPT)
    left = stored("t", 10, 0.25, start=START + 12 * HOUR, reason=reason)
    assert peaks([deleted, left], days(START, START + DAY)) == [10]


def test_an_interval_that_runs_backwards_or_outside_is_refused() -> None:
    with pytest.raises(PlanInvalid):
        stored("t", 1, -1)
    with pytest.raises(PlanInvalid):
        stored("t", -1, 1)
    with pytest.raises(PlanInvalid):
        Ledger((stored("t", 1, 2),), START, START + DAY)
    assert (ledger(stored("a", 1, 1)) + ledger(stored("b", 1, 3))).end == START + 3 * DAY


def run(tier: TierPlan, generations: int = 6) -> list[tuple[int, str, int, int, str]]:
    plan = RunPlan(
        start=START, horizon=generations * HOUR, cadence=HOUR, objects=(ObjectGroup(bytes=5),), tiers=(tier,)
    )
    return [
        (i.generation, i.reason.value, (i.start - START) // HOUR, (i.end - START) // HOUR, i.ending.value)
        for i in expand(plan).intervals
    ]


def test_retention_milestones_pins_and_lag() -> None:
    assert run(TierPlan(tier="t", keep_last=1, keep_every=3, pins=frozenset({4}), deletion_lag=HOUR)) == [
        (1, "last-k", 1, 3, "deleted"),
        (2, "last-k", 2, 4, "deleted"),
        (3, "milestone", 3, 6, "alive"),
        (4, "pinned", 4, 6, "alive"),
        (5, "last-k", 5, 6, "alive"),
        (6, "milestone", 6, 6, "alive"),
    ]


def test_a_tier_that_receives_every_other_generation_counts_those() -> None:
    assert run(TierPlan(tier="t", keep_last=2, every=2)) == [
        (2, "last-k", 2, 6, "deleted"),
        (4, "last-k", 4, 6, "alive"),
        (6, "last-k", 6, 6, "alive"),
    ]


def test_a_replica_says_so() -> None:
    assert {reason for _, reason, *_ in run(TierPlan(tier="t", keep_last=1, replica=True))} == {"replica"}


def test_versions_soft_delete_and_history() -> None:
    both = LeftBehind(noncurrent=HOUR, soft_delete=HOUR)
    assert run(TierPlan(tier="t", keep_last=1, leaves=both), 4)[:3] == [
        (1, "last-k", 1, 2, "kept"),
        (1, "noncurrent", 2, 3, "kept"),
        (1, "soft-deleted", 3, 4, "deleted"),
    ]
    assert run(TierPlan(tier="t", keep_last=1, leaves=LeftBehind(history=True)), 3)[:2] == [
        (1, "last-k", 1, 2, "kept"),
        (1, "git-history", 2, 3, "alive"),
    ]


def test_a_lifecycle_rule_moves_what_is_still_there() -> None:
    rule = (LifecycleRule(after=2 * HOUR, tier="cold"),)
    found = run(TierPlan(tier="t", keep_last=3, lifecycle=rule), 5)
    assert found[:2] == [(1, "last-k", 1, 3, "transitioned"), (1, "last-k", 3, 4, "deleted")]


def test_minimum_keep_time_and_deletion_at_the_end() -> None:
    assert run(TierPlan(tier="t", keep_last=1, min_keep=3 * HOUR), 4)[0] == (1, "last-k", 1, 4, "deleted")
    plan = RunPlan(
        start=START,
        horizon=HOUR,
        commits=(START,),
        hold=HOUR,
        delete_at_end=True,
        objects=(ObjectGroup(bytes=5),),
        tiers=(TierPlan(tier="t", keep_last=1),),
    )
    (only,) = expand(plan).intervals
    assert (only.end, only.ending) == (START + 2 * HOUR, Ending.DELETED)


def test_a_key_that_is_rewritten() -> None:
    rewritten = (RewrittenObject(bytes=7, at=(START, START + HOUR)),)
    tier = TierPlan(tier="t", keep_last=1, rewritten=rewritten, leaves=LeftBehind(noncurrent=FOREVER))
    assert run(tier, 1)[1:] == [
        (0, "last-k", 0, 1, "kept"),
        (0, "noncurrent", 1, 1, "alive"),
        (0, "last-k", 1, 1, "alive"),
    ]
    plain = TierPlan(tier="t", keep_last=1, rewritten=rewritten)
    assert run(plain, 1)[1] == (0, "last-k", 0, 1, "overwritten")


@pytest.mark.parametrize(
    "changes",
    [{"keep_last": 0}, {"every": 0}, {"keep_every": 0}, {"upload": -1}, {"deletion_lag": -1}],
)
def test_a_tier_plan_that_makes_no_sense_is_refused(changes: dict[str, int]) -> None:
    settings: dict[str, int] = {"keep_last": 1, **changes}
    with pytest.raises(PlanInvalid):
        TierPlan(tier="t", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("commits", [(START + 2, START + 1), (START - 1,), (START + 99,), ()])
def test_commits_have_to_rise_within_the_run(commits: tuple[int, ...]) -> None:
    with pytest.raises(PlanInvalid):
        RunPlan(start=START, horizon=10, commits=commits, objects=(ObjectGroup(bytes=1),), tiers=())
