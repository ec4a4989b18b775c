"""``ckptier gc``, ``pin``, ``unpin`` and ``destroy``: said, or done where that is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from replicate.config import TierConfig
from replicate.destroy import Rubble, raze, retire_everything, survey_run
from replicate.errors import CkptierError, ConfigInvalid, NothingFound, UsageError
from replicate.gc import Knowledge, OrphanPlan, OrphanReport, collect, plan_orphans, survey
from replicate.keeping import Keeping, translated
from replicate.layout import GenerationId, RemoteRun
from replicate.leftovers import Leftovers, read_leftovers
from replicate.logbook import Logbook
from replicate.pinning import PinOutcome, PinResult, pin, unpin
from replicate.session import Session
from replicate.signing.remembered import nothing
from tiers.protocol import Fencing, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceCollected:
    """What lies on one tier that no commit names, and what was deleted of it."""

    tier: str
    report: OrphanReport | None = None
    note: str = ""
    failure: CkptierError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectReport:
    """All tiers that were asked."""

    run: str
    applied: bool
    places: tuple[PlaceCollected, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReport:
    """What came of a pin, or of taking one back."""

    generation: GenerationId
    results: tuple[PinResult, ...]
    failures: tuple[tuple[str, CkptierError], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyReport:
    """What lay below the run's name on each tier; ``applied``: it is gone."""

    run: str
    applied: bool
    places: tuple[Rubble, ...]


