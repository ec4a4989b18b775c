"""Estimate against what was counted: exact effects, categories, gates, and hints at unit mix-ups."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.example_rates import GIB, TODAY, brackets, hub, r2, s3, tier
from support.example_rates import card as make_card
from support.example_run import DAY, GENERATION, START, r7b, requests, stored, transfer

from cost.errors import CurrencyMixed, ReconcileInvalid
from cost.estimate import Plan, estimate
from cost.ledger import Ending, Ledger
from cost.pricing.lines import Category
from cost.rates.model import RateCard
from cost.rates.terms import Operation, SourceKind, TransferPath
from cost.reconcile import Drift, Gates, Key, MeterLine, Side, Variance, counted, reconcile
from cost.units import Month
from cost.usage import Usage

NONE = Fraction(0)
APRIL, MAY = Month(2026, 4), Month(2026, 5)


def real(card: RateCard) -> RateCard:
    """Return the card as if a person had read it at the provider."""
    return card.model_copy(update={"source_kind": SourceKind.PROVIDER_PAGE})


def side(plan: Plan, card: RateCard, name: str = "estimate") -> Side:
    return counted(name, plan, estimate(plan, (card,), TODAY), (card,))


def line(quantity: Fraction | int, amount: Fraction | int, month: Month = APRIL, **changes: object) -> MeterLine:
    quantity, amount = Fraction(quantity), Fraction(amount)
    category = changes.pop("category", Category.STORAGE)
    assert isinstance(category, Category)
    made = MeterLine(
        key=Key("t", str(changes.pop("meter", "card/t/storage")), category, month),
        unit="GB-month",
        quantity=quantity,
        amount=amount,
        high=quantity,
        high_amount=amount,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def of(*lines: MeterLine, name: str = "estimate", **changes: object) -> Side:
    return replace(Side(name=name, currency="USD", lines=lines), **changes)  # type: ignore[arg-type]


def row(expected: MeterLine | None, actual: MeterLine | None, gates: Gates | None = None) -> Variance:
    before, after = (of() if each is None else of(each) for each in (expected, actual))
    (found,) = reconcile(before, after, gates or Gates()).rows
    return found


def test_the_same_on_both_sides_differs_in_nothing() -> None:
    plan = Plan(
        plan_id="r7b", runs=(r7b("standard"),), usage=Usage(requests=(requests("standard", Operation.PUT_OBJECT, 9),))
    )
    found = reconcile(side(plan, real(s3())), side(plan, real(s3()), "tracker"))
    assert found.passed
    assert found.delta == 0
    assert {each.drift for each in found.rows} == {Drift.NONE}


@given(*[st.fractions(min_value=Fraction(1, 10**6), max_value=10**9)] * 4)
def test_quantity_and_rate_are_exactly_the_difference(qe: Fraction, qa: Fraction, pe: Fraction, pa: Fraction) -> None:
    found = row(line(qe, qe * pe), line(qa, qa * pa))
    assert found.quantity_effect == (qa - qe) * pe
    assert found.rate_effect == (pa - pe) * qa
    assert found.quantity_effect + found.rate_effect == found.delta == qa * pa - qe * pe


def test_rate_drift() -> None:
    found = row(line(100, 2), line(100, Fraction(22, 10)))
    assert (found.drift, found.quantity_effect, found.rate_effect) == (Drift.RATE, NONE, Fraction(1, 5))
    assert not found.passed


def test_quantity_drift_and_its_gate() -> None:
    assert row(line(100, 2), line(102, Fraction(204, 100))).passed
    beyond = row(line(100, 2), line(Fraction(1021, 10), Fraction(2042, 1000)))
    assert (beyond.drift, beyond.passed, beyond.deviation) == (Drift.QUANTITY, False, Fraction(21, 1000))
    wider = Gates(storage=Decimal("0.03"))
    assert row(line(100, 2), line(Fraction(1021, 10), Fraction(2042, 1000)), wider).passed


@pytest.mark.parametrize(
    ("category", "percent"),
    [(Category.STORAGE, 2), (Category.EARLY_DELETE, 2), (Category.REQUESTS, 1), (Category.RESTORE_TRANSFER, 5)],
)
def test_gates_by_category(category: Category, percent: int) -> None:
    within = line(100 + percent, 100 + percent, category=category)
    assert row(line(100, 100, category=category), within).passed
    above = line(100 + percent + Fraction(1, 10), 100, category=category)
    assert not row(line(100, 100, category=category), above).passed


def test_a_meter_that_nobody_expected() -> None:
    found = row(None, line(5, 1))
    assert (found.drift, found.quantity_effect, found.deviation, found.passed) == (
        Drift.MISSING,
        Fraction(1),
        None,
        False,
    )


def test_a_meter_that_never_came() -> None:
    found = row(line(5, 1), None)
    assert (found.drift, found.quantity_effect, found.rate_effect, found.passed) == (
        Drift.PHANTOM,
        Fraction(-1),
        NONE,
        False,
    )


def test_another_month_is_timing() -> None:
    expected = of(line(10, 1), line(10, 1, MAY))
    found = reconcile(expected, of(line(4, Fraction(4, 10)), line(16, Fraction(16, 10), MAY)))
    assert {each.drift for each in found.rows} == {Drift.TIMING}
    assert found.passed
    late = reconcile(of(line(10, 1)), of(line(10, 1, MAY)))
    assert [each.drift for each in late.rows] == [Drift.TIMING, Drift.TIMING]
    more = reconcile(expected, of(line(10, 1), line(16, Fraction(16, 10), MAY)))
    assert not more.passed


def test_meters_without_a_name_fail() -> None:
    with pytest.raises(ReconcileInvalid, match="TimedStorage-SIA-ByteHrs") as caught:
        reconcile(of(line(1, 1)), of(line(1, 1), name="bill", unmapped=("TimedStorage-SIA-ByteHrs",)))
    assert "map" in caught.value.hint
    with pytest.raises(ReconcileInvalid, match="no meter"):
        reconcile(of(line(1, 1)), of(line(1, 1, meter="")))
    with pytest.raises(ReconcileInvalid, match="twice"):
        reconcile(of(line(1, 1), line(2, 1)), of(line(1, 1)))


def test_example_rates_are_refused() -> None:
    plan = Plan(plan_id="r7b", runs=(r7b("standard"),))
    with pytest.raises(ReconcileInvalid, match="s3: example rates"):
        reconcile(side(plan, s3()), side(plan, real(s3())))
    with pytest.raises(ReconcileInvalid, match="example"):
        reconcile(side(plan, real(s3())), side(plan, s3()))


def test_two_currencies() -> None:
    with pytest.raises(CurrencyMixed):
        reconcile(of(line(1, 1)), of(line(1, 1), currency="EUR"))


@pytest.mark.parametrize(
    ("ratio", "hint"),
    [
        (Fraction(GIB, 10**9), "1.0737"),
        (Fraction(10**9, GIB), "1.0737"),
        (Fraction(2**40, 10**12), "1.0995"),
        (Fraction(730, 720), "1.0139"),
        (Fraction(744, 720), "1.0333"),
        (Fraction(720, 744), "1.0333"),
        (Fraction(744, 730), "1.0192"),
        (Fraction(105, 100), ""),
        (Fraction(1), ""),
    ],
)
def test_hints_at_unit_mix_ups(ratio: Fraction, hint: str) -> None:
    by_quantity = row(line(100, 2), line(100 * ratio, 2 * ratio))
    assert hint in by_quantity.hint
    assert bool(hint) == bool(by_quantity.hint)
    by_price = row(line(100, 2), line(100, 2 * ratio))
    assert bool(hint) == bool(by_price.hint)
    counted_requests = row(line(100, 2, category=Category.REQUESTS), line(100 * ratio, 2, category=Category.REQUESTS))
    assert not counted_requests.hint


def test_attempts_and_ages_are_counted_whatever_they_cost() -> None:
    """Failed attempts are not billed, and objects lived longer than planned."""
    planned = Plan(
        plan_id="plan",
        ledger=Ledger((stored("standard", 10, 1, objects=5, ending=Ending.DELETED),), START, START + 10 * DAY),
        usage=Usage(requests=(requests("standard", Operation.PUT_OBJECT, 1000),)),
    )
    happened = replace(
        planned,
        ledger=Ledger((stored("standard", 10, 2, objects=5, ending=Ending.DELETED),), START, START + 10 * DAY),
        usage=Usage(
            requests=(
                requests("standard", Operation.PUT_OBJECT, 1004),
                requests("standard", Operation.PUT_OBJECT, 70, status=503),
            )
        )
        + transfer("internet", TransferPath.INTERNET, 5),
    )
    found = reconcile(side(planned, real(s3())), side(happened, real(s3()), "tracker"))
    ours, theirs = found.tallies[0]
    assert ours is not None
    assert theirs is not None
    assert (ours.attempts, ours.billable, ours.deleted, ours.mean_age) == (1000, 1000, 5, Fraction(DAY))
    assert (theirs.attempts, theirs.billable, theirs.deleted, theirs.mean_age) == (1074, 1004, 5, Fraction(2 * DAY))
    assert theirs.byte_seconds == 2 * ours.byte_seconds == 2 * 50 * DAY
    by_meter = {each.key.meter: each for each in found.rows}
    assert by_meter["s3/standard/requests/write"].passed
    assert by_meter["s3/standard/storage"].drift is Drift.QUANTITY
    assert by_meter["s3/transfer/aws:internet:internet"].drift is Drift.MISSING


def test_crossing_an_allowance_is_no_rate_drift() -> None:
    """R2's first million is free: more requests cost more each, at the same list price."""

    def plan(count: int) -> Plan:
        return Plan(plan_id="r2", usage=Usage(requests=(requests("standard", Operation.PUT_OBJECT, count),)))

    found = reconcile(side(plan(1_000_000), real(r2())), side(plan(3_000_000), real(r2())))
    assert [each.drift for each in found.rows] == [Drift.QUANTITY]
    assert found.delta == 9


