"""Calendar months in UTC as bounds in whole seconds since 1970."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from cost.units import SECONDS_PER_HOUR, Month, MonthHours


def second(instant: datetime) -> int:
    """Return an aware instant as whole seconds since 1970, fractions cut off."""
    return int(instant.timestamp())


def instant_of(at: int) -> datetime:
    """Return seconds since 1970 as an instant in UTC."""
    return datetime.fromtimestamp(at, tz=UTC)


@dataclass(frozen=True)
class Months:
    """The billing months that a span of time touches, one at least."""

    start: int
    end: int

    @cached_property
    def all(self) -> tuple[Month, ...]:
        """The months in order."""
        months = [Month.of(instant_of(self.start))]
        while second(months[-1].end) < self.end:
            months.append(months[-1].next)
        return tuple(months)

    @cached_property
    def bounds(self) -> list[int]:
        """The first second of each month, and the one after the last month."""
        return [*(second(month.start) for month in self.all), second(self.all[-1].end)]

    def of(self, at: int) -> Month:
        """Return the month of an instant; the very end of the span belongs to the last month.

        What is used at the last instant of a plan is on the bill of the month that the plan ends in.
        """
        last = len(self.all) - 1
        return self.all[min(last, max(0, bisect_right(self.bounds, at) - 1))]

    def closing(self, end: int, start: int) -> Month:
        """Return the month of the last second of a stay: where an early deletion is charged."""
        return self.of(max(start, end - 1))


def month_seconds(month: Month, basis: MonthHours) -> int:
    """Return the seconds that a monthly price covers."""
    return month.hours(basis) * SECONDS_PER_HOUR
