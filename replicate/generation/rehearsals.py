"""What rehearsals of copies on tiers came to: ``rehearsals/<generation>@<tier>.json``.

A rehearsal that succeeded is evidence of the copy (replicate.generation.proofs).  One that
failed says nothing of its bytes, which were proved before it began: it is written down here,
shown, and neither lifts nor lowers what is known of the copy.
"""

import json
import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.generation.disk import make_directory, read_document, write_durably
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import Count, Record, Sha256, Text, parse

FOLDER = "rehearsals"
MAX_OBSERVATIONS = 64 * 1024
"""Bytes of observations, as JSON, that one rehearsal may return."""
_MAX_BYTES = 1024 * 1024
_log = logging.getLogger(__name__)


class Rehearsed(Record):
    """One rehearsal.  ``observations`` is a JSON object as text, since floats have no canonical form."""

    at: Text
    function: Text
    milliseconds: Count
    reason: Text = ""
    observations: Annotated[str, Field(max_length=2 * MAX_OBSERVATIONS)] = "{}"

    @property
    def observed(self) -> Mapping[str, Any]:
        """The observations; empty where they cannot be read."""
        try:
            found = json.loads(self.observations)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class RehearsalRecord(Record):
    """The last rehearsal of a copy that succeeded, and the last that failed since."""

    format: Literal[1] = 1
    generation: Text
    tier: Text
    manifest_sha256: Sha256
    passed: Rehearsed | None = None
    failed: Rehearsed | None = None

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


def record_rehearsal(
    local: LocalRun, generation: GenerationId, tier: str, manifest_sha256: str, rehearsed: Rehearsed, *, passed: bool
) -> None:
    """Write down what a rehearsal came to, durably."""
    known = read_rehearsal(local, generation, tier)
    before = known.passed if known is not None and known.manifest_sha256 == manifest_sha256 else None
    record = RehearsalRecord(
        generation=str(generation),
        tier=tier,
        manifest_sha256=manifest_sha256,
        passed=rehearsed if passed else before,
        failed=None if passed else rehearsed,
    )
    folder = local.root / FOLDER
    make_directory(folder)
    write_durably(folder / f"{generation}@{tier}.json", record.encode())


def read_rehearsal(local: LocalRun, generation: GenerationId, tier: str) -> RehearsalRecord | None:
    """Return what is known; a document that is damaged counts as none."""
    path = local.root / FOLDER / f"{generation}@{tier}.json"
    try:
        data = read_document(path, _MAX_BYTES)
        found = parse(RehearsalRecord, data, what=str(path), max_bytes=_MAX_BYTES) if data is not None else None
    except IntegrityFailure as error:
        _log.warning("%s; it counts as not rehearsed", error.message)
        return None
    if found is None or (found.generation, found.tier) != (str(generation), tier):
        return None
    return found
