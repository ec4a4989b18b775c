"""Candidates for one run: ranks, reasons, and that nothing infeasible comes first however cheap it is."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from support.example_rates import GB, TODAY, brackets, card, gcs, hub, r2, s3, tier, volume
from support.example_run import DAY, GENERATION, HOUR, START, r7b, requests, transfer

from cost.compare import Candidate, Check, Comparison, Needs, Row, compare, restore_time
from cost.errors import CurrencyMixed, PlanInvalid, RateMissing
from cost.estimate import Plan
from cost.pricing.retrieval import Verdict
from cost.rates.model import RateCard
from cost.rates.terms import Operation, TransferPath
from cost.report.candidates import Move, Route, moved
from cost.report.words import byte_text, decimals, money, printable, span
from cost.units import add, half_up
from cost.usage import Retrieval, Usage

NEEDS = Needs(recover_within=1800, bandwidths=(500_000_000, 2_000_000_000), detect=60, provision=300, load=100)
BACK = Route(from_zone="aws", to_zone="internet", path=TransferPath.INTERNET)


def base(**changes: Any) -> Plan:
    """Return the run on S3 Standard with two restores over the internet, as retrievals and as legs."""
    back = Retrieval(tier="s3/standard", bytes=2 * GENERATION, objects=70, at=START + DAY)
    usage = Usage(
        requests=(
            requests("s3/standard", Operation.UPLOAD_PART, 554_040),
            requests("s3/standard", Operation.GET_OBJECT, 2950, label="restore"),
        ),
        retrievals=(back,),
    ) + transfer("internet", TransferPath.INTERNET, 2 * GENERATION, label="restore")
    return Plan(plan_id="r7b", runs=(r7b("s3/standard"),), usage=usage, restores=2, **changes)


def on(ref: str, mode: str = "", *cards: RateCard, restore: Route | None = BACK) -> Candidate:
    return moved(base(), cards or (s3(),), Move(tier=ref, mode=mode, restore=restore))


def ranked(*candidates: Candidate, needs: Needs = NEEDS) -> Comparison:
    return compare(candidates, needs, TODAY)


def only(candidate: Candidate, needs: Needs = NEEDS) -> Row:
    (row,) = ranked(candidate, needs=needs).rows
    return row


def names(found: Comparison) -> list[str]:
    return [row.candidate.name for row in found.rows]


def reason(row: Row, check: Check) -> str:
    found = row.finding(check)
    return "" if found is None else f"{found.verdict} {found.reason}"


def test_what_cannot_meet_the_target_is_last_however_cheap() -> None:
    found = ranked(on("s3/gda", "bulk"), on("s3/gfr", "expedited"), on("s3/sia", "get"), on("s3/standard"))
    assert names(found) == ["s3/standard", "s3/sia", "s3/gfr (expedited)", "s3/gda (bulk)"]
    assert [row.standing for row in found.rows] == [Verdict.PASS, Verdict.PASS, Verdict.CONDITIONAL, Verdict.FAIL]
    last, dearer = found.rows[-1], found.rows[1]
    assert last.total is not None
    assert dearer.total is not None
    assert last.total.high < dearer.total.high
    assert last.reason.startswith("up to 2 d 1 h until it trains again, the target is 30 min (bulk")
    assert "may refuse" in found.rows[2].reason
    assert found.feasible == found.rows[:3]


def test_a_public_repository_is_no_backup() -> None:
    public = hub(access={"visibility": "public", "signed_urls": "no", "object_lock": "no", "audit_log": "no"})
    there = moved(base(), (public,), Move(tier="hub/private"))
    found = ranked(there, on("s3/sia", "get"))
    assert names(found) == ["s3/sia", "hub/private"]
    assert found.rows[1].reason == "PRIVATE is public: anyone could read the state"
    assert found.rows[1].total is not None
    assert found.rows[1].total.high < 100
    assert only(there, needs=replace(NEEDS, private=False)).standing is Verdict.PASS


def test_open_metering_is_a_range_and_ranked_by_its_upper_end() -> None:
    found = ranked(moved(base(), (hub(),), Move(tier="hub/private")), on("s3/standard"))
    assert names(found) == ["s3/standard", "hub/private"]
    row = found.rows[1]
    assert row.total is not None
    assert (half_up(row.total.low, 2), half_up(row.total.high, 2)) == (Decimal("27.00"), Decimal("63.00"))
    assert row.gb_months is not None
    assert [f"{float(each):.1f}" for each in row.gb_months] == ["1689.7", "3234.0"]


def test_with_and_without_egress() -> None:
    row = only(on("s3/standard"))
    assert row.egress is not None
    assert row.without_egress is not None
    assert row.total is not None
    assert half_up(row.egress.high, 6) == Decimal("7.428530")
    assert add(row.without_egress.high, row.egress.high) == row.total.high
    assert row.per_restore is not None
    assert half_up(row.per_restore.high, 4) == Decimal("3.7149")
    assert reason(row, Check.EGRESS) == "conditional the network costs: restores 7.43 USD"
    free = only(moved(base(), (r2(),), Move(tier="r2/standard")))
    assert reason(free, Check.EGRESS) == "conditional no network leg in the plan: none is priced"


def test_a_leg_without_a_rate_is_an_error_and_never_free() -> None:
    with pytest.raises(RateMissing, match="aws to internet"):
        ranked(on("r2/standard", "", r2()))


def test_a_month_is_a_calendar_month() -> None:
    """April has the 30 days of the run; the same run from mid-April on is spread over two months."""
    row = only(on("s3/standard"))
    assert row.per_month == row.total
    half = replace(base(), usage=Usage(), runs=(r7b("s3/standard", start=START + 15 * DAY),))
    later = only(Candidate(name="later", plan=half, cards=(s3(),)))
    assert later.per_month is not None
    assert later.total is not None
    ratio = later.total.high / later.per_month.high
    assert half_up(ratio, 6) == half_up(Decimal(15) / 30 + Decimal(15) / 31, 6)


def test_restore_time_is_added_up_to_its_upper_bound() -> None:
    """Detect 60, provision 300, 98 GB at the slower 500 MB/s 196, load 100; E7 and the latency table."""
    card = s3()
    instant = restore_time(card.tier("standard"), "", GENERATION, NEEDS)
    assert (instant.low, instant.high, instant.verdict) == (656, 656, Verdict.PASS)
    standard = restore_time(card.tier("gfr"), "standard", GENERATION, NEEDS)
    assert (standard.low, standard.high, standard.verdict) == (656, 18_656, Verdict.FAIL)
    assert restore_time(card.tier("gda"), "bulk", GENERATION, NEEDS).high == 173_456
    expedited = restore_time(card.tier("gfr"), "expedited", GENERATION, NEEDS)
    assert (expedited.high, expedited.verdict) == (956, Verdict.CONDITIONAL)


def test_a_fast_tier_over_a_slow_line_fails_too() -> None:
    slow = replace(NEEDS, bandwidths=(2_000_000_000, 10_000_000))
    row = only(on("s3/standard"), needs=slow)
    assert row.standing is Verdict.FAIL
    assert row.restore.high == 60 + 300 + 9800 + 100
    exact = replace(NEEDS, recover_within=656)
    assert only(on("s3/standard"), needs=exact).standing is Verdict.PASS
    assert only(on("s3/standard"), needs=replace(exact, recover_within=655)).standing is Verdict.FAIL


def test_a_mode_can_be_slower_than_the_line() -> None:
    (only_tier,) = card(
        "x", tier("t", "1", retrieval="immediate", retrieval_modes=[{**_get(), "max_bytes_per_s": 98_000_000}])
    ).tiers
    assert restore_time(only_tier, "get", GENERATION, NEEDS).high == 460 + 1000


def _get() -> dict[str, Any]:
    return {"mode": "get", "unit_price": "0.01", "latency_max_s": 0, "guaranteed": True}


def test_leaving_before_the_minimum_is_said_and_priced_but_not_infeasible() -> None:
    row = only(on("s3/sia", "get"))
    assert row.standing is Verdict.PASS
    text = reason(row, Check.MIN_DURATION)
    assert text.startswith("conditional 30 days: the shortest stay is 6 h; leaving early costs 371.09 USD")
    assert "19.96 USD more if all were deleted at the end" in text
    kept = replace(r7b("s3/sia", every=180, keep_last=9, keep_every=None), horizon=30 * DAY, hold=30 * DAY)
    quiet = only(Candidate(name="kept", plan=Plan(plan_id="kept", runs=(kept,)), cards=(s3(),), mode="get"))
    assert reason(quiet, Check.MIN_DURATION) == "pass 30 days are kept: nothing is deleted in the plan"
    assert only(on("s3/standard")).finding(Check.MIN_DURATION) is None


def test_small_objects_and_overhead() -> None:
    small = replace(r7b("s3/sia"), objects=(replace(r7b("s3/sia").objects[0], bytes=4096),))
    row = only(Candidate(name="small", plan=Plan(plan_id="small", runs=(small,)), cards=(s3(),), mode="get"))
    assert reason(row, Check.MIN_SIZE) == "conditional objects below 131,072 bytes are billed as that"
    assert reason(only(on("s3/sia", "get")), Check.MIN_SIZE) == "pass no object is below 131,072 bytes"
    assert "40,960 bytes more" in reason(only(on("s3/gda", "standard")), Check.MIN_SIZE)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ({"max_bytes": 10**12}, "fail stored at once: 3.2 TB, the limit is 1 TB"),
        ({"max_objects": 1000}, "fail objects at once: 1,056, the limit is 1,000"),
        ({"max_objects_per_prefix": 31}, "fail objects under one prefix: 32, the limit is 31"),
        ({"max_object_bytes": 3_000_000_000}, "fail largest object: 3.1 GB, the limit is 3 GB"),
        ({"requests": 1000, "requests_window_s": 300}, "conditional 1,548 requests a generation take 7 min 44 s"),
        ({"max_bytes": 10**13, "requests": 2500, "requests_window_s": 300}, "pass within the limits"),
    ],
)  # fmt: skip
def test_quotas_refuse(quota: dict[str, int], expected: str) -> None:
    limited = card("limited", tier("t", "0.001", quota=quota))
    row = only(moved(base(), (limited,), Move(tier="limited/t")))
    assert reason(row, Check.QUOTA).startswith(expected)
    assert row.standing.value == expected.partition(" ")[0]


def test_a_volume_gets_the_least_size_that_holds_the_run() -> None:
    sold = volume("pod", brackets((None, "0.07")), GB)
    candidate = moved(base(), (sold,), Move(tier="pod/pod"))
    assert candidate.plan.volumes[0].sizes[0].bytes == 33 * GENERATION
    assert half_up(only(candidate).total.high, 2) == Decimal("226.38")  # type: ignore[union-attr]


def test_a_run_that_no_volume_holds_is_infeasible_with_the_reason_and_stops_nobody() -> None:
    forever = replace(base(), runs=(r7b("s3/standard", keep_every=1),))
    pod = moved(forever, (volume("pod", brackets((None, "0.01")), GB),), Move(tier="pod/pod"))
    found = ranked(pod, on("s3/standard"))
    assert names(found) == ["s3/standard", "pod/pod"]
    row = found.rows[1]
    assert (row.estimate, row.total, row.per_month, row.gb_months) == (None, None, None, None)
    assert "do not fit" in row.reason


def test_a_hybrid_is_restored_from_its_hot_tier() -> None:
    hot = r7b("s3/standard", keep_every=None).tiers[0]
    cold = r7b("s3/gda", every=12, keep_last=99, keep_every=None).tiers[0]
    both = Candidate(
        name="both", plan=Plan(plan_id="both", runs=(replace(r7b("s3/standard"), tiers=(hot, cold)),)), cards=(s3(),)
    )
    row = only(both)
    assert row.standing is Verdict.PASS
    assert reason(row, Check.MIN_DURATION).startswith("conditional gda: 180 days")
    assert only(replace(both, restore_from="s3/gda", mode="bulk")).standing is Verdict.FAIL


def test_soft_delete_of_the_card_counts_on_the_tier_that_is_moved_to() -> None:
    plain = replace(base(), usage=Usage())
    row = only(moved(plain, (gcs(),), Move(tier="gcs/gcs")))
    assert half_up(row.total.high, 6) == Decimal("152.341289")  # type: ignore[union-attr]


def test_currencies_do_not_mix() -> None:
    euro = card("euro", tier("t", "0.01"), currency="EUR")
    plain = replace(base(), usage=Usage())
    with pytest.raises(CurrencyMixed):
        ranked(moved(plain, (s3(),), Move(tier="s3/standard")), moved(plain, (euro,), Move(tier="euro/t")))


def test_bad_input() -> None:
    with pytest.raises(PlanInvalid, match="nothing to compare"):
        ranked()
    with pytest.raises(PlanInvalid, match="bandwidth"):
        Needs(recover_within=1, bandwidths=())
    with pytest.raises(PlanInvalid, match="negative"):
        replace(NEEDS, load=-1)
    with pytest.raises(PlanInvalid, match="no tier to restore from"):
        only(Candidate(name="none", plan=Plan(plan_id="none"), cards=(s3(),)))
    two = replace(r7b("s3/standard"), tiers=(r7b("s3/standard").tiers[0], r7b("s3/gir").tiers[0]))
    with pytest.raises(PlanInvalid, match="2 tiers"):
        moved(Plan(plan_id="two", runs=(two,)), (s3(),), Move(tier="s3/sia"))
    with pytest.raises(RateMissing, match="no retrieval mode"):
        only(on("s3/gfr", "warp"))


def test_equal_costs_are_ranked_by_name() -> None:
    one = replace(on("s3/standard"), name="b")
    assert names(ranked(one, replace(one, name="a"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (656, "10 min 56 s"), (HOUR, "1 h"), (3601, "1 h 1 min"), (173_456, "2 d 1 h")],
)  # fmt: skip
def test_spans_are_rounded_up_in_words(seconds: int, text: str) -> None:
    assert span(seconds) == text


def test_words() -> None:
    assert byte_text(3_234_000_000_000) == "3.2 TB"
    assert byte_text(999) == "999 B"
    assert decimals(Decimal("1234567.895")) == "1,234,567.90"
    assert decimals(Decimal("0.000044")) == "0.000044"
    assert decimals(Decimal("-0.0012")) == "-0.0012"
    assert money(Decimal(0), "USD") == "0.00 USD"
    assert printable("a\x1b[31mb\u202ec\n") == "a\ufffd[31mb\ufffdc\ufffd"
