"""What one generation is made of: a sealed record that is there, or one that a plan only describes."""

from collections.abc import Iterable
from typing import NamedTuple

from replicate.digests import combine, leaf_size_for
from replicate.layout import GenerationId
from replicate.manifest import GenerationRecord, SealedFile, content_digest
from tiers.memory import MEMORY_CAPABILITIES
from tiers.profiles import choose_profile
from tiers.protocol import Capabilities
from tiers.volume import VOLUME_CAPABILITIES

_DIGEST = "0" * 64
_UID = "00000000-0000-0000-0000-000000000000"


class Described(NamedTuple):
    """``files`` of ``size`` bytes each, named ``name`` and a number."""

    name: str
    size: int
    files: int


def described_record(run: str, objects: Iterable[Described]) -> GenerationRecord:
    """Return the record of a generation that nobody has sealed, so that the real planner can plan it.

    Its digests are made up: they have their usual length, and nothing is checked against them.
    """
    files = tuple(_file(f"{one.name}-{number:05d}", one.size) for one in objects for number in range(one.files))
    digest = content_digest(files, ())[:8]
    return GenerationRecord(
        format=1,
        id=str(GenerationId(1, 1, 1, digest)),
        run=run,
        run_uid=_UID,
        attempt=1,
        attempt_id="0" * 16,
        sequence=1,
        parent=None,
        next_update=1,
        payload="files",
        contract={},
        sealed_at="2026-01-01T00:00:00.000Z",
        save_milliseconds=0,
        files=files,
    )


def _file(path: str, size: int) -> SealedFile:
    leaf_size = leaf_size_for(size)
    leaves = (_DIGEST,) * max(1, -(-size // leaf_size))
    return SealedFile(path=path, size=size, mode=0o644, sha256=combine(leaves), leaf_size=leaf_size, leaves=leaves)


def capabilities_of(url: str, profile: str | None, endpoint_url: str | None) -> Capabilities:
    """Return what a tier of this kind can do, without opening it; raises ValueError for an unknown profile."""
    if url.startswith("s3://"):
        return choose_profile(profile, endpoint_url).capabilities
    return MEMORY_CAPABILITIES if url.startswith("memory://") else VOLUME_CAPABILITIES
