"""The budget guard: the upper end counts, the dearest month decides, equal is within."""

from dataclasses import replace
from decimal import Decimal

import pytest
from support.example_rates import hub, s3
from support.example_run import DAY, START, ledger, priced, r7b, stored

from cost.budget import Budget, Judgement, Per, judge, require_within
from cost.errors import BudgetExceeded, CurrencyMixed, UnitInvalid
from cost.estimate import Estimate, Plan
from cost.units import Month, half_up, subtract
from cost.usage import Usage


def judged(result: Estimate, limit: str | Decimal, per: Per = Per.RUN, currency: str = "USD") -> Judgement:
    return judge(result, Budget(limit=Decimal(limit), currency=currency, per=per))


def test_for_the_run() -> None:
    """E3: 36.193725."""
    result = priced(r7b("standard"), s3())
    assert judged(result, "36.20").within
    over = judged(result, "36")
    assert not over.within
    assert over.certain
    assert half_up(over.over, 6) == Decimal("0.193725")
    assert str(over) == "exceeds the budget: 36.19 USD for the run, 0.19 USD above 36.00 USD"
    assert str(judged(result, "36.20")) == "within budget: 36.19 USD for the run, 36.20 USD may be spent"


def test_what_equals_the_limit_is_within() -> None:
    result = priced(r7b("standard"), s3())
    assert judged(result, result.total.high).within
    assert not judged(result, subtract(result.total.high, Decimal("1e-30"))).within


def test_the_dearest_month_decides() -> None:
    """Ten days in April and thirty-one in May."""
    result = priced(ledger(stored("standard", 2**40, 41, start=START + 20 * DAY)), s3())
    found = judged(result, "24", Per.MONTH)
    assert found.month == Month(2026, 5)
    assert half_up(found.spent.high, 4) == half_up(Decimal(1024) * Decimal("0.023") * 31 / 30, 4)
    assert not found.within
    assert judged(result, "24.40", Per.MONTH).within
    assert not judged(result, "24.40").within
    assert "in 2026-05" in str(found)


def test_a_range_that_may_be_above_is_not_within() -> None:
    result = priced(r7b("private"), hub())
    maybe = judged(result, "40")
    assert not maybe.within
    assert not maybe.certain
    assert str(maybe) == "may exceed the budget: 27.00 to 63.00 USD for the run, 23.00 USD above 40.00 USD"
    assert judged(result, "63").within
    assert judged(result, "20").certain


def test_the_guard_raises_with_both_amounts() -> None:
    result = priced(r7b("standard"), s3())
    with pytest.raises(BudgetExceeded, match="exceeds the budget") as caught:
        require_within(result, Budget(limit=Decimal(30), currency="USD"))
    assert (caught.value.total, caught.value.budget) == (result.total.high, Decimal(30))
    assert caught.value.hint
    assert require_within(result, Budget(limit=Decimal(40), currency="USD")).within


def test_bad_budgets() -> None:
    result = priced(r7b("standard"), s3())
    with pytest.raises(CurrencyMixed):
        judged(result, "40", currency="EUR")
    for wrong in ("-1", "NaN", "Infinity"):
        with pytest.raises(UnitInvalid):
            Budget(limit=Decimal(wrong), currency="USD")


def test_nothing_costs_nothing() -> None:
    empty = Plan(plan_id="empty", runs=(replace(r7b("standard"), horizon=60),), usage=Usage())
    result = priced(empty, s3())
    assert judged(result, "0").within
    assert judged(result, "0", Per.MONTH).within
