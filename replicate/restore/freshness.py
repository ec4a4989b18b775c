"""How new the newest has to be: what a machine that remembers nothing can be told.

A store that hides the end of a log, or puts an old state back, shows nothing that is wrong in
itself.  Only knowledge from elsewhere tells: how far the run was, when it last committed, or an anchor.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from replicate.errors import UsageError
from replicate.layout import GenerationId
from replicate.log import LiveCommit
from replicate.signing.anchor import Anchor

AHEAD = 300.0
"""Seconds that a writer's clock may be ahead of ours."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(s|min|m|h|d|)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """What is known from elsewhere.  ``minimum`` is a sequence or a generation, ``max_age`` is in seconds.

    With ``anchors`` only tiers count whose log holds one of them.  ``allow_rollback`` restores although
    a log is shorter than this machine has seen it.
    """

    minimum: GenerationId | int | None = None
    max_age: float | None = None
    anchors: tuple[Anchor, ...] = ()
    allow_rollback: bool = False

    def reaches(self, generation: GenerationId) -> bool:
        """Whether a generation is not older than the minimum."""
        if isinstance(self.minimum, GenerationId):
            return generation >= self.minimum
        return self.minimum is None or generation.sequence >= self.minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The newest commit that a tier shows; ``written`` is when by the store's clock, where that is known."""

    tier: str
    commit: LiveCommit
    written: datetime | None


def too_old(max_age: float, shown: Iterable[Shown], now: datetime) -> str | None:
    """Say why the newest that any tier shows is too old, None where it is not, or where no tier shows anything.

    The writer's own time counts, and the store's, whichever makes it older: neither can then be used to
    make it younger.
    """
    ages = [(_age(one, now), one) for one in shown]
    if not ages:
        return None
    age, one = min(ages, key=lambda pair: abs(pair[0]))
    named = f"the newest commit that any tier shows, {one.commit.generation} on {one.tier}"
    if age < -AHEAD:
        return f"{named}, is dated {words(-age)} ahead of this machine's clock: one of the clocks is wrong"
    return f"{named}, is {words(age)} old, and at most {words(max_age)} were asked for" if age > max_age else None


def _age(one: Shown, now: datetime) -> float:
    try:
        ages = [(now - datetime.fromisoformat(one.commit.at)).total_seconds()]
    except (ValueError, TypeError):  # not a time, or one without a zone
        return float("inf")
    if one.written is not None:
        ages.append((now - one.written).total_seconds())
    return max(ages)


def words(seconds: float) -> str:
    """Write a duration in its largest unit."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def parse_duration(text: str) -> float:
    """Read ``90``, ``90s``, ``30m``, ``12h`` or ``7d`` as seconds; raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{text[:40]!r} is not a duration", hint="write 90s, 30m, 12h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def parse_minimum(text: str) -> GenerationId | int:
    """Read a sequence, or the id of a generation; raises UsageError."""
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else GenerationId.parse(text)


def known_from_elsewhere(
    minimum: str | None, max_age: str | None, anchors: Iterable[str], *, allow_rollback: bool
) -> Freshness:
    """Read what the command line was told; raises UsageError."""
    return Freshness(
        minimum=None if minimum is None else parse_minimum(minimum),
        max_age=None if max_age is None else parse_duration(max_age),
        anchors=tuple(Anchor.parse(anchor) for anchor in anchors),
        allow_rollback=allow_rollback,
    )
