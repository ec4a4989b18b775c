"""The places that one generation's bytes can come from, in order of preference, and what was wrong there.

A leaf that is not what was sealed is asked for once more from the same place (a decision,
since the transfer may be at fault; retries of requests are below, in tiers.retrying) and
then from the next place that has the file.  A place that does not answer is not asked again.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from replicate.errors import CkptierError, IntegrityFailure, from_tier_error
from replicate.manifest import SealedFile
from replicate.restore.sources import Source
from tiers.errors import IntegrityError, ObjectNotFound, TierError

MAX_INCIDENTS = 100
"""How many faults are kept in words; all are counted."""

Taken = TypeVar("Taken")


class Fault(StrEnum):
    """What was wrong with a leaf at a place."""

    DIFFERS = "differs"
    MISSING = "missing"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One fault that fetching met, whether or not another place made up for it."""

    place: str
    path: str
    leaf: int
    fault: Fault
    reason: str


class NotProved(IntegrityFailure):
    """No place could prove a leaf.  ``incidents`` are its faults, ``cause`` the last failure to answer, if any."""

    def __init__(self, message: str, *, incidents: tuple[Incident, ...], cause: CkptierError | None) -> None:
        super().__init__(message, hint="`ckptier verify --read-data 100%` shows what is hurt where")
        self.incidents = incidents
        self.cause = cause

    @property
    def missing(self) -> frozenset[str]:
        """Places where an object was not there at all."""
        return frozenset(incident.place for incident in self.incidents if incident.fault is Fault.MISSING)


class Wrong(Exception):
    """A leaf that arrived is not the sealed one."""


class Places:
    """Asks one place after another for leaves; for several threads at once."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._down: dict[str, CkptierError] = {}
        self._incidents: list[Incident] = []

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Faults that were met so far, whether or not another place made up for them."""
        with self._lock:
            return tuple(self._incidents)

    def first(
        self, file: SealedFile, leaf: int, take: Callable[[Source], Taken], sources: Sequence[Source] | None = None
    ) -> tuple[str, Taken]:
        """Return what ``take`` got of a leaf from the first place that proves it, after the place's name.

        ``take`` raises Wrong for a leaf that is not the sealed one.  ``sources`` is another order for this leaf.
        Raises NotProved; what else ``take`` raises passes.
        """
        faults: list[Incident] = []
        for source in self._sources if sources is None else sources:
            if source.holds(file) and source.name not in self._down:
                for _ in range(2 if source.again else 1):
                    try:
                        return source.name, take(source)
                    except (Wrong, TierError) as error:
                        incident = self._note(source, file, leaf, error)
                    if incident.fault is not Fault.DIFFERS:
                        break
                faults.append(incident)
        raise self._not_proved(file, leaf, faults)

    def _note(self, source: Source, file: SealedFile, leaf: int, error: Wrong | TierError) -> Incident:
        fault, reason = Fault.DIFFERS, str(error)
        if isinstance(error, TierError) and not isinstance(error, IntegrityError):
            fault = Fault.MISSING if isinstance(error, ObjectNotFound) else Fault.UNANSWERED
            reason = error.message
        incident = Incident(place=source.name, path=file.path, leaf=leaf, fault=fault, reason=reason)
        with self._lock:
            if fault is Fault.UNANSWERED and isinstance(error, TierError):
                self._down[source.name] = from_tier_error(error)
            if len(self._incidents) < MAX_INCIDENTS:
                self._incidents.append(incident)
        return incident

    def _not_proved(self, file: SealedFile, leaf: int, faults: Sequence[Incident]) -> NotProved:
        with self._lock:
            down = dict(self._down)
        cause = next((down[source.name] for source in self._sources if source.name in down), None)
        words = [f"{fault.place}: {fault.reason}" for fault in faults]
        named = {fault.place for fault in faults}
        words += [f"{name}: {error.message}" for name, error in down.items() if name not in named]
        return NotProved(
            f"{file.path}: leaf {leaf} cannot be proved ({'; '.join(words) or 'no place has the file'})",
            incidents=tuple(faults),
            cause=cause,
        )
