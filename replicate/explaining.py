"""What ``explain`` says of one generation: assembled from values alone, as replicate.status does for the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    Denied,
    IntegrityFailure,
    NothingFound,
    TrustFailure,
    Unreachable,
)
from replicate.generation.evidence import Level
from replicate.generation.rehearsals import RehearsalRecord
from replicate.layout import GenerationId
from replicate.status import Listed, LocalEntry, TierInput, anchor_of, list_generations


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A step of the descent; ``places`` is empty where it is no longer anywhere."""

    generation: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All about one generation: where it is, where it comes from, and what restoring it now would do.

    ``anchors`` are those of the logs, by tier; ``exposed``: what somebody with the bucket's keys could still do.
    """

    listed: Listed
    lineage: tuple[Ancestor, ...]
    newest_because: str
    when_restored: tuple[str, ...]
    unanswered: tuple[str, ...]
    rehearsals: tuple[RehearsalRecord, ...] = ()
    anchors: tuple[tuple[str, str], ...] = ()
    exposed: tuple[str, ...] = ()


def explain(generation: GenerationId, local: Sequence[LocalEntry], tiers: Sequence[TierInput]) -> Explanation | None:
    """Say all that is known of one generation; None where it is nowhere that answered."""
    everything = list_generations(local, tiers)
    listed = next((one for one in everything if one.generation == generation), None)
    if listed is None:
        return None
    places = {str(one.generation): tuple(place.place for place in one.places) for one in everything}
    return Explanation(
        listed=listed,
        lineage=_ancestors(str(generation), _parents(local, tiers), places),
        newest_because=_newest_because(listed, everything),
        when_restored=_when_restored(listed, everything, local, tiers),
        unanswered=tuple(tier.tier for tier in tiers if tier.view is None),
        anchors=tuple((tier.tier, anchor) for tier in tiers if (anchor := anchor_of(tier.view))),
    )


def _parents(local: Sequence[LocalEntry], tiers: Sequence[TierInput]) -> dict[str, str | None]:
    parents = {commit.generation: commit.parent for tier in tiers for commit in (tier.view.live if tier.view else ())}
    return parents | {str(entry.generation): entry.parent for entry in local}


def _ancestors(
    generation: str, parents: Mapping[str, str | None], places: Mapping[str, tuple[str, ...]]
) -> tuple[Ancestor, ...]:
    """Follow parents as far as they are known; a loop, which only a hostile log has, ends it."""
    steps: dict[str, Ancestor] = {}
    current = parents.get(generation)
    while current is not None and current not in steps:
        steps[current] = Ancestor(generation=current, places=places.get(current, ()))
        current = parents.get(current)
    return tuple(steps.values())


def _newest_because(listed: Listed, everything: Sequence[Listed]) -> str:
    quarantined = [place.note for place in listed.places if place.level is Level.QUARANTINED]
    if quarantined and len(listed.places) == 1:
        return f"it does not count: quarantined ({quarantined[0] or 'no reason recorded'})"
    if listed.newest:
        return "it is the newest: no other has a higher attempt and sequence"
    newest = next((one.generation for one in everything if one.newest), None)
    if newest is None:
        return "it does not count, and no other does: every copy that is known is quarantined"
    what = "attempt" if newest.attempt > listed.generation.attempt else "sequence"
    return f"it is not the newest: {newest} has the higher {what}"


def _when_restored(
    listed: Listed, everything: Sequence[Listed], local: Sequence[LocalEntry], tiers: Sequence[TierInput]
) -> tuple[str, ...]:
    good = [place.place for place in listed.places if place.level is not Level.QUARANTINED]
    if not good:
        return ("nothing: no copy that counts is known",)
    numbers = [entry.generation.attempt for entry in local]
    numbers += [tier.view.state.highest_attempt for tier in tiers if tier.view and tier.view.state]
    newer = [str(one.generation) for one in everything if one.generation > listed.generation]
    words = [
        f"its bytes would come from {', then '.join(good)}",
        f"a new attempt, {max(numbers) + 1} or higher, would go on at update {listed.next_update}",
    ]
    if newer:
        words.append(f"{len(newer)} newer would be left behind, not deleted: {', '.join(newer[:5])}")
    return tuple(words)


def nowhere(generation: GenerationId | None, tiers: Sequence[TierInput]) -> CkptierError:
    """Return why a generation is not found: that it is nowhere can only be said where every log was read in full."""
    what = str(generation) if generation else "a generation"
    for one in tiers:
        if one.failure is not None:
            kinds = (TrustFailure, Denied, CapabilityMissing)
            kind = next((each for each in kinds if isinstance(one.failure, each)), Unreachable)
            words = one.failure.message.removeprefix(f"{one.tier}: ")
            return kind(f"{one.tier} may have {what}: {words}", hint=one.failure.hint)
    hurt = next((one.tier for one in tiers if one.view and one.view.damaged), None)
    if hurt is not None:
        return IntegrityFailure(
            f"{hurt} may have {what}: entries of its log cannot be read or trusted",
            hint=f"`ckptier verify --tier {hurt}` says what still works",
        )
    words = f"{generation} is nowhere: every place answered" if generation else "there is no generation anywhere"
    return NothingFound(words, hint="`ckptier list` shows what there is")
