"""Copying committed generations from one tier to another, through the protocol that replicates the store's own.

The source's manifest takes the store's place: what is sent, verified, committed and
journalled, and in which order, is the business of replicate.commit and replicate.upload.
Here it is decided what is copied, in whose name, and whether the two histories are one.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from replicate.commit import Committed, Events, Outcome, PassReport
from replicate.config import Config
from replicate.copyplan import Copied, CopyOutcome, CopyPlan, CopyReport, CopyRequest, plan_copy
from replicate.errors import (
    CkptierError,
    Fenced,
    IntegrityFailure,
    TrustFailure,
    Unreachable,
    UsageError,
)
from replicate.generation.lineage import read_lineage
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogState, LogView
from replicate.logbook import Logbook
from replicate.manifest import GenerationRecord, Manifest
from replicate.opening import Opener, open_configured, require_fencing
from replicate.origins import SourceDamage
from replicate.plan import Choice, Decision, LocalFact, UploadPlan, plan_upload
from replicate.relay import TierFiles, fetched_twice
from replicate.requests import NONCE
from replicate.reuse import reusing
from replicate.session import Prepared, Session
from replicate.stock import StockTaker
from replicate.terms import COPYING, decide_visiting_term
from replicate.upload import Draining
from replicate.verify import Finding, look_at, read_manifest
from tiers.clock import Clock
from tiers.errors import IntegrityError, ObjectNotFound
from tiers.metered import Meter
from tiers.protocol import Tier


@dataclass(slots=True, kw_only=True)
class CopySource:
    """A generation on the source tier, as committing sees it; its documents are held while it is leased."""

    tier: Tier
    remote: RemoteRun
    state: LogState
    commit: LiveCommit
    spool: Path
    damage: str = ""
    _held: tuple[Manifest, GenerationRecord] | None = field(default=None)

    @property
    def fact(self) -> LocalFact:
        """What deciding needs; a commit was validated before it was made."""
        ids = [attempt.id for attempt in self.state.attempts if attempt.number == self.commit.id.attempt]
        return LocalFact(
            id=self.commit.id,
            parent=GenerationId.parse(self.commit.parent) if self.commit.parent else None,
            validated=not self.damage,
            quarantined=bool(self.damage),
            attempt_id=ids[0] if ids else "",
        )

    @property
    def record(self) -> GenerationRecord:
        """generation.json."""
        return self._documents()[1]

    @property
    def record_bytes(self) -> bytes:
        """The exact bytes of generation.json."""
        return self._documents()[0].generation_bytes

    @property
    def origin(self) -> TierFiles:
        """The objects."""
        return TierFiles.of(self.tier, self._documents()[0], self.spool)

    def _documents(self) -> tuple[Manifest, GenerationRecord]:
        """Return the source's manifest, checked against its commit, and the record in it; raises SourceDamage."""
        if self._held is None:
            try:
                manifest = read_manifest(self.tier, self.remote, self.state.run_uid, self.commit)
            except (IntegrityFailure, IntegrityError, ObjectNotFound) as error:
                raise SourceDamage(
                    f"{self.tier.name}: {self.commit.manifest_key}: {error.message}",
                    hint="`ckptier list` shows where else this generation is",
                ) from error
            self._held = manifest, manifest.record()
        return self._held

    def changed(self) -> tuple[str, ...]:
        """Return nothing: what is on a tier is proved as it is read."""
        return ()

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the documents for as long as they are needed, and no longer: there may be many generations."""
        try:
            yield
        finally:
            self._held = None

    def quarantine(self, reason: str) -> None:
        """Note what is wrong; the source is not ours to mark."""
        self.damage = reason


class Copying:
    """One copy between two configured tiers."""

    def __init__(
        self, request: CopyRequest, config: Config, *, clock: Clock, stop: threading.Event, opener: Opener
    ) -> None:
        if request.source == request.target:
            raise UsageError(f"{request.source} cannot be copied to itself", hint="name two tiers: --from A --to B")
        if request.generation is not None and request.everything:
            raise UsageError("one generation, or all of them", hint="leave --generation or --all out")
        self._request = request
        self._config = config
        self._settings = config.select(request.target)[0]
        config.select(request.source)
        self._clock = clock
        self._stop = stop
        self._opener = opener
        self._remote = config.remote

    def preview(self) -> CopyReport:
        """Say what a copy would do, from what the tiers hold now; changes nothing and takes no lock.

        Raises TierError and what ``plan_copy`` raises.
        """
        with ExitStack() as stack:
            source, target = (
                stack.enter_context(closing(self._open(name))) for name in (self._request.source, self._request.target)
            )
            require_fencing(self._settings, target)
            view = Logbook(source, self._remote).read(thorough=True)
            target_view = Logbook(target, self._remote).read()
            plan = plan_copy(self._request, view, target_view, read_lineage(self._config.local))
            stock = StockTaker(tier=target, remote=self._remote, enabled=self._settings.reuse)
            planned = [self._planned(one, stock, target_view) for one in self._sources(source, view, plan)]
            return self._report(planned + self._already(target, target_view, plan), view, dry_run=True)

    def run(self, events: Events | None = None) -> CopyReport:
        """Copy; what is committed on the target was read back there.

        Raises Fenced where a daemon works on this store or another writer holds the target,
        TierError and CkptierError where either tier fails; a repeat resumes.
        """
        with self._session(events) as session:
            source = session.reader(self._request.source)
            try:
                view = Logbook(source, self._remote).read(thorough=True)
                return self._copy(session, source, view)
            finally:
                session.count_usage(self._request.source)
                session.count_usage(self._request.target)
                session.board.stopped()

    def _copy(self, session: Session, source: Tier, view: LogView) -> CopyReport:
        session.glance()
        replication = session.taking_all(self._request.target)
        target_view = replication.log.refresh()
        plan = plan_copy(self._request, view, target_view, read_lineage(self._config.local))
        if plan.visiting:
            replication.log.decide = decide_visiting_term
            replication.log.writer = f"{COPYING}{replication.log.writer}"
        sources = self._sources(source, view, plan)
        done = _outcomes(sources, self._pass(session, plan, sources)) if sources else []
        return self._report(done + self._already(replication.log.tier, target_view, plan), view, dry_run=False)

    def _pass(self, session: Session, plan: CopyPlan, sources: Sequence[CopySource]) -> PassReport:
        """Let the target's replication work on it, in a thread, so that an interrupt can stop it."""
        prepared = Prepared(descent=plan.descent, sources=tuple(sources))
        with ThreadPoolExecutor(1, thread_name_prefix="ckptier-copy") as pool:
            try:
                result = pool.submit(session.run_tier, self._request.target, prepared).result()
            except BaseException:
                session.stop.set()
                raise
        if result.failure is not None:
            raise _told(result.failure, plan)
        if result.report is None:
            raise Draining
        return result.report

    def _sources(self, tier: Tier, view: LogView, plan: CopyPlan) -> list[CopySource]:
        if view.state is None:
            return []
        return [
            CopySource(tier=tier, remote=self._remote, state=view.state, commit=commit, spool=self._config.state)
            for commit in plan.missing
        ]

    def _planned(self, source: CopySource, stock: StockTaker, view: LogView) -> Copied:
        can = stock.tier.capabilities
        with source.lease():
            try:
                record = source.record
            except SourceDamage as error:
                return _copied(source.commit, CopyOutcome.SOURCE_DAMAGED, reason=error.message)
            prefix = self._remote.prefix(record.generation, 1, NONCE)
            upload = plan_upload(record, prefix, can, part_size=self._settings.part_size)
            upload = reusing(upload, stock.take(view.state, record), can)
        reads = _reads(upload)
        return _copied(source.commit, CopyOutcome.WOULD_COPY, reads=reads, writes=upload.requests)

    def _already(self, target: Tier, view: LogView, plan: CopyPlan) -> list[Copied]:
        """Look at what is there already: a copy that is hurt is no copy."""
        return [self._looked_at(target, view, commit) for commit in plan.there]

    def _looked_at(self, target: Tier, view: LogView, commit: LiveCommit) -> Copied:
        verdict = look_at(target, self._remote, view, commit)
        if verdict.verdict is Finding.UNKNOWN:
            raise Unreachable(
                f"{target.name}: whether {commit.id} is intact there is not known: {verdict.reasons[0]}",
                hint="check the endpoint with `ckptier check`, or try again later",
            )
        if verdict.verdict is Finding.HURT:
            return _copied(commit, CopyOutcome.TARGET_DAMAGED, reason="; ".join(verdict.reasons))
        return _copied(commit, CopyOutcome.ALREADY_THERE)

    def _report(self, done: list[Copied], view: LogView, *, dry_run: bool) -> CopyReport:
        return CopyReport(
            run=self._config.run,
            source=self._request.source,
            target=self._request.target,
            dry_run=dry_run,
            generations=tuple(sorted(done, key=lambda one: one.generation, reverse=True)),
            warnings=tuple(
                f"{self._request.source}: log slot {damage.slot}: {damage.reason}; what it committed cannot be seen"
                for damage in view.damaged
            ),
        )

    def _open(self, name: str) -> Tier:
        settings = self._config.select(name)[0]
        return open_configured(settings, self._opener, self._clock, Meter(), self._stop)

    def _session(self, events: Events | None) -> Session:
        try:
            return Session(
                self._config, clock=self._clock, stop=self._stop, opener=self._opener, events=events, prune=False
            )
        except Fenced as error:
            raise Fenced(
                error.message,
                hint="it holds the journal that a copy needs: stop it (it resumes where it was) and copy again, "
                "or copy with a configuration whose `store` is another folder",
            ) from error


