"""A log as read at one moment, with what is damaged in it."""

from dataclasses import dataclass, replace

from replicate import canonical
from replicate.log.bodies import Claim, Commit, Retire, Void
from replicate.log.entry import NO_ENTRY, Entry
from replicate.log.folding import Verdict, fold, with_attempt
from replicate.log.state import LiveCommit, LogState


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A slot that cannot be read, and why.

    ``trusted`` False: nobody vouches for it who is trusted.  ``missing``: there is nothing, below a slot that is there.
    """

    slot: int
    reason: str
    sha256: str
    trusted: bool = True
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """A log as read at one moment.

    ``next_slot`` is where an entry would be appended and ``last_sha256`` what it would
    chain to.  ``damaged`` slots forbid appending; ``voided`` ones were damaged, and a void
    entry names the very bytes that are there; ``refused`` entries broke a rule and count for
    nothing.  ``first_slot`` is where reading began, ``claim_slot`` where the last claim
    stands that was read.  ``disputed`` are slots, each with a digest, that a void entry
    names although nothing was found damaged there; entries in ``given_up`` slots count for
    nothing.
    """

    state: LogState | None
    next_slot: int = 0
    last_sha256: str = NO_ENTRY
    first_slot: int = 0
    claim_slot: int | None = None
    damaged: tuple[Damage, ...] = ()
    voided: tuple[Damage, ...] = ()
    refused: tuple[tuple[int, Verdict], ...] = ()
    disputed: tuple[tuple[int, str], ...] = ()
    given_up: frozenset[int] = frozenset()

    @property
    def live(self) -> tuple[LiveCommit, ...]:
        """Live commits, newest first."""
        return tuple(sorted(self.state.live, key=lambda commit: commit.id, reverse=True)) if self.state else ()

    def extended(self, entry: Entry, data: bytes) -> "LogView":
        """Return the view after one more entry."""
        before = self._begun_at(entry)
        after = replace(before, next_slot=entry.slot + 1, last_sha256=canonical.sha256(data))
        if isinstance(entry.body, Void) and entry.body.slot == entry.slot:
            reason = "the entry that stood here is lost; a repair has filled its place"
            return after.hurt_by(Damage(slot=entry.slot, reason=reason, sha256=after.last_sha256))
        state, verdict = fold(_state_under(before, entry), entry)
        if verdict is not Verdict.APPLIED:
            return replace(after, refused=(*before.refused, (entry.slot, verdict)))
        after = replace(after, state=state)
        match entry.body:
            case Claim():
                return replace(after, claim_slot=entry.slot)
            case Void():
                return _acknowledging(after, entry.body, entry.slot)
        return after

    def hurt_by(self, damage: Damage) -> "LogView":
        """Return the view with one more damaged slot."""
        return replace(self, damaged=(*self.damaged, damage))

    def tolerates_break_at(self, slot: int) -> bool:
        """Whether an entry need not chain to the slot before it, since that one is damaged."""
        return bool(self.damaged) and self.damaged[-1].slot == slot - 1

    def _begun_at(self, entry: Entry) -> "LogView":
        """Return the view that a reader has who begins at a slot with folded state, where slots before it are damaged.

        Its writer knew what stood in them, so that nothing is hidden any more, and all readers agree.
        """
        if not self.damaged or entry.state is None:
            return self
        return replace(
            self, state=entry.state, first_slot=entry.slot, claim_slot=None, damaged=(), voided=(), disputed=()
        )


def _acknowledging(view: LogView, void: Void, slot: int) -> LogView:
    """Return the view after a void entry in ``slot``: bytes that it names count no more as damage.

    A gap cannot be acknowledged: somebody's late entry could still come to stand there.
    """
    found = [one for one in view.damaged if one.slot == void.slot]
    settled = tuple(one for one in found if not one.missing and one.sha256 == void.found_sha256)
    if settled:
        left = tuple(one for one in view.damaged if one not in settled)
        return replace(view, damaged=left, voided=(*view.voided, *settled))
    known = found or any(one.slot == void.slot for one in view.voided)
    if known or not view.first_slot <= void.slot < slot:
        return view
    return replace(view, disputed=(*view.disputed, (void.slot, void.found_sha256)))


def _state_under(view: LogView, entry: Entry) -> LogState | None:
    """Return the state to fold an entry onto.

    An entry of a term that no readable claim opened, after a damaged slot, proves that
    the claim stood there: without this, one damaged claim would hide all that follows.
    """
    state = view.state
    implies = view.damaged and isinstance(entry.body, Commit | Retire | Void)
    if not implies or (state is not None and (entry.run_uid != state.run_uid or entry.term <= state.term)):
        return state
    if state is None:
        state = LogState(run_uid=entry.run_uid, term=entry.term, writer="", claim_nonce="")
    attempts = with_attempt(state, entry)
    return state.model_copy(update={"term": entry.term, "writer": "", "claim_nonce": "", "attempts": attempts})
