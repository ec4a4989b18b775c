"""Writing to one run's log on one tier: following it, holding the term, appending.

The view of the log is kept between passes, so that a writer with nothing to do asks
nothing.  The tracker is told what the log says, after it was read, and never more.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass

from replicate import canonical
from replicate.errors import CkptierError, Fenced, IntegrityFailure, TrustFailure
from replicate.layout import FOLD_EVERY, GenerationId, RemoteRun, new_nonce
from replicate.log import Body, Claim, Entry, LogState, LogView
from replicate.logbook import Logbook, SlotTaken, check_related
from replicate.terms import Descent, Standing, TermDecision, decide_term
from replicate.tracker import Completed, Seen, Tracker
from tiers.clock import Clock, rfc3339
from tiers.errors import ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Tier

MAX_SLOT_RACES = 64
HEAD_EVERY = 16
"""Slots between rewrites of the hint: a reader follows at most that many by GETs."""


def head_due(slot: int, written: int | None) -> bool:
    """Whether the hint is rewritten after ``slot``; ``written`` is what this process last put there."""
    return written is None or slot - written >= HEAD_EVERY


@dataclass(slots=True, kw_only=True)
class LogWriter:
    """The one writer's side of a log.  ``on_note`` is told what is harmless and worth showing."""

    tier: Tier
    remote: RemoteRun
    tracker: Tracker
    clock: Clock
    writer: str
    on_note: Callable[[str, str], None] = lambda _tier, _text: None
    view: LogView | None = None
    _head_slot: int | None = None

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.tier.name

    @property
    def state(self) -> LogState | None:
        """The folded state as last read; None for an empty log."""
        return self._view().state

    def refresh(self, descent: Descent | None = None) -> LogView:
        """Read what is new in the log, check that it is ours and no shorter than seen, and follow it in the tracker."""
        first = self.view is None
        view = self._book.read(self.view)
        if descent is not None:
            check_related(view, descent.run_uid, self.name)
            self._refuse_fork(view, descent)
        if first:
            self._check_not_shorter(view)
        self.view = view
        self.reconcile()
        return view

    def _refuse_fork(self, view: LogView, descent: Descent) -> None:
        """Refuse also where nothing is to be sent: the other line's generation may bear the same id as ours."""
        decision = decide_term(view.state, self.tracker.term(self.name), descent)
        if decision.standing is Standing.FORKED:
            self.refuse(decision)

    def ensure_term(self, descent: Descent) -> int:
        """Return the term held, claiming one where this store may; raises Fenced or TrustFailure."""
        for _ in range(MAX_SLOT_RACES):
            held = self.tracker.term(self.name)
            decision = decide_term(self.state, held, descent)
            if decision.standing is Standing.HOLDS and held is not None:
                self._abandon_other_terms(held.term)  # a process killed right after its claim left them
                return held.term
            self.refuse(decision)
            state = self.state
            term = state.term + 1 if state else 1
            entry = self.entry(descent, term, Claim(writer=self.writer))
            if self.append(entry) and self.state is not None and self.state.claim_nonce == entry.nonce:
                self.tracker.hold_term(self.name, term=term, claim_nonce=entry.nonce, attempt_id=descent.attempt_id)
                self._abandon_other_terms(term)
                self.hint(force=True)
                return term
        raise Fenced(f"{self.name}: the log could not be claimed: other writers keep taking its slots")

    def refuse(self, decision: TermDecision) -> None:
        """Raise what a decision against writing means; does nothing for one that allows it."""
        if decision.standing is Standing.FENCED:
            self.tracker.fence(self.name, decision.reason)
            raise Fenced(
                f"{self.name}: another writer has taken over this run: {decision.reason}",
                hint="stop this daemon; to go on from here run `ckptier restore`, which opens a new attempt",
            )
        if decision.standing is Standing.FORKED:
            raise TrustFailure(
                f"{self.name}: two lines of descent share a number: {decision.reason}",
                hint="keep the one that you want with `ckptier restore --generation ID`; nothing was written",
            )

    def append(self, entry: Entry) -> bool:
        """Create the entry in the next slot; False where another stands there, which has been read by then.

        A reply that was lost is settled by reading; where the slot is still empty the
        same entry is offered once more, since one nonce cannot be committed twice.
        """
        try:
            try:
                self.view = self._book.append(self._view(), entry)
            except TierUnavailable:
                self.view = self._book.append(self._view(), entry)
        except SlotTaken:
            self.view = self._book.read(self._view())
            self.check(entry.run_uid)
            return False
        return True

    def check(self, run_uid: str) -> None:
        """Refuse to go on where another run has founded the log meanwhile."""
        check_related(self._view(), run_uid, self.name)

    def entry(self, descent: Descent, term: int, body: Body) -> Entry:
        """Return an entry for the next slot, with the folded state where one is due."""
        view = self._view()
        folded = view.next_slot > 0 and view.next_slot % FOLD_EVERY == 0
        return Entry(
            format=1,
            run=self.remote.run,
            run_uid=descent.run_uid,
            slot=view.next_slot,
            term=term,
            attempt=descent.attempt,
            attempt_id=descent.attempt_id,
            prev=view.last_sha256,
            nonce=new_nonce(),
            at=rfc3339(self.clock.now()),
            body=body,
            state=view.state if folded else None,
        )

    def reconcile(self) -> None:
        """Make the tracker say what the log says, never more."""
        view = self._view()
        known = {item.generation: item for item in self.tracker.completed(self.name)}
        live = {commit.id: commit for commit in view.live}
        fresh = [
            Completed(
                generation=generation,
                slot=commit.slot,
                manifest_sha256=commit.manifest_sha256,
                total_bytes=commit.total_bytes,
                at=commit.at,
            )
            for generation, commit in live.items()
            if generation not in known or known[generation].slot != commit.slot
        ]
        self._refuse_clone(view, known)
        gone = [generation for generation in known if generation not in live]
        if gone:
            self.tracker.uncomplete(self.name, gone)
        seen = Seen(slot=view.next_slot - 1, sha256=view.last_sha256)
        if view.next_slot and (fresh or self.tracker.seen(self.name) != seen):
            self.tracker.complete(self.name, fresh, seen)

    def _refuse_clone(self, view: LogView, known: Container[GenerationId]) -> None:
        """Stay out where somebody else commits under our very claim: this disk, with its tracker, was copied.

        Own commits are in the tracker, as completed or, after a kill, as planned.
        """
        held, state = self.tracker.term(self.name), view.state
        if held is None or state is None or (held.term, held.claim_nonce) != (state.term, state.claim_nonce):
            return
        ours = {
            self.remote.manifest(self.remote.prefix(planned.generation, planned.term, planned.nonce))
            for planned in self.tracker.planned(self.name)
        }
        for commit in view.live:
            if commit.term == held.term and commit.id not in known and commit.manifest_key not in ours:
                reason = f"{commit.generation} was committed under our term by another process: is this disk a copy?"
                self.refuse(TermDecision(standing=Standing.FENCED, reason=reason))

    def _check_not_shorter(self, view: LogView) -> None:
        """Refuse a log that is shorter than, or other than, what this tracker has seen of it."""
        seen = self.tracker.seen(self.name)
        if seen is None or any(damage.slot == seen.slot for damage in view.damaged):
            return
        known = view.last_sha256 if seen.slot == view.next_slot - 1 else None
        if known is None and seen.slot < view.next_slot:
            try:
                known = canonical.sha256(self._book.entry(seen.slot)[1])
            except (ObjectNotFound, IntegrityFailure):
                known = None
        if known != seen.sha256:
            raise TrustFailure(
                f"{self.name}: the log was rolled back: this store has seen slot {seen.slot}, "
                f"the tier now ends at {view.next_slot - 1} or holds another entry there",
                hint="somebody restored or emptied the bucket: find out before trusting it; "
                "where you pointed the tier at another place, give it another name",
            )

    def _abandon_other_terms(self, term: int) -> None:
        for planned in self.tracker.planned(self.name):
            if planned.term != term:
                self.abandon(planned.generation, f"term {planned.term} is over")

    def abandon(self, generation: GenerationId, reason: str) -> None:
        """Give up what is under way for a generation; its prefix is remembered as ours to collect."""
        for planned in self.tracker.planned(self.name):
            if planned.generation == generation:
                prefix = self.remote.prefix(generation, planned.term, planned.nonce)
                self.tracker.abandon(self.name, planned, prefix, reason)

    def hint(self, *, force: bool = False) -> None:
        """Rewrite head.json now and then; it is a hint, so a failure is told and harmless."""
        slot = self._view().next_slot - 1
        if not force and not head_due(slot, self._head_slot):
            return
        try:
            self._book.write_head(slot)
            self._head_slot = slot
        except TierError as error:
            self.on_note(self.name, f"head.json was not rewritten (readers follow the log instead): {error}")

    @property
    def _book(self) -> Logbook:
        return Logbook(self.tier, self.remote)

    def _view(self) -> LogView:
        if self.view is None:
            raise CkptierError("the log was not read yet")
        return self.view
