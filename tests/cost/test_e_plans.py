"""Worked examples E9 and E10: plans in steps and provisioned volumes."""

from fractions import Fraction

import pytest
from support.example_rates import GB, GIB, brackets, card, hub, tier, volume
from support.example_run import DAY, GENERATION, HOUR, START, ledger, priced, r7b, shown, stored

from cost.errors import PlanInvalid
from cost.estimate import Amount, Estimate, Plan
from cost.pricing.lines import Category
from cost.pricing.volumes import Size, Volume
from cost.rates.model import RateCard
from cost.schedule import LeftBehind

TB = 10**12
RUNPOD = brackets(("1000", "0.07"), (None, "0.05"))
END = START + 30 * DAY


def above_plan(result: Estimate) -> Amount:
    return result.by(lambda line: line.about.category)[Category.STORAGE]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(3_400_000_000_000, "54.00"), (35_280_000_000_000, "630.00"), (1_000_001_000_000, "18.00")],
)
def test_e9_whole_terabytes_above_the_plan(size: int, expected: str) -> None:
    result = priced(ledger(stored("private", size, 30)), hub("plan_increment"))
    assert shown(above_plan(result), 2) == expected
    assert shown(result.by(lambda line: line.about.category)[Category.FIXED], 2) == "9.00"


def test_e9_all_generations_in_a_repository_reach_35_terabytes() -> None:
    keeps_all = LeftBehind(history=True)
    result = priced(r7b("private", leaves=keeps_all), hub("plan_increment"))
    assert shown(above_plan(result), 2) == "630.00"


def test_e9_what_is_not_documented_is_a_range_and_never_a_point() -> None:
    result = priced(r7b("private"), hub())
    storage = above_plan(result)
    assert (shown(storage.low, 2), shown(storage.high, 2)) == ("18.00", "54.00")
    assert storage.expected is None
    assert result.total.expected is None
    assert (shown(result.total.low, 2), shown(result.total.high, 2)) == ("27.00", "63.00")
    assert any("leaves the metering open" in text for text in result.assumptions)
    quantities = [
        (line.low.quantity, line.high.quantity) for line in result.lines if line.about.category is Category.STORAGE
    ]
    assert shown(sum((low for low, _ in quantities), Fraction(0)), 6) == "1.689683"
    assert sum(high for _, high in quantities) * TB == 33 * GENERATION


def provisioned(which: RateCard, size: int, hours: int = 720) -> Estimate:
    (only,) = which.tiers
    sizes = (Size(at=START, bytes=size),)
    bought = Volume(tier=only.tier_id, sizes=sizes, end=START + hours * HOUR)
    return priced(Plan(plan_id="volume", volumes=(bought,)), which)


def test_e10_volumes_are_paid_by_size() -> None:
    assert shown(provisioned(volume("runpod", RUNPOD, GB), 3600 * GB).total, 2) == "200.00"
    binary = volume("runpod", brackets(("1024", "0.07"), (None, "0.05")), GB)
    assert shown(provisioned(binary, 3600 * GB).total, 2) == "200.48"
    assert shown(provisioned(volume("gp3", brackets((None, "0.08")), GIB), 3600 * GIB).total, 2) == "288.00"
    assert shown(provisioned(volume("runpod", RUNPOD, GB), 400 * GB).total, 2) == "28.00"


def test_e10_by_the_hour() -> None:
    hourly = provisioned(volume("runpod", RUNPOD, GB, month_hours=730), 3600 * GB, hours=1)
    assert shown(hourly.total) == "0.273973"


def test_e10_efs_on_average_use() -> None:
    efs = card("efs", tier("efs", "0.30", kind="filesystem_metered"))
    assert shown(priced(r7b("efs"), efs).total, 4) == "472.0921"


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((400, 300), "cannot shrink"),
        ((5000,), "not sold"),
        ((), "order of time"),
        ((200,), "do not fit"),
    ],
)
def test_e10_a_volume_that_cannot_be_had_is_refused(sizes: tuple[int, ...], reason: str) -> None:
    """Four copies of 98 GB lie on it at once, the new one before an old one goes."""

    def bought() -> Volume:
        grown = tuple(Size(at=START + index * DAY, bytes=size * GB) for index, size in enumerate(sizes))
        return Volume(tier="runpod", sizes=grown, end=END)

    with pytest.raises(PlanInvalid, match=reason):
        priced(
            Plan(plan_id="volume", runs=(r7b("runpod", keep_every=None),), volumes=(bought(),)),
            volume("runpod", RUNPOD, GB),
        )


def test_e10_a_volume_without_a_size_is_refused() -> None:
    with pytest.raises(PlanInvalid, match="size is not given"):
        priced(r7b("runpod"), volume("runpod", RUNPOD, GB))
