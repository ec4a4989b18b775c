"""Worked example E7: one generation of 91.27 GiB in 35 objects comes back."""

from decimal import Decimal

import pytest
from support.example_rates import r2, s3
from support.example_run import GENERATION, category, priced, retrieval, shown, transfer

from cost.estimate import Plan
from cost.pricing.lines import Category
from cost.pricing.retrieval import Verdict, verdict
from cost.rates.terms import TransferPath
from cost.usage import Baseline

TARGET = 30 * 60


def test_e7_flexible_retrieval_with_its_temporary_copy() -> None:
    result = priced(retrieval("gfr", "standard", keep_days=3), s3())
    lines = {line.meter: line.low.amount for line in result.lines}
    assert shown(lines["s3/gfr/retrieval/standard"]) == "0.912696"
    assert shown(lines["s3/gfr/retrieval/standard/restores"]) == "0.001050"
    assert shown(lines["s3/standard/storage"]) == "0.209920"
    assert shown(result.total) == "1.123666"
    assert result.restores == 1


@pytest.mark.parametrize(
    ("tier", "mode", "per_bytes", "per_request"),
    [
        ("gfr", "expedited", "2.738088", "0.350000"),
        ("gda", "standard", "1.825392", "0.003500"),
        ("gda", "bulk", "0.228174", "0.000875"),
        ("sia", "get", "0.912696", None),
        ("gir", "get", "2.738088", None),
    ],
)
def test_e7_modes(tier: str, mode: str, per_bytes: str, per_request: str | None) -> None:
    lines = {line.meter: line.low.amount for line in priced(retrieval(tier, mode), s3()).lines}
    assert shown(lines[f"s3/{tier}/retrieval/{mode}"]) == per_bytes
    requests = lines.get(f"s3/{tier}/retrieval/{mode}/restores")
    assert per_request == (None if requests is None else shown(requests))


def test_e7_egress_when_others_used_the_allowance_up() -> None:
    leg = transfer("internet", TransferPath.INTERNET, GENERATION, label="restore")
    used_up = (Baseline(meter="s3/transfer/aws:internet:internet", quantity=Decimal(100)),)
    plan = Plan(plan_id="restore", usage=leg + type(leg)(baselines=used_up))
    assert category(priced(plan, s3()), Category.RESTORE_TRANSFER) == "8.214265"


def test_e7_seconds_at_300_megabytes_a_second() -> None:
    assert shown(Decimal(GENERATION) / 300_000_000, 2) == "326.67"


@pytest.mark.parametrize(
    ("tier", "mode", "expected"),
    [
        ("standard", "", Verdict.PASS),
        ("sia", "get", Verdict.PASS),
        ("gir", "get", Verdict.PASS),
        ("gfr", "standard", Verdict.FAIL),
        ("gfr", "bulk", Verdict.FAIL),
        ("gda", "standard", Verdict.FAIL),
        ("gda", "bulk", Verdict.FAIL),
        ("gfr", "expedited", Verdict.CONDITIONAL),
    ],
)
def test_e7_verdicts_for_a_target_of_half_an_hour(tier: str, mode: str, expected: Verdict) -> None:
    found, reason = verdict(s3().tier(tier), mode, TARGET)
    assert found is expected
    assert reason


def test_e7_r2_passes() -> None:
    assert {verdict(tier, "", TARGET)[0] for tier in r2().tiers} == {Verdict.PASS}
