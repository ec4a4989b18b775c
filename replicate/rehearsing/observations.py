"""What a rehearsal observed, and whether it is what was to be expected: values only.

The child's answer is what the user's code made of it, so it is read as a document from elsewhere.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicate.bounded import Ended
from replicate.causal import Comparison, first_difference, in_order, stage_of
from replicate.errors import UsageError
from replicate.generation.disk import read_document
from replicate.generation.rehearsals import MAX_OBSERVATIONS

Observations = Mapping[str, Any]
_MAX_ANSWER = 2 * MAX_OBSERVATIONS
_MAX_EXPECTED = 1024 * 1024
_REASON = 500
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the child wrote down: observations, why it failed, or why there is nothing to call."""

    observations: Observations | None = None
    error: str = ""
    unusable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What to compare with; ``what`` names it in words."""

    what: str
    observations: Observations


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a rehearsal.  ``difference`` is the first in causal order from what was expected."""

    passed: bool
    reason: str
    observations: Observations
    compared: int = 0
    difference: Comparison | None = None


def judge(ended: Ended, answer: Answer | None, seconds: float, reference: Reference | None) -> Verdict:
    """Say whether a rehearsal succeeded; only one that answered, ended well and saw what was expected did."""
    observations = (answer.observations if answer else None) or {}
    reason = _failure(ended, answer, seconds)
    if reason:
        return Verdict(passed=False, reason=trim(reason), observations=observations)
    if reference is None:
        return Verdict(passed=True, reason="", observations=observations)
    compared = compare_observations(reference.observations, observations)
    difference = first_difference(compared)
    words = ""
    if difference is not None:
        stage = "" if difference.stage == difference.name else f"{difference.stage}: "
        words = f"not as in {reference.what}: {stage}{difference.name}: {difference.detail}"
    return Verdict(
        passed=difference is None,
        reason=trim(words),
        observations=observations,
        compared=len(compared),
        difference=difference,
    )


def _failure(ended: Ended, answer: Answer | None, seconds: float) -> str:
    if ended.late:
        return f"it took longer than {seconds:g} s (timeout_seconds), and was ended"
    if answer is not None and answer.error:
        return answer.error
    if ended.status != 0:
        return f"its process {ended.words}"
    return "its process ended without an answer" if answer is None or answer.observations is None else ""


def read_answer(path: Path) -> Answer | None:
    """Read what the child wrote; None where there is none, or none that could be meant."""
    data = read_document(path, _MAX_ANSWER)
    if data is None or len(data) > _MAX_ANSWER:
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    observations = document.get("observations")
    return Answer(
        observations=observations if isinstance(observations, dict) else None,
        error=str(document.get("error", "")),
        unusable=str(document.get("unusable", "")),
    )


def read_expected(path: Path) -> Reference:
    """Read a file of observations to compare with; raises UsageError."""
    wrong = UsageError(
        f"{path} holds no observations", hint='write one JSON object, such as {"loss": 2.5, "batch": "9f3a"}'
    )
    data = read_document(path, _MAX_EXPECTED)
    if data is None:
        raise UsageError(f"{path} does not exist", hint="name a file of observations with --expect")
    try:
        document = json.loads(data) if len(data) <= _MAX_EXPECTED else None
    except (ValueError, RecursionError) as error:
        raise wrong from error
    if not isinstance(document, dict):
        raise wrong
    return Reference(what=path.name, observations=document)


def compare_observations(reference: Observations, observed: Observations) -> tuple[Comparison, ...]:
    """Compare all that the reference has, in causal order; what is observed beyond it is nobody's expectation."""
    found = dict(_flat("", observed))
    compared = []
    for name, due in _flat("", reference):
        detail = "" if name in found else f"{_short(due)} is expected, and nothing was observed"
        if name in found and _spelled(found[name]) != _spelled(due):
            detail = f"{_short(due)} is expected, {_short(found[name])} was observed"
        compared.append(Comparison(stage=stage_of(name), name=name, equal=not detail, detail=detail))
    return in_order(compared)


def _flat(prefix: str, value: Observations) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(item, dict) and item:
            yield from _flat(name, item)
        else:
            yield name, item


def _spelled(value: Any) -> str:
    """One value has one spelling: 1, 1.0 and true are three, and a float is told to its last bit."""
    return json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    words = _spelled(value)
    return words if len(words) <= _SHOWN else words[:_SHOWN] + "…"


def trim(text: str) -> str:
    """Make one printable line of bounded length of it."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= _REASON else words[:_REASON] + "…"
