"""Which generation to restore, and from where: a decision over values, with its reasons.

Nothing here asks a tier or the disk.  Newest is the highest (attempt, sequence); hints
play no part.  What cannot be decided safely is an error with the exit code of its kind:
an unanswered tier is not an empty one, and two histories are never merged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    ConfigInvalid,
    Denied,
    IntegrityFailure,
    NothingFound,
    TrustFailure,
    Unreachable,
    UsageError,
)
from replicate.forks import find_forks
from replicate.layout import GenerationId
from replicate.log import Attempt, LiveCommit, LogState, LogView, Verdict
from replicate.restore.freshness import Freshness
from replicate.restore.refusals import anchored, refuse_old, refuse_untrusted, young_enough

LOCAL = "local"
"""Name of the store itself among the places that a generation may come from."""


class Outcome(StrEnum):
    """What a plan comes to."""

    RESTORE = "restore"
    ALREADY_HERE = "already-here"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """What is asked for.

    ``generation`` None means the newest.  ``to`` None means into the store.  ``accept_older``
    allows tiers that do not answer, ``strict`` forbids falling back, ``if_absent`` is content
    with what the store has, and ``fresh_ok`` with a proof that there is nothing.  ``paths``
    are shell patterns over paths, for a part of the files, and ``fresh`` what is known of the newest.
    ``spread`` reads from every tier that has the generation at once; without it, ``near`` names the tiers
    that are read before the others: volumes above all, of which reading costs no egress.
    """

    generation: GenerationId | None = None
    to: Path | None = None
    tier: str | None = None
    accept_older: bool = False
    strict: bool = False
    if_absent: bool = False
    fresh_ok: bool = False
    paths: tuple[str, ...] = ()
    spread: bool = False
    near: frozenset[str] = frozenset()
    fresh: Freshness = field(default_factory=Freshness)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAnswer:
    """What a tier said when asked for its log: a view, or why there is none.

    ``stray`` is a key of this run that lies there although the log is empty.  ``rollback``: the view is not that
    of the log which this machine has seen.  ``anchored``: it holds an anchor that was asked for.  ``written`` is
    when the store wrote the newest commit, where that was asked.
    """

    tier: str
    view: LogView | None = None
    failure: CkptierError | None = None
    stray: str | None = None
    rollback: TrustFailure | None = None
    anchored: bool = False
    written: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGeneration:
    """A sealed generation of the store; ``fault`` says why it does not count (quarantined, unreadable)."""

    id: GenerationId
    total_bytes: int
    objects: int
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the store knows: its lineage (``run_uid`` None where it has none) and generations.

    ``remembered`` holds tiers with the last log slot that this machine saw committed there.
    """

    run_uid: str | None = None
    attempt: int = 0
    sequence: int = 0
    attempts: tuple[Attempt, ...] = ()
    generations: tuple[HeldGeneration, ...] = ()
    remembered: tuple[tuple[str, int], ...] = ()

    def find(self, generation: GenerationId) -> HeldGeneration | None:
        """Return a generation that is here and counts."""
        return next((held for held in self.generations if held.id == generation and held.fault is None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A live commit of a generation on a tier."""

    tier: str
    commit: LiveCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A generation to try; ``local``: the store has it.

    The tiers that committed it are in the order in which they are read: near ones first, else as declared.
    """

    generation: GenerationId
    replicas: tuple[Replica, ...]
    local: bool
    total_bytes: int
    objects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Something that was passed over, where, and why; ``generation`` None where it is not known which."""

    generation: GenerationId | None
    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Candidates, best first, and what to remember when one is taken.

    ``hidden`` names tiers whose damaged log may hide a newer generation than they show.
    """

    outcome: Outcome
    run_uid: str | None
    candidates: tuple[Candidate, ...]
    skipped: tuple[Skip, ...]
    seen_attempt: int
    seen_sequence: int
    hidden: tuple[str, ...]
    warnings: tuple[str, ...]


def plan_restore(
    request: RestoreRequest, answers: Sequence[TierAnswer], held: Held, *, now: datetime | None = None
) -> RestorePlan:
    """Decide what to restore; raises the CkptierError whose exit code tells why nothing can be.

    ``now`` is needed where the request says how old the newest commit may be.
    """
    check_request(request, [answer.tier for answer in answers])
    run_uid = _one_history(request, answers, held)
    related = held if held.run_uid in (None, run_uid) else Held()
    warnings = [*_forks(request, answers, related), *_shortened(request, answers, related)]
    selected = anchored(request, [answer for answer in answers if request.tier in (None, answer.tier)])
    counted = _counted(request, held, run_uid)
    candidates = _candidates(request, selected, counted)
    outcome = _decide(request, selected, candidates, counted)
    if outcome is Outcome.RESTORE and now is not None:
        refuse_old(request, selected, now)
        young = tuple(young_enough(request, candidates, now))
        if len(young) < len(candidates):
            warnings.append(
                f"{len(candidates) - len(young)} generations are older than was asked for, and do not count"
            )
        candidates = young
    return RestorePlan(
        outcome=outcome,
        run_uid=run_uid,
        candidates=candidates if outcome is Outcome.RESTORE else candidates[:1],
        skipped=_skips(selected, held),
        seen_attempt=max([held.attempt, *(view.state.highest_attempt for view in _views(answers) if view.state)]),
        seen_sequence=max([held.sequence, *(view.state.highest_sequence for view in _views(answers) if view.state)]),
        hidden=tuple(answer.tier for answer in selected if _may_hide(answer)),
        warnings=(*warnings, *_warnings(answers)),
    )


def check_request(request: RestoreRequest, tiers: Sequence[str]) -> None:
    """Refuse what cannot be meant."""
    if request.tier is not None and request.tier not in tiers:
        raise ConfigInvalid(
            f"no tier is called {request.tier!r}", hint=f"configured tiers: {', '.join(tiers) or 'none'}"
        )
    if request.to is not None and request.if_absent:
        raise UsageError(
            "--if-absent asks what the store has, and --to does not restore into the store",
            hint="leave one of the two out",
        )
    if request.paths and request.to is None:
        raise UsageError(
            "a part of a generation cannot go into the store: it would not be that generation",
            hint="name a folder for the files with --to DIR",
        )


def _views(answers: Sequence[TierAnswer]) -> list[LogView]:
    return [answer.view for answer in answers if answer.view is not None]


def _one_history(request: RestoreRequest, answers: Sequence[TierAnswer], held: Held) -> str | None:
    """Return the run_uid that all who answered agree on, None where nobody has one."""
    uids = {answer.tier: state.run_uid for answer in answers if (state := _founded(answer))}
    if len(set(uids.values())) > 1:
        named = ", ".join(f"{tier} has {uid}" for tier, uid in uids.items())
        raise TrustFailure(
            f"the tiers hold unrelated runs under one name: {named}",
            hint="restore from one of them with --to DIR from a config without the other, or give the runs two names",
        )
    uid = next(iter(uids.values()), None)
    if request.to is None and uid and held.run_uid and held.run_uid != uid:
        raise TrustFailure(
            f"this store belongs to another run (run_uid {held.run_uid}) than {', '.join(uids)} (run_uid {uid})",
            hint="restore with --to DIR, or into an empty store: name another `store` in ckptier.toml",
        )
    return uid or held.run_uid


def _founded(answer: TierAnswer) -> LogState | None:
    """Return the state of a log that ever committed: claims alone are nobody's history."""
    state = answer.view.state if answer.view else None
    return state if state is not None and state.founded else None


def _forks(request: RestoreRequest, answers: Sequence[TierAnswer], held: Held) -> list[str]:
    """Refuse, or with an explicit generation report, two attempts of one number."""
    known: dict[str, Sequence[Attempt]] = {LOCAL: held.attempts}
    known |= {answer.tier: state.attempts for answer in answers if (state := _founded(answer))}
    words = [str(fork) for fork in find_forks(known)]
    if words and request.generation is None:
        raise TrustFailure(
            f"the run forked: {'; '.join(words)}",
            hint="choose the line to continue with --generation ID; `ckptier list` shows both",
        )
    return [f"the run forked: {word}" for word in words]


def _shortened(request: RestoreRequest, answers: Sequence[TierAnswer], held: Held) -> list[str]:
    """Refuse, or with an explicit generation report, a log that ends before a slot that was seen."""
    remembered = dict(held.remembered)
    words = [
        f"the log of {answer.tier} ends before slot {remembered[answer.tier]}, which this machine saw committed"
        for answer in answers
        if request.tier in (None, answer.tier)
        and answer.view is not None
        and answer.rollback is None
        and answer.view.next_slot <= remembered.get(answer.tier, -1)
    ]
    words += [one.rollback.message for one in answers if one.rollback and request.tier in (None, one.tier)]
    if words and request.generation is None and not request.fresh.allow_rollback:
        raise TrustFailure(
            f"{'; '.join(words)}: entries were removed, or an old state was put back",
            hint="name the generation to restore with --generation ID, or restore from another tier with --tier; "
            "--unsafe-allow-rollback takes the newest that is left",
        )
    return words


def _counted(request: RestoreRequest, held: Held, run_uid: str | None) -> Held:
    """Return the part of the store that may serve this request.

    With --tier the bytes are wanted from there; another run's generations never serve.
    """
    related = held.run_uid in (None, run_uid)
    return held if related and request.tier is None else Held()


def _candidates(request: RestoreRequest, answers: Sequence[TierAnswer], held: Held) -> tuple[Candidate, ...]:
    replicas: dict[GenerationId, list[Replica]] = {}
    for answer in sorted(answers, key=lambda answer: answer.tier not in request.near):
        for commit in answer.view.live if answer.view else ():
            replicas.setdefault(commit.id, []).append(Replica(tier=answer.tier, commit=commit))
    here = {generation.id: generation for generation in held.generations if generation.fault is None}
    wanted = {*replicas, *here} if request.generation is None else {request.generation} & {*replicas, *here}
    wanted = {generation for generation in wanted if request.fresh.reaches(generation)}
    return tuple(
        _candidate(generation, replicas.get(generation, []), here.get(generation))
        for generation in sorted(wanted, reverse=True)
    )


def _candidate(generation: GenerationId, replicas: list[Replica], here: HeldGeneration | None) -> Candidate:
    size = here.total_bytes if here else replicas[0].commit.total_bytes
    objects = here.objects if here else replicas[0].commit.objects
    return Candidate(
        generation=generation,
        replicas=tuple(replicas),
        local=here is not None,
        total_bytes=size,
        objects=objects,
    )


def _decide(
    request: RestoreRequest, answers: Sequence[TierAnswer], candidates: tuple[Candidate, ...], held: Held
) -> Outcome:
    failures = [answer for answer in answers if answer.failure is not None]
    wanted = request.generation
    if wanted is not None and request.if_absent and held.find(wanted):
        return Outcome.ALREADY_HERE
    if failures and not request.accept_older and (wanted is None or not candidates):
        raise _unanswered(failures, candidates, wanted)
    if not candidates:
        return _nothing(request, answers, held)
    if request.if_absent and candidates[0].local:
        return Outcome.ALREADY_HERE
    return Outcome.RESTORE


def _unanswered(
    failures: Sequence[TierAnswer], candidates: tuple[Candidate, ...], wanted: GenerationId | None
) -> CkptierError:
    """Return the error for tiers that did not answer: Denied or CapabilityMissing where all agree, else Unreachable."""
    causes = [answer.failure for answer in failures if answer.failure is not None]
    kinds = {type(cause) for cause in causes}
    kind = kinds.pop() if len(kinds) == 1 and kinds <= {Denied, CapabilityMissing} else Unreachable
    words = "; ".join(
        f"{answer.tier}: {cause.message.removeprefix(f'{answer.tier}: ')}"
        for answer, cause in zip(failures, causes, strict=True)
    )
    unknown = f"whether it holds {wanted}" if wanted else "whether it holds a newer generation"
    hint = causes[0].hint or "check the endpoint with `ckptier check`, or try again later"
    if candidates and wanted is None:
        hint += f"; or take the newest that is known, {candidates[0].generation}, with --accept-older"
    return kind(f"a tier did not answer ({words}), so {unknown} is unknown", hint=hint)


def _nothing(request: RestoreRequest, answers: Sequence[TierAnswer], held: Held) -> Outcome:
    """Nothing can be restored: prove that there is nothing, or say what stands in the way."""
    refuse_untrusted(request, answers)
    if request.generation is not None:
        raise NothingFound(
            f"{request.generation} is in none of the places that answered",
            hint="`ckptier list` shows what there is; it may have been retired",
        )
    for answer in answers:
        damaged = (*answer.view.damaged, *answer.view.voided) if answer.view else ()
        if damaged or answer.stray:
            what = f"log slot {damaged[0].slot} is damaged" if damaged else f"there is {answer.stray} but no log"
            raise IntegrityFailure(
                f"{answer.tier}: {what}: this is not a fresh start",
                hint="do not start afresh under this name: bring the log back (bucket versions, a backup)",
            )
    unanswered = [answer for answer in answers if answer.failure is not None]
    if unanswered:
        raise _unanswered(unanswered, (), None)
    unusable = next((one for one in held.generations if one.fault is not None), None)
    if unusable is not None:
        raise IntegrityFailure(
            f"the store holds {unusable.id}, which cannot be used ({unusable.fault}), and no tier has any: "
            "this is not a fresh start",
            hint="`ckptier verify --tier local --read-data 100%` says what is hurt; do not start afresh in this store",
        )
    if request.fresh_ok:
        return Outcome.FRESH
    raise NothingFound(
        "no generation exists: not in the store, and every tier answered that it has none",
        hint="check `run` and the tiers' urls in ckptier.toml; for a first start, use --if-absent --fresh-ok",
    )


def _may_hide(answer: TierAnswer) -> bool:
    """Tell whether a damaged slot comes after the newest commit that the tier's log shows."""
    view = answer.view
    if view is None or not view.damaged:
        return False
    shown = view.state.newest if view.state else None
    return view.damaged[-1].slot > (shown.slot if shown else -1)


def _skips(answers: Sequence[TierAnswer], held: Held) -> tuple[Skip, ...]:
    skips = [
        Skip(generation=generation.id, place=LOCAL, reason=generation.fault)
        for generation in held.generations
        if generation.fault is not None
    ]
    for answer in answers:
        if answer.failure is not None:
            skips.append(Skip(generation=None, place=answer.tier, reason=f"did not answer: {answer.failure.message}"))
        for damage in answer.view.damaged if answer.view else ():
            reason = f"log slot {damage.slot}: {damage.reason}; what it committed, if anything, cannot be seen"
            skips.append(Skip(generation=None, place=answer.tier, reason=reason))
    return tuple(skips)


def _warnings(answers: Sequence[TierAnswer]) -> list[str]:
    warnings = [
        f"{answer.tier} did not answer: attempts that it knows of are not counted"
        for answer in answers
        if answer.failure is not None
    ]
    for answer in answers:
        refused = answer.view.refused if answer.view else ()
        foreign = [str(slot) for slot, verdict in refused if verdict is Verdict.UNRELATED]
        if foreign:
            warnings.append(f"{answer.tier}: another run wrote to this log (slots {', '.join(foreign)})")
    return warnings
