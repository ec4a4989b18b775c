"""A log as read at one moment, with what is damaged in it."""

from dataclasses import dataclass, replace

from replicate import canonical
from replicate.log.bodies import Commit, Retire
from replicate.log.entry import NO_ENTRY, Entry
from replicate.log.folding import Verdict, fold
from replicate.log.state import LiveCommit, LogState


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A slot that cannot be read, and why."""

    slot: int
    reason: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """A log as read at one moment.

    ``next_slot`` is where an entry would be appended and ``last_sha256`` what it would
    chain to.  ``damaged`` slots forbid appending; ``refused`` entries broke a rule and
    count for nothing.  ``first_slot`` is where reading began.
    """

    state: LogState | None
    next_slot: int = 0
    last_sha256: str = NO_ENTRY
    first_slot: int = 0
    damaged: tuple[Damage, ...] = ()
    refused: tuple[tuple[int, Verdict], ...] = ()

    @property
    def live(self) -> tuple[LiveCommit, ...]:
        """Live commits, newest first."""
        return tuple(sorted(self.state.live, key=lambda commit: commit.id, reverse=True)) if self.state else ()

    def extended(self, entry: Entry, data: bytes) -> "LogView":
        """Return the view after one more entry."""
        state, verdict = fold(self._onto(entry), entry)
        return replace(
            self,
            state=state if verdict is Verdict.APPLIED else self.state,
            next_slot=entry.slot + 1,
            last_sha256=canonical.sha256(data),
            refused=self.refused if verdict is Verdict.APPLIED else (*self.refused, (entry.slot, verdict)),
        )

    def _onto(self, entry: Entry) -> LogState | None:
        """Return the state to fold an entry onto.

        A commit of a term that no readable claim opened, after a damaged slot, proves that
        the claim stood there: without this, one damaged claim would hide all that follows.
        """
        state = self.state
        implies = self.damaged and isinstance(entry.body, Commit | Retire)
        if not implies or (state is not None and (entry.run_uid != state.run_uid or entry.term <= state.term)):
            return state
        if state is None:
            return LogState(run_uid=entry.run_uid, term=entry.term, writer="", claim_nonce="")
        return state.model_copy(update={"term": entry.term, "writer": "", "claim_nonce": ""})
