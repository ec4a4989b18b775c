"""What one generation is made of: a sealed record that is there, or one that a plan only describes."""

import hashlib
from collections.abc import Iterable, Iterator
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
    """``files`` of ``size`` bytes each, named ``name`` and a number; ``unchanged`` from generation to generation."""

    name: str
    size: int
    files: int
    unchanged: bool = False

    @property
    def paths(self) -> Iterator[str]:
        """Their names."""
        return (f"{self.name}-{number:05d}" for number in range(self.files))


def described_record(run: str, objects: Iterable[Described]) -> GenerationRecord:
    """Return the record of a generation that nobody has sealed, so that the real planner can plan it.

    Its digests are made up: they have their usual length, and nothing is checked against them.  Those of
    unchanged files differ, so that each is a source of its own.
    """
    files = tuple(
        _file(path, one.size, hashlib.sha256(path.encode()).hexdigest() if one.unchanged else _DIGEST)
        for one in objects
        for path in one.paths
    )
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


def _file(path: str, size: int, digest: str) -> SealedFile:
    leaf_size = leaf_size_for(size)
    leaves = (digest,) * max(1, -(-size // leaf_size))
    return SealedFile(path=path, size=size, mode=0o644, sha256=combine(leaves), leaf_size=leaf_size, leaves=leaves)


def capabilities_of(url: str, profile: str | None, endpoint_url: str | None) -> Capabilities:
    """Return what a tier of this kind can do, without opening it; raises ValueError for an unknown profile."""
    if url.startswith("s3://"):
        return choose_profile(profile, endpoint_url).capabilities
    return MEMORY_CAPABILITIES if url.startswith("memory://") else VOLUME_CAPABILITIES
