"""Pins: entries in a tier's log that say "never retire this", from any machine and without a term."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from replicate.layout import GenerationId, RemoteRun
from replicate.log import Body, LogState, Pin, Unpin
from replicate.logappender import LogAppender
from replicate.logbook import Logbook
from replicate.terms import Descent
from tiers.clock import Clock
from tiers.protocol import Tier


class PinOutcome(StrEnum):
    """What came of pinning, or of taking a pin back, on one tier."""

    PINNED = "pinned"
    ALREADY_PINNED = "already-pinned"
    UNPINNED = "unpinned"
    NOT_PINNED = "not-pinned"
    RETIRED = "retired"
    NOT_HERE = "not-here"


_Decide = Callable[[LogState], Body | PinOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinResult:
    """One tier's outcome; ``slot`` is that of the entry that was written now."""

    tier: str
    outcome: PinOutcome
    slot: int | None = None


def pin(
    tier: Tier, remote: RemoteRun, clock: Clock, generation: GenerationId, reason: str, *, expected: bool
) -> PinResult:
    """Pin a generation on one tier; ``expected`` pins it before it is there.  Raises TierError, IntegrityFailure."""

    def decide(state: LogState) -> Body | PinOutcome:
        if str(generation) in state.pins:
            return PinOutcome.ALREADY_PINNED
        if state.find(generation) is None and any(one.id == generation for one in state.retired):
            return PinOutcome.RETIRED
        if state.find(generation) is None and not expected:
            return PinOutcome.NOT_HERE
        return Pin(generation=str(generation), reason=reason)

    return _append(tier, remote, clock, decide, PinOutcome.PINNED)


def unpin(tier: Tier, remote: RemoteRun, clock: Clock, generation: GenerationId) -> PinResult:
    """Take a pin back on one tier; raises TierError, IntegrityFailure."""

    def decide(state: LogState) -> Body | PinOutcome:
        return Unpin(generation=str(generation)) if str(generation) in state.pins else PinOutcome.NOT_PINNED

    return _append(tier, remote, clock, decide, PinOutcome.UNPINNED)


def _append(tier: Tier, remote: RemoteRun, clock: Clock, decide: _Decide, written: PinOutcome) -> PinResult:
    """Append what is decided, decided again after each slot that another writer took."""
    log = LogAppender(tier=tier, remote=remote, clock=clock, view=Logbook(tier, remote).read())
    if log.state is None:
        return PinResult(tier=tier.name, outcome=PinOutcome.NOT_HERE)
    descent = _descent(log.state)
    outcome = written

    def again() -> tuple[int, Body] | None:
        nonlocal outcome
        assert log.state is not None
        wanted = decide(log.state)
        if isinstance(wanted, PinOutcome):
            outcome = wanted
            return None
        return log.state.term, wanted

    entry = log.append_decided(descent, again)
    return PinResult(tier=tier.name, outcome=outcome, slot=entry.slot if entry else None)


def _descent(state: LogState) -> Descent:
    """Write in the name of the newest attempt: a pin belongs to none, and its entry has to name one."""
    newest = max(state.attempts, key=lambda attempt: attempt.number)
    return Descent(run_uid=state.run_uid, attempt=newest.number, attempt_id=newest.id)
