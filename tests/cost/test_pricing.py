"""What the worked examples leave out: missing rates, statuses, allowances, rounding, cards that cannot be used."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial

import pytest
from support.example_rates import (
    ARCHIVE,
    EGRESS,
    GB,
    GIB,
    TODAY,
    allowance,
    brackets,
    card,
    classes,
    gcs,
    hub,
    leg,
    r2,
    s3,
    tier,
    up,
)
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
    retrieval,
    shown,
    stored,
    transfer,
)

from cost.errors import CardStale, CurrencyMixed, OutsideWindow, PlanInvalid, RateMissing
from cost.estimate import Plan, estimate
from cost.ledger import Ending
from cost.pricing.lines import Category, Line
from cost.rates.terms import Operation, TransferPath
from cost.units import total
from cost.usage import Baseline, FeeUse, Retrieval, Usage

FX = {"from_currency": "EUR", "to_currency": "USD", "rate": "1.25", "as_of": "2026-03-01"}


@pytest.mark.parametrize(
    "usage",
    [
        Usage(requests=(requests("standard", Operation.RESTORE_OBJECT, 1),)),
        Usage(requests=(requests("nowhere", Operation.GET_OBJECT, 1),)),
        transfer("mars", TransferPath.INTERNET, 1),
        transfer("internet", TransferPath.PRIVATELINK, 1),
        retrieval("gfr", "teleport"),
        retrieval("gfr", ""),
        retrieval("standard", "get"),
    ],
)
def test_what_has_no_rate_is_an_error_and_never_zero(usage: Usage) -> None:
    with pytest.raises(RateMissing):
        priced(usage, s3())


def test_a_tier_of_two_cards_has_to_be_named_with_its_card() -> None:
    with pytest.raises(RateMissing, match="2 cards"):
        priced(r7b("standard"), s3(), r2())
    assert shown(priced(r7b("r2/standard"), s3(), r2()).total, 3) == "27.045"


def test_a_transition_without_a_rate_is_an_error() -> None:
    moved = ledger(stored("gir", GB, 1, start=START + DAY, created=START))
    with pytest.raises(RateMissing, match="transitions"):
        priced(moved, s3())


def test_no_card_no_estimate() -> None:
    with pytest.raises(RateMissing):
        estimate(Plan(plan_id="none"), (), TODAY)
    with pytest.raises(PlanInvalid):
        priced(Plan(plan_id="none"), s3())


@pytest.mark.parametrize(
    ("status", "which", "billed"),
    [(200, "s3", 3), (412, "s3", 3), (503, "s3", 0), (400, "r2", 3), (401, "r2", 0), (500, "r2", 0)],
)
def test_failed_requests_are_billed_as_the_card_says(status: int, which: str, billed: int) -> None:
    attempts = Usage(requests=(requests("standard", Operation.PUT_OBJECT, 3, status=status),))
    assert quantity(priced(attempts, {"s3": s3, "r2": r2}[which]())) == billed


def test_parts_of_an_archive_upload_are_billed_where_they_are_staged() -> None:
    upload = Usage(
        requests=(
            requests("gfr", Operation.UPLOAD_PART, 1000),
            requests("gfr", Operation.COMPLETE_MULTIPART_UPLOAD, 1000),
        )
    )
    costs = priced(upload, s3()).by(lambda line: line.meter)
    assert shown(costs["s3/standard/requests/write"], 3) == "0.005"
    assert shown(costs["s3/gfr/requests/write"], 3) == "0.030"
    staged = priced(r7b("gfr", upload=196), s3())
    assert {line.meter for line in staged.lines if line.about.category is Category.STAGING} == {"s3/standard/storage"}


@pytest.mark.parametrize(
    ("rounding", "bracket", "expected"),
    [
        ("after_rounding", "before_brackets", 3),
        ("before_rounding", "before_brackets", 2),
        ("after_rounding", "inside_first_bracket", 3),
    ],
)
def test_the_order_of_allowance_and_rounding(rounding: str, bracket: str, expected: int) -> None:
    """3.4 GB with 1.5 free: 4 - 1.5 rounds first, 1.9 becomes 2 second."""
    free = {**allowance("1.5", "GB-month", "storage"), "rounding_order": rounding, "bracket_order": bracket}
    if rounding == "after_rounding":
        free["quantity"] = "1"
    meter = tier("t", "1", bytes_per_unit=GB, storage_billing=up("1"), free_allowance=[free])
    result = priced(ledger(stored("t", 3_400_000_000, 30)), card("c", meter))
    assert shown(result.total, 2) == f"{expected}.00"


def test_free_units_may_fill_the_first_bracket() -> None:
    prices = brackets(("10", "1"), (None, "0.5"))
    free = allowance("4", "GiB-month", "storage")
    inside = {**free, "bracket_order": "inside_first_bracket"}
    month = ledger(stored("t", 12 * GIB, 30))
    before = priced(month, card("c", tier("t", prices, free_allowance=[free])))
    within = priced(month, card("c", tier("t", prices, free_allowance=[inside])))
    assert shown(before.total, 2) == "8.00"
    assert shown(within.total, 2) == "7.00"


def test_others_usage_fills_brackets_and_allowances_first() -> None:
    used = Usage(baselines=(Baseline(meter="s3/standard/storage", quantity=Decimal(51_200)),))
    plan = Plan(plan_id="pool", ledger=ledger(stored("standard", 100 * GIB, 30)), usage=used)
    assert shown(priced(plan, s3()).total, 2) == "2.20"


def test_a_baseline_of_no_meter_is_refused() -> None:
    used = Usage(baselines=(Baseline(meter="s3/standrad/storage", quantity=Decimal(1)),))
    with pytest.raises(PlanInvalid, match="standrad"):
        priced(Plan(plan_id="pool", ledger=ledger(stored("standard", GIB, 30)), usage=used), s3())


def test_allowances_of_one_pool_are_one() -> None:
    shared = {**allowance("100", "GiB", "transfer"), "pool": "free-egress"}
    legs = [leg(zone, "internet", EGRESS, free_allowance=[shared]) for zone in ("a", "b")]
    both = transfer("a", TransferPath.INTERNET, 80 * GIB) + transfer("b", TransferPath.INTERNET, 80 * GIB)
    assert shown(priced(both, card("c", tier("any", "1"), transfer=legs)).total, 2) == "5.40"


def test_an_allowance_by_the_day_is_refused() -> None:
    daily = {**allowance("10", "GB-month", "storage"), "period": "day"}
    with pytest.raises(RateMissing, match="per day"):
        priced(ledger(stored("t", GB, 1)), card("c", tier("t", "1", free_allowance=[daily])))


def test_a_temporary_copy_is_kept_for_the_minimum_and_billed_past_the_run() -> None:
    archive = tier("cold", "0.001", **ARCHIVE, temp_copy_min_days=10, retrieval_modes=s3_modes())
    cards = card("c", tier("standard", "0.03"), archive)
    restored = Usage(retrievals=(Retrieval(tier="cold", mode="bulk", bytes=GIB, objects=2, at=START, keep_days=3),))
    result = priced(restored, cards)
    assert result.end == START + 10 * DAY
    assert shown(result.total, 4) == "0.0100"
    with pytest.raises(PlanInvalid):
        priced(Usage(retrievals=(Retrieval(tier="cold", mode="bulk", bytes=GIB, objects=0, at=START),)), cards)


def s3_modes() -> list[dict[str, object]]:
    zero: dict[str, object] = {"request_price": "0", "request_unit_count": 1000, "guaranteed": True}
    return [{"mode": "bulk", "unit_price": "0", "free": True, "latency_max_s": 43200, **zero}]


def test_gib_hours_have_no_month() -> None:
    for start in (START, START + 30 * DAY):
        day = ledger(stored("gcs", GIB, 1, start=start))
        assert shown(priced(day, gcs()).total, 9) == "0.000657528"


def test_remaining_days_are_counted_whole_where_the_card_counts_days() -> None:
    rule = {
        "days": 30,
        "mode": "remaining_prorated",
        "granularity": "day",
        "triggers": ["delete"],
        "clock_basis": "last_modified",
    }
    moves = {"unit_count": 1000, "price": "0.01"}
    cards = card("c", tier("t", "1", min_duration=rule, transition_request=moves))
    early = stored("t", GIB, 0.25, ending=Ending.DELETED)
    assert (
        shown(priced(ledger(early), cards).by(lambda line: line.about.category)[Category.EARLY_DELETE], 4) == "1.0000"
    )
    moved = replace(early, ending=Ending.TRANSITIONED)
    assert category(priced(ledger(moved), cards), Category.EARLY_DELETE) == "0.000000"
    older = replace(early, start=START + 20 * DAY, entered=START + 20 * DAY, end=START + 21 * DAY)
    assert category(priced(ledger(older), cards), Category.EARLY_DELETE, 4) == "0.3000"


def test_currencies_need_a_dated_rate() -> None:
    euros = card("eu", tier("t", "1"), currency="EUR")
    month = ledger(stored("t", GIB, 30))
    assert priced(month, euros).currency == "EUR"
    with pytest.raises(CurrencyMixed):
        priced(Plan(plan_id="x", ledger=month, currency="USD"), euros)
    dated = card("eu", tier("t", "1"), currency="EUR", fx=[{**FX, "source_url": "https://example.com/fx"}])
    assert shown(priced(Plan(plan_id="x", ledger=month, currency="USD"), dated).total, 2) == "1.25"
    back = card("us", tier("t", "1"), fx=[{**FX, "source_url": "https://example.com/fx"}])
    assert shown(priced(Plan(plan_id="x", ledger=month, currency="EUR"), back).total, 2) == "0.80"


def test_old_cards_warn_and_then_refuse() -> None:
    month = ledger(stored("standard", GIB, 30))
    assert any("STALE" in text for text in priced(month, s3(), today=date(2026, 7, 1)).banners)
    with pytest.raises(CardStale):
        priced(month, s3(), today=date(2027, 7, 1))
    allowed = Plan(plan_id="old", ledger=month, allow_stale=True)
    assert priced(allowed, s3(), today=date(2027, 7, 1)).banners


def test_usage_outside_a_cards_window_is_an_error() -> None:
    ended = s3().model_copy(update={"effective_to": date(2026, 4, 15)})
    with pytest.raises(OutsideWindow):
        priced(r7b("standard"), ended)


def of(key: str, line: Line) -> str:
    return str(getattr(line.about, key))


def test_banners_cards_and_totals() -> None:
    restores = transfer("internet", TransferPath.INTERNET, GENERATION, label="restore")
    plan = Plan(plan_id="all", runs=(r7b("standard", upload=196),), usage=restores, restores=1)
    result = priced(plan, s3())
    assert result.banners == ("s3: EXAMPLE rates of 2026-03-01, not your prices",)
    assert [use.age_days for use in result.cards] == [32]
    assert result.generations == 360
    for key in ("tier", "category", "reason", "label"):
        parts = result.by(partial(of, key))
        assert total(each.low for each in parts.values()) == result.total.low
    assert result.per_restore is not None
    assert result.per_generation is not None
    exact = result.per_generation.low * 360 + result.per_restore.low
    assert exact == pytest.approx(result.total.low, abs=Decimal("1e-20"))
    assert priced(restores, s3()).per_generation is None
    assert priced(r7b("standard"), s3()).per_restore is None
    assert hub().banner in priced(r7b("private"), hub()).banners


def test_line_rounding_rounds_each_purpose() -> None:
    by_line = {"increment": "1", "rounding": "up", "level": "line"}
    asked = classes("1", "1", 1)
    asked["request_classes"]["write"]["billing"] = {**by_line, "increment": "100"}
    cards = card(
        "c",
        tier("t", "1", **asked),
        billed_status={"ranges": ["2xx"]},
        operations=dict(s3().operations),
    )
    two = Usage(requests=tuple(requests("t", Operation.PUT_OBJECT, 1, label=name) for name in ("a", "b")))
    assert shown(priced(two, cards).total, 0) == "200"


def test_seats_multiply_fee_and_included_bytes() -> None:
    team = hub("plan_increment").tiers[0]
    assert team.plan is not None
    seated = team.model_copy(update={"plan": team.plan.model_copy(update={"fee_per": "seat"})})
    cards = hub("plan_increment").model_copy(update={"tiers": (seated,)})
    plan = Plan(plan_id="team", ledger=ledger(stored("private", 3_400_000_000_000, 30)), seats=3)
    assert shown(priced(plan, cards).total, 2) == "45.00"


def test_hours_of_a_fee_count_whole() -> None:
    half = Usage(fees=(FeeUse(fee="nat-gateway", start=START, end=START + HOUR + 1),))
    assert shown(priced(half, s3()).total, 3) == "0.090"
    with pytest.raises(PlanInvalid):
        priced(Usage(fees=(FeeUse(fee="nat-gateway", start=START + 1, end=START),)), s3())
