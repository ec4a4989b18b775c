"""Errors of the money side, by what the caller does about them.

    CostError
    ├── CardInvalid        a rate card that cannot be used; ``faults`` names every reason
    ├── CardStale          prices read too long ago to estimate with
    ├── OutsideWindow      usage on a day that the card's contract window does not cover
    ├── RateMissing        no rate for a tier, operation, class, mode or network path: never zero
    ├── CurrencyMixed      two currencies and no dated exchange rate between them
    ├── UnitInvalid        a number, unit or date that is not exact or not known
    ├── PlanInvalid        a plan of what to store that no provider could carry out
    ├── ReconcileInvalid   counts that cannot be set against an estimate
    └── BudgetExceeded     the estimate is above what may be spent

Every one carries ``hint``: one line that says what to do next.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal


class CostError(Exception):
    """Base of everything that ``cost`` raises on purpose."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong in one file.  ``line`` counts from 1; 0 means the file as a whole."""

    file: str
    line: int
    field: str
    found: str
    right: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: found {self.found}; {self.right}"


FAULTS_SHOWN = 100
"""A file that is no rate card at all can have any number of faults."""


class CardInvalid(CostError):
    """Rate cards that cannot be used; the message has one line a fault, up to FAULTS_SHOWN."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        lines = [str(fault) for fault in faults[:FAULTS_SHOWN]]
        if len(faults) > FAULTS_SHOWN:
            lines.append(f"and {len(faults) - FAULTS_SHOWN} more")
        super().__init__(
            "\n".join(lines),
            hint="correct the lines that are named, then run `ckptier cost rates check FILE`",
        )
        self.faults = faults


class CardStale(CostError):
    """Prices that a person read too long ago; ``age_days`` is above ``limit_days``."""

    def __init__(self, message: str, *, as_of: date, age_days: int, limit_days: int) -> None:
        super().__init__(message, hint="read the prices again and set as_of, or use it as it is with --allow-stale")
        self.as_of = as_of
        self.age_days = age_days
        self.limit_days = limit_days


class OutsideWindow(CostError):
    """Usage on a day that the card does not cover; no other card is fallen back to."""


class RateMissing(CostError):
    """A request, path, class or mode without a rate: an error, never zero."""


class CurrencyMixed(CostError):
    """Amounts in two currencies met without a dated exchange rate."""


class UnitInvalid(CostError):
    """A number, unit, date or instant that is not exact, not finite or not known."""


class PlanInvalid(CostError):
    """A plan that is inconsistent or that a provider's limits forbid."""


class ReconcileInvalid(CostError):
    """Counts that cannot be set against an estimate: an unmapped meter, an example card."""


class BudgetExceeded(CostError):
    """The estimate is above the budget; both in the same currency."""

    def __init__(self, message: str, *, total: Decimal, budget: Decimal, hint: str = "") -> None:
        super().__init__(message, hint=hint or "store less, choose another tier, or raise the budget")
        self.total = total
        self.budget = budget
