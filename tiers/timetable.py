"""A limit that changes with the time of day: ``08:00,10M 19:00,off``, in the form that rclone's users know.

Decided purely: :meth:`Timetable.at` says what holds at a moment and when that changes.  The clock on the wall of
``zone`` decides: an hour that a change of summer time repeats has its entries twice, and of what lies in
an hour that is left out the last holds from the moment of the change.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from types import MappingProxyType

SLOWEST = 64 * 1024
"""Bytes a second below which no limit may be: a request would hardly end."""
EXAMPLE = '"08:00,10M 19:00,off" or "Mon-08:00,10M Fri-19:00,off"'

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_WEEK = timedelta(days=8)
"""How far ahead a change is looked for: a week, and a day for an hour that is left out."""
_UNITS = MappingProxyType(
    {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30},
)
_RATE = re.compile(r"(\d{1,15})(|K|M|G|Ki|Mi|Gi)")
_ENTRY = re.compile(r"(?:([A-Za-z]{3})-)?(\d{1,2}):(\d{2}),(\S+)")


class BadTimetable(ValueError):
    """The text is no timetable; the message has the position, counted from 1, and an example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """What holds at a moment: bytes a second, None for no limit; and until when, None for ever."""

    rate: int | None
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """``entries`` are minutes of the week from Monday 00:00, ascending, and the rate from then on."""

    entries: tuple[tuple[int, int | None], ...]
    zone: tzinfo = UTC

    def at(self, now: datetime) -> Tariff:
        """Return what holds at ``now`` (aware), and the next moment at which something else does."""
        rate = self._rate(now)
        moments = sorted({moment for moment in self._moments(now) if moment > now})
        until = next((moment for moment in moments if self._rate(moment) != rate), None)
        return Tariff(rate=rate, until=until)

    def _rate(self, moment: datetime) -> int | None:
        wall = moment.astimezone(self.zone)
        minute = wall.weekday() * _DAY_MINUTES + wall.hour * 60 + wall.minute
        # Before the first entry of a week the last one of the week before holds: index -1.
        return self.entries[bisect_right(self.entries, minute, key=lambda entry: entry[0]) - 1][1]

    def _moments(self, now: datetime) -> Iterator[datetime]:
        """Yield every moment up to a week ahead at which another entry can come to hold."""
        first = now.astimezone(self.zone).date()
        for ahead in range(_WEEK.days + 1):
            day = first + timedelta(days=ahead)
            begin = datetime.combine(day, time(), self.zone)
            for minute, _rate in self.entries:
                if minute // _DAY_MINUTES == day.weekday():
                    wall = begin.replace(hour=minute % _DAY_MINUTES // 60, minute=minute % 60)
                    yield from (wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
            yield from self._jumps(begin.astimezone(UTC))

    def _jumps(self, begin: datetime) -> Iterator[datetime]:
        """Yield the minute of the day from ``begin`` at which the zone's offset changes, if it does."""
        low, high = 0, _DAY_MINUTES

        def offset(minutes: int) -> timedelta | None:
            return (begin + timedelta(minutes=minutes)).astimezone(self.zone).utcoffset()

        if offset(low) == offset(high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
        yield begin + timedelta(minutes=high)


def parse_timetable(text: str, zone: str = "UTC") -> Timetable:
    """Read a timetable, or one rate for all times; raises BadTimetable.

    Entries are ``[DAY-]HH:MM,RATE``, separated by blanks: each holds from then on until the next.  Without a day it
    is for every day.  RATE is ``off`` or bytes a second with K, M, G (thousands) or Ki, Mi, Gi.
    """
    where = find_zone(zone)
    if "," not in text and text.strip():
        return Timetable(entries=((0, _rate(text.strip(), 1)),), zone=where)
    daily: dict[int, int | None] = {}
    weekly: dict[int, int | None] = {}
    for found in re.finditer(r"\S+", text):
        day, minute, rate = _entry(found.group(), found.start() + 1)
        known = daily if day is None else weekly
        key = minute if day is None else day * _DAY_MINUTES + minute
        if key in known:
            raise _bad(found.start() + 1, f"{found.group()!r} is for a time that another entry has already")
        known[key] = rate
    if not daily and not weekly:
        raise _bad(1, "nothing is in it")
    expanded = {day * _DAY_MINUTES + minute: rate for day in range(len(_DAYS)) for minute, rate in daily.items()}
    return Timetable(entries=tuple(sorted((expanded | weekly).items())), zone=where)


def find_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name; raises BadTimetable where it is not known here."""
    if name == "UTC":  # known even where no zones are installed
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few need it, and every start would pay

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadTimetable(
            f"time zone {name!r} is not known on this machine: write an IANA name such as Europe/Berlin, or UTC; "
            "where all are unknown, `pip install tzdata`"
        ) from None


def _entry(word: str, position: int) -> tuple[int | None, int, int | None]:
    """Return the day (None for every one), the minute of the day and the rate."""
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise _bad(position, f"{word!r} is not HH:MM,RATE")
    name, hour, minute, rate = match.groups()
    if name is not None and name.lower() not in _DAYS:
        raise _bad(position, f"{name!r} is no day: Mon, Tue, Wed, Thu, Fri, Sat or Sun")
    day = None if name is None else _DAYS.index(name.lower())
    if int(hour) > 23 or int(minute) > 59:  # noqa: PLR2004 - the clock's own numbers
        raise _bad(position, f"{hour}:{minute} is no time of day")
    return day, int(hour) * 60 + int(minute), _rate(rate, position + match.start(4))


def _rate(word: str, position: int) -> int | None:
    if word.lower() == "off":
        return None
    match = _RATE.fullmatch(word)
    if match is None:
        raise _bad(position, f"{word!r} is no rate: bytes a second, with K, M, G or Ki, Mi, Gi, or off")
    rate = int(match[1]) * _UNITS[match[2]]
    if rate < SLOWEST:
        raise _bad(position, f"{word!r} is {rate} bytes a second; {SLOWEST} is the least, since requests have to end")
    return rate


def _bad(position: int, what: str) -> BadTimetable:
    return BadTimetable(f"at position {position}: {what}; write for example {EXAMPLE}")
