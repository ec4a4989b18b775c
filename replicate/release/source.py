"""The generation that a release is made from: one of the store, or one fetched from a tier.

Either way the bytes that are handed out were hashed against the sealed digests just before.
"""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from replicate.config import Config
from replicate.digests import digest_file
from replicate.errors import CkptierError, IntegrityFailure, NothingFound, from_tier_error
from replicate.generation.disk import local_io
from replicate.generation.evidence import Level
from replicate.generation.local import LocalGeneration
from replicate.generation.store import RunStore
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.manifest import GenerationRecord, Manifest, SealedFile
from replicate.opening import Opener, default_opener, open_configured
from replicate.restore import RestoreReport, RestoreRequest, restore
from replicate.verify import read_manifest, set_faults
from tiers.clock import Clock
from tiers.errors import TierError
from tiers.metered import Meter
from tiers.protocol import Tier

_FILES = "files"
_DAMAGED = "`ckptier verify` shows what is hurt; name another generation, or take it from a tier"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGeneration:
    """A generation to be read.  ``files`` is the folder of the trainer's files, all of them or those asked for."""

    id: GenerationId
    record: GenerationRecord
    record_bytes: bytes
    files: Path


def open_local(local: LocalRun, generation: GenerationId | None, *, patterns: Sequence[str] = ()) -> SourceGeneration:
    """Return a generation of the store: the newest validated one, or the one named.

    The files that match ``patterns`` (shell patterns; all where there are none) are hashed and
    compared with what was sealed.  Raises NothingFound, and IntegrityFailure that names each file
    that differs, or says why the generation is quarantined.
    """
    found = _local(local, generation)
    if found.level is Level.QUARANTINED:
        reason = found.evidence.reason if found.evidence else "no reason recorded"
        raise IntegrityFailure(f"{found.id} is quarantined: {reason}", hint=_DAMAGED)
    record = found.record
    with local_io(found.files, "checking its files"):
        faults = list(set_faults(found.files, record.files, record.directories))
        if not faults:
            faults = [
                f"{file.path}: its bytes are not those that were sealed"
                for file in wanted_files(record, patterns)
                if not _as_sealed(found.files / file.path, file)
            ]
    if faults:
        raise IntegrityFailure(f"{found.id} is damaged: {'; '.join(faults[:5])}", hint=_DAMAGED)
    return SourceGeneration(id=found.id, record=record, record_bytes=found.record_bytes, files=found.files)


def _local(local: LocalRun, generation: GenerationId | None) -> LocalGeneration:
    store = RunStore(local.root)
    found = store.get(generation) if generation is not None else store.latest()
    if found is None:
        raise NothingFound(
            f"{local.root} holds no validated generation",
            hint="name a tier that does with --tier, or publish one with validation",
        )
    return found


def _as_sealed(path: Path, file: SealedFile) -> bool:
    return digest_file(path, file.size, leaf_size=file.leaf_size).sha256 == file.sha256


def wanted_files(record: GenerationRecord, patterns: Sequence[str]) -> tuple[SealedFile, ...]:
    """Return the files of a generation that match any of the patterns; all where there are none."""
    return tuple(
        file for file in record.files if not patterns or any(fnmatchcase(file.path, pattern) for pattern in patterns)
    )


def fetch(
    config: Config,
    generation: GenerationId | None,
    tier: str,
    scratch: Path,
    patterns: Sequence[str],
    clock: Clock,
    *,
    opener: Opener = default_opener,
) -> SourceGeneration:
    """Restore the files that match ``patterns`` from one tier into ``scratch``, an empty folder that the caller owns.

    Every leaf is verified while it arrives.  Raises what a restore raises; the folder is then left
    without the files.
    """
    (settings,) = config.select(tier)
    with local_io(scratch, "creating it"):
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    request = RestoreRequest(generation=generation, to=scratch / _FILES, tier=tier, paths=tuple(patterns))
    with ExitStack() as stack:
        opened = open_configured(settings, opener, clock, Meter(), threading.Event())
        stack.callback(opened.close)
        report = restore(request, [opened], config.local, clock, remote=config.remote)
        manifest = _manifest(report, opened, config.remote)
    record = manifest.record()
    return SourceGeneration(
        id=record.generation, record=record, record_bytes=manifest.generation_bytes, files=scratch / _FILES
    )


def _manifest(report: RestoreReport, tier: Tier, remote: RemoteRun) -> Manifest:
    """Read the manifest of what was restored once more: the report does not carry the sealed document."""
    commits = [
        replica.commit
        for candidate in report.plan.candidates
        for replica in candidate.replicas
        if candidate.generation == report.generation
    ]
    try:
        return read_manifest(tier, remote, report.plan.run_uid or "", commits[0])
    except TierError as error:
        translated: CkptierError = from_tier_error(error)
        raise translated from error
