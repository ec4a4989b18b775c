"""What evidence adds to the explanation of a generation: how well its copies are proved, and its rehearsals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from replicate.explaining import Explanation
from replicate.generation.proofs import proof_level
from replicate.generation.rehearsals import RehearsalRecord, read_rehearsal
from replicate.layout import LocalRun
from replicate.status import PlaceView, TierInput


def with_evidence(found: Explanation, local: LocalRun, tiers: Sequence[TierInput]) -> Explanation:
    """Add what this machine knows of the copies that the logs name now; an older copy's evidence says nothing."""
    generation = found.listed.generation
    copies: dict[str, str] = {}
    for tier in tiers:
        state = tier.view.state if tier.view else None
        commit = state.find(generation) if state else None
        if commit is not None:
            copies[tier.tier] = commit.manifest_sha256
    places = tuple(_proved(place, found, local, copies) for place in found.listed.places)
    records = [(digest, read_rehearsal(local, generation, tier)) for tier, digest in copies.items()]
    return replace(
        found,
        listed=replace(found.listed, places=places),
        rehearsals=tuple(one for digest, one in records if one is not None and one.manifest_sha256 == digest),
    )


def _proved(place: PlaceView, found: Explanation, local: LocalRun, copies: Mapping[str, str]) -> PlaceView:
    if place.place not in copies:
        return place
    return replace(place, level=proof_level(local, found.listed.generation, place.place, copies[place.place]))


def told_rehearsal(record: RehearsalRecord) -> tuple[str, ...]:
    """Say in a line each what the rehearsals of a copy came to."""
    lines = []
    if record.passed is not None:
        lines.append(f"rehearsed on {record.tier}: {record.passed.at}, by {record.passed.function}")
    if record.failed is not None:
        lines.append(f"rehearsal FAILED on {record.tier}: {record.failed.at}, by {record.failed.function}")
        lines.append(f"  {record.failed.reason}")
    return tuple(lines)
