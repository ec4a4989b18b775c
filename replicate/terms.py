"""Who may write to a log: terms, and which store may claim the next one."""

from dataclasses import dataclass
from enum import StrEnum

from replicate.log import LogState
from replicate.tracker import HeldTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """The local store's place in the run: what has to continue the log.  ``start``: what the attempt goes on from."""

    run_uid: str
    attempt: int
    attempt_id: str
    start: str | None = None


COPYING = "copy on "
"""How the writer of a claim is called that only copies: it trains nothing, so that another copy may follow it."""


class Standing(StrEnum):
    """What a store may do to a log."""

    HOLDS = "holds"
    MAY_CLAIM = "may-claim"
    FENCED = "fenced"
    FORKED = "forked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TermDecision:
    """Whether this store may write, and why.

    ``same_attempt``: what keeps it out is another writer of its own attempt, whom an operator may overrule.
    """

    standing: Standing
    reason: str
    same_attempt: bool = False


def decide_term(state: LogState | None, held: HeldTerm | None, descent: Descent) -> TermDecision:
    """Decide whether this store holds the term, may claim the next, or must stay out.

    Only a store whose line of descent continues the log may claim: its attempt is newer
    than every attempt there, or is the newest there under the same id.  A store that was
    overtaken claims again only after a restore has opened a new attempt.
    """
    if state is None:
        return TermDecision(standing=Standing.MAY_CLAIM, reason="the log is empty")
    if held is not None and not held.fenced and (held.term, held.claim_nonce) == (state.term, state.claim_nonce):
        return TermDecision(standing=Standing.HOLDS, reason=f"term {held.term} is ours")
    if state.run_uid != descent.run_uid:
        return _unfounded(state, held, descent)
    return _continuing(state, held, descent)


def _continuing(state: LogState, held: HeldTerm | None, descent: Descent) -> TermDecision:
    """Decide over the run's own log, whose term is not ours."""
    highest = state.highest_attempt
    same_number = [attempt.id for attempt in state.attempts if attempt.number == descent.attempt]
    if same_number and descent.attempt_id not in same_number:
        reason = f"attempt {descent.attempt} stands in the log as {same_number[0]} and here as {descent.attempt_id}"
        return TermDecision(standing=Standing.FORKED, reason=reason)
    if descent.attempt < highest:
        reason = f"the log has gone on to attempt {highest}, this store is at attempt {descent.attempt}"
        return TermDecision(standing=Standing.FENCED, reason=reason)
    if held is not None and held.attempt_id == descent.attempt_id:
        reason = held.fenced or f"term {state.term} was claimed by {state.writer}, ours was {held.term}"
        return TermDecision(standing=Standing.FENCED, reason=reason, same_attempt=True)
    return TermDecision(standing=Standing.MAY_CLAIM, reason=f"attempt {descent.attempt} continues the log")


def _unfounded(state: LogState, held: HeldTerm | None, descent: Descent) -> TermDecision:
    """Decide over a log in which another run claimed and never committed (a founded one is refused before).

    Its machine was lost during the first upload, or is slower than this one: whoever commits
    first has the name, and who was overtaken stays out.
    """
    if state.founded:
        return TermDecision(standing=Standing.FENCED, reason=f"run {state.run_uid} has founded this log")
    if held is not None and held.attempt_id == descent.attempt_id:
        reason = (
            held.fenced or f"run {state.run_uid} has taken this name: its term is {state.term}, ours was {held.term}"
        )
        return TermDecision(standing=Standing.FENCED, reason=reason, same_attempt=True)
    return TermDecision(standing=Standing.MAY_CLAIM, reason=f"run {state.run_uid} claimed and never committed")


def decide_takeover(state: LogState | None, held: HeldTerm | None, descent: Descent) -> TermDecision:
    """Decide for an operator who says that this store is to go on: another writer of its attempt is overruled."""
    decision = decide_term(state, held, descent)
    if not decision.same_attempt:
        return decision
    return TermDecision(standing=Standing.MAY_CLAIM, reason=decision.reason)


def decide_mending_term(state: LogState | None, held: HeldTerm | None, descent: Descent) -> TermDecision:
    """Decide for the repair of a damaged log, in which the claim of this very store may be what was lost."""
    decision = decide_term(state, held, descent)
    if state is None or held is None or held.fenced or not decision.same_attempt:
        return decision
    lost = held.term > state.term or (held.term == state.term and not state.claim_nonce)
    if not lost:
        return decision
    return TermDecision(standing=Standing.MAY_CLAIM, reason=f"the claim of term {held.term}, which is ours, is lost")


def decide_visiting_term(state: LogState | None, held: HeldTerm | None, descent: Descent) -> TermDecision:
    """Decide for a copy that writes in the name of another machine's attempt.

    It may open a log, go on with the term that it holds, and follow an attempt that is over
    or another copy.  It takes no term from a writer of the same attempt, who may be alive:
    ``decide_term`` would allow that, since to a store it could only be its own lost tracker.
    """
    decision = decide_term(state, held, descent)
    if decision.standing is not Standing.MAY_CLAIM or state is None or state.run_uid != descent.run_uid:
        return decision
    same = any(attempt.number == descent.attempt for attempt in state.attempts)
    if not same or state.writer.startswith(COPYING):
        return decision
    reason = f"{state.writer or 'an unknown writer'} holds term {state.term} of attempt {descent.attempt} there"
    return TermDecision(standing=Standing.FENCED, reason=reason)
