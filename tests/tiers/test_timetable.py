"""A bandwidth by the time of day: what holds when, and that a transfer follows it without bursts."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from tiers.bandwidth import BURST_BYTES, UNLIMITED_PIECE, Bandwidth
from tiers.opening import BadTierUrl, TierSpec, open_tier
from tiers.testing import ManualClock
from tiers.timetable import BadTimetable, Timetable, parse_timetable

MON = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
M = 1_000_000


def at(hour: int, minute: int = 0, *, day: int = 0) -> datetime:
    return MON + timedelta(days=day, hours=hour, minutes=minute)


def holding(table: Timetable, moment: datetime) -> tuple[int | None, datetime | None]:
    tariff = table.at(moment)
    return tariff.rate, tariff.until


def test_a_day_over_midnight() -> None:
    """Before the first entry of a day the last one of the day before holds."""
    table = parse_timetable("08:00,10M 19:00,off")
    assert holding(table, at(7, 59)) == (None, at(8))
    assert holding(table, at(8)) == (10 * M, at(19))
    assert holding(table, at(18, 59)) == (10 * M, at(19))
    assert holding(table, at(19)) == (None, at(8, day=1))
    assert holding(table, at(0, day=1)) == (None, at(8, day=1))


def test_units_and_one_rate_for_all_times() -> None:
    assert [parse_timetable(f"00:00,{rate}").at(MON).rate for rate in ("65536", "1Mi", "2M", "1G", "64Ki", "OFF")] == [
        65536, 1 << 20, 2 * M, 1000 * M, 65536, None
    ]  # fmt: skip
    assert holding(parse_timetable(" 10M "), MON) == (10 * M, None)


def test_weekdays_and_every_day_together() -> None:
    """A day's own entry goes before the one for every day; over the weekend the last of Friday holds."""
    table = parse_timetable("Mon-08:00,10M Fri-19:00,off")
    assert holding(table, at(7)) == (None, at(8))
    assert holding(table, at(12, day=2)) == (10 * M, at(19, day=4))
    assert holding(table, at(12, day=6)) == (None, at(8, day=7))
    mixed = parse_timetable("08:00,10M 18:00,20M sat-08:00,off")
    assert mixed.at(at(9, day=4)).rate == 10 * M
    assert mixed.at(at(9, day=5)).rate is None
    assert holding(mixed, at(19, day=4)) == (20 * M, at(8, day=5))


def test_the_same_rate_twice_is_no_change() -> None:
    assert holding(parse_timetable("08:00,10M 19:00,10M"), at(9)) == (10 * M, None)


def test_summer_time_begins_and_ends() -> None:
    """Berlin, 2026: 02:00 is left out on 29 March, and comes twice on 25 October."""
    table = parse_timetable("02:30,1M 12:00,off", "Europe/Berlin")
    spring = datetime(2026, 3, 29, tzinfo=UTC)
    assert holding(table, spring.replace(hour=0, minute=59)) == (None, spring.replace(hour=1))
    assert holding(table, spring.replace(hour=1)) == (M, spring.replace(hour=10))
    autumn = datetime(2026, 10, 25, tzinfo=UTC)
    assert holding(table, autumn.replace(hour=0, minute=29)) == (None, autumn.replace(minute=30))
    assert holding(table, autumn.replace(hour=0, minute=30)) == (M, autumn.replace(hour=1))
    assert holding(table, autumn.replace(hour=1)) == (None, autumn.replace(hour=1, minute=30))
    assert holding(table, autumn.replace(hour=1, minute=30)) == (M, autumn.replace(hour=11))


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 1, "nothing"),
        ("08:00,10M 25:00,off", 11, "25:00 is no time"),
        ("08:00,10M  Xyz-19:00,off", 12, "'Xyz' is no day"),
        ("08:00,10M 19:00", 11, "is not HH:MM,RATE"),
        ("08:00,10MB", 7, "'10MB' is no rate"),
        ("08:00,1M:2M", 7, "no rate"),
        ("08:00,1000", 7, "65536 is the least"),
        ("5MB", 1, "no rate"),
        ("08:00,10M 8:00,off", 11, "another entry"),
        ("Mon-08:00,10M", 0, ""),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, position: int, words: str) -> None:
    if not position:
        assert parse_timetable(text)
        return
    with pytest.raises(BadTimetable, match=words) as caught:
        parse_timetable(text)
    assert f"at position {position}:" in str(caught.value)
    assert '"08:00,10M 19:00,off"' in str(caught.value)


