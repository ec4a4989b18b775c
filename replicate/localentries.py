"""The store's generations as ``status`` and its kin show them, one that cannot be read as what it is."""

from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.generation.evidence import Level
from replicate.generation.local import LocalGeneration, scan_generations
from replicate.layout import LocalRun
from replicate.status import LocalEntry


def local_entries(local: LocalRun) -> list[LocalEntry]:
    """Return every generation of the store; none where there is no store."""
    return [_entry(generation) for generation in scan_generations(local)] if local.root.is_dir() else []


def _entry(generation: LocalGeneration) -> LocalEntry:
    evidence = generation.evidence
    reason = evidence.reason if evidence else ""
    at = evidence.at if evidence else None
    try:
        record = generation.record
    except (IntegrityFailure, CapabilityMissing) as error:
        # One that cannot be read must not hide the others: it is shown as what it is.
        return LocalEntry(
            generation=generation.id,
            level=Level.QUARANTINED,
            at=at,
            reason=reason or error.message,
            sealed_at=at or "",
            total_bytes=0,
            objects=0,
            attempt_id=None,
            parent=None,
        )
    return LocalEntry(
        generation=generation.id,
        level=generation.level,
        at=at,
        reason=reason,
        sealed_at=record.sealed_at,
        total_bytes=record.total_bytes,
        objects=len(record.files),
        attempt_id=record.attempt_id,
        parent=record.parent,
    )
