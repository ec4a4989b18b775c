"""``ckptier takeover``: going on in the same attempt although another writer holds the term.

A store that was overtaken in its own attempt stays out by itself, or two machines under automatic
restart would take the term from each other for ever.  An operator who knows that the other one
is to stop says so once; from then on the other one is the one that stays out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from replicate.config import TierConfig
from replicate.errors import CkptierError, Fenced, NothingFound, TrustFailure, UsageError
from replicate.keeping import Keeping, translated
from replicate.layout import GenerationId
from replicate.log import LogView
from replicate.logbook import Logbook, RolledBack, check_related
from replicate.logwriter import LogWriter
from replicate.mending.remembered import Remembered, remembered
from replicate.session import Session
from replicate.signing.anchor import Anchor
from replicate.signing.remembered import nothing
from replicate.terms import Descent, Standing, decide_takeover, decide_term


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTaken:
    """Who holds a tier's log, and what became of that.

    ``since`` is by the store's clock, None where it does not say.  ``newest`` is what the
    present holder's term, or an earlier one, committed last.  ``term`` is ours, once it was taken.
    """

    tier: str
    holder: str = ""
    holders_term: int = 0
    since: datetime | None = None
    newest: GenerationId | None = None
    needed: bool = False
    reason: str = ""
    term: int | None = None
    failure: CkptierError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverReport:
    """All tiers that were asked for."""

    run: str
    applied: bool
    places: tuple[PlaceTaken, ...]


class TakingOver(Keeping):
    """The verb over one configuration."""

    def takeover(self, reason: str, *, tier: str | None = None, apply: bool = False) -> TakeoverReport:
        """Say who holds the term, and with ``apply`` claim the next one for this store.

        Raises UsageError without a reason, NothingFound without a store, and with ``apply``
        Fenced where a process replicates this store; what a tier's log forbids is in the report.
        """
        if not reason.strip():
            raise UsageError(
                "a takeover needs a reason", hint='say why, for the log: --reason "the other node is gone"'
            )
        descent = self.descent()
        if descent is None:
            raise NothingFound(
                f"there is no store of this run at {self.config.local.root}, so there is nothing to go on with",
                hint="`ckptier restore` makes one here, and opens a new attempt",
            )
        chosen = self.config.select(tier)
        if not apply:
            places = tuple(self._looked_at(settings, descent) for settings in chosen)
            return TakeoverReport(run=self.config.run, applied=False, places=places)
        self.refuse_beside("stop it first; once the term is taken it may run again")
        with self.session() as session:
            places = tuple(self._taken(session, settings, descent, reason.strip()) for settings in chosen)
            session.board.stopped()
        return TakeoverReport(run=self.config.run, applied=True, places=places)

    def _looked_at(self, settings: TierConfig, descent: Descent) -> PlaceTaken:
        try:
            with self.reading(settings) as tier:
                book = Logbook(tier, replace(self.remote, memory=nothing))
                view = book.read(thorough=True)
                check_related(view, descent.run_uid, tier.name)
                return place_of(book, view, remembered(self.config.state, tier.name), descent)
        except CkptierError as error:
            return PlaceTaken(tier=settings.name, failure=error)

    def _taken(self, session: Session, settings: TierConfig, descent: Descent, reason: str) -> PlaceTaken:
        try:
            with translated():
                log = session.writer(settings.name)
                view = log.look(descent)
                known = Remembered(held=session.tracker.term(log.name), seen=session.tracker.seen(log.name))
                place = place_of(Logbook(log.tier, log.remote), view, known, descent)
                if not place.needed:
                    return place
                term = take(log, descent, reason)
                return replace(place, term=term)
        except CkptierError as error:
            return PlaceTaken(tier=settings.name, failure=error)
        finally:
            session.count_usage(settings.name)


def take(log: LogWriter, descent: Descent, reason: str) -> int:
    """Claim the next term of a log that ``look`` has read, and follow it; returns the term."""
    decide = log.decide
    log.decide = decide_takeover
    try:
        term = log.force_term(descent, reason)
    finally:
        log.decide = decide
    log.reconcile()
    return term


def place_of(book: Logbook, view: LogView, known: Remembered, descent: Descent) -> PlaceTaken:
    """Say who holds the log and whether a takeover is what is needed.

    Raises IntegrityFailure or TrustFailure for a log that nothing may be appended to,
    RolledBack, Fenced and TrustFailure where only a new attempt may write.
    """
    name = book.tier.name
    if known.seen is not None and book.contradicts(view, Anchor(known.seen.slot, known.seen.sha256)):
        raise RolledBack(name, view, Anchor(known.seen.slot, known.seen.sha256))
    book.refuse_damaged(view)
    state = view.state
    if state is None:
        return PlaceTaken(tier=name, reason="the log is empty: nobody holds it")
    decision = decide_term(state, known.held, descent)
    if decision.standing is Standing.FORKED:
        raise TrustFailure(
            f"{name}: two lines of descent share a number: {decision.reason}",
            hint="keep the one that you want with `ckptier restore --generation ID`; nothing was written",
        )
    if decision.standing is Standing.FENCED and not decision.same_attempt:
        raise Fenced(
            f"{name}: {decision.reason}",
            hint="a takeover goes on in the same attempt; `ckptier restore` opens a new one, which may write",
        )
    return PlaceTaken(
        tier=name,
        holder=state.writer or "unknown",
        holders_term=state.term,
        since=book.written_at(view.claim_slot) if view.claim_slot is not None else None,
        newest=_newest(view, state.term),
        needed=decision.same_attempt,
        reason=decision.reason,
    )


def _newest(view: LogView, term: int) -> GenerationId | None:
    """Return the newest generation of the present term, else the newest at all."""
    of_term: Sequence[GenerationId] = [commit.id for commit in view.live if commit.term == term]
    return max(of_term or [commit.id for commit in view.live], default=None)
