"""The documents of a candidate: its ``generation.json`` and manifests, from wherever they can be read and proved."""

from collections.abc import Mapping
from dataclasses import dataclass

from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    Denied,
    IntegrityFailure,
    Unreachable,
    from_tier_error,
)
from replicate.generation.lineage import RestoredFrom
from replicate.layout import RemoteRun
from replicate.manifest import GenerationRecord
from replicate.restore.holdings import Holdings
from replicate.restore.places import Fault, Incident, NotProved
from replicate.restore.plan import Candidate
from replicate.restore.sources import Source, TierSource
from replicate.verify import read_manifest
from tiers.errors import IntegrityError, ObjectNotFound, TierError
from tiers.protocol import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Provable:
    """What a candidate's readable documents give: the record, and where its bytes may come from.

    ``faults`` say, with the tier first, which manifests could not be used.
    """

    record: GenerationRecord
    record_bytes: bytes
    sources: tuple[Source, ...]
    restored_from: RestoredFrom | None
    faults: tuple[str, ...] = ()


def read_documents(
    candidate: Candidate,
    tiers: Mapping[str, Tier],
    remote: RemoteRun,
    run_uid: str | None,
    holdings: Holdings,
    *,
    only_tiers: bool,
) -> Provable:
    """Read the documents of a candidate wherever it lies; NotProved where none is readable.

    ``only_tiers``: the store is not to deliver any bytes.
    """
    faults: list[str] = []
    incidents: list[Incident] = []
    cause: CkptierError | None = None
    sources: list[Source] = [] if only_tiers else holdings.sources(candidate.generation)
    chosen: tuple[GenerationRecord, bytes, RestoredFrom | None] | None = None
    for replica in candidate.replicas:
        tier = tiers[replica.tier]
        try:
            manifest = read_manifest(tier, remote, run_uid or "", replica.commit)
        except (TierError, CkptierError) as error:
            cause = _unanswered(error) or cause
            faults.append(f"{replica.tier}: {_manifest_fault(error)}")
            incidents.extend(_missing_manifest(replica.tier, error))
            continue
        sources.append(TierSource.of(tier, manifest))
        origin = RestoredFrom(tier=replica.tier, generation=str(candidate.generation), slot=replica.commit.slot)
        chosen = chosen or (manifest.record(), manifest.generation_bytes, origin)
    held = holdings.find(candidate.generation) if candidate.local else None
    if chosen is None and held is not None:
        chosen = (held.record, held.record_bytes, None)
    if chosen is None:
        raise NotProved("; ".join(faults), incidents=tuple(incidents), cause=cause)
    record, record_bytes, origin_of = chosen
    return Provable(
        record=record,
        record_bytes=record_bytes,
        sources=tuple(sources),
        restored_from=origin_of,
        faults=tuple(faults),
    )


def unfetched(candidate: Candidate, error: IntegrityFailure) -> CkptierError | None:
    """Return the error for a candidate that a tier did not hand out, which says nothing against it; None for others."""
    cause = error.cause if isinstance(error, NotProved) else None
    if cause is None:
        return None
    kind = type(cause) if isinstance(cause, Denied | CapabilityMissing) else Unreachable
    hint = cause.hint or "check the endpoint with `ckptier check`"
    return kind(
        f"{candidate.generation} could not be fetched: {cause.message}",
        hint=f"{hint}; run again then: what was fetched is kept; or take an older one with --accept-older",
    )


def _unanswered(error: TierError | CkptierError) -> CkptierError | None:
    """Return the error where it says nothing about the generation: the tier did not hand it out."""
    if isinstance(error, TierError) and not isinstance(error, ObjectNotFound | IntegrityError):
        return from_tier_error(error)
    return error if isinstance(error, CkptierError) and not isinstance(error, IntegrityFailure) else None


def _manifest_fault(error: TierError | CkptierError) -> str:
    return "its manifest is missing" if isinstance(error, ObjectNotFound) else error.message


def _missing_manifest(tier: str, error: TierError | CkptierError) -> list[Incident]:
    if not isinstance(error, ObjectNotFound):
        return []
    return [Incident(place=tier, path="manifest.json", leaf=0, fault=Fault.MISSING, reason=error.message)]
