"""One run on one tier: terms, uploads, manifests and the log entry that commits.

Everything that must not run ahead of the log is here, in order: plan journalled,
objects verified, manifest read back, entry created and read back, tracker told.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from replicate import canonical
from replicate.errors import CkptierError, Fenced, IntegrityFailure, TrustFailure
from replicate.layout import FOLD_EVERY, GenerationId, RemoteRun, new_nonce
from replicate.log import Body, Claim, Commit, Entry, LiveCommit, LogState, LogView
from replicate.logbook import Logbook, SlotTaken, check_related, read_small
from replicate.manifest import MAX_MANIFEST_BYTES, GenerationRecord, Manifest, ManifestObject
from replicate.plan import Choice, Decision, LocalFact, plan_generations, plan_upload
from replicate.terms import Descent, Standing, TermDecision, decide_term
from replicate.tracker import Completed, PlannedUpload, Seen, Tracker
from replicate.upload import LocalDamage, Progress, Uploader
from tiers.bodies import BytesBody
from tiers.clock import Clock, rfc3339
from tiers.errors import ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Tier, Verification

MAX_SLOT_RACES = 64
HEAD_EVERY = 16
"""Slots between rewrites of the hint: a reader follows at most that many by GETs."""


class Source(Protocol):
    """A validated local generation, as committing sees it."""

    @property
    def fact(self) -> LocalFact:
        """What deciding needs."""
        ...

    @property
    def record(self) -> GenerationRecord:
        """generation.json."""
        ...

    @property
    def record_bytes(self) -> bytes:
        """The exact bytes of generation.json."""
        ...

    @property
    def files(self) -> Path:
        """Folder of the files."""
        ...

    def changed(self) -> tuple[str, ...]:
        """Paths whose stat identity is not what sealing saw."""
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Hold the files against rotation."""
        ...

    def quarantine(self, reason: str) -> None:
        """Keep the generation as evidence and never use it again."""
        ...


