"""How well a generation is known to be good: ``evidence/<id>.json``.

Kept beside the generations, not in them, because a generation never changes.  It
also remembers what sealing saw of each file (size, mtime, inode): while that holds,
validation trusts the sealed digests, and the bytes are hashed once in their life.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from replicate import canonical
from replicate.generation.disk import make_directory, read_document, write_durably
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import GenerationRecord, Record, Sha256, Text, parse

MAX_EVIDENCE_BYTES = 512 * 1024 * 1024


class Level(StrEnum):
    """What is known, weakest first.  A local copy is quarantined, sealed or validated; the rest is about tiers."""

    QUARANTINED = "quarantined"
    SEALED = "sealed"
    VALIDATED = "validated"
    REPLICATED = "replicated"
    READ_BACK = "read-back"
    REHEARSED = "rehearsed"

    @property
    def rank(self) -> int:
        """Place on the scale, for comparing; the strings themselves do not sort."""
        return SCALE.index(self)

    def reaches(self, other: "Level") -> bool:
        """Whether this is at least as good as ``other``."""
        return self.rank >= other.rank


SCALE = tuple(Level)


class FileIdentity(Record):
    """What tells that a file is still the one that was hashed.  Bytes and nanoseconds."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Take it from the file, without following a link; raises OSError."""
        status = path.lstat()
        return cls(size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)


class Evidence(Record):
    """One generation's standing.  ``reason`` says why, ``detail`` how far the check went ("container only").

    ``record_sha256`` is that of the sealed ``generation.json``.
    """

    format: Literal[1] = 1
    generation: Text
    level: Annotated[Level, Field(strict=False)]
    at: Text
    reason: Text = ""
    detail: Text = ""
    record_sha256: Sha256 | None = None
    identities: dict[str, FileIdentity] = Field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


def read_evidence(local: LocalRun, generation: GenerationId) -> Evidence | None:
    """Read what is known; None where nothing is.  Raises IntegrityFailure for a damaged document."""
    path = evidence_path(local, generation)
    data = read_document(path, MAX_EVIDENCE_BYTES)
    return None if data is None else parse(Evidence, data, what=str(path), max_bytes=MAX_EVIDENCE_BYTES)


def write_evidence(local: LocalRun, evidence: Evidence) -> None:
    """Replace it, atomically and durably."""
    make_directory(local.evidence)
    write_durably(evidence_path(local, GenerationId.parse(evidence.generation)), evidence.encode())


def evidence_path(local: LocalRun, generation: GenerationId) -> Path:
    """Where the document of one generation lies."""
    return local.evidence / f"{generation}.json"


def unchanged(directory: Path, record: GenerationRecord, evidence: Evidence | None) -> tuple[str, ...]:
    """Return the paths whose identity is NOT what sealing saw: these have to be hashed again.

    ``directory`` is the generation's.  Without evidence that is every path; a file that is gone counts.
    """
    known = evidence.identities if evidence else {}
    files = directory / "files"
    return tuple(
        file.path for file in record.files if file.path not in known or _identity(files / file.path) != known[file.path]
    )


def _identity(path: Path) -> FileIdentity | None:
    try:
        return FileIdentity.of(path)
    except FileNotFoundError:
        return None
