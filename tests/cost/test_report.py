"""What is in a report, and how text and JSON write it down."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from support.example_rates import GB, TODAY, brackets, hub, r2, s3, tier, volume
from support.example_rates import card as make_card
from support.example_run import DAY, GENERATION, HOUR, START, ledger, priced, r7b, requests, retrieval, stored, transfer

from cost.budget import Budget, judge
from cost.cadence import Machine, waste
from cost.compare import Candidate, Needs, compare
from cost.errors import PlanInvalid
from cost.estimate import Amount, Estimate, Plan
from cost.ledger import Reason
from cost.rates.model import RateCard
from cost.rates.terms import Operation, SourceKind, TransferPath
from cost.reconcile import counted, reconcile
from cost.report import document, page, text
from cost.report.accrual import Accrual
from cost.report.cadence import at_cadence, one_more, study
from cost.report.candidates import Move, moved
from cost.report.contents import Report, bound, report
from cost.report.sensitivity import Variation, sensitivity
from cost.report.totals import covered, per_restore, totals
from cost.schedule import LeftBehind
from cost.units import Month, half_up, total
from cost.usage import Usage

NEEDS = Needs(recover_within=1800, bandwidths=(500_000_000,), detect=60, provision=300, load=100)


def plan(**changes: Any) -> Plan:
    usage = (
        Usage(requests=(requests("standard", Operation.UPLOAD_PART, 554_400, label="replicate"),))
        + retrieval("standard", "", generations=2)
        + transfer("internet", TransferPath.INTERNET, 2 * GENERATION, label="restore")
    )
    made = Plan(plan_id="r7b", runs=(r7b("standard", upload=196),), usage=usage, restores=2)
    return replace(made, **changes)


def full(**changes: Any) -> Report:
    """Return a report with everything in it that a report can have."""
    mine, card = plan(), s3()
    found = compare(
        [
            Candidate(name="S3", plan=mine, cards=(card,)),
            moved(mine, (card,), Move(tier="s3/gda", mode="bulk")),
            moved(mine, (hub(),), Move(tier="hub/private", name="the Hub")),
        ],
        NEEDS,
        TODAY,
    )
    result = priced(mine, card)
    read = card.model_copy(update={"source_kind": SourceKind.PROVIDER_PAGE})
    other = replace(mine, runs=(r7b("standard", upload=196, keep_last=4),))
    sides = [
        counted(name, each, priced(each, read), (read,)) for name, each in (("estimate", mine), ("tracker", other))
    ]
    settings: dict[str, Any] = {
        "needs": NEEDS,
        "comparison": found,
        "judgements": [judge(result, Budget(limit=Decimal(50), currency="USD"))],
        "cadence": study(mine, (card,), TODAY, machine=MACHINE, burn_per_hour=BURN, cadences=(HOUR, 4 * HOUR)),
        "sensitivity": sensitivity(mine, (card,), TODAY),
        "reconciliation": reconcile(sides[0], sides[1]),
        "version": "0.1.0",
        **changes,
    }
    return report(mine, result, (card,), **settings)


MACHINE = Machine(blocked=60, mtti=4 * HOUR)
BURN = Decimal("111.68")


def six(amount: Amount | None) -> Decimal:
    assert amount is not None
    return half_up(amount.high, 6)


def test_totals_of_the_worked_example() -> None:
    """E16: 46.43 with the restores; 32 generations are there at the end."""
    found = totals(priced(plan(), s3()), plan())
    assert found.retained == 32
    assert six(found.per_restore) == Decimal("3.714265")
    assert found.per_month == found.total
    rest = found.total.high - 2 * found.per_restore.high  # type: ignore[union-attr]
    assert six(found.per_generation) == half_up(rest / 360, 6)
    assert six(found.per_retained) == half_up(rest / 32, 6)


def test_a_terabyte_protected_counts_each_generation_once() -> None:
    """12,414 generation-hours of 98 GB in 720 hours are 1.689683 TB-months, on one tier or on two."""
    one = plan(usage=Usage(), restores=0)
    alone = totals(priced(one, s3()), one)
    assert six(alone.per_protected) == half_up(alone.total.high / (Decimal(12_414 * GENERATION) / 720 / 10**12), 6)
    run = one.runs[0]
    both = replace(one, runs=(replace(run, tiers=(run.tiers[0], replace(run.tiers[0], tier="sia"))),))
    twice = priced(both, s3())
    assert six(totals(twice, both).per_protected) == half_up(
        twice.total.high / (Decimal(12_414 * GENERATION) / 720 / 10**12), 6
    )


def test_a_restore_costs_its_temporary_copy_too() -> None:
    """E7: 1.123666 for one generation out of Glacier Flexible, copies kept for three days."""
    mine = Plan(plan_id="thaw", usage=retrieval("gfr", "standard", keep_days=3))
    result = priced(mine, s3())
    assert six(per_restore(result)) == Decimal("1.123666")
    assert totals(result, mine).per_generation is None


def test_nothing_to_divide_by_is_none_and_no_error() -> None:
    mine = Plan(plan_id="requests", usage=Usage(requests=(requests("standard", Operation.PUT_OBJECT, 5),)))
    found = totals(priced(mine, s3()), mine)
    assert (found.per_month, found.per_generation, found.per_retained, found.per_restore, found.per_protected) == (
        None,
    ) * 5
    assert found.total.high > 0


def test_parts_of_months() -> None:
    parts = covered(START + 15 * DAY, START + 61 * DAY)
    assert parts == {Month(2026, 4): Fraction(1, 2), Month(2026, 5): Fraction(1)}


def test_the_bound_is_k_and_m() -> None:
    """K = 3 and the 30 daily milestones."""
    assert bound(plan()) == 33 * GENERATION
    assert bound(plan(runs=(r7b("standard", keep_every=None, keep_last=500),))) == 360 * GENERATION
    assert bound(plan(runs=(r7b("standard", keep_every=None, pins=frozenset({1, 7})),))) == 5 * GENERATION
    assert bound(Plan(plan_id="none")) is None


def test_breakdowns_each_add_up_to_the_total() -> None:
    for amounts in full().breakdowns().values():
        assert total(each.high for each in amounts.values()) == full().estimate.total.high


def test_every_line_has_a_formula() -> None:
    names = set(full().formulas.values())
    assert names == {"byte-seconds-over-month", "count", "bytes"}
    assert set(_formulas(r7b("standard"), r2())) == {"mean-of-daily-peaks"}
    assert set(_formulas(r7b("private"), hub())) == {"mean-to-peak-of-month", "periods-times-fee"}


def _formulas(run: Any, card: RateCard) -> list[str]:
    mine = Plan(plan_id="x", runs=(run,))
    return list(report(mine, priced(mine, card), (card,)).formulas.values())


def test_what_spending_accrues_to_is_the_total_and_steps_where_it_falls_due() -> None:
    mine = plan()
    accrual = Accrual(priced(mine, s3()), mine)
    curves = accrual.cumulative(lambda line: line.about.category)
    assert sum(values[-1] for values in curves.values()) == pytest.approx(float(accrual.estimate.total.high))
    restores = curves["restore-transfer"]
    assert restores[0] == 0
    assert restores[1] == restores[-1] > 0
    for values in curves.values():
        assert values == sorted(values)
    assert set(accrual.bounds) >= {START, START + 30 * DAY}


def test_accrual_over_months_follows_the_lines() -> None:
    mine = plan(runs=(r7b("standard", start=START + 15 * DAY),), usage=Usage())
    result = priced(mine, s3())
    accrual = Accrual(result, mine)
    (values,) = accrual.cumulative(lambda _: "all").values()
    at_may = values[accrual.bounds.index(START + 30 * DAY)]
    assert at_may == pytest.approx(float(result.by(lambda line: str(line.month))["2026-04"].high))


def test_cadence_study() -> None:
    """Milestones stay daily; E3's sensitivity: 36.4649 at 1 h and 35.6514 at 4 h, storage only."""
    mine = Plan(plan_id="r7b", runs=(r7b("standard"),))
    found = study(mine, (s3(),), TODAY, machine=MACHINE, burn_per_hour=BURN, cadences=(HOUR, 4 * HOUR))
    assert [point.cadence for point in found.points] == [HOUR, 2 * HOUR, 4 * HOUR]
    assert [half_up(point.bill.high, 4) for point in found.points] == [
        Decimal("36.4649"),
        Decimal("36.1937"),
        Decimal("35.6514"),
    ]
    lost = Decimal(str(waste(HOUR, 60, 4 * HOUR))) * 730 * BURN
    assert half_up(found.points[0].lost, 2) == half_up(lost, 2)
    assert found.best == pytest.approx(1314.53, rel=1e-3)  # Young's: nothing but storage, which cadence hardly moves
    assert study(mine, (s3(),), TODAY, cadences=(HOUR,)).best is None