def _copied(commit: LiveCommit, outcome: CopyOutcome, *, reason: str = "", reads: int = 0, writes: int = 0) -> Copied:
    return Copied(
        generation=commit.id,
        outcome=outcome,
        total_bytes=commit.total_bytes,
        objects=commit.objects,
        reason=reason,
        reads=reads,
        writes=writes,
    )


def _reads(plan: UploadPlan) -> int:
    """Return the requests that an undisturbed copy makes to the source for data."""
    return sum(
        sum(part.source is None for part in item.parts) + fetched_twice(item, checked=not plan.read_back)
        for item in plan.objects
    )


def _outcomes(sources: Sequence[CopySource], report: PassReport) -> list[Copied]:
    committed = {one.generation: one for one in report.committed}
    decided = {one.id: one for one in report.decisions}
    return [_outcome(one, committed.get(one.commit.id), decided[one.commit.id]) for one in sources]


def _outcome(source: CopySource, done: Committed | None, decision: Decision) -> Copied:
    if source.damage:
        return _copied(source.commit, CopyOutcome.SOURCE_DAMAGED, reason=source.damage)
    if decision.choice is Choice.FORKED:
        raise TrustFailure(f"{source.commit.id}: {decision.reason}", hint="nothing of that line was copied")
    if done is None or done.outcome is Outcome.ALREADY:
        return _copied(source.commit, CopyOutcome.ALREADY_THERE, reason="somebody else committed it meanwhile")
    return Copied(
        generation=done.generation,
        outcome=CopyOutcome.COPIED,
        total_bytes=done.total_bytes,
        objects=done.objects,
        slot=done.slot,
        verified_by=done.verified_by,
    )


def _told(failure: CkptierError, plan: CopyPlan) -> CkptierError:
    """Say what to do about being shut out in the words of a copy."""
    if not isinstance(failure, Fenced):
        return failure
    hint = (
        "let the machine that writes there replicate by itself; where it is gone for good, `ckptier restore` the run "
        "here: its new attempt may write"
        if plan.visiting
        else "`ckptier restore` opens a new attempt here, which may write; then copy again"
    )
    return Fenced(failure.message, hint=hint)


def copy_generations(
    request: CopyRequest,
    config: Config,
    *,
    clock: Clock,
    stop: threading.Event,
    opener: Opener,
    events: Events | None = None,
    dry_run: bool = False,
) -> CopyReport:
    """Copy generations from tier to tier, or with ``dry_run`` say what would be; see Copying."""
    copying = Copying(request, config, clock=clock, stop=stop, opener=opener)
    return copying.preview() if dry_run else copying.run(events)
