"""Who may write: the table of decisions, and that nobody takes a term back by himself."""

import pytest
from core.builders import FIRST, RUN_UID, SECOND

from replicate.log import Attempt, LogState
from replicate.terms import COPYING, Descent, Standing, decide_term, decide_visiting_term
from replicate.tracker import HeldTerm

THIRD = Descent(run_uid=RUN_UID, attempt=3, attempt_id="attempt-three")
STRANGER = Descent(run_uid="another", attempt=1, attempt_id="attempt-one-of-another-run")
FORK = Descent(run_uid=RUN_UID, attempt=1, attempt_id="attempt-one-elsewhere")


def log(term: int, nonce: str, *descents: Descent) -> LogState:
    attempts = tuple(Attempt(number=descent.attempt, id=descent.attempt_id) for descent in descents)
    return LogState(run_uid=RUN_UID, term=term, writer="somebody", claim_nonce=nonce, attempts=attempts)


def held(term: int, nonce: str, descent: Descent, fenced: str | None = None) -> HeldTerm:
    return HeldTerm(term=term, claim_nonce=nonce, attempt_id=descent.attempt_id, fenced=fenced)


TABLE: dict[str, tuple[LogState | None, HeldTerm | None, Descent, Standing]] = {
    "empty log": (None, None, FIRST, Standing.MAY_CLAIM),
    "empty log, term held before": (None, held(1, "n", FIRST), FIRST, Standing.MAY_CLAIM),
    "restart with the same tracker": (log(1, "n", FIRST), held(1, "n", FIRST), FIRST, Standing.HOLDS),
    "lost tracker, same attempt": (log(1, "n", FIRST), None, FIRST, Standing.MAY_CLAIM),
    "same term, other claim": (log(1, "other", FIRST), held(1, "n", FIRST), FIRST, Standing.FENCED),
    "overtaken within the attempt": (log(2, "m", FIRST), held(1, "n", FIRST), FIRST, Standing.FENCED),
    "overtaken by a restore": (log(2, "m", FIRST, SECOND), held(1, "n", FIRST), FIRST, Standing.FENCED),
    "overtaken, and its tracker lost": (log(2, "m", FIRST, SECOND), None, FIRST, Standing.FENCED),
    "fenced before": (log(2, "m", FIRST), held(1, "n", FIRST, "told"), FIRST, Standing.FENCED),
    "restored elsewhere": (log(1, "n", FIRST), None, SECOND, Standing.MAY_CLAIM),
    "restored on the machine that held": (log(1, "n", FIRST), held(1, "n", FIRST), SECOND, Standing.HOLDS),
    "restored after being fenced": (log(2, "m", FIRST, SECOND), held(1, "n", FIRST, "told"), THIRD, Standing.MAY_CLAIM),
    "fork": (log(1, "n", FIRST), None, FORK, Standing.FORKED),
    "fork of an old number": (log(2, "n", FIRST, SECOND), None, FORK, Standing.FORKED),
    "another run claimed and never committed": (log(1, "n", FIRST), None, STRANGER, Standing.MAY_CLAIM),
    "another run took the name first": (log(2, "m", FIRST), held(1, "n", STRANGER), STRANGER, Standing.FENCED),
    "both forks in the log": (log(2, "n", FIRST, FORK), None, FORK, Standing.MAY_CLAIM),
}


@pytest.mark.parametrize("case", TABLE)
def test_decision(case: str) -> None:
    state, holding, descent, standing = TABLE[case]
    decision = decide_term(state, holding, descent)
    assert decision.standing is standing
    assert decision.reason


def test_fork_names_both_ids() -> None:
    reason = decide_term(log(1, "n", FIRST), None, FORK).reason
    assert FIRST.attempt_id in reason
    assert FORK.attempt_id in reason


def test_fenced_store_stays_out_whatever_the_term_becomes() -> None:
    """No ping-pong under Restart=always: only a new attempt lifts it."""
    for term in range(2, 6):
        state = log(term, f"claim-{term}", FIRST, SECOND)
        assert decide_term(state, held(1, "n", FIRST, "told"), FIRST).standing is Standing.FENCED
        assert decide_term(log(term, "claim", FIRST), held(1, "n", FIRST), FIRST).standing is Standing.FENCED


def test_reason_of_the_first_fencing_is_kept() -> None:
    decision = decide_term(log(3, "x", FIRST), held(1, "n", FIRST, "term 2 was claimed by two"), FIRST)
    assert decision.reason == "term 2 was claimed by two"


def by(writer: str, state: LogState) -> LogState:
    return state.model_copy(update={"writer": writer})


VISITS: dict[str, tuple[LogState | None, HeldTerm | None, Standing]] = {
    "empty log": (None, None, Standing.MAY_CLAIM),
    "it holds the term": (log(1, "n", SECOND), held(1, "n", SECOND), Standing.HOLDS),
    "a store of the same attempt writes there": (log(1, "n", SECOND), None, Standing.FENCED),
    "that store claimed and has committed nothing yet": (log(1, "n", FIRST, SECOND), None, Standing.FENCED),
    "the attempt that wrote there is over": (log(4, "n", FIRST), None, Standing.MAY_CLAIM),
    "the log has gone on": (log(4, "n", SECOND, THIRD), None, Standing.FENCED),
    "another copy was there": (by(f"{COPYING}host:1", log(3, "n", SECOND)), None, Standing.MAY_CLAIM),
    "another copy took its term": (by(f"{COPYING}host:1", log(3, "n", SECOND)), held(1, "m", SECOND), Standing.FENCED),
    "a store took its term": (log(3, "n", SECOND), held(1, "m", SECOND), Standing.FENCED),
}


@pytest.mark.parametrize("case", VISITS)
def test_a_visitor_takes_no_term_from_a_store_of_the_same_attempt(case: str) -> None:
    """It writes in the name of SECOND, which may be training elsewhere at this moment."""
    state, holding, standing = VISITS[case]
    assert decide_visiting_term(state, holding, SECOND).standing is standing
    assert decide_visiting_term(state, holding, SECOND).reason


def test_a_visitor_from_another_fork_is_told_so() -> None:
    assert decide_visiting_term(log(1, "n", FIRST), None, FORK).standing is Standing.FORKED
