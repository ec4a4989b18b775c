"""Carrying out retention in the store: what tiers have goes by policy, and what may go for room is written down."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from replicate.config import Config
from replicate.errors import CkptierError, Fenced, NothingFound
from replicate.generation.evidence import Level
from replicate.generation.lineage import Lineage, read_lineage
from replicate.generation.proofs import Proof, levels_of, proof_levels, record_proof
from replicate.generation.reading import being_read
from replicate.generation.released import Released, ReleasedGeneration, write_released
from replicate.generation.staging import TRASH
from replicate.generation.store import RunStore
from replicate.layout import GenerationId, LocalRun
from replicate.localkeeping import Holding, LocalFacts, LocalPlan, plan_local
from replicate.log import LiveCommit, LogView
from replicate.plan import Choice, LocalFact
from replicate.retention import Policy
from replicate.terms import Descent
from replicate.tracker import Tracker
from replicate.verify import Finding, VerifyReport
from tiers.clock import Clock, rfc3339

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSide:
    """What the present view of a tier's log adds to what is known to be there."""

    choices: Mapping[GenerationId, Choice] = field(default_factory=dict)
    pins: frozenset[str] = frozenset()


def descent_of(lineage: Lineage) -> Descent:
    """Return the store's place in the run."""
    return Descent(
        run_uid=lineage.run_uid, attempt=lineage.attempt, attempt_id=lineage.attempt_id, start=lineage.parent
    )


def starts_of(lineage: Lineage | None) -> dict[int, GenerationId]:
    """Return the generation that each attempt went on from, as far as this store knows."""
    if lineage is None:
        return {}
    known = {past.number: past.parent for past in lineage.history} | {lineage.attempt: lineage.parent}
    return {number: GenerationId.parse(parent) for number, parent in known.items() if parent is not None}


def facts_of(store: RunStore, generations: Sequence[LocalFact]) -> LocalFacts:
    """Return what deciding needs to know of the store; raises IntegrityFailure for a damaged lineage."""
    lineage = read_lineage(store.local)
    latest = store.latest()
    return LocalFacts(
        generations=generations,
        latest=latest.id if latest else None,
        resumed_from=GenerationId.parse(lineage.parent) if lineage and lineage.parent else None,
        starts=starts_of(lineage),
        being_read=being_read(store.local),
    )


def local_policy(config: Config) -> Policy:
    """Return the policy that is configured for the store."""
    return Policy(keep_last=config.keep_last, keep_every=config.keep_every)


def plan_store(
    config: Config, store: RunStore, generations: Sequence[LocalFact], holdings: Sequence[Holding]
) -> LocalPlan:
    """Decide for the store's generations."""
    return plan_local(facts_of(store, generations), local_policy(config), holdings, Level(config.local_requires))


def holding_from_log(config: Config, tier: str, view: LogView, choices: Mapping[GenerationId, Choice]) -> Holding:
    """Return what a tier has by its log."""
    held = proof_levels(config.local, tier, view.live)
    return Holding(
        tier=tier, held=held, choices=choices, pins=frozenset(view.state.pins) if view.state else frozenset()
    )


def hurt_copies(local: LocalRun, tier: str, live: Iterable[LiveCommit]) -> frozenset[GenerationId]:
    """Return the live commits of a tier whose copy this machine has found hurt."""
    return frozenset(one for one, level in proof_levels(local, tier, live).items() if level is Level.QUARANTINED)


def record_found(local: LocalRun, reports: Sequence[VerifyReport], clock: Clock) -> None:
    """Write down which copies on tiers had every byte read and found as sealed, and which are hurt.

    Where that fails it is only told.
    """
    if not local.root.is_dir():
        return
    for report in reports:
        for one in report.generations:
            whole = one.verdict is Finding.INTACT and one.bytes_read == one.total_bytes > 0
            if one.manifest_sha256 is None or not (whole or one.verdict is Finding.HURT):
                continue
            proof = Proof(
                generation=str(one.generation),
                tier=report.tier,
                manifest_sha256=one.manifest_sha256,
                level=Level.READ_BACK if whole else Level.QUARANTINED,
                at=rfc3339(clock.now()),
                detail="; ".join(("verify", *one.reasons[:3])),
            )
            try:
                record_proof(local, proof)
            except CkptierError as error:
                _log.warning("what was found of %s could not be recorded: %s", one.generation, error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKeeping:
    """The store of an open session.  What tiers have is taken from the tracker, which is never ahead of a log."""

    config: Config
    store: RunStore
    tracker: Tracker

    def plan(self, generations: Sequence[LocalFact], sides: Mapping[str, TierSide]) -> LocalPlan:
        """Decide; ``sides`` has the tiers whose log is known now."""
        holdings = [self._holding(tier.name, sides.get(tier.name, TierSide())) for tier in self.config.tier]
        return plan_store(self.config, self.store, generations, holdings)

    def _holding(self, tier: str, side: TierSide) -> Holding:
        local = self.config.local
        completed = self.tracker.completed(tier)
        return Holding(
            tier=tier,
            held=levels_of(local, tier, ((one.generation, one.manifest_sha256) for one in completed)),
            choices=side.choices,
            under_way=frozenset(planned.generation for planned in self.tracker.planned(tier)),
            pins=side.pins,
        )

    def remove(self, plan: LocalPlan) -> tuple[GenerationId, ...]:
        """Remove what goes, oldest first; what is in use or protected since is left."""
        removed = []
        if plan.plan.removed or any(self.config.local.root.glob(f"{TRASH}*")):
            self.store.sweep()  # what a removal that was killed half-way left
        for one in plan.plan.removed:
            try:
                self.store.remove(one.id)
            except (Fenced, NothingFound) as error:
                _log.info("%s stays for now: %s", one.id, error.message)
                continue
            _log.info("%s was removed from the store: %s", one.id, one.reasons[0].text)
            removed.append(one.id)
        return tuple(removed)

    def release(self, plan: LocalPlan, removed: Sequence[GenerationId], run_uid: str) -> None:
        """Write down what a save that would not fit may remove; an empty list where that is not wanted."""
        released = [
            ReleasedGeneration(generation=str(one), reason=where)
            for one, where in plan.released
            if one not in removed and self.config.local_headroom
        ]
        try:
            write_released(self.config.local, Released(run_uid=run_uid, generations=tuple(released)))
        except CkptierError as error:
            _log.warning("what may go for room could not be written down: %s", error.message)