class Clearing(Keeping):
    """The verbs over one configuration."""

    def gc(self, *, tier: str | None = None, apply: bool = False) -> CollectReport:
        """Find, and with ``apply`` delete, what uploads left behind that can never be committed."""
        chosen = self.config.select(tier)
        if apply:
            self.refuse_beside("stop it first: what it has under way cannot be told from what it gave up")
            with self.session() as session:
                places = [self._collected(session, settings) for settings in chosen]
                session.board.stopped()
        else:
            places = [self._orphans(settings) for settings in chosen]
        return CollectReport(run=self.config.run, applied=apply, places=tuple(places))

    def _orphans(self, settings: TierConfig) -> PlaceCollected:
        """Look, changing nothing; in advisory mode by this machine's clock, since asking the store's writes."""
        seen = read_leftovers(self.config.state, settings.name)
        try:
            with self.reading(settings) as tier:
                known = Knowledge(
                    given_up=seen.given_up,
                    under_way=frozenset(
                        self.remote.prefix(GenerationId.parse(one), term, nonce) for one, term, nonce in seen.planned
                    ),
                    advisory=tier.capabilities.fencing is Fencing.ADVISORY,
                    now=self.clock.now(),
                )
                plan = self._plan_orphans(tier, known)
        except CkptierError as error:
            return PlaceCollected(tier=settings.name, failure=error)
        note = f"{seen.strays} uploads in parts were given up, and are aborted with --apply" if seen.strays else ""
        return PlaceCollected(tier=settings.name, report=OrphanReport(plan=plan), note=note or self.note(settings))

    def _plan_orphans(self, tier: Tier, known: Knowledge) -> OrphanPlan:
        found, unknown = survey(tier, self.remote)
        # The log after the listing: what was committed in between is then known to be committed.
        view = Logbook(tier, self.remote).read(thorough=True)
        return plan_orphans(found, unknown, view, known)

    def _collected(self, session: Session, settings: TierConfig) -> PlaceCollected:
        try:
            with translated():
                pruner = session.pruner(settings.name, self.descent())
                tier, tracker = pruner.log.tier, session.tracker
                advisory = tier.capabilities.fencing is Fencing.ADVISORY
                known = Knowledge(
                    given_up=_given_up(tracker, settings.name),
                    under_way=frozenset(
                        self.remote.prefix(one.generation, one.term, one.nonce)
                        for one in tracker.planned(settings.name)
                    ),
                    advisory=advisory,
                    now=pruner.log.store_time() if advisory and pruner.log.state else None,
                )
                plan = self._plan_orphans(tier, known)
                report = collect(tier, plan, tracker, connections=settings.connections, interrupted=self.stop.is_set)
        except CkptierError as error:
            return PlaceCollected(tier=settings.name, failure=error)
        finally:
            session.count_usage(settings.name)
        return PlaceCollected(tier=settings.name, report=report, note=self.note(settings))

    def pin(self, generation: GenerationId, *, tier: str | None = None, reason: str = "") -> PinReport:
        """Pin a generation where it is, and where it will come from this store; raises NothingFound."""
        here = any(fact.id == generation and not fact.quarantined for fact in self.facts())
        report = self._each(
            generation,
            tier,
            lambda open_tier: pin(open_tier, self.remote, self.clock, generation, reason, expected=here),
        )
        _refuse_nowhere(report, (PinOutcome.PINNED, PinOutcome.ALREADY_PINNED))
        return report

    def unpin(self, generation: GenerationId, *, tier: str | None = None) -> PinReport:
        """Take a pin back; raises NothingFound where it was pinned nowhere."""
        report = self._each(generation, tier, lambda open_tier: unpin(open_tier, self.remote, self.clock, generation))
        _refuse_nowhere(report, (PinOutcome.UNPINNED,))
        return report

    def _each(self, generation: GenerationId, tier: str | None, act: Callable[[Tier], PinResult]) -> PinReport:
        results: list[PinResult] = []
        failures: list[tuple[str, CkptierError]] = []
        for settings in self.config.select(tier):
            try:
                with self.reading(settings) as opened:
                    results.append(act(opened))
            except CkptierError as error:
                failures.append((settings.name, error))
        return PinReport(generation=generation, results=tuple(results), failures=tuple(failures))

    def destroy(self, run: str, *, tier: str | None = None, apply: bool = False) -> DestroyReport:
        """Count, and with ``apply`` delete, everything of the run on its tiers; the store is not touched.

        Raises UsageError for the name of another run, Fenced where a process replicates the
        store or another writer holds the log, TierError as an error with an exit code.
        """
        if run != self.config.run:
            raise UsageError(
                f"the configuration is of the run {self.config.run!r}, not {run!r}",
                hint=f"name the run that is meant: ckptier destroy {self.config.run}",
            )
        chosen = self.config.select(tier)
        if not chosen:
            raise ConfigInvalid("no tier is configured", hint="there is nothing to destroy but the store itself")
        self.refuse_beside("stop it first: it would write on into what is being destroyed")
        if not apply:
            return DestroyReport(run=run, applied=False, places=tuple(map(self._surveyed, chosen)))
        with self.session() as session:
            places = tuple(self._destroyed(session, settings) for settings in chosen)
            session.board.stopped()
        return DestroyReport(run=run, applied=True, places=places)

    @property
    def _unremembered(self) -> RemoteRun:
        """The run for what is to be destroyed: where that was interrupted, the log is shorter than was seen."""
        return replace(self.remote, memory=nothing)

    def _surveyed(self, settings: TierConfig) -> Rubble:
        with self.reading(settings) as tier:
            return survey_run(tier, self.remote, Logbook(tier, self._unremembered).read())

    def _destroyed(self, session: Session, settings: TierConfig) -> Rubble:
        with translated():
            descent = self.descent()
            log = session.writer(settings.name)
            view = Logbook(log.tier, self._unremembered).read(thorough=True)
            rubble = survey_run(log.tier, self.remote, view)
            if view.live and not view.damaged:
                if descent is None:
                    raise NothingFound(
                        f"{settings.name}: the run is committed there, and this machine has no store of it",
                        hint="destroy it where its store is, or run `ckptier restore` here first",
                    )
                log.refresh(descent)
                log.ensure_term(descent)
                retire_everything(log, descent)
            raze(log.tier, self.remote, connections=settings.connections, interrupted=self.stop.is_set)
            session.tracker.forget_tier(settings.name)
            return rubble


def _given_up(tracker: Leftovers, tier: str) -> dict[str, str]:
    return {one.prefix: one.reason for one in tracker.abandoned(tier)}


def _refuse_nowhere(report: PinReport, good: Sequence[PinOutcome]) -> None:
    """Raise where nothing was done anywhere: the first failure, or NothingFound with what each tier said."""
    if any(one.outcome in good for one in report.results):
        return
    if report.failures:
        raise report.failures[0][1]
    words = ", ".join(f"{one.tier}: {one.outcome}" for one in report.results) or "no tier is configured"
    raise NothingFound(f"{report.generation}: {words}", hint="`ckptier list` shows what is where")
