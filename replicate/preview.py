"""``replicate --dry-run``: the decisions and the plan that a run would follow, and nothing done."""

from collections.abc import Sequence
from dataclasses import dataclass

from replicate.config import TierConfig
from replicate.generation.evidence import Level
from replicate.generation.local import LocalGeneration
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.plan import Choice, Decision, LocalFact, plan_generations, plan_upload
from tiers.protocol import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGeneration:
    """One decision; sizes and requests are 0 unless it goes up.

    ``hashed_again`` counts bytes: where parts are no leaves, each byte goes into its part's
    digest and once more into its leaf's, which has to be as sealed.
    """

    decision: Decision
    total_bytes: int = 0
    objects: int = 0
    requests: int = 0
    hashed_again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPreview:
    """What would happen on one tier."""

    tier: str
    generations: tuple[PlannedGeneration, ...]


def local_fact(generation: LocalGeneration) -> LocalFact:
    """Return what deciding needs to know of a local generation."""
    quarantined = generation.level is Level.QUARANTINED
    parent = None if quarantined else generation.record.parent
    attempt_id = "" if quarantined else generation.record.attempt_id
    return LocalFact(
        id=generation.id,
        parent=GenerationId.parse(parent) if parent else None,
        validated=generation.level.reaches(Level.VALIDATED),
        quarantined=quarantined,
        attempt_id=attempt_id,
    )


def preview_tier(
    settings: TierConfig, tier: Tier, remote: RemoteRun, local: Sequence[LocalGeneration], backlog: int | None
) -> TierPreview:
    """Decide for every local generation against the tier's log as it stands; raises TierError."""
    view: LogView = Logbook(tier, remote).read()
    decisions = plan_generations(
        [local_fact(one) for one in local], view.state, replicate_every=settings.replicate_every, backlog=backlog
    )
    by_id = {one.id: one for one in local}
    return TierPreview(
        tier=settings.name,
        generations=tuple(_planned(decision, by_id[decision.id], settings, tier, remote) for decision in decisions),
    )


def _planned(
    decision: Decision, generation: LocalGeneration, settings: TierConfig, tier: Tier, remote: RemoteRun
) -> PlannedGeneration:
    if decision.choice is not Choice.UPLOAD:
        return PlannedGeneration(decision=decision)
    plan = plan_upload(
        generation.record, remote.prefix(decision.id, 0, "preview"), tier.capabilities, part_size=settings.part_size
    )
    return PlannedGeneration(
        decision=decision,
        total_bytes=plan.total_bytes,
        objects=len(plan.objects),
        requests=plan.requests,
        hashed_again=sum(2 * item.file.size for item in plan.objects if item.second_hash),
    )