def test_a_new_price_list_is_rate_drift() -> None:
    plan = Plan(plan_id="r7b", runs=(r7b("standard"),))
    dear = real(s3(standard=brackets((None, "0.03"))))
    (found,) = reconcile(side(plan, real(s3())), side(plan, dear)).rows
    assert (found.drift, found.quantity_effect) == (Drift.RATE, NONE)
    assert found.rate_effect == found.delta > 0


def test_within_an_open_range_nothing_has_drifted_too_far() -> None:
    plan = Plan(plan_id="hub", runs=(r7b("private"),))
    expected = side(plan, real(hub()))
    storage = next(each for each in expected.lines if each.key.category is Category.STORAGE)
    assert storage.quantity < storage.high
    middle = (storage.quantity + storage.high) / 2
    inside = replace(storage, quantity=middle, high=middle, amount=Fraction(36), high_amount=Fraction(36))
    others = [each for each in expected.lines if each.key.category is not Category.STORAGE]
    assert reconcile(expected, of(inside, *others)).passed
    above = replace(inside, quantity=storage.high * 2, high=storage.high * 2)
    assert not reconcile(expected, of(above, *others)).passed


def test_a_plan_in_two_units_is_caught() -> None:
    """The provider's GB are GiB; a card that says 10^9 is off by 7.37 %."""
    plan = Plan(plan_id="r7b", runs=(r7b("t"),))
    wrong = real(make_card("c", tier("t", "0.023", bytes_per_unit=10**9)))
    right = real(make_card("c", tier("t", "0.023")))
    (found,) = reconcile(side(plan, wrong), side(plan, right)).rows
    assert not found.passed
    assert "1.0737" in found.hint
    assert found.expected == Fraction(12_414 * GENERATION, 720 * 10**9)
