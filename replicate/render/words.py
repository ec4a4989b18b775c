"""Words that several results share."""

from datetime import datetime


def age(at: str | None, now: datetime) -> str:
    """Write how long ago an RFC 3339 time was."""
    if at is None:
        return "?"
    seconds = int((now - datetime.fromisoformat(at)).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(0, seconds)} s ago"


def without(place: str, message: str) -> str:
    """Drop the place that a message starts with where the line names it already."""
    return message.removeprefix(f"{place}: ")


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def placed(place: str, reason: str) -> str:
    """Put the place in front of a reason that does not name it."""
    return f"{place}: {reason}" if place not in reason else reason


def human_bytes(count: int) -> str:
    """Write a number of bytes for people: three digits and a binary unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:  # noqa: PLR2004 - the step between binary units
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
