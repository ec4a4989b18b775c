"""Options of the command line as values: spans, days, shares and amounts, each with what would be right."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from cost.compare import Needs
from cost.errors import UnitInvalid
from cost.units import parse_decimal
from replicate.costing.planfile import span_seconds
from replicate.costing.sites import Choices
from replicate.errors import UsageError
from replicate.verify import parse_share


def span(name: str, text: str | None) -> int:
    """Return the seconds of an option, 0 where it is not given; raises UsageError."""
    if text is None:
        return 0
    try:
        seconds = span_seconds(text)
    except ValueError as error:
        raise UsageError(f"--{name} {text[:40]!r}: {error}", hint=f"such as --{name} 2h") from error
    if not seconds:
        raise UsageError(f"--{name} {text[:40]!r} is no time at all", hint=f"such as --{name} 2h")
    return seconds


def first_day(text: str | None, now: datetime) -> datetime:
    """Return the midnight in UTC that a run starts at, today's where none is given; raises UsageError."""
    try:
        day = now.astimezone(UTC).date() if text is None else date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--start {str(text)[:40]!r} is no day", hint="write it as 2026-04-01") from error
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def amount(text: str | None) -> Decimal | None:
    """Return a budget as an exact decimal; raises UsageError."""
    if text is None:
        return None
    try:
        return parse_decimal(text)
    except UnitInvalid as error:
        raise UsageError(f"--budget: {error.message}", hint="write it as 50.00, in the estimate's currency") from error


def needs(within: str | None, bandwidth: int | None) -> Needs | None:
    """Return what a tier has to do, None where nothing is said; raises UsageError where half is said."""
    if within is None and bandwidth is None:
        return None
    if within is None or bandwidth is None:
        raise UsageError(
            "a recovery target needs both",
            hint="give --recover-within 30min and --bandwidth 500000000 (bytes a second)",
        )
    return Needs(recover_within=span("recover-within", within), bandwidths=(bandwidth,))


def choices(options: Mapping[str, Any], now: datetime) -> Choices:
    """Return how a run goes, as far as the options say; raises UsageError."""
    read = options.get("read_data")
    verify_every = span("verify-every", options.get("verify_every"))
    if read is not None and not verify_every:
        raise UsageError("--read-data is for verifying", hint="say how often with --verify-every 1d")
    every, length = span("every", options.get("every")), span("for", options.get("length"))
    if bool(every) != bool(length):
        raise UsageError("--every and --for belong together", hint="such as --every 2h --for 30d")
    return Choices(
        start=first_day(options.get("start"), now),
        length=length,
        cadence=every,
        keep_last=options.get("keep_last"),
        keep_every=options.get("keep_every"),
        updates=options.get("updates"),
        restores=options.get("restores") or 0,
        verify_every=verify_every,
        share=parse_share(read) if read is not None else None,
    )
