"""What a copy from tier to tier comes to, and what is to be done for it, decided from values alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from replicate.errors import ExitCode, Fenced, NothingFound, TrustFailure
from replicate.forks import find_forks
from replicate.generation.lineage import Lineage
from replicate.layout import GenerationId
from replicate.log import Attempt, LiveCommit, LogState, LogView
from replicate.terms import Descent


class CopyOutcome(StrEnum):
    """What became of one generation."""

    COPIED = "copied"
    ALREADY_THERE = "already-there"
    WOULD_COPY = "would-copy"
    SOURCE_DAMAGED = "source-damaged"
    TARGET_DAMAGED = "target-damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """What to copy, between tiers by name: the newest generation, the one named, or ``everything``."""

    source: str
    target: str
    generation: GenerationId | None = None
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One generation.  ``reads`` and ``writes`` are the requests for data that a copy of it takes, where planned."""

    generation: GenerationId
    outcome: CopyOutcome
    total_bytes: int
    objects: int
    reason: str = ""
    slot: int | None = None
    verified_by: tuple[str, ...] = ()
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What a copy did, or would do; newest first."""

    run: str
    source: str
    target: str
    dry_run: bool
    generations: tuple[Copied, ...]
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """5 where a generation is damaged on either side, else 0."""
        hurt = {CopyOutcome.SOURCE_DAMAGED, CopyOutcome.TARGET_DAMAGED}
        return ExitCode.INTEGRITY if any(one.outcome in hurt for one in self.generations) else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What is to be done, decided from the two logs and the store's lineage.

    ``descent`` is in whose name it is done; ``visiting`` where that is not this store's own.
    """

    descent: Descent
    visiting: bool
    missing: tuple[LiveCommit, ...]
    there: tuple[LiveCommit, ...]


def plan_copy(request: CopyRequest, source: LogView, target: LogView, lineage: Lineage | None) -> CopyPlan:
    """Decide what is copied and in whose name.

    Raises NothingFound where the source has nothing of what is asked for, TrustFailure
    where the histories are unrelated or forked, and Fenced where this store was overtaken.
    """
    wanted = _wanted(request, source)
    state = source.state
    if state is None:
        raise NothingFound(f"{request.source} holds nothing of this run", hint="`ckptier list` shows what there is")
    _refuse_unrelated(request, state, target.state, lineage)
    descent, visiting = _in_whose_name(request, state, lineage)
    held = target.state
    known = {commit.id for commit in wanted if held is not None and held.find(commit.id) is not None}
    return CopyPlan(
        descent=descent,
        visiting=visiting,
        missing=tuple(commit for commit in wanted if commit.id not in known),
        there=tuple(commit for commit in target.live if commit.id in known),
    )


def _wanted(request: CopyRequest, source: LogView) -> tuple[LiveCommit, ...]:
    found = source.live
    if request.generation is not None:
        found = tuple(commit for commit in found if commit.id == request.generation)
    elif not request.everything:
        found = found[:1]
    if not found:
        what = str(request.generation) if request.generation else "no generation of this run"
        raise NothingFound(
            f"{what} is {'not ' if request.generation else ''}on {request.source}",
            hint=f"`ckptier list` shows what is where; `ckptier verify --tier {request.source}` why something is not",
        )
    return found


def _refuse_unrelated(request: CopyRequest, source: LogState, target: LogState | None, lineage: Lineage | None) -> None:
    """Refuse to bring two histories together, whichever of the three places holds the other one."""
    founded = target if target is not None and target.founded else None
    uids = {request.source: source.run_uid}
    uids |= {request.target: founded.run_uid} if founded else {}
    uids |= {"this store": lineage.run_uid} if lineage else {}
    if len(set(uids.values())) > 1:
        named = ", ".join(f"{place} has run_uid {uid}" for place, uid in uids.items())
        raise TrustFailure(
            f"one name, several runs: {named}; they are never mixed",
            hint="copy to a tier of another prefix, or from a configuration whose `run` and `store` are that run's",
        )
    attempts: dict[str, Sequence[Attempt]] = {request.source: source.attempts}
    attempts |= {request.target: founded.attempts} if founded else {}
    attempts |= {"this store": (Attempt(number=lineage.attempt, id=lineage.attempt_id),)} if lineage else {}
    forks = find_forks(attempts)
    if forks:
        raise TrustFailure(
            f"the run forked: {'; '.join(map(str, forks))}",
            hint="keep one line with `ckptier restore --generation ID`; nothing was copied",
        )


def _in_whose_name(request: CopyRequest, source: LogState, lineage: Lineage | None) -> tuple[Descent, bool]:
    """Return the descent to write under: this store's, or without one the newest that the source knows."""
    newest = max(source.attempts, key=lambda attempt: attempt.number)
    if lineage is None:
        return Descent(run_uid=source.run_uid, attempt=newest.number, attempt_id=newest.id), True
    if lineage.attempt < newest.number:
        raise Fenced(
            f"{request.source} has gone on to attempt {newest.number}, this store is at attempt {lineage.attempt}",
            hint="`ckptier restore` takes the run up here; to copy only, let `store` name another, empty folder",
        )
    return Descent(run_uid=lineage.run_uid, attempt=lineage.attempt, attempt_id=lineage.attempt_id), False