def test_what_one_generation_more_costs_moves_the_best_cadence() -> None:
    """A minute of burning for each generation doubles the time it costs: the best period grows by its root."""
    legs = transfer("internet", TransferPath.INTERNET, 360 * 2**30)
    mine = Plan(plan_id="r7b", runs=(r7b("standard"),), usage=legs)
    paid = one_more(mine, (s3(),), TODAY)
    assert half_up(paid, 3) == Decimal("0.091")  # 0.09 for the GiB, and what storage differs by
    found = study(mine, (s3(),), TODAY, machine=MACHINE, burn_per_hour=paid * 60, cadences=(HOUR,))
    assert found.best == pytest.approx(1314.53 * 2**0.5, rel=1e-4)


def test_another_cadence_scales_uploads_and_leaves_restores() -> None:
    changed = at_cadence(plan(), HOUR)
    assert changed.runs[0].tiers[0].keep_every == 24
    assert changed.usage.requests[0].count == 2 * 554_400
    assert changed.usage.transfers == plan().usage.transfers
    listed = replace(r7b("standard"), cadence=None, commits=(START,))
    with pytest.raises(PlanInvalid, match="cadence"):
        study(plan(runs=(listed,)), (s3(),), TODAY)


def test_sensitivity_of_the_worked_example() -> None:
    """The text's figures: K=6 41.8966, milestones every 48 h 20.7121 and every 12 h 67.1569."""
    mine = Plan(plan_id="r7b", runs=(r7b("standard"),))
    swings = {swing.name: dict(swing.outcomes) for swing in sensitivity(mine, (s3(),), TODAY)}
    assert half_up(swings["keep last"]["6"].high, 4) == Decimal("41.8966")
    assert half_up(swings["milestone every"]["24"].high, 4) == Decimal("20.7121")
    assert half_up(swings["milestone every"]["6"].high, 4) == Decimal("67.1569")
    assert half_up(swings["cadence"]["1 h"].high, 4) == Decimal("36.4649")
    reaches = [swing.reach for swing in sensitivity(mine, (s3(),), TODAY)]
    assert reaches == sorted(reaches, reverse=True)


