"""Attempt numbers that were opened twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replicate.log import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """An attempt number that was opened twice: each id, with the places that know it."""

    attempt: int
    lines: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        """Name both lines."""
        lines = " and ".join(f"{identity} ({', '.join(places)})" for identity, places in self.lines)
        return f"attempt {self.attempt} was opened twice: {lines}"


def find_forks(attempts: Mapping[str, Sequence[Attempt]]) -> tuple[Fork, ...]:
    """Return every attempt number that stands under several ids anywhere; ``attempts`` is by place."""
    known: dict[int, dict[str, set[str]]] = {}
    for place, each in attempts.items():
        for attempt in each:
            known.setdefault(attempt.number, {}).setdefault(attempt.id, set()).add(place)
    return tuple(
        Fork(attempt=number, lines=tuple((name, tuple(sorted(where))) for name, where in sorted(ids.items())))
        for number, ids in sorted(known.items())
        if len(ids) > 1
    )
