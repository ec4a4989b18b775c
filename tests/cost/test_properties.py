"""Laws of pricing that hold for any plan: sums, brackets, more bytes, other months, other groupings."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from support.example_rates import GB, GIB, allowance, brackets, card, minimum, r2, s3, tier, up
from support.example_run import DAY, HOUR, START, ledger, priced, requests, stored

from cost.estimate import Plan
from cost.ledger import Ending, Interval, Ledger, Reason
from cost.pricing.brackets import Prices, amount
from cost.pricing.lines import Line
from cost.rates.meters import Bracket
from cost.rates.model import RateCard
from cost.rates.terms import BracketMode, Operation
from cost.schedule import LeftBehind, ObjectGroup, RunPlan, TierPlan
from cost.units import total
from cost.usage import Usage

PRICES = st.decimals("0.001", "9", places=3)
CYCLE = (365 * 4 + 1) * DAY
"""Four years: months of the same length, from 1901 to 2099."""
ENDINGS = [Ending.ALIVE, Ending.DELETED, Ending.KEPT]


@st.composite
def intervals(draw: st.DrawFn, most: int = 5) -> tuple[Interval, ...]:
    """Return what lies in one tier at some time within 80 days: GiB in size, so that brackets are reached."""
    found = []
    for _ in range(draw(st.integers(1, most))):
        start = START + draw(st.integers(0, 40 * 24)) * HOUR
        days = draw(st.integers(0, 40 * 24)) / 24
        found.append(
            stored(
                "t",
                draw(st.integers(0, 9 * GIB)),
                days,
                start=start,
                objects=draw(st.integers(0, 4)),
                ending=draw(st.sampled_from(ENDINGS)),
                reason=draw(st.sampled_from([Reason.LAST_K, Reason.MILESTONE, Reason.STAGED])),
            )
        )
    return tuple(found)


@st.composite
def bounds_and_prices(draw: st.DrawFn) -> list[tuple[str | None, str]]:
    bounds = sorted(draw(st.sets(st.integers(1, 60), max_size=4)))
    return [(None if at is None else str(at), str(draw(PRICES))) for at in (*bounds, None)]


@st.composite
def tiers(draw: st.DrawFn) -> dict[str, Any]:
    """Return a tier of any brackets and metering, with or without rounding, allowance and minimums."""
    changes: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"metering": "byte_hours_calendar", "month_hours": "calendar"},
                {"metering": "gib_hour", "month_hours": None},
                {"metering": "daily_peak_avg"},
                {"metering": "unspecified", "month_hours": "calendar"},
            ]
        )
    )
    if draw(st.booleans()):
        changes = {**changes, "storage_billing": up("1")}
    if draw(st.booleans()):
        order = draw(st.sampled_from(["after_rounding", "before_rounding"]))
        changes = {**changes, "free_allowance": [allowance("5", "GiB-month", "storage", order)]}
    if draw(st.booleans()):
        changes = {**changes, "min_duration": minimum(30), "min_billable_object_bytes": 131072}
    return tier("t", brackets(*draw(bounds_and_prices())), **changes)


def of(key: str, line: Line) -> str:
    return str(getattr(line.about, key))


@given(intervals(), tiers())
def test_lines_add_up_to_the_total_exactly(found: tuple[Interval, ...], table: dict[str, Any]) -> None:
    result = priced(ledger(*found), card("c", table))
    assert result.total.low == total(line.low.amount for line in result.lines)
    assert result.total.high == total(line.high.amount for line in result.lines)
    assert Decimal(0) <= result.total.low <= result.total.high
    for key in ("category", "reason", "label", "tier"):
        sums = result.by(partial(of, key)).values()
        assert total(each.low for each in sums) == result.total.low


def bracket(up_to: int | None, price: Decimal) -> Bracket:
    return Bracket.model_validate(brackets((None if up_to is None else str(up_to), str(price)))[0])


@given(
    bounds_and_prices(),
    st.integers(0, 5),
    st.fractions(0, 1),
    st.fractions(0, 100),
    st.fractions(0, 100),
    st.sampled_from(BracketMode),
)
def test_splitting_a_bracket_at_one_price_changes_nothing(
    table: list[tuple[str | None, str]],
    which: int,
    where: Fraction,
    lower: Fraction,
    width: Fraction,
    mode: BracketMode,
) -> None:
    whole = Prices(tuple(Bracket.model_validate(each) for each in brackets(*table)), mode)
    index = which % len(table)
    below = Decimal(0) if index == 0 else Decimal(str(table[index - 1][0]))
    top = table[index][0]
    upper = Decimal(top) if top is not None else below + 50
    middle = below + (upper - below) * (int(where * 98) + 1) / 100
    halves = [*table[:index], (str(middle), table[index][1]), *table[index:]]
    split = Prices(tuple(Bracket.model_validate(each) for each in brackets(*halves)), mode)
    assert amount(whole.slices(lower, lower + width)) == amount(split.slices(lower, lower + width))


@given(bounds_and_prices(), st.fractions(0, 100), st.fractions(0, 50), st.fractions(0, 50))
def test_graduated_brackets_add_up_along_the_way(
    table: list[tuple[str | None, str]], start: Fraction, one: Fraction, two: Fraction
) -> None:
    prices = Prices(tuple(Bracket.model_validate(each) for each in brackets(*table)))
    parts = amount(prices.slices(start, start + one)) + amount(prices.slices(start + one, start + one + two))
    assert parts == amount(prices.slices(start, start + one + two))


@given(intervals(), intervals(most=1), tiers(), bounds_and_prices())
def test_more_bytes_never_cost_less(
    found: tuple[Interval, ...], more: tuple[Interval, ...], table: dict[str, Any], rates: list[tuple[str | None, str]]
) -> None:
    """Under graduated brackets, whatever their prices do, and within one span of time."""
    rising = sorted(Decimal(price) for _, price in rates)
    table = {
        **table,
        "storage_brackets": brackets(*((at, str(price)) for (at, _), price in zip(rates, rising, strict=True))),
    }
    start, end = START, max(each.end for each in (*found, *more))
    cards = card("c", table)
    less = priced(Ledger(found, start, end), cards).total
    both = priced(Ledger(found + more, start, end), cards).total
    assert less.low <= both.low
    assert less.high <= both.high


@given(intervals(), tiers(), st.sampled_from([CYCLE, 2 * CYCLE, 4 * CYCLE]))
def test_a_shift_by_whole_billing_periods_changes_nothing(
    found: tuple[Interval, ...], table: dict[str, Any], shift: int
) -> None:
    moved = tuple(
        replace(
            each,
            start=each.start + shift,
            end=each.end + shift,
            entered=each.entered + shift,
            created=each.created + shift,
        )
        for each in found
    )
    cards = card("c", table)
    one, other = priced(ledger(*found), cards), priced(ledger(*moved), cards)
    assert [line.low for line in one.lines] == [line.low for line in other.lines]
    assert one.total == other.total
    assert one.open_liability == other.open_liability


@given(intervals(), tiers())
def test_equal_objects_may_be_grouped_or_not(found: tuple[Interval, ...], table: dict[str, Any]) -> None:
    single = tuple(replace(each, objects=1) for each in found for _ in range(each.objects))
    assume(single)
    start, end = START, max(each.end for each in found)
    cards = card("c", table)
    one, other = priced(Ledger(found, start, end), cards), priced(Ledger(single, start, end), cards)
    assert one.total == other.total
    assert one.open_liability == other.open_liability


@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 7)),
    st.integers(1, 20),
    st.integers(1, 120),
)
def test_the_ledger_agrees_with_the_closed_form(
    cadence: int, keep_last: int, keep_every: int | None, size: int, generations: int
) -> None:
    """Each generation lives K*T, or to the horizon where it is a milestone or among the last."""
    horizon = cadence * generations
    plan = TierPlan(tier="t", keep_last=keep_last, keep_every=keep_every, leaves=LeftBehind())
    run = RunPlan(
        start=START,
        horizon=horizon * HOUR,
        cadence=cadence * HOUR,
        objects=(ObjectGroup(bytes=size * GIB, count=2),),
        tiers=(plan,),
    )
    hours = sum(
        horizon - i * cadence if keep_every and i % keep_every == 0 else min(keep_last * cadence, horizon - i * cadence)
        for i in range(1, generations + 1)
    )
    flat = card("c", tier("t", "0.5"))
    result = priced(run, flat)
    quantity = sum((line.low.quantity for line in result.lines), Fraction(0))
    assert quantity == Fraction(hours * 2 * size, 720)


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=5), st.sampled_from([s3, r2]))
def test_requests_cost_the_same_in_one_batch_or_many(counts: list[int], make: Any) -> None:
    rates: RateCard = make()
    many = Usage(requests=tuple(requests("standard", Operation.PUT_OBJECT, count) for count in counts))
    one = Usage(requests=(requests("standard", Operation.PUT_OBJECT, sum(counts)),))
    assert priced(many, rates).total == priced(one, rates).total


@given(st.integers(0, 100 * GB))
def test_a_range_is_never_inverted(size: int) -> None:
    plan = Plan(plan_id="p", ledger=ledger(stored("t", size, 12.5)))
    open_metering = card("c", tier("t", "1", metering="unspecified", month_hours="calendar"))
    result = priced(plan, open_metering).total
    assert result.low <= result.high
