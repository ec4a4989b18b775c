"""One run on one tier: terms, uploads, manifests and the log entry that commits.

Everything that must not run ahead of the log is here, in order: plan journalled,
objects verified, manifest read back, entry created and read back, tracker told.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from pydantic import ValidationError

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.layout import GenerationId, new_nonce
from replicate.log import Body, Commit, LiveCommit, LogState, Retire
from replicate.logappender import MAX_SLOT_RACES
from replicate.logbook import read_small
from replicate.logwriter import LogWriter
from replicate.manifest import MAX_GENERATION_BYTES, MAX_MANIFEST_BYTES, GenerationRecord, Manifest, ManifestObject
from replicate.origins import Origin, SourceDamage
from replicate.plan import Choice, Decision, LocalFact, ObjectPlan, UploadPlan, plan_generations, plan_upload
from replicate.reuse import Begun, reusing
from replicate.stock import StockTaker
from replicate.terms import Descent, Standing
from replicate.tracker import PlannedUpload
from replicate.upload import Progress, Uploader
from tiers.bodies import BytesBody
from tiers.clock import rfc3339
from tiers.errors import ObjectNotFound, TierUnavailable
from tiers.protocol import Key, Verification


class Source(Protocol):
    """A validated generation, as committing sees it."""

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
    def origin(self) -> Origin:
        """The files."""
        ...

    def changed(self) -> tuple[str, ...]:
        """Paths whose stat identity is not what sealing saw."""
        ...

    def lease(self) -> AbstractContextManager[object]:
        """Hold the files against rotation."""
        ...

    def quarantine(self, reason: str) -> None:
        """Note that its bytes are not what was sealed: it is not used again."""
        ...


class Outcome(StrEnum):
    """What became of one generation on one tier in one pass."""

    COMMITTED = "committed"
    ALREADY = "already-committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One generation that is now provably on the tier.

    ``copied_bytes`` of its ``total_bytes`` stood there already, and were copied inside the store.
    """

    generation: GenerationId
    outcome: Outcome
    slot: int
    total_bytes: int
    objects: int
    verified_by: tuple[str, ...]
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass over one tier did.  ``damaged`` generations were quarantined locally."""

    tier: str
    committed: tuple[Committed, ...] = ()
    decisions: tuple[Decision, ...] = ()
    damaged: tuple[tuple[GenerationId, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HurtCopy:
    """A committed copy of a generation that is taken back for a new one; ``manifest_key`` is its own."""

    manifest_key: str
    reason: str


@dataclass(slots=True)
class Events:
    """Callbacks for whoever shows what is going on; they must not raise."""

    on_start: Callable[[str, GenerationId, int], None] = lambda _tier, _generation, _size: None
    on_progress: Callable[[str, GenerationId, Progress], None] = lambda _tier, _generation, _progress: None
    on_commit: Callable[[str, Committed], None] = lambda _tier, _committed: None
    on_note: Callable[[str, str], None] = lambda _tier, _text: None


@dataclass(slots=True, kw_only=True)
class Replication:
    """Replicates one run to one tier; keeps the log view between passes so that idling asks nothing.

    ``unwanted`` names, of what would go up, what retention would take back at once;
    ``after_commit`` is called after each commit and must not raise.  ``reuse``: what stands on the
    tier already is copied there, as ``stock`` finds it.
    """

    log: LogWriter
    stop: threading.Event
    connections: int = 8
    part_size: int | None = None
    replicate_every: int | None = None
    backlog: int | None = None
    reuse: bool = True
    events: Events = field(default_factory=Events)
    unwanted: Callable[[LogState | None, Sequence[LocalFact]], Mapping[GenerationId, str]] = lambda _state, _facts: {}
    after_commit: Callable[[Descent], None] = lambda _descent: None
    stock: StockTaker = field(init=False)
    _digested: dict[Key, ObjectPlan] = field(default_factory=dict)
    _hurried: threading.Event = field(default_factory=threading.Event)
    _set_aside: threading.Event = field(default_factory=threading.Event)
    _sending: GenerationId | None = None

    def __post_init__(self) -> None:
        self.stock = StockTaker(
            tier=self.log.tier, remote=self.log.remote, enabled=self.reuse, on_note=self.events.on_note
        )

    def hurry(self, sources: Sequence[Source]) -> None:
        """Let the newest go first from now on, since little time is left; for other threads than that of the pass.

        What is under way is set aside at its next request, its pass raises Draining, and
        the next one comes back to it after the newest.
        """
        self._hurried.set()
        view = self.log.view
        wanted = self._plan(sources, view.state)[1] if view is not None else []
        if wanted and wanted[0].fact.id != self._sending:
            self._set_aside.set()

    def run_pass(self, descent: Descent, sources: Sequence[Source], *, limit: int | None = None) -> PassReport:
        """Bring the tier up to date with ``sources``; raises on the first failure that is not a generation's own.

        At most ``limit`` generations are sent, so that a daemon can look for a newer one in between.
        Raises TierError, Fenced, TrustFailure, IntegrityFailure (damaged log), LocalDisk, Draining.
        """
        self._set_aside.clear()
        if self.log.view is not None:
            decisions, wanted = self._plan(sources, self.log.view.state)
            if not wanted:
                return PassReport(tier=self.log.name, decisions=decisions)
        self.log.refresh(descent)
        decisions, wanted = self._plan(sources, self.log.state)
        self._count_skipped(decisions)
        if not wanted:
            self._say_if_left_behind(descent, decisions)
            return PassReport(tier=self.log.name, decisions=decisions)
        self.log.ensure_term(descent)
        committed: list[Committed] = []
        damaged: list[tuple[GenerationId, str]] = []
        for source in wanted[:limit]:
            try:
                committed.append(self._replicate(descent, source))
                self.after_commit(descent)
            except ObjectNotFound:
                # What was sent is gone again: whoever took the run over while this process stood still collects it.
                self.log.refresh(descent)
                self.log.held_term(descent)
                raise
            except SourceDamage as error:
                source.quarantine(error.message)
                self.log.abandon(source.fact.id, error.message)
                damaged.append((source.fact.id, error.message))
        return PassReport(tier=self.log.name, committed=tuple(committed), decisions=decisions, damaged=tuple(damaged))

    def replace(self, descent: Descent, source: Source, hurt: HurtCopy) -> Committed:
        """Upload a generation again and commit that, in place of a copy that is hurt; the log has been read.

        The hurt copy is taken back only once the new one lies there complete and verified,
        right before the new one is committed.  Raises as ``run_pass`` does, and SourceDamage.
        """
        self.log.ensure_term(descent)
        try:
            return self._replicate(descent, source, hurt)
        except SourceDamage as error:
            source.quarantine(error.message)
            self.log.abandon(source.fact.id, error.message)
            raise

    def _say_if_left_behind(self, descent: Descent, decisions: Sequence[Decision]) -> None:
        """Raise Fenced where the only reason to send nothing is that another attempt has gone on from here."""
        if any(one.choice is Choice.NOT_KEPT for one in decisions):
            self.log.refuse(self.log.decide(self.log.state, self.log.tracker.term(self.log.name), descent))

    def decide_all(self, sources: Sequence[Source]) -> tuple[Decision, ...]:
        """Say what becomes of each source, by the log as it was last read."""
        return self._plan(sources, self.log.state)[0]

    def _plan(self, sources: Sequence[Source], state: LogState | None) -> tuple[tuple[Decision, ...], list[Source]]:
        by_id = {source.fact.id: source for source in sources}
        decisions = plan_generations(
            [source.fact for source in sources],
            state,
            replicate_every=self.replicate_every,
            backlog=self.backlog,
            under_way=frozenset(planned.generation for planned in self.log.tracker.planned(self.log.name)),
            unwanted=lambda facts: self.unwanted(state, facts),
        )
        wanted = [by_id[one.id] for one in decisions if one.choice is Choice.UPLOAD]
        if self._hurried.is_set():
            wanted.sort(key=lambda source: source.fact.id, reverse=True)
        return decisions, wanted

    def _count_skipped(self, decisions: Sequence[Decision]) -> None:
        known = self.log.tracker.skipped(self.log.name)
        for decision in decisions:
            if decision.choice is Choice.SUPERSEDED and decision.id not in known:
                self.log.tracker.skip(self.log.name, decision.id, decision.reason)

    def _replicate(self, descent: Descent, source: Source, hurt: HurtCopy | None = None) -> Committed:
        with source.lease():
            planned, resumed = self._planned(source)
            prefix = self.log.remote.prefix(planned.generation, planned.term, planned.nonce)
            plan = self._upload_plan(source.record, planned, prefix, resumed=resumed)
            self.events.on_start(self.log.name, planned.generation, plan.total_bytes)
            uploader = Uploader(
                self.log.tier,
                self.log.tracker,
                connections=self.connections,
                stop=self.stop,
                on_progress=lambda progress: self.events.on_progress(self.log.name, planned.generation, progress),
                digested=self._digested,
                set_aside=self._set_aside,
            )
            self._sending = planned.generation
            touched = source.changed()
            objects = uploader.upload(plan, source.origin, touched, resumed=resumed)
            self._still_sealed(source, touched)
            manifest = self._manifest(source, planned, prefix, objects)
            if hurt is not None:
                self._take_back(descent, planned.generation, hurt)
            committed = self._commit(descent, source, planned, manifest)
            self.stock.keep(canonical.sha256(manifest), source.record, objects)
            committed = replace(committed, copied_bytes=uploader.copied_bytes)
            self._digested.clear()
            self.events.on_commit(self.log.name, committed)
            return committed

    def _upload_plan(
        self, record: GenerationRecord, planned: PlannedUpload, prefix: str, *, resumed: bool
    ) -> UploadPlan:
        """Plan from the record alone, and then name what stands on the tier by the log as it was just read."""
        can, tracker = self.log.tier.capabilities, self.log.tracker
        plan = plan_upload(record, prefix, can, part_size=planned.part_size)
        begun = None
        if resumed:
            where = (self.log.name, planned.generation)
            begun = Begun(in_parts=tracker.begun_in_parts(*where), verified=tracker.verified(*where))
        return reusing(plan, self.stock.take(self.log.state, record), can, begun, self.stock.least)

    def _planned(self, source: Source) -> tuple[PlannedUpload, bool]:
        """Resume the journalled plan of this term, or journal a new one; nothing remote happens before that."""
        held = self.log.tracker.term(self.log.name)
        term = held.term if held else 0
        for planned in self.log.tracker.planned(self.log.name):
            if planned.generation == source.fact.id and planned.term == term:
                return planned, True
        planned = PlannedUpload(
            generation=source.fact.id,
            term=term,
            nonce=new_nonce(),
            started_at=rfc3339(self.log.clock.now()),
            part_size=self.part_size,
        )
        self.log.tracker.begin(self.log.name, planned)
        return planned, False

    def _still_sealed(self, source: Source, touched_before: tuple[str, ...]) -> None:
        """Where the store checked nothing itself, no file may have been written to while it was sent.

        Files that were touched before were hashed against their seal by the uploader.
        """
        if self.log.tier.capabilities.verification is Verification.STORE_SHA256:
            return
        during = sorted(set(source.changed()) - set(touched_before))
        if during:
            raise SourceDamage(f"{source.origin.place} was written to while it was uploaded: {', '.join(during[:3])}")

    def _manifest(
        self, source: Source, planned: PlannedUpload, prefix: str, objects: tuple[ManifestObject, ...]
    ) -> bytes:
        """Write the manifest and read it back.  Its bytes follow from the journal, so repeating writes the same."""
        try:
            data = Manifest(
                format=1,
                run_uid=source.record.run_uid,
                term=planned.term,
                nonce=planned.nonce,
                prefix=prefix,
                generation=canonical.load(source.record_bytes, what="generation.json", max_bytes=MAX_GENERATION_BYTES),
                generation_sha256=canonical.sha256(source.record_bytes),
                objects=objects,
                written_at=planned.started_at,
            ).encode()
        except (ValidationError, IntegrityFailure) as error:
            raise SourceDamage(f"generation.json of {planned.generation} is not what was sealed: {error}") from error
        key = self.log.remote.manifest(prefix)
        self.log.tier.put(key, BytesBody(data))
        if read_small(self.log.tier, key, MAX_MANIFEST_BYTES) != data:
            raise IntegrityFailure(
                f"{self.log.name}: the manifest that was written reads back differently",
                hint="the store returns other bytes than it accepted: run `ckptier check` before trusting it",
            )
        return data

    def _take_back(self, descent: Descent, generation: GenerationId, hurt: HurtCopy) -> None:
        """Retire the hurt copy, where it still stands."""

        def decide() -> tuple[int, Body] | None:
            live = self.log.state.find(generation) if self.log.state else None
            if live is None or live.manifest_key != hurt.manifest_key:
                return None
            body = Retire(generation=str(generation), manifest_key=hurt.manifest_key, reason=hurt.reason, damaged=True)
            return self.log.held_term(descent), body

        if self.log.append_decided(descent, decide) is not None:
            self.log.reconcile()

    def _commit(self, descent: Descent, source: Source, planned: PlannedUpload, manifest: bytes) -> Committed:
        prefix = self.log.remote.prefix(planned.generation, planned.term, planned.nonce)
        body = Commit(
            generation=str(planned.generation),
            parent=source.record.parent,
            manifest_key=self.log.remote.manifest(prefix),
            manifest_size=len(manifest),
            manifest_sha256=canonical.sha256(manifest),
            total_bytes=source.record.total_bytes,
            objects=len(source.record.files),
        )
        for _ in range(MAX_SLOT_RACES):
            self.log.check(descent.run_uid)
            live = self._live(body)
            if live is not None:
                return self._acknowledge(planned, body, live, manifest)
            decision = self.log.decide(self.log.state, self.log.tracker.term(self.log.name), descent)
            self.log.refuse(decision)
            if decision.standing is not Standing.HOLDS:
                raise self._passing(f"the term was lost on the way, the next pass claims one: {decision.reason}")
            if self.log.append(self.log.entry(descent, planned.term, body)) and self._live(body) is None:
                raise IntegrityFailure(f"{self.log.name}: the log does not accept the commit of {body.generation}")
        raise self._passing("the log's next slot could not be taken")

    def _passing(self, message: str) -> TierUnavailable:
        return TierUnavailable(message, tier=self.log.name, operation="create", key=self.log.remote.log_prefix)

    def _live(self, body: Commit) -> LiveCommit | None:
        state = self.log.state
        return state.find(body.generation) if state else None

    def _acknowledge(self, planned: PlannedUpload, body: Commit, live: LiveCommit, manifest: bytes) -> Committed:
        """Tell the tracker, now that the entry was read back; another's commit of it makes our copy an orphan."""
        ours = live.manifest_key == body.manifest_key
        if not ours:
            self.log.abandon(planned.generation, f"it was committed in slot {live.slot} under another prefix")
        self.log.reconcile()
        self.log.hint()
        return Committed(
            generation=planned.generation,
            outcome=Outcome.COMMITTED if ours else Outcome.ALREADY,
            slot=live.slot,
            total_bytes=live.total_bytes,
            objects=live.objects,
            verified_by=tuple(sorted(set(_means(manifest)))),
        )


def _means(manifest: bytes) -> list[str]:
    document = canonical.load(manifest, what="manifest.json", max_bytes=MAX_MANIFEST_BYTES)
    return [item["verified_by"] for item in document["objects"]]
