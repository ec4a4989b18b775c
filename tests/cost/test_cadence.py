"""The figures of part 2: Young, Daly, waste, wall time, the interval of M, and where money enters."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.example_rates import s3
from support.example_run import GENERATION, priced, r7b, requests, shown, transfer

from cost.cadence import (
    Machine,
    best_interval,
    daly_interval,
    money_period,
    mtti_interval,
    overhead,
    remote_exposure,
    wall_time,
    waste,
    young_period,
)
from cost.errors import PlanInvalid
from cost.rates.terms import Operation, TransferPath
from cost.usage import Usage

HOUR = 3600
M = 4 * HOUR


@pytest.mark.parametrize(("mtti", "published"), [(24 * HOUR, 116.6898), (6 * HOUR, 56.7130), (900, 9.1409)])
def test_dalys_published_figures(mtti: float, published: float) -> None:
    assert daly_interval(300, mtti) / 60 == pytest.approx(published, abs=5e-5)


@pytest.mark.parametrize(
    ("blocked", "young", "daly", "lost", "a_day"),
    [
        (0.5, 120.00, 119.67, 0.83, 720),
        (2, 240.00, 238.67, 1.67, 360),
        (12.25, 593.97, 585.83, 4.12, 145),
        (60, 1314.53, 1274.84, 9.13, 66),
        (196, 2375.88, 2247.01, 16.5, 36),
        (300, 2939.39, 2742.79, 20.4, 29),
        (980, 5312.63, 4679.38, 36.9, 16),
    ],
)
def test_the_table_of_a_four_hour_mean(blocked: float, young: float, daly: float, lost: float, a_day: int) -> None:
    period = young_period(blocked, M)
    assert period == pytest.approx(young, abs=5e-3)
    assert daly_interval(blocked, M) == pytest.approx(daly, abs=5e-3)
    assert 100 * waste(period, blocked, M) == pytest.approx(lost, abs=0.05 if lost > 10 else 5e-3)
    assert round(24 * HOUR / period) == a_day
    assert waste(period, blocked, M) == pytest.approx(math.sqrt(2 * blocked / M))


@pytest.mark.parametrize(("blocked", "best"), [(60, 1274.842), (300, 2742.883), (1800, 6053.42)])
def test_numeric_minimum_agrees_with_daly(blocked: float, best: float) -> None:
    assert best_interval(Machine(blocked=blocked, mtti=M)) == pytest.approx(best, abs=6e-3)
    assert daly_interval(blocked, M) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    ("interval", "percent"),
    [(1274.84, 14.83), (1314.53, 14.83), (1800, 15.45), (600, 17.81), (3600, 21.15), (7200, 37.23), (14400, 81.03)],
)
def test_overhead_of_two_weeks(interval: float, percent: float) -> None:
    job = Machine(blocked=60, mtti=M, restart=656)
    assert 100 * overhead(job, interval) == pytest.approx(percent, abs=6e-3)


def test_complete_wall_time() -> None:
    job = Machine(blocked=60, mtti=M, restart=656)
    assert wall_time(job, 1274.8, 336 * HOUR) / HOUR == pytest.approx(385.82, abs=6e-3)
    assert wall_time(job, 3600, 336 * HOUR) / HOUR == pytest.approx(407.06, abs=6e-3)
    assert wall_time(job, 1e9, 1) == math.inf
    lost = overhead(job, 1274.84) * 336
    assert lost == pytest.approx(49.8, abs=0.05)
    assert lost * 111.68 == pytest.approx(5564, abs=2)


def test_no_interval_helps_when_checkpoints_outlast_the_job() -> None:
    assert daly_interval(2 * M, M) == M


@pytest.mark.parametrize(("factor", "ratio"), [(1.5, 1.083), (2 / 3, 1.083), (2, 1.25), (0.5, 1.25), (4, 2.125)])
def test_the_optimum_is_flat(factor: float, ratio: float) -> None:
    best = young_period(60, M)
    assert waste(factor * best, 60, M) / waste(best, 60, M) == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    ("failures", "hours", "mean", "low", "high"),
    [
        (6, 24, 4.0, 1.84, 10.90),
        (3, 24, 8.0, 2.74, 38.79),
        (84, 336, 4.0, 3.23, 5.01),
        (0, 24, math.inf, 6.5, math.inf),
    ],
)
def test_the_interval_of_the_mean(failures: int, hours: float, mean: float, low: float, high: float) -> None:
    """Two upper ends are the chi-square tables' (4.404 and 1.237), where the text prints 10.95 and 39.8."""
    found = mtti_interval(failures, hours)
    assert found.mean == pytest.approx(mean)
    assert found.low == pytest.approx(low, abs=7e-3)
    assert found.high == pytest.approx(high, abs=6e-3)


def burn() -> Decimal:
    """Return what 32 GPUs cost a second, in the example."""
    return Decimal(32) * Decimal("3.49") / HOUR


def test_storage_and_requests_do_not_move_the_cadence() -> None:
    """A generation of 64 MiB parts, 1,539 writes, that lives for six hours."""
    asked = priced(Usage(requests=(requests("standard", Operation.UPLOAD_PART, 1539),)), s3()).total
    assert shown(asked) == "0.007695"
    dwell = priced(r7b("standard", keep_last=1, keep_every=None, hours=6), s3()).total.low / 119
    assert shown(dwell) == "0.017493"
    money = Decimal("0.007695") + dwell
    assert shown(money) == "0.025188"
    assert money / burn() == pytest.approx(Decimal("0.812"), abs=Decimal("0.0005"))
    assert money_period(60, M, money, burn()) == pytest.approx(1323.40, abs=5e-3)
    assert young_period(60, M) == pytest.approx(1314.53, abs=5e-3)


def test_egress_does() -> None:
    used_up = priced(transfer("aws-2", TransferPath.CROSS_REGION, GENERATION), s3()).total.low / Decimal("0.02")
    money = used_up * Decimal("0.085") + Decimal("0.007695") + Decimal("0.017493")
    assert shown(money) == "7.783105"
    assert money / burn() == pytest.approx(Decimal("250.888"), abs=Decimal("0.0005"))
    assert money_period(60, M, money, burn()) == pytest.approx(2992.25, abs=0.01)


@pytest.mark.parametrize(
    ("upload", "worst", "mean"),
    [(980, 2294.53, 1637.27), (392, 1706.53, 1049.27), (196, 1510.53, 853.27), (98, 1412.53, 755.27)],
)
def test_remote_exposure(upload: float, worst: float, mean: float) -> None:
    found = remote_exposure(young_period(60, M), upload)
    assert found.worst == pytest.approx(worst, abs=6e-3)
    assert found.mean == pytest.approx(mean, abs=6e-3)


def test_uploads_slower_than_the_cadence() -> None:
    found = remote_exposure(100, 300)
    assert (found.worst, found.mean) == (600, 450)


@given(st.floats(0.01, 1e5), st.floats(1, 1e7))
def test_the_optimum_is_one(blocked: float, mtti: float) -> None:
    best = young_period(blocked, mtti)
    assert waste(best, blocked, mtti) <= min(waste(best * 1.01, blocked, mtti), waste(best / 1.01, blocked, mtti))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(PlanInvalid):
        young_period(bad, M)
    with pytest.raises(PlanInvalid):
        Machine(blocked=1, mtti=bad)
    with pytest.raises(PlanInvalid):
        mtti_interval(1, bad)