class Outcome(StrEnum):
    """What became of one generation on one tier in one pass."""

    COMMITTED = "committed"
    ALREADY = "already-committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One generation that is now provably on the tier."""

    generation: GenerationId
    outcome: Outcome
    slot: int
    total_bytes: int
    objects: int
    verified_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass over one tier did.  ``damaged`` generations were quarantined locally."""

    tier: str
    committed: tuple[Committed, ...] = ()
    decisions: tuple[Decision, ...] = ()
    damaged: tuple[tuple[GenerationId, str], ...] = ()


@dataclass(slots=True)
class Events:
    """Callbacks for whoever shows what is going on; they must not raise."""

    on_start: Callable[[str, GenerationId, int], None] = lambda _tier, _generation, _size: None
    on_progress: Callable[[str, GenerationId, Progress], None] = lambda _tier, _generation, _progress: None
    on_commit: Callable[[str, Committed], None] = lambda _tier, _committed: None
    on_note: Callable[[str, str], None] = lambda _tier, _text: None


@dataclass(slots=True, kw_only=True)
class Replication:
    """Replicates one run to one tier; keeps the log view between passes so that idling asks nothing."""

    tier: Tier
    remote: RemoteRun
    tracker: Tracker
    clock: Clock
    writer: str
    stop: threading.Event
    connections: int = 4
    part_size: int | None = None
    replicate_every: int | None = None
    backlog: int | None = None
    events: Events = field(default_factory=Events)
    view: LogView | None = None
    _head_slot: int | None = None

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.tier.name

    def run_pass(self, descent: Descent, sources: Sequence[Source]) -> PassReport:
        """Bring the tier up to date with ``sources``; raises on the first failure that is not a generation's own.

        Raises TierError, Fenced, TrustFailure, IntegrityFailure (damaged log), LocalDisk, Draining.
        """
        if self.view is not None and not self._plan(sources, self.view.state)[1]:
            return PassReport(tier=self.name, decisions=self._plan(sources, self.view.state)[0])
        self.refresh(descent)
        decisions, wanted = self._plan(sources, self._state())
        self._count_skipped(decisions)
        if not wanted:
            return PassReport(tier=self.name, decisions=decisions)
        self.ensure_term(descent)
        committed: list[Committed] = []
        damaged: list[tuple[GenerationId, str]] = []
        for source in wanted:
            try:
                committed.append(self._replicate(descent, source))
            except LocalDamage as error:
                source.quarantine(error.message)
                self._abandon(source.fact.id, error.message)
                damaged.append((source.fact.id, error.message))
        return PassReport(tier=self.name, committed=tuple(committed), decisions=decisions, damaged=tuple(damaged))

    def refresh(self, descent: Descent | None = None) -> LogView:
        """Read what is new in the log, check that it is ours and no shorter than seen, and follow it in the tracker."""
        first = self.view is None
        view = self._book.read(self.view)
        if descent is not None:
            check_related(view, descent.run_uid, self.name)
        if first:
            self._check_not_shorter(view)
        self.view = view
        self._reconcile(view)
        return view

    def ensure_term(self, descent: Descent) -> int:
        """Return the term held, claiming one where this store may; raises Fenced or TrustFailure."""
        for _ in range(MAX_SLOT_RACES):
            held = self.tracker.term(self.name)
            decision = decide_term(self._state(), held, descent)
            if decision.standing is Standing.HOLDS and held is not None:
                return held.term
            self._refuse(decision)
            state = self._state()
            term = state.term + 1 if state else 1
            entry = self._entry(descent, term, Claim(writer=self.writer))
            if self._append(entry):
                self.tracker.hold_term(self.name, term=term, claim_nonce=entry.nonce, attempt_id=descent.attempt_id)
                self._abandon_other_terms(term)
                self._hint(force=True)
                return term
        raise Fenced(f"{self.name}: the log could not be claimed: other writers keep taking its slots")

    def _refuse(self, decision: TermDecision) -> None:
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

    def _plan(self, sources: Sequence[Source], state: LogState | None) -> tuple[tuple[Decision, ...], list[Source]]:
        by_id = {source.fact.id: source for source in sources}
        decisions = plan_generations(
            [source.fact for source in sources],
            state,
            replicate_every=self.replicate_every,
            backlog=self.backlog,
            under_way=frozenset(planned.generation for planned in self.tracker.planned(self.name)),
        )
        return decisions, [by_id[one.id] for one in decisions if one.choice is Choice.UPLOAD]

    def _count_skipped(self, decisions: Sequence[Decision]) -> None:
        known = self.tracker.skipped(self.name)
        for decision in decisions:
            if decision.choice is Choice.SUPERSEDED and decision.id not in known:
                self.tracker.skip(self.name, decision.id, decision.reason)

    def _replicate(self, descent: Descent, source: Source) -> Committed:
        with source.lease():
            planned, resumed = self._planned(source)
            prefix = self.remote.prefix(planned.generation, planned.term, planned.nonce)
            plan = plan_upload(source.record, prefix, self.tier.capabilities, part_size=planned.part_size)
            self.events.on_start(self.name, planned.generation, plan.total_bytes)
            uploader = Uploader(
                self.tier,
                self.tracker,
                connections=self.connections,
                stop=self.stop,
                on_progress=lambda progress: self.events.on_progress(self.name, planned.generation, progress),
            )
            objects = uploader.upload(plan, source.files, source.changed(), resumed=resumed)
            self._still_sealed(source)
            manifest = self._manifest(source, planned, prefix, objects)
            committed = self._commit(descent, source, planned, manifest)
            self.events.on_commit(self.name, committed)
            return committed

    def _planned(self, source: Source) -> tuple[PlannedUpload, bool]:
        """Resume the journalled plan of this term, or journal a new one; nothing remote happens before that."""
        held = self.tracker.term(self.name)
        term = held.term if held else 0
        for planned in self.tracker.planned(self.name):
            if planned.generation == source.fact.id and planned.term == term:
                return planned, True
        planned = PlannedUpload(
            generation=source.fact.id,
            term=term,
            nonce=new_nonce(),
            started_at=rfc3339(self.clock.now()),
            part_size=self.part_size,
        )
        self.tracker.begin(self.name, planned)
        return planned, False

    def _still_sealed(self, source: Source) -> None:
        """Where the store checked nothing itself, the files must not have been touched meanwhile."""
        if self.tier.capabilities.verification is not Verification.STORE_SHA256 and source.changed():
            raise LocalDamage(f"{source.files} was written to while it was uploaded: {', '.join(source.changed()[:3])}")

    def _manifest(
        self, source: Source, planned: PlannedUpload, prefix: str, objects: tuple[ManifestObject, ...]
    ) -> bytes:
        """Write the manifest and read it back.  Its bytes follow from the journal, so repeating writes the same."""
        generation = canonical.load(source.record_bytes, what="generation.json", max_bytes=MAX_MANIFEST_BYTES)
        data = Manifest(
            format=1,
            run_uid=source.record.run_uid,
            term=planned.term,
            nonce=planned.nonce,
            prefix=prefix,
            generation=generation,
            generation_sha256=canonical.sha256(source.record_bytes),
            objects=objects,
            written_at=planned.started_at,
        ).encode()
        key = self.remote.manifest(prefix)
        self.tier.put(key, BytesBody(data))
        if read_small(self.tier, key, MAX_MANIFEST_BYTES) != data:
            raise IntegrityFailure(
                f"{self.name}: the manifest that was written reads back differently",
                hint="the store returns other bytes than it accepted: run `ckptier check` before trusting it",
            )
        return data

    def _commit(self, descent: Descent, source: Source, planned: PlannedUpload, manifest: bytes) -> Committed:
        prefix = self.remote.prefix(planned.generation, planned.term, planned.nonce)
        body = Commit(
            generation=str(planned.generation),
            parent=source.record.parent,
            manifest_key=self.remote.manifest(prefix),
            manifest_size=len(manifest),
            manifest_sha256=canonical.sha256(manifest),
            total_bytes=source.record.total_bytes,
            objects=len(source.record.files),
        )
        for _ in range(MAX_SLOT_RACES):
            live = self._live(body)
            if live is not None:
                return self._acknowledge(planned, body, live, manifest)
            self._refuse(decide_term(self._state(), self.tracker.term(self.name), descent))
            self._append(self._entry(descent, planned.term, body))
        raise TierUnavailable(
            "the log's next slot could not be taken", tier=self.name, operation="create", key=self.remote.log_prefix
        )

    def _live(self, body: Commit) -> LiveCommit | None:
        state = self._state()
        return state.find(body.generation) if state else None

    def _acknowledge(self, planned: PlannedUpload, body: Commit, live: LiveCommit, manifest: bytes) -> Committed:
        """Tell the tracker, now that the entry was read back; another's commit of it makes our copy an orphan."""
        ours = live.manifest_key == body.manifest_key
        if not ours:
            self._abandon(planned.generation, f"it was committed in slot {live.slot} under another prefix")
        self._reconcile(self._view())
        self._hint()
        return Committed(
            generation=planned.generation,
            outcome=Outcome.COMMITTED if ours else Outcome.ALREADY,
            slot=live.slot,
            total_bytes=live.total_bytes,
            objects=live.objects,
            verified_by=tuple(sorted(set(_means(manifest)))),
        )

    def _append(self, entry: Entry) -> bool:
        """Create the entry in the next slot; False where another stands there, which has been read by then.

        A reply that was lost is settled by reading; where the slot is still empty the
        same entry is offered once more, since one nonce cannot be committed twice.
        """
        try:
            self.view = self._book.append(self._view(), entry)
        except SlotTaken:
            self.view = self._book.read(self._view())
            return False
        except TierUnavailable:
            self.view = self._book.append(self._view(), entry)
        return True

    def _entry(self, descent: Descent, term: int, body: Body) -> Entry:
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

    def _reconcile(self, view: LogView) -> None:
        """Make the tracker say what the log says, never more."""
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
        gone = [generation for generation in known if generation not in live]
        if gone:
            self.tracker.uncomplete(self.name, gone)
        seen = Seen(slot=view.next_slot - 1, sha256=view.last_sha256)
        if view.next_slot and (fresh or self.tracker.seen(self.name) != seen):
            self.tracker.complete(self.name, fresh, seen)

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
                hint="somebody restored or emptied the bucket; find out before trusting it (`ckptier explain`)",
            )

    def _abandon_other_terms(self, term: int) -> None:
        for planned in self.tracker.planned(self.name):
            if planned.term != term:
                self._abandon(planned.generation, f"term {planned.term} is over")

    def _abandon(self, generation: GenerationId, reason: str) -> None:
        for planned in self.tracker.planned(self.name):
            if planned.generation == generation:
                prefix = self.remote.prefix(generation, planned.term, planned.nonce)
                self.tracker.abandon(self.name, planned, prefix, reason)

    def _hint(self, *, force: bool = False) -> None:
        """Rewrite head.json now and then; it is a hint, so a failure is told and harmless."""
        slot = self._view().next_slot - 1
        if not force and self._head_slot is not None and slot - self._head_slot < HEAD_EVERY:
            return
        try:
            self._book.write_head(slot)
            self._head_slot = slot
        except TierError as error:
            self.events.on_note(self.name, f"head.json was not rewritten (readers follow the log instead): {error}")

    @property
    def _book(self) -> Logbook:
        return Logbook(self.tier, self.remote)

    def _view(self) -> LogView:
        if self.view is None:
            raise CkptierError("the log was not read yet")
        return self.view

    def _state(self) -> LogState | None:
        return self._view().state


def _means(manifest: bytes) -> list[str]:
    document = canonical.load(manifest, what="manifest.json", max_bytes=MAX_MANIFEST_BYTES)
    return [item["verified_by"] for item in document["objects"]]
