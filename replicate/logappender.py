"""Appending to one run's log on one tier: the next slot, whoever else writes.

The view of the log is kept, so that a writer with nothing to do asks nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from replicate.errors import CkptierError
from replicate.layout import FOLD_EVERY, RemoteRun, new_nonce
from replicate.log import Body, Entry, LogState, LogView
from replicate.logbook import Logbook, SlotTaken, check_related
from replicate.terms import Descent
from tiers.clock import Clock, rfc3339
from tiers.errors import TierError, TierUnavailable
from tiers.protocol import Tier
from tiers.reliance import relying

MAX_SLOT_RACES = 64
HEAD_EVERY = 16
"""Slots between rewrites of the hint: a reader follows at most that many by GETs."""


def _nothing(descent: Descent) -> LogState:
    """Return the state of a log of which not one entry can be read."""
    return LogState(run_uid=descent.run_uid, term=0, writer="", claim_nonce="")


def head_due(slot: int, written: int | None) -> bool:
    """Whether the hint is rewritten after ``slot``; ``written`` is what this process last put there."""
    return written is None or slot - written >= HEAD_EVERY


@dataclass(slots=True, kw_only=True)
class LogAppender:
    """A log that is appended to.  ``on_note`` is told what is harmless and worth showing.

    ``mending``: it is being repaired, and appended to although it is damaged.
    """

    tier: Tier
    remote: RemoteRun
    clock: Clock
    on_note: Callable[[str, str], None] = lambda _tier, _text: None
    view: LogView | None = None
    mending: bool = False
    _head_slot: int | None = None

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.tier.name

    @property
    def state(self) -> LogState | None:
        """The folded state as last read; None for an empty log."""
        return self._view().state

    def append(self, entry: Entry) -> bool:
        """Create the entry in the next slot; False where another stands there, which has been read by then.

        A reply that was lost is settled by reading; where the slot is still empty the
        same entry is offered once more, since one nonce cannot be committed twice.
        """
        try:
            try:
                self.view = self._appended(entry)
            except TierUnavailable:
                self.view = self._appended(entry)
        except SlotTaken:
            with relying():
                view = self._book.read(None if self.mending else self._view(), thorough=self.mending)
            self.view = view
            self.check(entry.run_uid)
            return False
        return True

    def _appended(self, entry: Entry) -> LogView:
        """Return the view with the entry once it is read back, and durable: what follows from it is told to others."""
        with relying():
            return self._book.append(self._view(), entry, mending=self.mending)

    def check(self, run_uid: str) -> None:
        """Refuse to go on where another run has founded the log meanwhile."""
        check_related(self._view(), run_uid, self.name)

    def entry(self, descent: Descent, term: int, body: Body) -> Entry:
        """Return an entry for the next slot, with the folded state where one is due."""
        view = self._view()
        self.remote.trust.require_signer(self.name, view.next_slot)
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
            state=(view.state or _nothing(descent)) if folded else None,
        )

    def append_decided(self, descent: Descent, decide: Callable[[], tuple[int, Body] | None]) -> Entry | None:
        """Append what ``decide`` (term and body) wants, asked anew after each slot that was lost.

        None where it wants nothing any more; raises TierUnavailable where others keep taking the slots.
        """
        for _ in range(MAX_SLOT_RACES):
            wanted = decide()
            if wanted is None:
                return None
            entry = self.entry(descent, *wanted)
            if self.append(entry):
                return entry
        raise TierUnavailable(
            "the log's next slot could not be taken",
            tier=self.name,
            operation="create",
            key=self.remote.log_prefix,
        )

    def hint(self, *, force: bool = False) -> None:
        """Rewrite head.json now and then; it is a hint, so a failure is told and harmless."""
        slot = self._view().next_slot - 1
        if not force and not head_due(slot, self._head_slot):
            return
        self._head_slot = slot  # also where it fails: it is not tried, and waited for, at each commit
        try:
            self._book.write_head(slot)
        except TierError as error:
            self.on_note(self.name, f"head.json was not rewritten (readers follow the log instead): {error}")

    def store_time(self) -> datetime | None:
        """Return what time it is by the store's clock; rewrites the hint.  None where the store does not say."""
        slot = self._view().next_slot - 1
        now = self._book.store_time(slot)
        self._head_slot = slot
        return now

    def written_at(self, slot: int) -> datetime | None:
        """Return when an entry was written, by the store's clock; None where the store does not say."""
        return self._book.written_at(slot)

    @property
    def _book(self) -> Logbook:
        return Logbook(self.tier, self.remote)

    def _view(self) -> LogView:
        if self.view is None:
            raise CkptierError("the log was not read yet")
        return self.view
