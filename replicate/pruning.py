"""``ckptier prune``: what the policies let go, at each place, said or done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replicate.config import TierConfig
from replicate.errors import CkptierError, NothingFound
from replicate.generation.lineage import read_lineage
from replicate.generation.reading import being_read
from replicate.generation.store import RunStore
from replicate.keeper import holds_of, policy_of, unwanted_by
from replicate.keeping import LOCAL, Keeping, translated
from replicate.layout import GenerationId
from replicate.leftovers import read_leftovers
from replicate.localkeeping import Holding, LocalPlan
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.plan import LocalFact, plan_generations
from replicate.prune import Pending, RetiredNow, Swept, plan_tier, sort_retired
from replicate.retention import RetentionPlan
from replicate.session import Prepared, Session
from replicate.storekeeping import holding_from_log, hurt_copies, plan_store, starts_of
from replicate.terms import Descent
from tiers.protocol import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacePruned:
    """What pruning would do at one place, or did: what it decided, retired, deleted, and what waits."""

    place: str
    plan: RetentionPlan | None = None
    retired: tuple[RetiredNow, ...] = ()
    swept: tuple[Swept, ...] = ()
    removed: tuple[GenerationId, ...] = ()
    pending: tuple[Pending, ...] = ()
    note: str = ""
    failure: CkptierError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """All places, in declared order, the store last."""

    run: str
    applied: bool
    places: tuple[PlacePruned, ...]


class Pruning(Keeping):
    """The verb over one configuration."""

    def prune(self, *, tier: str | None = None, apply: bool = False, most: bool = False) -> PruneReport:
        """Say, or with ``apply`` do, what the policies let go; ``most`` lifts the limit of how much at a time.

        Raises ConfigInvalid, NothingFound (no store), and with ``apply`` Fenced where a
        process replicates this store; a tier's failure is in the report.
        """
        chosen = self._chosen(tier)
        local = tier in (None, LOCAL)
        if not apply:
            planned = tuple(self._prune_planned(chosen, local=local))
            return PruneReport(run=self.config.run, applied=False, places=planned)
        self.refuse_beside("it prunes by itself after each commit; `ckptier prune` without --apply shows the plan")
        places = self._prune_applied(chosen, local=local, most=most)
        return PruneReport(run=self.config.run, applied=True, places=tuple(places))

    def _chosen(self, tier: str | None) -> tuple[TierConfig, ...]:
        return () if tier == LOCAL else self.config.select(tier)

    def _prune_planned(self, chosen: Sequence[TierConfig], *, local: bool) -> Iterator[PlacePruned]:
        facts = self.facts()
        holdings: list[Holding] = []
        for settings in self.config.tier if local else chosen:
            place, holding = self._planned(settings, facts)
            if settings in chosen:
                yield place
            holdings.append(holding)
        if local:
            plan = self._plan_store(facts, holdings)
            yield PlacePruned(place=LOCAL, plan=plan.plan if plan else None)

    def _planned(self, settings: TierConfig, facts: Sequence[LocalFact]) -> tuple[PlacePruned, Holding]:
        """Look at one tier; one that does not answer has nothing, as far as the store is concerned."""
        try:
            with self.reading(settings) as tier:
                view = Logbook(tier, self.remote).read()
                lineage, reading = read_lineage(self.config.local), being_read(self.config.local)
                hurt = hurt_copies(self.config.local, settings.name, view.live)
                holds = holds_of(lineage, reading)
                plan = plan_tier(view.state, policy_of(settings), holds, starts_of(lineage), hurt=hurt)
                pending = self._pending(settings, tier, view)
                place = PlacePruned(place=settings.name, plan=plan, pending=pending, note=self.note(settings))
        except CkptierError as error:
            return PlacePruned(place=settings.name, failure=error), Holding(tier=settings.name, held={})
        decisions = plan_generations(
            facts,
            view.state,
            replicate_every=settings.replicate_every,
            backlog=None,
            unwanted=lambda coming: unwanted_by(self.config, settings)(view.state, coming),
        )
        choices = {one.id: one.choice for one in decisions}
        return place, holding_from_log(self.config, settings.name, view, choices)

    def _pending(self, settings: TierConfig, tier: Tier, view: LogView) -> tuple[Pending, ...]:
        """Say what waits to be deleted, and about how long: by this machine's clock, since looking writes nothing."""
        book = Logbook(tier, self.remote)
        swept = read_leftovers(self.config.state, settings.name).swept
        due, pending = sort_retired(
            [one for one in (view.state.retired if view.state else ()) if one.manifest_key not in swept],
            self.remote,
            settings.retire_delay_seconds,
            self.clock.now(),
            book.written_at,
            being_read(self.config.local),
        )
        ready = (
            Pending(generation=one.id, slot=one.slot, total_bytes=one.total_bytes, due_in=0.0, reason="may be deleted")
            for one in due
        )
        return (*ready, *pending)

    def _plan_store(self, facts: Sequence[LocalFact], holdings: Sequence[Holding]) -> LocalPlan | None:
        if not self.config.local.root.is_dir():
            return None
        return plan_store(self.config, self._store, facts, holdings)

    @property
    def _store(self) -> RunStore:
        return RunStore(self.config.local.root, clock=self.clock, hash_workers=self.config.hash_workers)

    def _prune_applied(self, chosen: Sequence[TierConfig], *, local: bool, most: bool) -> list[PlacePruned]:
        with self.session() as session:
            prepared = session.prepare()
            places = [self._applied(session, settings, prepared, most=most) for settings in chosen]
            if local:
                places.append(self._store_applied(session, prepared))
            session.board.stopped()
            return places

    def _applied(self, session: Session, settings: TierConfig, prepared: Prepared, *, most: bool) -> PlacePruned:
        name = settings.name
        try:
            with translated():
                pruner = session.pruner(name, prepared.descent)
                plan = pruner.plan()
                retired: tuple[RetiredNow, ...] = ()
                if plan.removed:
                    descent = self._descent(prepared)
                    pruner.log.ensure_term(descent)
                    retired = pruner.retire(descent, most=most)
                report = pruner.sweep(interrupted=self.stop.is_set)
        except CkptierError as error:
            return PlacePruned(place=name, failure=error)
        finally:
            session.count_usage(name)
        note = self.note(settings)
        return PlacePruned(
            place=name, plan=plan, retired=retired, swept=report.swept, pending=report.pending, note=note
        )

    def _descent(self, prepared: Prepared) -> Descent:
        if prepared.descent is None:
            raise NothingFound(
                f"there is no store of this run at {self.config.local.root}, so this machine cannot write to its log",
                hint="prune where the run's store is; `ckptier restore` makes one here",
            )
        return prepared.descent

    def _store_applied(self, session: Session, prepared: Prepared) -> PlacePruned:
        try:
            plan = session.keeper.plan_store(prepared.sources)
            session.keeper.store_changed()
            removed = session.keeper.tend_store(prepared.sources, prepared.descent)
        except CkptierError as error:
            return PlacePruned(place=LOCAL, failure=error)
        return PlacePruned(place=LOCAL, plan=plan.plan, removed=removed)