def test_an_unknown_zone_and_a_bad_string_name_the_tier() -> None:
    with pytest.raises(BadTimetable, match="Mars/Olympus"):
        parse_timetable("08:00,10M", "Mars/Olympus")
    with pytest.raises(BadTimetable, match=r"\.\./etc"):
        parse_timetable("08:00,10M", "../etc/passwd")
    with pytest.raises(BadTierUrl, match="tier t: bandwidth: at position 7") as caught:
        open_tier(TierSpec(name="t", url="memory://timetable", bandwidth="08:00,fast"), clock=ManualClock())
    assert "08:00,10M" in caught.value.hint


def transferred(bandwidth: Bandwidth, clock: ManualClock, seconds: float, count: int | None = None) -> int:
    """Take until so many seconds have passed; returns the bytes."""
    end, taken = clock.monotonic() + seconds, 0
    while clock.monotonic() < end:
        piece = count or bandwidth.piece
        assert bandwidth.take(piece)
        taken += piece
        if bandwidth.piece == UNLIMITED_PIECE:
            clock.advance(0.001)  # without a limit nothing waits, and a manual clock would stand still
    return taken


@pytest.mark.parametrize("count", [None, 3 * M])
def test_a_transfer_changes_its_rate_at_the_boundary(count: int | None) -> None:
    """Also with bytes that are asked for in pieces larger than a boundary is away."""
    clock = ManualClock(at(7, 59, day=0) + timedelta(seconds=50))
    table = parse_timetable("07:00,1M 08:00,10M 08:01,2M")
    bandwidth = Bandwidth(table, clock, threading.Event())
    slack = BURST_BYTES + (count or 0)
    assert transferred(bandwidth, clock, 10, count) == pytest.approx(10 * M, abs=slack)
    assert transferred(bandwidth, clock, 60, count) == pytest.approx(600 * M, abs=2 * slack)
    assert transferred(bandwidth, clock, 60, count) == pytest.approx(120 * M, abs=2 * slack)


def test_after_no_limit_the_limit_holds_at_once() -> None:
    """Off at night, limited from 08:00: not a byte of the night is saved up, and no burst follows."""
    clock = ManualClock(at(7, 59) + timedelta(seconds=59))
    bandwidth = Bandwidth(parse_timetable("08:00,1M 19:00,off"), clock, threading.Event())
    assert bandwidth.piece == UNLIMITED_PIECE
    night = transferred(bandwidth, clock, 1)
    assert night >= 900 * UNLIMITED_PIECE
    assert not clock.waits, "nobody waits where there is no limit"
    assert bandwidth.piece == int(M * 0.05)
    assert transferred(bandwidth, clock, 10) == pytest.approx(10 * M, abs=BURST_BYTES)


def test_the_end_of_a_limit_frees_who_waits_for_it() -> None:
    """What would be due long after 19:00 is due at 19:00."""
    clock = ManualClock(at(18, 59) + timedelta(seconds=58))
    bandwidth = Bandwidth(parse_timetable("08:00,1M 19:00,off"), clock, threading.Event())
    assert bandwidth.take(100 * M)
    assert clock.waits == [pytest.approx(2, abs=0.1)]


def test_a_clock_that_is_set_is_followed() -> None:
    class Set(ManualClock):
        shift = timedelta(0)

        def now(self) -> datetime:
            return super().now() + self.shift

    clock = Set(at(12))
    bandwidth = Bandwidth(parse_timetable("08:00,1M 19:00,off"), clock, threading.Event())
    assert bandwidth.piece < UNLIMITED_PIECE
    clock.shift = timedelta(hours=8)
    clock.advance(61)
    assert bandwidth.piece == UNLIMITED_PIECE