def test_a_variation_that_cannot_be_is_left_out() -> None:
    mine = Plan(plan_id="v", ledger=ledger(stored("pod", 10 * GB, 1)))
    card = volume("pod", brackets((None, "0.07")), GB)
    with pytest.raises(PlanInvalid):
        sensitivity(mine, (card,), TODAY)
    good = moved(Plan(plan_id="r7b", runs=(r7b("pod"),)), (card,), Move(tier="pod")).plan
    worse = Variation(name="size", change="gone", plan=replace(good, volumes=()))
    assert sensitivity(good, (card,), TODAY, (worse,)) == ()


def lines(found: Report) -> list[str]:
    return text.render(found).splitlines()


def test_text_fits_80_columns_and_ends_its_last_line() -> None:
    shown = text.render(full())
    assert shown.endswith("\n")
    assert max(map(len, shown.splitlines())) <= 80
    for part in ("EXAMPLE", "taxes excluded", "within budget", "Totals", "By reason", "Recovery", "Tiers", "digest"):
        assert part in shown


def test_text_says_what_is_open() -> None:
    mine = Plan(plan_id="hub", runs=(r7b("private"),))
    shown = text.render(report(mine, priced(mine, hub()), (hub(),)))
    assert "27.00 / open / 63.00" in shown
    assert "from the month's average to its peak" in " ".join(shown.split())


def test_text_has_no_control_characters() -> None:
    """A name must not move the cursor, or turn the reading direction."""
    mine = plan(plan_id="a\x1b[2Jb\u202ec")
    shown = text.render(report(mine, priced(mine, s3()), (s3(),)))
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_text_shows_liabilities_apart_from_the_total() -> None:
    mine = Plan(plan_id="sia", runs=(r7b("sia"),))
    shown = text.render(report(mine, priced(mine, s3()), (s3(),)))
    assert "Open liabilities, not in the total" in shown
    assert "19.71" in shown or "sia · milestone" in shown


