"""Being the writer of one run's log on one tier: following it and holding the term.

The tracker is told what the log says, after it was read, and never more.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass

from replicate import canonical
from replicate.errors import Fenced, IntegrityFailure, TrustFailure
from replicate.layout import GenerationId
from replicate.log import Claim, LogState, LogView
from replicate.logappender import MAX_SLOT_RACES, LogAppender
from replicate.logbook import check_related
from replicate.terms import Descent, Standing, TermDecision, decide_term
from replicate.tracker import Completed, HeldTerm, Seen, Tracker
from tiers.errors import ObjectNotFound, TierUnavailable


@dataclass(slots=True, kw_only=True)
class LogWriter(LogAppender):
    """The one writer's side of a log; ``decide`` says who may write."""

    tracker: Tracker
    writer: str
    decide: Callable[[LogState | None, HeldTerm | None, Descent], TermDecision] = decide_term

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
        decision = self.decide(view.state, self.tracker.term(self.name), descent)
        if decision.standing is Standing.FORKED:
            self.refuse(decision)

    def ensure_term(self, descent: Descent) -> int:
        """Return the term held, claiming one where this store may; raises Fenced or TrustFailure."""
        for _ in range(MAX_SLOT_RACES):
            held = self.tracker.term(self.name)
            decision = self.decide(self.state, held, descent)
            if decision.standing is Standing.HOLDS and held is not None:
                self._abandon_other_terms(held.term)  # a process killed right after its claim left them
                return held.term
            self.refuse(decision)
            state = self.state
            term = state.term + 1 if state else 1
            entry = self.entry(descent, term, Claim(writer=self.writer, start=descent.start))
            if self.append(entry) and self.state is not None and self.state.claim_nonce == entry.nonce:
                self.tracker.hold_term(self.name, term=term, claim_nonce=entry.nonce, attempt_id=descent.attempt_id)
                self._abandon_other_terms(term)
                self.hint(force=True)
                return term
        raise Fenced(f"{self.name}: the log could not be claimed: other writers keep taking its slots")

    def held_term(self, descent: Descent) -> int:
        """Return the term that is held now; raises Fenced, TrustFailure, and TierUnavailable where it was lost."""
        held = self.tracker.term(self.name)
        decision = self.decide(self.state, held, descent)
        self.refuse(decision)
        if decision.standing is not Standing.HOLDS or held is None:
            raise TierUnavailable(
                f"the term was lost on the way, the next pass claims one: {decision.reason}",
                tier=self.name,
                operation="create",
                key=self.remote.log_prefix,
            )
        return held.term

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
