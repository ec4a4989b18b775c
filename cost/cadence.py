"""How often to checkpoint: Young's and Daly's optimum, waste, wall time, and where money moves them.

Times are seconds as floats: measurements, not money.  ``blocked`` is C, how long the
trainer stands still for one checkpoint; ``mtti`` is M, the mean time to interrupt of the whole job
(not of one GPU); ``restart`` is R.  Interrupts are taken to be independent and equally likely at any
moment.  Sources: Young 1974; Daly, Future Generation Computer Systems 22, 2006.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from cost.errors import PlanInvalid

_STEPS = 200


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanInvalid(f"{name} is {value}", hint=f"give {name} as seconds above zero")


def _span(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise PlanInvalid(f"{name} is {value}", hint=f"give {name} as seconds, not negative")


def young_period(blocked: float, mtti: float) -> float:
    """Return the period between checkpoints that wastes least, to first order."""
    _positive(blocked=blocked, mtti=mtti)
    return math.sqrt(2 * blocked * mtti)


def daly_interval(blocked: float, mtti: float) -> float:
    """Return the computing time between two checkpoints that wastes least, to higher order.

    The period is that plus ``blocked``.  From C = 2M on, an interval of M is as good as any.
    """
    _positive(blocked=blocked, mtti=mtti)
    if blocked >= 2 * mtti:
        return mtti
    ratio = blocked / (2 * mtti)
    return math.sqrt(2 * blocked * mtti) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - blocked


def waste(period: float, blocked: float, mtti: float) -> float:
    """Return the fraction of time lost to checkpoints and to work done again, to first order; restarts are apart."""
    _positive(period=period, mtti=mtti)
    _span(blocked=blocked)
    return blocked / period + period / (2 * mtti)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a job is like: C, M and R, in seconds."""

    blocked: float
    mtti: float
    restart: float = 0.0

    def __post_init__(self) -> None:
        _positive(mtti=self.mtti)
        _span(blocked=self.blocked, restart=self.restart)


def wall_time(machine: Machine, interval: float, useful: float) -> float:
    """Return the expected time until ``useful`` seconds of work are done (Daly's complete model).

    ``interval`` is the computing time between checkpoints.  Infinite where no interval would ever
    be finished.
    """
    _positive(interval=interval, useful=useful)
    try:
        each = math.exp(machine.restart / machine.mtti) * math.expm1((interval + machine.blocked) / machine.mtti)
    except OverflowError:
        return math.inf
    return machine.mtti * each * useful / interval


def overhead(machine: Machine, interval: float) -> float:
    """Return the expected wall time on top of useful time, as a fraction of the latter."""
    return wall_time(machine, interval, 1.0) - 1


def best_interval(machine: Machine) -> float:
    """Return the interval of least wall time, found numerically: a check on Daly's formula."""
    _positive(blocked=machine.blocked)
    low, high = machine.blocked * 1e-6, 4 * (machine.mtti + machine.blocked)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(_STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if wall_time(machine, left, 1.0) < wall_time(machine, right, 1.0):
            high = right
        else:
            low = left
    return (low + high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A two-sided confidence interval of M, in the unit of the exposure; ``mean`` and ``high`` may be infinite."""

    mean: float
    low: float
    high: float


def mtti_interval(failures: int, exposure: float, confidence: float = 0.95) -> Interval:
    """Return what ``failures`` within an ``exposure`` that ended by the clock say about M (chi-square).

    None seen leaves only a lower bound; it is two-sided, above the one-sided rule of three's.
    """
    _positive(exposure=exposure)
    if failures < 0 or not 0 < confidence < 1:
        raise PlanInvalid(f"{failures} failures at {confidence}", hint="count from 0, confidence between 0 and 1")
    tail = (1 - confidence) / 2
    low = 2 * exposure / _even_chi_square(1 - tail, failures + 1)
    if failures == 0:
        return Interval(mean=math.inf, low=low, high=math.inf)
    return Interval(mean=exposure / failures, low=low, high=2 * exposure / _even_chi_square(tail, failures))


def _even_chi_square(probability: float, half_freedom: int) -> float:
    """Return the quantile of a chi-square with an even number of degrees, twice ``half_freedom``.

    It is above x exactly when a Poisson count of mean x/2 stays below ``half_freedom``.
    """

    def cumulative(x: float) -> float:
        logs = [index * math.log(x / 2) - x / 2 - math.lgamma(index + 1) for index in range(half_freedom)]
        return 1 - math.fsum(math.exp(each) for each in logs)

    low, high = 1e-12, 1.0
    while cumulative(high) < probability:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if cumulative(middle) < probability else (low, middle)
    return (low + high) / 2


def money_period(blocked: float, mtti: float, per_generation: Decimal, burn_per_second: Decimal) -> float:
    """Return the period that costs least when each generation also costs money.

    Money spent on a generation counts as the time in which the job burns as much:
    sqrt(2M(C + q/g)).  Both amounts are in one currency.
    """
    _positive(mtti=mtti)
    _span(blocked=blocked)
    if per_generation < 0 or burn_per_second <= 0:
        raise PlanInvalid(f"{per_generation} a generation at {burn_per_second} a second", hint="amounts are positive")
    return math.sqrt(2 * mtti * (blocked + float(per_generation / burn_per_second)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How much work the loss of a node costs where only remote copies survive, in seconds."""

    worst: float
    mean: float


def remote_exposure(period: float, upload: float) -> Exposure:
    """Return the work at risk when each upload takes ``upload`` and the latest generation wins.

    Uploads that take longer than the period are sent one after the other, skipping generations.
    """
    _positive(period=period)
    _span(upload=upload)
    interval = max(period, upload)
    return Exposure(worst=interval + upload, mean=interval / 2 + upload)
