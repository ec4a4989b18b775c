"""Making a damaged log one that can be appended to.

First gaps are filled, each by a create in the very slot, so that whatever a stalled writer may
still send there loses.  Then the term is claimed anew, above every term that a lost claim could
have had: its writer, who knows of no damage, is shut out and told.  Then a void entry for each
damaged slot says that exactly those bytes are known.
"""

from dataclasses import dataclass, field

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.layout import new_nonce
from replicate.log import NO_ENTRY, Body, Damage, Entry, LogView, Void
from replicate.logbook import Logbook, SlotTaken
from replicate.logwriter import LogWriter
from replicate.mending.deciding import highest_lost_term, needs_claim
from replicate.mending.steps import Kind, Step
from replicate.terms import Descent, decide_mending_term
from replicate.tracker import Seen
from tiers.clock import rfc3339
from tiers.errors import ObjectNotFound, TierUnavailable

MAX_ROUNDS = 16
"""How often the log is read anew because it changed under the repair."""
REASON = "repair: the log was damaged"


@dataclass(slots=True, kw_only=True)
class LogMender:
    """Mends one log, which ``log.look`` has read."""

    log: LogWriter
    descent: Descent
    not_there: Seen | None = None
    prefix_term: int = 0
    done: list[Step] = field(default_factory=list)

    def mend(self) -> tuple[Step, ...]:
        """Do all that is due and return it.

        Raises Fenced, TrustFailure, TierError, and IntegrityFailure where the log keeps changing.
        """
        decide = self.log.decide
        self.log.mending, self.log.decide = True, decide_mending_term
        try:
            for _ in range(MAX_ROUNDS):
                if self._round():
                    return tuple(self.done)
        finally:
            self.log.mending, self.log.decide = False, decide
        raise IntegrityFailure(
            f"{self.log.name}: the log keeps changing while it is repaired",
            hint="see that nothing else writes to it, then repair again",
        )

    def _round(self) -> bool:
        """Do what is due by the log as it was last read; whether that was all."""
        gaps = [one.slot for one in self._view.damaged if one.missing]
        if gaps:
            self._fill(gaps)
            self.log.look(self.descent)
            return False
        if self._claims():
            self._claim()
        while self._view.damaged:
            if not self._void(self._view.damaged[0]):
                self.log.look(self.descent)
                return False
        return True

    @property
    def _view(self) -> LogView:
        return self.log.view or self.log.look(self.descent)

    def _claims(self) -> bool:
        if not self._view.damaged and self.not_there is None:
            return False
        held = self.log.tracker.term(self.log.name)
        standing = self.log.decide(self.log.state, held, self.descent).standing
        return needs_claim(self._view, held, self.not_there, standing)

    def _claim(self) -> None:
        held = self.log.tracker.term(self.log.name)

        def above(view: LogView) -> int:
            return highest_lost_term(view, held, self.not_there, self.prefix_term)

        self.log.force_term(self.descent, REASON, above)
        self.done.append(Step(kind=Kind.CLAIM, slot=self._view.claim_slot, reason=REASON))

    def _fill(self, gaps: list[int]) -> None:
        """Fill gaps in order; a slot in which something has come to stand is left to the next reading."""
        book = Logbook(self.log.tier, self.log.remote)
        written: dict[int, str] = {}
        for slot in gaps:
            prev = NO_ENTRY if slot == 0 else written.get(slot - 1) or book.digest(slot - 1)
            try:
                written[slot] = canonical.sha256(_twice(book, self._filler(slot, prev)))
            except SlotTaken:
                return
            self.done.append(Step(kind=Kind.FILL, slot=slot, reason="filled for good"))

    def _filler(self, slot: int, prev: str) -> Entry:
        """Return a void entry for its own slot.  It carries no folded state, so that no reader begins there."""
        return Entry(
            format=1,
            run=self.log.remote.run,
            run_uid=self.descent.run_uid,
            slot=slot,
            term=self._view.state.term if self._view.state else 0,
            attempt=self.descent.attempt,
            attempt_id=self.descent.attempt_id,
            prev=prev,
            nonce=new_nonce(),
            at=rfc3339(self.log.clock.now()),
            body=Void(slot=slot, found_sha256=canonical.sha256(b"")),
        )

    def _void(self, damage: Damage) -> bool:
        """Acknowledge one damaged slot; False where other bytes stand there by now."""
        book = Logbook(self.log.tier, self.log.remote)

        def decide() -> tuple[int, Body] | None:
            if damage not in self._view.damaged:
                return None
            return self.log.held_term(self.descent), Void(slot=damage.slot, found_sha256=damage.sha256)

        try:
            if book.digest(damage.slot) != damage.sha256:  # it was read wrong, or changes: nothing is said of it
                return False
        except ObjectNotFound:
            return False
        entry = self.log.append_decided(self.descent, decide)
        if entry is not None:
            self.done.append(Step(kind=Kind.VOID, slot=damage.slot, reason=damage.reason))
        return damage not in self._view.damaged


def _twice(book: Logbook, entry: Entry) -> bytes:
    """Write an entry, offering the same one once more where it is not known whether it arrived."""
    try:
        return book.write(entry)
    except TierUnavailable:
        return book.write(entry)
