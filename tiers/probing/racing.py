"""Many writers on one key: who wins, and whose bytes stay.  For every kind of store alike."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from tiers.probing.outcomes import Outcome, Subject, Verdict

WRITERS = 8
ROUNDS = 3
_START_LIMIT = 30.0
"""Seconds for all threads to be at the start."""


class Claim(StrEnum):
    """What one writer was told."""

    WON = "won"
    LOST = "lost"
    UNCLEAR = "unclear"  # a lost reply, or an answer that does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One race: what each writer was told, and which one's bytes were there afterwards (None: nobody's)."""

    claims: tuple[Claim, ...]
    stored: int | None


def race(create: Callable[[int], Claim], holder: Callable[[], int | None], writers: int = WRITERS) -> Round:
    """Let ``create(0)`` to ``create(writers - 1)`` run at once, then ask whose bytes are there."""
    barrier = threading.Barrier(writers, timeout=_START_LIMIT)

    def one(number: int) -> Claim:
        barrier.wait()
        return create(number)

    with ThreadPoolExecutor(writers) as pool:
        claims = tuple(pool.map(one, range(writers)))
    return Round(claims=claims, stored=holder())


def judge(rounds: Sequence[Round]) -> Outcome:
    """Decide from all rounds: one winner whose bytes stay, in each of them."""
    writers = max((len(each.claims) for each in rounds), default=0)
    for number, each in enumerate(rounds, start=1):
        winners = [who for who, claim in enumerate(each.claims) if claim is Claim.WON]
        if len(winners) > 1:
            return _outcome(Verdict.NO, f"{len(winners)} of {writers} writers at once were told that they won")
        if winners and each.stored != winners[0]:
            return _outcome(Verdict.NO, f"in round {number} the winner's bytes were replaced")
        if not winners and (each.stored is None or each.claims[each.stored] is not Claim.UNCLEAR):
            return _outcome(Verdict.UNKNOWN, f"in round {number} nobody of {writers} won")
    if not rounds:
        return _outcome(Verdict.UNKNOWN, "not tried")
    return _outcome(Verdict.YES, f"of {writers} writers at once one won, in each of {len(rounds)} rounds")


def _outcome(verdict: Verdict, evidence: str) -> Outcome:
    return Outcome(subject=Subject.ONE_WINNER, verdict=verdict, evidence=evidence)
