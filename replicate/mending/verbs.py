"""``ckptier repair``: said, or with ``apply`` done, tier by tier."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from replicate import canonical
from replicate.config import TierConfig
from replicate.errors import CkptierError
from replicate.gc import Found, survey
from replicate.generation.evidence import Level
from replicate.generation.lineage import Lineage, read_lineage
from replicate.generation.local import scan_generations
from replicate.keeping import LOCAL, Keeping, translated
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogView
from replicate.logbook import MAX_SLOT, Logbook, check_related
from replicate.logwriter import LogWriter
from replicate.manifest import GenerationRecord, Manifest
from replicate.mending.adopting import adopt
from replicate.mending.deciding import copy_steps, log_steps, plan_repair
from replicate.mending.healing import Healer
from replicate.mending.logmending import LogMender
from replicate.mending.looking import Finder, Vouched, copy_facts, own_attempts, unnamed
from replicate.mending.remembered import Remembered, committed_manifests, remembered
from replicate.mending.sources import GoodCopies
from replicate.mending.steps import Candidate, CopyFacts, Kind, LogFacts, RepairOptions, RepairPlan, Step
from replicate.session import Prepared, Session
from replicate.signing.anchor import Anchor
from replicate.signing.remembered import nothing
from replicate.storekeeping import descent_of, record_found
from replicate.terms import Descent, Standing, TermDecision, decide_mending_term
from replicate.tracker import Seen
from replicate.verify import VerifyReport, verify
from tiers.protocol import Tier
from tiers.reliance import relying

NO_STORE = TermDecision(standing=Standing.FENCED, reason="there is no store of this run here")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRepaired:
    """What is due on one tier, what was done of it, and what could not be."""

    tier: str
    plan: RepairPlan = field(default_factory=RepairPlan)
    done: tuple[Step, ...] = ()
    left: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    failure: CkptierError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """All tiers that were looked at."""

    run: str
    applied: bool
    places: tuple[PlaceRepaired, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """One tier as it was found."""

    log: LogFacts
    found: tuple[Found, ...]
    uploads: tuple[Candidate, ...]
    copies: CopyFacts
    report: VerifyReport
    notes: tuple[str, ...]


class Repairing(Keeping):
    """The verb over one configuration."""

    def repair(
        self, options: RepairOptions | None = None, *, tier: str | None = None, apply: bool = False
    ) -> RepairReport:
        """Find, and with ``apply`` put right, what is damaged on the tiers.

        Raises ConfigInvalid, and with ``apply`` Fenced where a process replicates this store;
        a tier's failure is in the report.
        """
        wanted = options or RepairOptions()
        chosen = self.config.select(tier)
        if not apply:
            places = tuple(self._planned(settings, wanted) for settings in chosen)
            return RepairReport(run=self.config.run, applied=False, places=places)
        self.refuse_beside("stop it first: it holds the tracker and the terms; it goes on after the repair")
        with self.session() as session:
            places = tuple(self._applied(session, settings, wanted) for settings in chosen)
            session.board.stopped()
        return RepairReport(run=self.config.run, applied=True, places=places)

    @property
    def _plain(self) -> RemoteRun:
        """The run's layout without what this machine remembers: a log that is shorter is what a repair is for."""
        return replace(self.remote, memory=nothing)

    def _lineage(self) -> Lineage | None:
        return read_lineage(self.config.local) if self.config.local.root.is_dir() else None

    def _planned(self, settings: TierConfig, options: RepairOptions) -> PlaceRepaired:
        try:
            with self.reading(settings) as tier, self._others(settings, None) as others:
                known = remembered(self.config.state, settings.name)
                view = Logbook(tier, self._plain).read(thorough=True)
                copies = self._good_copies(view, others, self._scanned())
                looked = self._look(tier, view, known, copies, options)
        except CkptierError as error:
            return PlaceRepaired(tier=settings.name, failure=error)
        plan = self._plan(looked, options)
        return PlaceRepaired(tier=settings.name, plan=plan, left=plan.left, notes=looked.notes)

    def _plan(self, looked: _Looked, options: RepairOptions) -> RepairPlan:
        count = len(unnamed(looked.found, looked.log.view))
        return plan_repair(looked.log, looked.copies, looked.uploads, count, options)

    def _look(
        self, tier: Tier, view: LogView, known: Remembered, copies: GoodCopies, options: RepairOptions
    ) -> _Looked:
        """Gather what deciding needs; raises TierError."""
        lineage = self._lineage()
        descent = descent_of(lineage) if lineage else None
        if descent is not None:
            check_related(view, descent.run_uid, tier.name)
        gone = self._not_there(tier, view, known.seen)
        suspicious = options.rebuild_log or bool(view.damaged) or gone is not None
        found = survey(tier, self._plain)[0] if suspicious else ()
        report = verify(tier, self._plain, read_data=options.read_data)
        facts = copy_facts(view, report, self.config.local, copies.places)
        log = LogFacts(
            view=view,
            descent=descent,
            decision=decide_mending_term(view.state, known.held, descent) if descent else NO_STORE,
            held=known.held,
            not_there=gone,
            prefix_term=max((one.prefix.term for one in found if one.prefix.term <= MAX_SLOT), default=0),
        )
        claims = any(step.kind is Kind.CLAIM for step in log_steps(log, options))
        uploads = self._candidates(tier, view, descent, found, claims=claims) if options.rebuild_log else ()
        return _Looked(log=log, found=found, uploads=uploads, copies=facts, report=report, notes=tuple(copies.notes))

    def _not_there(self, tier: Tier, view: LogView, seen: Seen | None) -> Seen | None:
        if seen is None or not Logbook(tier, self._plain).contradicts(view, Anchor(seen.slot, seen.sha256)):
            return None
        return seen

    def _candidates(
        self, tier: Tier, view: LogView, descent: Descent | None, found: Sequence[Found], *, claims: bool = False
    ) -> tuple[Candidate, ...]:
        if descent is None:
            return ()
        finder = Finder(
            tier=tier,
            remote=self._plain,
            view=view,
            run_uid=descent.run_uid,
            own=own_attempts(self._lineage()),
            claims=claims,
            vouched=self._vouched(tier.name) if self.remote.trust.keyring is not None else None,
        )
        with relying():
            return finder.candidates(unnamed(found, view))

    def _vouched(self, tier: str) -> Vouched:
        """Return what tells the uploads of which this machine knows: it committed them, or its store has the same."""
        committed = committed_manifests(self.config.state, tier)
        sealed = {one: canonical.sha256(record.encode()) for one, record in self._scanned().items()}

        def vouched(commit: LiveCommit, manifest: Manifest) -> bool:
            return commit.manifest_sha256 in committed or sealed.get(commit.id) == manifest.generation_sha256

        return vouched

    def _scanned(self) -> dict[GenerationId, GenerationRecord]:
        """Return the validated generations of the store as they lie there."""
        if not self.config.local.root.is_dir():
            return {}
        found = scan_generations(self.config.local)
        return {one.id: one.record for one in found if one.level.reaches(Level.VALIDATED)}

    def _good_copies(
        self, view: LogView, others: dict[str, Callable[[], Tier]], local: dict[GenerationId, GenerationRecord]
    ) -> GoodCopies:
        lineage = self._lineage()
        return GoodCopies(
            store=self.config.local,
            remote=self._plain,
            state=view.state,
            run_uid=lineage.run_uid if lineage else "",
            own=own_attempts(lineage),
            local=local,
            others=others,
        )

    @contextmanager
    def _others(self, settings: TierConfig, session: Session | None) -> Iterator[dict[str, Callable[[], Tier]]]:
        """Return what opens each other tier; what was opened here is closed with the block."""
        names = [other for other in self.config.tier if other.name != settings.name]
        with ExitStack() as stack:
            if session is not None:
                yield {one.name: partial(_of_session, session, one.name) for one in names}
                return
            yield {one.name: partial(stack.enter_context, self.reading(one)) for one in names}

    def _applied(self, session: Session, settings: TierConfig, options: RepairOptions) -> PlaceRepaired:
        name = settings.name
        done: list[Step] = []
        try:
            with translated(), self._others(settings, session) as others:
                return self._repaired(session, settings, options, others, done)
        except CkptierError as error:
            return PlaceRepaired(tier=name, done=tuple(done), failure=error)
        finally:
            for each in self.config.tier:
                session.count_usage(each.name)

    def _repaired(
        self,
        session: Session,
        settings: TierConfig,
        options: RepairOptions,
        others: dict[str, Callable[[], Tier]],
        done: list[Step],
    ) -> PlaceRepaired:
        """Do what is due: the log first, then what is lost from it, then what is hurt."""
        lineage = self._lineage()
        log = session.writer(settings.name)
        view = log.look(descent_of(lineage)) if lineage else Logbook(log.tier, self._plain).read(thorough=True)
        prepared = session.prepare()
        copies = self._good_copies(view, others, _validated(prepared))
        known = Remembered(held=session.tracker.term(log.name), seen=session.tracker.seen(log.name))
        looked = self._look(log.tier, view, known, copies, options)
        plan = self._plan(looked, options)
        if plan.blocked is not None:
            raise plan.blocked
        record_found(self.config.local, [looked.report], self.clock)
        if not plan.due or lineage is None:
            if lineage is not None and looked.log.not_there is None:
                log.reconcile()  # a repair that was killed at its very end told the log and not the tracker
            return PlaceRepaired(tier=log.name, plan=plan, left=plan.left, notes=looked.notes)
        looked = self._log_mended(log, descent_of(lineage), looked, options, done)
        left = self._healed(session, log, prepared, looked, copies, options, done)
        log.reconcile()
        log.hint(force=True)
        return PlaceRepaired(tier=log.name, plan=plan, done=tuple(done), left=left, notes=tuple(copies.notes))

    def _log_mended(
        self, log: LogWriter, descent: Descent, looked: _Looked, options: RepairOptions, done: list[Step]
    ) -> _Looked:
        """Mend the log and commit again what is lost from it; returns what was looked at, as it is now."""
        facts = looked.log
        accepted = facts.not_there if options.rebuild_log else None
        mender = LogMender(log=log, descent=descent, not_there=accepted, prefix_term=facts.prefix_term, done=done)
        mender.mend()
        view = log.view or log.look(descent)
        uploads = self._candidates(log.tier, view, descent, looked.found) if options.rebuild_log else ()
        done += adopt(log, descent, uploads)
        if accepted is not None:
            done.append(Step(kind=Kind.ACCEPT, slot=accepted.slot, reason="the log goes on from what is there"))
        return looked

    def _healed(
        self,
        session: Session,
        log: LogWriter,
        prepared: Prepared,
        looked: _Looked,
        copies: GoodCopies,
        options: RepairOptions,
        done: list[Step],
    ) -> tuple[Step, ...]:
        """Replace or give up what is hurt; returns what is left hurt."""
        descent = looked.log.descent
        if descent is None:
            return ()
        local = {source.fact.id: source for source in prepared.sources}
        healer = Healer(
            session=session,
            replication=session.taking_all(log.name),
            descent=descent,
            local=self.config.local,
            open_source=lambda place, one: (
                local.get(one) if place == LOCAL else copies.source(place, one, self.config.state)
            ),
        )
        steps = {step.generation: step.kind for step in copy_steps(looked.copies, options)}
        outcome = [healer.replace(one) for one in looked.copies.hurt if steps.get(one.generation) is Kind.REPLACE]
        done += [step for step in outcome if step.kind is Kind.REPLACE]
        done += healer.retire([one for one in looked.copies.hurt if steps.get(one.generation) is Kind.RETIRE])
        unhealed = [step for step in outcome if step.kind is Kind.LEAVE]
        return (*unhealed, *(step for step in copy_steps(looked.copies, options) if step.kind is Kind.LEAVE))


def _of_session(session: Session, name: str) -> Tier:
    return session.writer(name).tier


def _validated(prepared: Prepared) -> dict[GenerationId, GenerationRecord]:
    return {source.fact.id: source.record for source in prepared.sources if source.fact.validated}
