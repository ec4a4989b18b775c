"""Adding entries up; pure.  An entry that breaks a rule changes nothing and is named by its verdict."""

from collections.abc import Callable
from enum import StrEnum
from typing import cast

from replicate.errors import UsageError
from replicate.layout import GenerationId, RemoteRun
from replicate.log.bodies import Body, Claim, Commit, Pin, Retire, Unpin, Void
from replicate.log.entry import Entry
from replicate.log.state import Attempt, LiveCommit, LogState, Retired


class Verdict(StrEnum):
    """What folding made of an entry."""

    APPLIED = "applied"
    STALE_TERM = "stale-term"
    FOREIGN_PREFIX = "foreign-prefix"
    UNRELATED = "unrelated"
    REPEATED = "repeated"
    PINNED = "pinned"


def fold(state: LogState | None, entry: Entry) -> tuple[LogState | None, Verdict]:
    """Apply one entry.  An entry that breaks a rule changes nothing and is named by the verdict."""
    if state is None:
        return _first(entry)
    refusal = _refusal(state, entry)
    if refusal is not None:
        return state, refusal
    return _APPLY[type(entry.body)](state, entry), Verdict.APPLIED


def _refusal(state: LogState, entry: Entry) -> Verdict | None:
    """Return the rule that an entry breaks, if any.  Pins need no term; a claim has to raise it."""
    body = entry.body
    if entry.run_uid != state.run_uid and (state.founded or not isinstance(body, Claim)):
        return Verdict.UNRELATED
    if isinstance(body, Claim) and entry.term <= state.term:
        return Verdict.STALE_TERM
    if isinstance(body, Commit | Retire | Void) and entry.term != state.term:
        return Verdict.STALE_TERM
    if isinstance(body, Commit) and not _of_its_term(entry, body):
        return Verdict.FOREIGN_PREFIX
    return _standing_refusal(state, body)


def _of_its_term(entry: Entry, body: Commit) -> bool:
    """Whether a commit names a prefix of the entry's own term; one that was adopted, of that or an earlier one."""
    if not body.adopted:
        return f".t{entry.term}-" in body.manifest_key
    term = _prefix_term(entry, body)
    return term is not None and term <= entry.term


def _prefix_term(entry: Entry, body: Commit) -> int | None:
    """Return the term of the prefix that a commit names; None where that is none of the generation's."""
    prefix = RemoteRun.of(entry.run).prefix_of(body.manifest_key)
    return prefix.term if prefix is not None and str(prefix.generation) == body.generation else None


def _standing_refusal(state: LogState, body: Body) -> Verdict | None:
    """Return the rule that an entry of the right term breaks because of what stands."""
    if isinstance(body, Commit) and state.find(body.generation):
        return Verdict.REPEATED
    pinned = isinstance(body, Retire) and not body.damaged and body.generation in state.pins
    if pinned and isinstance(body, Retire) and _taken_back(state, body):
        return Verdict.PINNED
    return None


def _taken_back(state: LogState, body: Retire) -> LiveCommit | None:
    """Return the live commit that a retirement means: both the generation and the manifest have to be its own."""
    found = state.find(body.generation)
    return found if found is not None and found.manifest_key == body.manifest_key else None


def _first(entry: Entry) -> tuple[LogState | None, Verdict]:
    if not isinstance(entry.body, Claim):
        return None, Verdict.STALE_TERM
    state = LogState(run_uid=entry.run_uid, term=0, writer="", claim_nonce="")
    return _claimed(state, entry), Verdict.APPLIED


def _claimed(state: LogState, entry: Entry) -> LogState:
    claim = cast("Claim", entry.body)
    if entry.run_uid != state.run_uid:
        state = LogState(run_uid=entry.run_uid, term=state.term, writer="", claim_nonce="")
    return state.model_copy(
        update={
            "term": entry.term,
            "writer": claim.writer,
            "claim_nonce": entry.nonce,
            "attempts": with_attempt(state, entry),
        }
    )


def _committed(state: LogState, entry: Entry) -> LogState:
    commit = cast("Commit", entry.body)
    term = _prefix_term(entry, commit) if commit.adopted else None
    live = LiveCommit(
        generation=commit.generation,
        parent=commit.parent,
        slot=entry.slot,
        term=entry.term if term is None else term,
        manifest_key=commit.manifest_key,
        manifest_size=commit.manifest_size,
        manifest_sha256=commit.manifest_sha256,
        total_bytes=commit.total_bytes,
        objects=commit.objects,
        at=entry.at,
    )
    return state.with_commit(live).model_copy(update={"attempts": with_attempt(state, entry)})


def _retired(state: LogState, entry: Entry) -> LogState:
    body = cast("Retire", entry.body)
    swept = frozenset(body.swept)
    retired = tuple(one for one in state.retired if one.manifest_key not in swept)
    found = _taken_back(state, body)
    if found is None:
        return state.model_copy(update={"retired": retired})
    gone = Retired(
        generation=found.generation,
        manifest_key=found.manifest_key,
        slot=entry.slot,
        total_bytes=found.total_bytes,
        objects=found.objects,
        reason=body.reason,
        at=entry.at,
        damaged=body.damaged,
    )
    return state.without(found).model_copy(update={"retired": (*retired, gone)})


def _pinned(state: LogState, entry: Entry) -> LogState:
    generation = cast("Pin", entry.body).generation
    return state.model_copy(update={"pins": tuple(sorted({*state.pins, generation}))})


def _unpinned(state: LogState, entry: Entry) -> LogState:
    generation = cast("Unpin", entry.body).generation
    return state.model_copy(update={"pins": tuple(pin for pin in state.pins if pin != generation)})


def _unchanged(state: LogState, _entry: Entry) -> LogState:
    return state


_APPLY: dict[type, Callable[[LogState, Entry], LogState]] = {
    Claim: _claimed,
    Commit: _committed,
    Retire: _retired,
    Pin: _pinned,
    Unpin: _unpinned,
    Void: _unchanged,
}


def with_attempt(state: LogState, entry: Entry) -> tuple[Attempt, ...]:
    """Return the attempts that a log knows after an entry of one of them."""
    start = _start_of(entry)
    for index, known in enumerate(state.attempts):
        if (known.number, known.id) == (entry.attempt, entry.attempt_id):
            if known.start is not None or start is None:
                return state.attempts
            told = known.model_copy(update={"start": start})
            return (*state.attempts[:index], told, *state.attempts[index + 1 :])
    return (*state.attempts, Attempt(number=entry.attempt, id=entry.attempt_id, start=start))


def _start_of(entry: Entry) -> str | None:
    """Return what an entry says of where its attempt began: a claim does, and a commit whose parent is of another."""
    if isinstance(entry.body, Claim):
        return entry.body.start
    parent = entry.body.parent if isinstance(entry.body, Commit) else None
    try:
        return parent if parent and GenerationId.parse(parent).attempt < entry.attempt else None
    except UsageError:
        return None
