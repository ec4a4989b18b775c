"""The values of a verification: what was checked, what came of it, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from replicate.errors import CkptierError


class Verdict(StrEnum):
    """What came of one check.  What could not be done is said, and is no pass."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_DONE = "not-done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check; ``detail`` says what was seen, what is wrong, or why it was not done."""

    name: str
    verdict: Verdict
    detail: str


NAMED = 5
"""How many things of a kind a message names."""


def judged(name: str, faults: Iterable[str], passed: str) -> Check:
    """Fail with the faults, or pass with what was seen; names come from files, and do nothing to a terminal."""
    found = tuple(map(_shown, faults))
    if not found:
        return Check(name=name, verdict=Verdict.PASSED, detail=passed)
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return Check(name=name, verdict=Verdict.FAILED, detail="; ".join(found[:NAMED]) + more)


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def not_done(name: str, reason: str) -> Check:
    """Say that a check was not done."""
    return Check(name=name, verdict=Verdict.NOT_DONE, detail=reason)


def listed(names: Iterable[str]) -> str:
    """Name a few of many, sorted."""
    every = sorted(names)
    return ", ".join(every[:NAMED]) + (f" and {len(every) - NAMED} more" if len(every) > NAMED else "")


def words(error: BaseException) -> str:
    """Say what was raised, in one line."""
    text = str(error).strip()
    if isinstance(error, MemoryError) or "allocate memory" in text:
        return "it takes more memory than its size accounts for"
    said = " ".join(text.split()) or "no reason given"
    return said if isinstance(error, CkptierError) else f"{type(error).__name__}: {said}"
