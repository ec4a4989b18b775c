"""The budget guard: whether an estimate stays within what may be spent, for the whole run or in its dearest month."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from cost.errors import BudgetExceeded, CurrencyMixed, UnitInvalid
from cost.estimate import Amount, Estimate
from cost.report.words import money
from cost.units import ZERO, Month, subtract


class Per(StrEnum):
    """What a limit is for: everything, or any one calendar month."""

    RUN = "run"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit in one currency; an amount that equals it is within."""

    limit: Decimal
    currency: str
    per: Per = Per.RUN

    def __post_init__(self) -> None:
        if not self.limit.is_finite() or self.limit < 0:
            raise UnitInvalid(f"a budget of {self.limit}", hint="give a decimal that is not negative, such as 50.00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outcome.  ``over`` is what is missing at the upper end of ``spent``, zero when within.

    ``month`` is the dearest one where the budget is by month.
    """

    budget: Budget
    spent: Amount
    over: Decimal
    month: Month | None = None

    @property
    def within(self) -> bool:
        """Whether the whole range is within the limit; what may be above it is not."""
        return not self.over

    @property
    def certain(self) -> bool:
        """Whether the answer is the same at both ends of a range."""
        return self.within or self.spent.low > self.budget.limit

    def __str__(self) -> str:
        """Say it in one line."""
        where = f"in {self.month}" if self.month is not None else "for the run"
        limit = money(self.budget.limit, self.budget.currency)
        spent = money(self.spent, self.budget.currency)
        if self.within:
            return f"within budget: {spent} {where}, {limit} may be spent"
        verb = "exceeds the budget" if self.certain else "may exceed the budget"
        return f"{verb}: {spent} {where}, {money(self.over, self.budget.currency)} above {limit}"


def judge(estimate: Estimate, budget: Budget) -> Judgement:
    """Set an estimate against a budget, by its upper end; raises CurrencyMixed.

    Open liabilities are not counted: they fall due only if everything is deleted.
    """
    if budget.currency != estimate.currency:
        raise CurrencyMixed(
            f"the budget is in {budget.currency} and the estimate in {estimate.currency}",
            hint=f"give the budget in {estimate.currency}, or a currency and a dated [[fx]] rate to the plan",
        )
    month: Month | None = None
    spent = estimate.total
    if budget.per is Per.MONTH:
        months: dict[Month, Amount] = {}
        for name, amount in estimate.by(lambda line: str(line.month)).items():
            months[Month(*map(int, name.split("-")))] = amount
        month = max(sorted(months), key=lambda each: months[each].high, default=None)
        spent = Amount(ZERO, ZERO) if month is None else months[month]
    over = max(ZERO, subtract(spent.high, budget.limit))
    return Judgement(budget=budget, spent=spent, over=over, month=month)


def require_within(estimate: Estimate, budget: Budget) -> Judgement:
    """Return the judgement; raises BudgetExceeded where the estimate is, or may be, above the budget."""
    judged = judge(estimate, budget)
    if not judged.within:
        raise BudgetExceeded(str(judged), total=judged.spent.high, budget=budget.limit)
    return judged
