"""Worked examples E11, E12, E13 and E15: tiering, abandoned parts, versions, daily peaks."""

from dataclasses import replace

import pytest
from support.example_rates import gcs, r2, s3
from support.example_run import (
    DAY,
    GENERATION,
    HOUR,
    START,
    category,
    ledger,
    priced,
    quantity,
    r7b,
    requests,
    shown,
    stored,
)

from cost.estimate import Plan
from cost.ledger import byte_seconds, days, peaks
from cost.pricing.lines import Category
from cost.rates.terms import Operation
from cost.schedule import FOREVER, AbandonedUpload, LeftBehind, ObjectGroup, RunPlan, TierPlan, expand
from cost.units import divide
from cost.usage import Usage


def untouched(tier: str) -> Plan:
    """One generation for 120 days."""
    return Plan(plan_id="untouched", ledger=ledger(stored(tier, GENERATION // 32, 120, objects=32)))


def test_e11_what_nobody_reads_becomes_cheaper() -> None:
    result = priced(untouched("int"), s3())
    assert category(result, Category.STORAGE) == "4.746020"
    assert category(result, Category.MONITORING) == "0.000320"
    assert shown(priced(untouched("standard"), s3()).total) == "8.396804"
    assert category(priced(untouched("sia"), s3()), Category.STORAGE) == "4.563481"


def test_e11_reading_everything_each_month_keeps_it_dear() -> None:
    def scrubbed(operation: Operation) -> str:
        scrubs = tuple(
            replace(requests("int", operation, 32, label="scrub"), at=START + month * 30 * DAY) for month in range(1, 4)
        )
        return category(priced(replace(untouched("int"), usage=Usage(requests=scrubs)), s3()), Category.STORAGE)

    assert scrubbed(Operation.GET_OBJECT) == "8.396804"
    assert scrubbed(Operation.HEAD_OBJECT) == "4.746020"


@pytest.mark.parametrize(
    ("rule", "gb_days", "expected"),
    [(FOREVER, 106_575, "76.0960"), (7 * DAY, 44_590, "31.8379"), (DAY, 7_105, "5.0731")],
)
def test_e12_abandoned_uploads(rule: int, gb_days: int, expected: str) -> None:
    """Five a day of 49 GB each; one that is left on day d lies there for 30 - d days."""
    abandoned = tuple(AbandonedUpload(at=START + day * DAY, bytes=49 * 10**9, objects=5) for day in range(1, 31))
    tier = TierPlan(tier="standard", keep_last=1, abandoned=abandoned, leaves=LeftBehind(abort_after=rule))
    run = RunPlan(
        start=START, horizon=30 * DAY, commits=(START + 30 * DAY,), objects=(ObjectGroup(bytes=1),), tiers=(tier,)
    )
    sums = byte_seconds(expand(run).intervals, [START, START + 30 * DAY])
    assert sum(sums["incomplete-upload"]) == gb_days * 10**9 * DAY
    assert shown(priced(run, s3()).total, 4) == expected


def test_e13_versions_that_nothing_expires() -> None:
    run = r7b("standard", leaves=LeftBehind(noncurrent=FOREVER))
    sums = byte_seconds(expand(run).intervals, [START, START + 30 * DAY])
    assert sum(total for (total,) in sums.values()) == 129_240 * GENERATION * HOUR
    with_versions = priced(run, s3()).total.low
    assert shown(with_versions, 4) == "376.8066"
    assert shown(divide(with_versions, priced(r7b("standard"), s3()).total.low), 2) == "10.41"


def test_e13_soft_delete_that_the_card_declares() -> None:
    """The run leaves it to the card, whose provider keeps deleted objects for seven days."""
    run = r7b("gcs", leaves=None)
    without = priced(r7b("gcs"), gcs()).total.low
    assert shown(without) == "31.041375"
    result = priced(run, gcs())
    assert shown(result.total) == "152.341289"
    assert shown(divide(result.total.low, without), 4) == "4.9077"
    assert {line.about.reason for line in result.lines} == {"last-k", "milestone", "soft-deleted"}


def test_e15_daily_peaks() -> None:
    run = r7b("standard")
    found = peaks(expand(run).intervals, days(START, START + 30 * DAY))
    assert [peak // GENERATION for peak in found] == [day + 3 for day in range(1, 31)]
    assert sum(found) == 555 * GENERATION
    result = priced(run, r2())
    assert quantity(result) == 1813
    assert shown(result.total, 3) == "27.045"
    average = sum(total for (total,) in byte_seconds(expand(run).intervals, [START, START + 30 * DAY]).values())
    assert shown(divide(average, 10**9 * 720 * HOUR)) == "1689.683333"


def test_e15_parts_in_flight_are_part_of_the_peak_but_count_once() -> None:
    assert shown(priced(r7b("standard", upload=196), r2()).total, 3) == "27.045"
