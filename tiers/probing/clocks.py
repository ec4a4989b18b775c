"""How far a store's clock is from ours, from the Date of its answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tiers.probing.outcomes import ClockReading, Outcome, Subject, Verdict

ALLOWED = 60.0
"""Seconds that nobody need worry about; a signature is refused after 900."""
_RESOLUTION = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One answer: when the request went, when the answer was there, and the Date that it bore."""

    sent: datetime
    received: datetime
    date: datetime


def read_clock(sightings: Sequence[Sighting]) -> ClockReading | None:
    """Return the narrowest statement that all sightings allow; None where there are none.

    The Date was written after ``sent`` and before ``received``, and stands for any moment of
    its second.  Sightings that cannot all be true (a clock was set meanwhile) leave the last.
    """
    if not sightings:
        return None
    spans = [
        (
            (seen.date - seen.received).total_seconds(),
            (seen.date + _RESOLUTION - seen.sent).total_seconds(),
        )
        for seen in sightings
    ]
    low, high = max(span[0] for span in spans), min(span[1] for span in spans)
    if low > high:
        low, high = spans[-1]
    last = sightings[-1]
    return ClockReading(ours=last.received, theirs=last.date, ahead=(low, high))


def judge_clock(reading: ClockReading | None) -> Outcome:
    """Say whether the two clocks agree, with both times."""
    if reading is None:
        return Outcome(subject=Subject.CLOCK, verdict=Verdict.UNKNOWN, evidence="no answer had a Date")
    low, high = reading.ahead
    times = f"here {reading.ours:%H:%M:%S}, there {reading.theirs:%H:%M:%S} UTC"
    words = f"{times}; the store is ahead by {low:+.1f} to {high:+.1f} s"
    verdict = Verdict.YES if reading.off <= ALLOWED else Verdict.NO
    return Outcome(subject=Subject.CLOCK, verdict=verdict, evidence=words)
