"""Being the writer of one run's log on one tier: following it and holding the term.

The tracker is told what the log says, after it was read, and never more.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from replicate.errors import Fenced, IntegrityFailure, TrustFailure
from replicate.layout import MAX_TERM, GenerationId
from replicate.log import Claim, LiveCommit, LogState, LogView
from replicate.logappender import MAX_SLOT_RACES, LogAppender
from replicate.logbook import RolledBack, check_related
from replicate.signing.anchor import Anchor
from replicate.signing.remembered import nothing
from replicate.terms import Descent, Standing, TermDecision, decide_term
from replicate.tracker import Completed, HeldTerm, Seen, Tracker
from tiers.errors import TierUnavailable
from tiers.reliance import relying


@dataclass(slots=True, kw_only=True)
class LogWriter(LogAppender):
    """The one writer's side of a log; ``decide`` says who may write."""

    tracker: Tracker
    writer: str
    decide: Callable[[LogState | None, HeldTerm | None, Descent], TermDecision] = decide_term

    def refresh(self, descent: Descent | None = None) -> LogView:
        """Read what is new in the log, check that it is ours and no shorter than seen, and follow it in the tracker."""
        first = self.view is None
        with relying():
            view = self._book.read(self.view)
        if descent is not None:
            check_related(view, descent.run_uid, self.name)
            self._refuse_fork(view, descent)
        if first:
            self._check_not_shorter(view)
        self.view = view
        if first:
            self._find_claim()
        self.reconcile()
        return view

    def look(self, descent: Descent) -> LogView:
        """Read the whole log, damaged or shorter than it was, for what an operator forces; the tracker is not told.

        Raises TrustFailure where the log is another run's.
        """
        self.remote = replace(self.remote, memory=nothing)
        with relying():
            self.view = self._book.read(thorough=True)
        check_related(self.view, descent.run_uid, self.name)
        self._find_claim()
        return self.view

    def _find_claim(self) -> None:
        """Take note of a claim that was journalled, and made by a process that died before it knew."""
        begun, state = self.tracker.begun_claim(self.name), self.state
        if begun is not None and state is not None and state.claim_nonce == begun.claim_nonce:
            self._hold(begun.term, begun.claim_nonce, begun.attempt_id)

    def _hold(self, term: int, nonce: str, attempt_id: str) -> None:
        self.tracker.hold_term(self.name, term=term, claim_nonce=nonce, attempt_id=attempt_id)
        self._abandon_other_terms(term)

    def _refuse_fork(self, view: LogView, descent: Descent) -> None:
        """Refuse also where nothing is to be sent: the other line's generation may bear the same id as ours."""
        decision = self.decide(view.state, self.tracker.term(self.name), descent)
        if decision.standing is Standing.FORKED:
            self.refuse(decision)

    def ensure_term(self, descent: Descent) -> int:
        """Return the term held, claiming one where this store may; raises Fenced or TrustFailure.

        That the log can be appended to, and an entry signed where it has to be, is made sure of first: nothing
        is uploaded in vain.
        """
        if not self.mending:
            self._book.refuse_damaged(self._view())
        self.remote.trust.require_signer(self.name, self._view().next_slot)
        for _ in range(MAX_SLOT_RACES):
            held = self.tracker.term(self.name)
            decision = self.decide(self.state, held, descent)
            if decision.standing is Standing.HOLDS and held is not None:
                self._abandon_other_terms(held.term)  # a process killed right after its claim left them
                return held.term
            self.refuse(decision)
            state = self.state
            term = self._next_term(state.term if state else 0)
            entry = self.entry(descent, term, Claim(writer=self.writer, start=descent.start))
            if self.append(entry) and self.state is not None and self.state.claim_nonce == entry.nonce:
                self._hold(term, entry.nonce, descent.attempt_id)
                self.hint(force=True)
                return term
        raise Fenced(f"{self.name}: the log could not be claimed: other writers keep taking its slots")

    def force_term(self, descent: Descent, reason: str, above: Callable[[LogView], int] = lambda _view: 0) -> int:
        """Claim a term higher than ``above`` for an operator's ``reason``; raises as ``refuse`` does.

        The claim is journalled first, since this store may have been kept out until now: a process
        that finds it in the log after a kill knows it for its own.
        """
        self.remote.trust.require_signer(self.name, self._view().next_slot)
        for _ in range(MAX_SLOT_RACES):
            decision = self.decide(self.state, self.tracker.term(self.name), descent)
            self.refuse(decision)
            term = self._next_term(max(self.state.term if self.state else 0, above(self._view())))
            entry = self.entry(descent, term, Claim(writer=self.writer, start=descent.start, takeover=reason))
            self.tracker.begin_claim(self.name, term=term, claim_nonce=entry.nonce, attempt_id=descent.attempt_id)
            if self.append(entry) and self.state is not None and self.state.claim_nonce == entry.nonce:
                self._hold(term, entry.nonce, descent.attempt_id)
                self.hint(force=True)
                return term
        raise Fenced(f"{self.name}: the log could not be claimed: other writers keep taking its slots")

    def _next_term(self, term: int) -> int:
        if term >= MAX_TERM:
            raise IntegrityFailure(
                f"{self.name}: no term is left after {term}: somebody else wrote that",
                hint="look at who writes there; go on under another name of the run or the tier",
            )
        return term + 1

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
            if decision.same_attempt and not self.mending:
                self._book.refuse_damaged(self._view())  # the claim that is missed may be what was lost
            self.tracker.fence(self.name, decision.reason)
            raise Fenced(
                f"{self.name}: another writer has taken over this run: {decision.reason}", hint=_way_on(decision)
            )
        if decision.standing is Standing.FORKED:
            raise TrustFailure(
                f"{self.name}: two lines of descent share a number: {decision.reason}",
                hint="keep the one that you want with `ckptier restore --generation ID`; nothing was written",
            )

    def reconcile(self) -> None:
        """Make the tracker say what the log says, never more."""
        view = self._view()
        known = self.tracker.completed_by_name(self.name)
        live: Mapping[str, LiveCommit] = view.state.by_name if view.state else {}
        fresh = [
            Completed(
                generation=commit.id,
                slot=commit.slot,
                manifest_sha256=commit.manifest_sha256,
                total_bytes=commit.total_bytes,
                at=commit.at,
            )
            for name, commit in live.items()
            if name not in known or known[name].slot != commit.slot
        ]
        self._refuse_clone(view, known)
        gone = sorted(known.keys() - live.keys())
        if gone:
            self.tracker.uncomplete(self.name, [GenerationId.parse(name) for name in gone])
        if view.damaged and not view.damaged[-1].trusted and view.damaged[-1].slot == view.next_slot - 1:
            return  # what nobody vouches for is not remembered, or it could make the true log look shorter
        seen = Seen(slot=view.next_slot - 1, sha256=view.last_sha256)
        if view.next_slot and (fresh or self.tracker.seen(self.name) != seen):
            self.tracker.complete(self.name, fresh, seen)

    def _refuse_clone(self, view: LogView, known: Container[str]) -> None:
        """Stay out where somebody else commits under our very claim: this disk, with its tracker, was copied.

        Own commits are in the tracker: as completed, after a kill as planned, or as gone where the log could
        not be read or trusted for a while.
        """
        held, state = self.tracker.term(self.name), view.state
        if held is None or state is None or (held.term, held.claim_nonce) != (state.term, state.claim_nonce):
            return
        ours = {
            self.remote.manifest(self.remote.prefix(planned.generation, planned.term, planned.nonce))
            for planned in self.tracker.planned(self.name)
        }
        strange = [
            one
            for one in state.live
            if one.term == held.term and one.generation not in known and one.manifest_key not in ours
        ]
        back = self.tracker.was_completed(self.name) if strange else frozenset()
        for commit in strange:
            if commit.id not in back:
                reason = f"{commit.generation} was committed under our term by another process: is this disk a copy?"
                self.refuse(TermDecision(standing=Standing.FENCED, reason=reason, same_attempt=True))

    def _check_not_shorter(self, view: LogView) -> None:
        """Refuse a log that is shorter than, or other than, what this tracker has seen of it."""
        seen = self.tracker.seen(self.name)
        if seen is not None and self._book.contradicts(view, Anchor(seen.slot, seen.sha256)):
            raise RolledBack(self.name, view, Anchor(seen.slot, seen.sha256))

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


def _way_on(decision: TermDecision) -> str:
    """Return what whoever is shut out can do."""
    if decision.same_attempt:
        return (
            "stop this daemon; where the other writer is to stop instead: `ckptier takeover --reason TEXT`, "
            "or `ckptier restore`, which opens a new attempt"
        )
    return "stop this daemon; to go on from here run `ckptier restore`, which opens a new attempt"
