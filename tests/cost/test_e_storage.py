"""Worked examples E1, E2, E3, E5 and E6: stored bytes, minimum durations, small objects."""

from decimal import Decimal

import pytest
from support.example_rates import GB, GIB, brackets, card, minimum, r2, s3, tier
from support.example_run import (
    DAY,
    GENERATION,
    HOUR,
    OBJECTS,
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
from cost.ledger import Ending, Reason, byte_seconds, raw_bytes
from cost.pricing.lines import Category
from cost.rates.terms import Operation
from cost.schedule import LifecycleRule, ObjectGroup, RunPlan, TierPlan, expand
from cost.usage import Retrieval, Usage

MARCH = START - 31 * DAY
CALENDAR = {"metering": "byte_hours_calendar", "month_hours": "calendar"}


def test_e1_byte_hours_of_a_calendar_month_fill_graduated_brackets() -> None:
    historic = brackets(("1024", "0.140"), ("51200", "0.125"), (None, "0.110"))
    intervals = (
        stored("standard", 100 * GIB, 15, start=MARCH),
        stored("standard", 100 * 1024 * GIB, 16, start=MARCH + 15 * DAY),
    )
    assert sum(raw_bytes(each) * each.seconds for each in intervals) == 42_259_901_212_262_400 * HOUR
    result = priced(ledger(*intervals), card("s3", tier("standard", historic, **CALENDAR)))
    assert quantity(result) == 52_900
    slices = [piece for line in result.lines for piece in line.low.slices]
    assert sum(piece.amount for piece in slices if piece.unit_price == Decimal("0.140")) == Decimal("143.36")
    assert sum(piece.amount for piece in slices if piece.unit_price == Decimal("0.125")) == 6272
    assert sum(piece.amount for piece in slices if piece.unit_price == Decimal("0.110")) == 187
    assert shown(result.total, 20) == "6602.36000000000000000000"


def test_e1_the_providers_newer_example_is_right_within_its_slack() -> None:
    express = ledger(*(stored("express", 10 * 1024 * GIB, 8 / 24, start=MARCH + day * DAY) for day in range(30)))
    assert sum(raw_bytes(each) * each.seconds for each in express.intervals) == 2_638_827_906_662_400 * HOUR
    result = priced(express, card("s3", tier("express", "0.16", **CALENDAR)))
    assert shown(quantity(result), 4) == "3303.2258"
    assert float(quantity(result)) == pytest.approx(3303.77, rel=2e-4)


def test_e2_daily_peaks_are_averaged_over_30_days_and_rounded_up() -> None:
    """1 GB for 5 days, then 3 GB: 80 GB-days."""
    grows = ledger(stored("standard", GB, 30), stored("standard", 2 * GB, 25, start=START + 5 * DAY))
    result = priced(grows, r2())
    assert shown(quantity(result)) == "2.666667"
    assert shown(result.total, 2) == "0.00"
    unallowed = priced(
        grows, r2().model_copy(update={"tiers": (r2().tiers[0].model_copy(update={"free_allowance": ()}),)})
    )
    assert sum(piece.quantity for line in unallowed.lines for piece in line.low.slices) == 3


def test_e2_the_allowance_is_taken_off_the_rounded_months() -> None:
    assert shown(priced(ledger(stored("standard", 1000 * GB, 30)), r2()).total) == "14.850000"


def test_e2_infrequent_access_bills_the_minimum_and_whole_millions() -> None:
    five_days = ledger(stored("ia", 1000 * GB, 5, ending=Ending.DELETED))
    result = priced(five_days, r2())
    assert quantity(result) == 1000
    assert shown(result.total) == "10.000000"
    writes = Usage(requests=(requests("ia", Operation.PUT_OBJECT, 1000),))
    reads = Usage(requests=(requests("ia", Operation.GET_OBJECT, 1_000_000),))
    assert shown(priced(writes, r2()).total) == "9.000000"
    assert shown(priced(reads, r2()).total) == "0.900000"


def test_e2_every_read_of_an_object_is_retrieved_bytes() -> None:
    """The provider's own example forgets that each object is read a thousand times."""
    reads = Usage(retrievals=(Retrieval(tier="ia", bytes=1_000_000 * GB, objects=0, at=START),))
    assert shown(priced(reads, r2()).total, 2) == "10000.00"


@pytest.mark.parametrize(
    ("basis", "start", "expected"),
    [
        ({}, START, "36.193725"),
        ({"month_hours": 730}, START, "35.697921"),
        (CALENDAR, START - 31 * DAY, "35.026186"),
    ],
)
def test_e3_the_run_on_s3_standard(basis: dict[str, object], start: int, expected: str) -> None:
    assert shown(priced(r7b("standard", start=start), s3(basis)).total) == expected


def test_e3_quantities_and_split() -> None:
    run = r7b("standard")
    sums = byte_seconds(expand(run).intervals, [START, START + 30 * DAY])
    assert sums[Reason.LAST_K] == [1_974 * GENERATION * HOUR]
    assert sums[Reason.MILESTONE] == [10_440 * GENERATION * HOUR]
    assert sum(sums[Reason.LAST_K] + sums[Reason.MILESTONE]) == 1_216_572_000_000_000 * HOUR
    result = priced(run, s3())
    assert shown(quantity(result)) == "1573.640232"
    reasons = result.by(lambda line: line.about.reason)
    assert shown(reasons[Reason.LAST_K]) == "5.755310"
    assert shown(reasons[Reason.MILESTONE]) == "30.438416"


def test_e3_counting_copies_overstates() -> None:
    naive = priced(ledger(stored("standard", GENERATION, 30, objects=33)), s3())
    assert shown(quantity(naive)) == "3011.897206"
    assert shown(naive.total) == "69.273636"
    actual = priced(r7b("standard"), s3()).total.low
    assert shown(naive.total.low / actual, 3) == "1.914"


def test_e3_parts_in_flight_fill_evenly() -> None:
    result = priced(r7b("standard", upload=196), s3())
    assert category(result, Category.STAGING) == "0.028572"
    assert shown(quantity(result, lambda line: line.about.category is Category.STAGING)) == "1.242281"
    assert category(result, Category.STORAGE) == "36.193725"


@pytest.mark.parametrize(
    ("price", "days", "hours", "dwell", "remaining", "total"),
    [
        ("0.0125", 30, 6, "0.009507", "1.131363", "1.140870"),
        ("0.00099", 180, 45 * 24, "0.135535", "0.406606", "0.542141"),
        ("0.004", 90, 45 * 24, "0.547618", "0.547618", "1.095235"),
    ],
)
def test_e5_early_deletion_is_a_line_of_its_own(
    price: str, days: int, hours: int, dwell: str, remaining: str, total: str
) -> None:
    """The overhead of archives, which would show in the last digit, is E6's business."""
    one = ledger(stored("cold", GENERATION, hours / 24, ending=Ending.DELETED))
    result = priced(one, card("s3", tier("cold", price, min_duration=minimum(days))))
    assert category(result, Category.STORAGE) == dwell
    assert category(result, Category.EARLY_DELETE) == remaining
    assert shown(result.total) == total


def test_e5_standard_is_65_times_cheaper_for_six_hours() -> None:
    cold = priced(ledger(stored("sia", GENERATION, 0.25, ending=Ending.DELETED)), s3()).total.low
    hot = priced(ledger(stored("standard", GENERATION, 0.25, ending=Ending.DELETED)), s3()).total.low
    assert shown(hot) == "0.017493"
    assert shown(cold / hot, 4) == "65.2174"
    assert shown(cold * 328, 4) == "374.2054"
    assert shown(hot * 328, 4) == "5.7378"


@pytest.mark.parametrize(
    ("days", "cold", "hot", "expected"),
    [
        (30, "0.0125", "0.023", "16.3043"),
        (90, "0.004", "0.023", "15.6522"),
        (90, "0.0036", "0.023", "14.0870"),
        (180, "0.00099", "0.023", "7.7478"),
        (30, "0.01", "0.015", "20.0000"),
        (30, "0.000013699", "0.000027397", "15.0005"),
        (90, "0.000005479", "0.000027397", "17.9987"),
        (365, "0.000001644", "0.000027397", "21.9024"),
    ],
)
def test_e5_break_even_dwell(days: int, cold: str, hot: str, expected: str) -> None:
    """The text rounds the three GCS classes to 15, 18 and 21.9 days."""
    assert shown(days * Decimal(cold) / Decimal(hot), 4) == expected


SMALL = ObjectGroup(bytes=4096, count=10_000)


def test_e6_small_objects() -> None:
    def month(tier_id: str, places: int = 8, size: int = 4096, objects: int = 10_000) -> str:
        return shown(priced(ledger(stored(tier_id, size, 30, objects=objects)), s3()).total, places)

    assert month("sia") == "0.01525879"
    assert month("standard") == "0.00087738"
    assert month("gda") == "0.00209465"
    assert month("gda", 10, 10_000 * 4096, 1) == "0.0000379712"
    parts = priced(ledger(stored("gda", 4096, 30, objects=10_000)), s3()).by(lambda line: line.about.label)
    assert shown(parts[""], 8) == "0.00033989"
    assert shown(parts["overhead"], 8) == "0.00175476"


def test_e6_each_object_that_moves_is_a_transition_request() -> None:
    moves = TierPlan(tier="standard", keep_last=1, lifecycle=(LifecycleRule(after=DAY, tier="gda"),))
    run = RunPlan(start=START, horizon=10 * DAY, commits=(START,), objects=(SMALL,), tiers=(moves,))
    assert category(priced(Plan(plan_id="moves", runs=(run,)), s3()), Category.TRANSITIONS) == "0.500000"


def test_objects_of_the_run() -> None:
    assert sum(group.bytes * group.count for group in OBJECTS) == GENERATION == 98_000_000_000
