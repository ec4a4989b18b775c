"""Which copy to rehearse: a decision over values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replicate.errors import IntegrityFailure, NothingFound
from replicate.layout import GenerationId
from replicate.restore.plan import Held, RestoreRequest, TierAnswer, plan_restore


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPlan:
    """A generation, the tier whose copy is taken, and why these; ``warnings`` may put that into doubt."""

    generation: GenerationId
    tier: str
    why: str
    warnings: tuple[str, ...] = ()


def plan_rehearsal(
    answers: Sequence[TierAnswer], held: Held, *, generation: GenerationId | None, tier: str | None
) -> RehearsalPlan:
    """Choose the newest committed generation, and the first tier in declared order that has it.

    ``tier`` and ``generation`` narrow the choice.  A tier that was named has to answer; of
    several, one that does not is told.  Raises what a restore would: two histories, a fork
    and a log that got shorter are refused here too.
    """
    request = RestoreRequest(generation=generation, tier=tier, accept_older=True)
    plan = plan_restore(request, answers, replace(held, generations=()))
    best = next((one for one in plan.candidates if one.replicas), None)
    if best is None:
        raise NothingFound("no tier has a committed generation", hint="`ckptier replicate --once` commits what is here")
    if plan.hidden and generation is None:
        raise IntegrityFailure(
            f"the log of {', '.join(plan.hidden)} is damaged after its newest generation: a newer one may be hidden",
            hint="name the generation to rehearse with --generation; `ckptier verify` shows what is damaged",
        )
    chosen = best.replicas[0].tier
    if generation is not None:
        why = f"it was named, and {chosen} has it"
    elif tier is not None:
        why = f"the newest committed on {chosen}"
    else:
        why = f"the newest committed, and {chosen} is the first tier that has it"
    unanswered = tuple(
        f"{one.tier} did not answer and may hold a newer one: {one.failure.message}"
        for one in answers
        if one.failure is not None and tier is None
    )
    return RehearsalPlan(generation=best.generation, tier=chosen, why=why, warnings=unanswered)