def values(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return [each for value in found.values() for each in values(value)]
    return [each for value in found for each in values(value)] if isinstance(found, list) else [found]


def test_json_has_no_float_and_every_digit() -> None:
    found = json.loads(document.render(full()))
    assert not [each for each in values(found) if isinstance(each, float)]
    assert sum(Fraction(each["low"]["amount"]) for each in found["lines"]) == Fraction(found["totals"]["run"]["low"])
    line = next(each for each in found["lines"] if each["reason"] == "milestone")
    assert line["unit"] == "GiB-month"
    assert line["formula"] == "byte-seconds-over-month"
    assert line["low"]["slices"][0]["unit_price"] == "0.023"
    assert Fraction(line["low"]["slices"][0]["amount"]) == pytest.approx(Fraction(line["low"]["amount"]))
    assert found["cards"][0]["id"] == "s3"
    assert found["totals"]["run"]["expected"] == found["totals"]["run"]["high"]


def test_json_of_a_range_expects_nothing() -> None:
    mine = Plan(plan_id="hub", runs=(r7b("private"),))
    found = document.document(report(mine, priced(mine, hub()), (hub(),)))
    assert found["totals"]["run"] == {"low": "27", "expected": None, "high": "63"}
    assert found["comparison"] is None


def test_json_of_the_rest() -> None:
    found = json.loads(document.render(full()))
    assert [row["rank"] for row in found["comparison"]["rows"]] == [1, 2, 3]
    assert found["comparison"]["rows"][-1]["standing"] == "fail"
    assert found["recovery"]["standard"]["verdict"] == "pass"
    assert found["cadence"]["best_s"] > 0
    assert found["reconciliation"]["passed"] is False
    assert found["reconciliation"]["counts"][0]["actual"]["attempts"] == 554_400
    assert found["budgets"][0]["within"] is True
    assert found["bound_bytes"] == 33 * GENERATION


def test_banners_of_all_cards_are_shown() -> None:
    """The plan's own card is an example, and so is the one of a candidate; an old one is stale on top."""
    found = full()
    assert {card.card_id for card in found.cards} == {"s3", "hub"}
    assert [text for text in found.banners if text.startswith("hub")]
    old = s3().model_copy(update={"as_of": date(2026, 1, 1)})
    mine = plan()
    assert any("STALE" in text for text in report(mine, priced(mine, old), (old,)).banners)


def test_the_digest_is_of_cards_and_assumptions() -> None:
    mine = plan()

    def digest(card: RateCard) -> str:
        return report(mine, priced(mine, card), (card,)).digest

    assert digest(s3()) == digest(s3())
    assert digest(s3()) != digest(s3().model_copy(update={"as_of": date(2026, 3, 31)}))


def test_tiers_that_get_some_generations_keep_their_distance_in_time() -> None:
    tiers = (r7b("standard").tiers[0], r7b("sia", every=12, keep_every=24).tiers[0])
    sent = tuple(replace(requests(ref, Operation.UPLOAD_PART, 360), label="up") for ref in ("standard", "sia"))
    mine = Plan(plan_id="two", runs=(replace(r7b("standard"), tiers=tiers),), usage=Usage(requests=sent))
    dense = at_cadence(mine, HOUR)
    assert [(each.every, each.keep_every) for each in dense.runs[0].tiers] == [(1, 24), (24, 48)]
    assert [each.count for each in dense.usage.requests] == [720, 360]


MISSING = """
import sys
sys.modules["matplotlib"] = None
from cost.errors import CostError
from cost.report import page
try:
    page(None)
except CostError as error:
    print(error.message, "|", error.hint)
"""


def python(code: str) -> str:
    """Return what a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_page_needs_the_extra_and_says_so() -> None:
    assert python(MISSING) == "an HTML report needs matplotlib | pip install 'ckptier[cost]'"


def test_a_page_is_the_html() -> None:
    assert page(full()).startswith("<!doctype html>")


def test_text_and_json_load_no_plotting() -> None:
    heavy = ("matplotlib", "jinja2", "numpy")
    code = f"import sys, cost.report.text, cost.report.document; print([n for n in {heavy} if n in sys.modules])"
    assert python(code) == "[]"


def test_months_are_in_order_and_the_rest_by_amount() -> None:
    mine = plan(runs=(r7b("standard", start=START + 15 * DAY),), usage=Usage())
    found = report(mine, priced(mine, s3()), (s3(),)).breakdowns()
    assert list(found["month"]) == ["2026-04", "2026-05"]
    amounts = [each.high for each in found["reason"].values()]
    assert amounts == sorted(amounts, reverse=True)
    assert "requests write" in full().breakdowns()["reason"]


def test_a_measured_ledger_needs_no_run() -> None:
    result: Estimate = priced(ledger(stored("standard", 10**9, 10, reason=Reason.PINNED)), s3())
    found = report(Plan(plan_id="measured", ledger=result.ledger), result, (s3(),), needs=NEEDS)
    assert found.bound is None
    assert not found.recovery
    assert text.render(found)
    assert json.loads(document.render(found))["bound_bytes"] is None


def test_a_git_history_and_empty_reports() -> None:
    mine = Plan(plan_id="git", runs=(r7b("private", leaves=LeftBehind(history=True)),))
    assert "git-history" in text.render(report(mine, priced(mine, hub()), (hub(),)))
    nothing = Plan(plan_id="free", usage=Usage(requests=(requests("t", Operation.PUT_OBJECT, 1),)))
    card = make_card("c", tier("t", "1"))
    assert "0.00" in text.render(report(nothing, priced(nothing, card), (card,)))
