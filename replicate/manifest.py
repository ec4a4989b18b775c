"""The two documents that describe a generation: ``generation.json`` and the remote manifest.

Both are canonical JSON (replicate.canonical) and carry ``format``.  A reader ignores
fields that it does not know and refuses a format that is newer than its own, so that
fields can be added and are never repurposed.  Everything is checked on reading, with
the bounds below, because a bucket is not a trusted place.
"""

import hashlib
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from replicate import canonical
from replicate.digests import combine
from replicate.errors import CapabilityMissing, IntegrityFailure, UsageError
from replicate.layout import GenerationId
from replicate.paths import check_paths
from replicate.printable import one_line
from tiers.checks import is_key

FORMAT = 1
MAX_GENERATION_BYTES = 64 * 1024 * 1024
MAX_MANIFEST_BYTES = 128 * 1024 * 1024
MAX_FILES = 1_000_000
_OBJECT_BYTES = 400
"""What a manifest says of one object at most, but for its path and its key: that is up to three times as long."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=4096)]
T = TypeVar("T", bound="Record")


def _parses(text: str) -> str:
    try:
        GenerationId.parse(text)
    except UsageError as error:
        raise ValueError(error.message) from error
    return text


GenerationText = Annotated[str, AfterValidator(_parses)]
"""A generation id in a document: one that does not parse makes the document damaged."""


class Record(BaseModel):
    """A frozen document that tolerates fields of the future but no other type."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class SealedFile(Record):
    """One file of a generation.  ``mode`` holds permission bits only."""

    path: str
    size: Count
    mode: Annotated[int, Field(ge=0, le=0o777)]
    sha256: Sha256
    leaf_size: Annotated[int, Field(gt=0, lt=2**53)]
    leaves: Annotated[tuple[Sha256, ...], Field(min_length=1, max_length=8192, strict=False)]

    @model_validator(mode="after")
    def _leaves_fit(self) -> Self:
        expected = max(1, -(-self.size // self.leaf_size))
        if len(self.leaves) != expected:
            raise ValueError(f"{self.path}: {len(self.leaves)} leaf digests where {expected} are due")
        if combine(self.leaves) != self.sha256:
            raise ValueError(f"{self.path}: the file digest is not that of its leaves")
        return self


class Accumulation(Record):
    """Cursor of a save in the middle of gradient accumulation."""

    microbatches_done: Count
    microbatches_total: Count
    gradients_path: str


class Experiment(Record):
    """Identity in an experiment tracker, so that curves continue where training does."""

    system: Text
    run_id: Text
    logging_step: Count


class GenerationRecord(Record):
    """``generation.json``.  ``save_milliseconds`` is how long writing and sealing took."""

    format: Literal[1]
    id: GenerationText
    run: str
    run_uid: str
    attempt: Count
    attempt_id: str
    sequence: Count
    parent: str | None
    next_update: Count
    tokens_seen: Count | None = None
    payload: Text
    contract: dict[str, Text]
    environment: dict[str, Any] = {}
    accumulation: Accumulation | None = None
    experiment: Experiment | None = None
    sealed_at: Text
    save_milliseconds: Count
    writers: Annotated[int, Field(ge=1)] = 1
    files: Annotated[tuple[SealedFile, ...], Field(max_length=MAX_FILES, strict=False)]
    directories: Annotated[tuple[str, ...], Field(max_length=MAX_FILES, strict=False)] = ()

    @model_validator(mode="after")
    def _identity_holds(self) -> Self:
        check_paths((file.path for file in self.files), self.directories)
        wanted = GenerationId(
            self.attempt, self.sequence, self.next_update, content_digest(self.files, self.directories)[:8]
        )
        if self.id != str(wanted):
            raise ValueError(f"the id {self.id!r} does not belong to this content: expected {wanted}")
        return self

    @property
    def generation(self) -> GenerationId:
        """The parsed id."""
        return GenerationId.parse(self.id)

    @property
    def total_bytes(self) -> int:
        """Sum of the file sizes."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """Return the bytes of ``generation.json``.

        Raises UsageError where they, or the manifest that a tier will need, would be larger than any reader takes.
        """
        data = canonical.dump(self.model_dump(mode="json")) + b"\n"
        described = len(data) + sum(_OBJECT_BYTES + 4 * len(file.path.encode()) for file in self.files)
        if len(data) > MAX_GENERATION_BYTES or described > MAX_MANIFEST_BYTES:
            raise UsageError(
                f"{len(self.files)} files are too many for one generation: describing them takes {len(data)} bytes "
                f"(at most {MAX_GENERATION_BYTES}), and up to {described} on a tier (at most {MAX_MANIFEST_BYTES})",
                hint="pack what is small into fewer files (a tar, larger shards), or shorten the paths",
            )
        return data


class ManifestObject(Record):
    """A file as it lies on a tier.  ``verified_by`` is a tiers.protocol.Verification value.

    ``part_size`` is 0 for an object sent in one request.  ``parts`` is set only where a
    part was not a leaf, and then holds the digest of each part as sent.
    """

    path: str
    key: str
    size: Count
    sha256: Sha256
    verified_by: Text
    part_size: Count
    parts: Annotated[tuple[Sha256, ...], Field(max_length=10_000, strict=False)] = ()


class Manifest(Record):
    """The remote description of one generation; ``generation`` is generation.json itself."""

    format: Literal[1]
    run_uid: str
    term: Count
    nonce: str
    prefix: str
    generation: dict[str, Any]
    generation_sha256: Sha256
    objects: Annotated[tuple[ManifestObject, ...], Field(max_length=MAX_FILES, strict=False)]
    written_at: Text

    @cached_property
    def generation_bytes(self) -> bytes:
        """The exact bytes of the sealed ``generation.json``."""
        return canonical.dump(self.generation) + b"\n"

    def record(self) -> GenerationRecord:
        """Return the generation's own document, checked."""
        return self._record

    @cached_property
    def _record(self) -> GenerationRecord:
        """The document, checked once: with 100,000 files that takes seconds."""
        if len(self.generation_bytes) > MAX_GENERATION_BYTES:
            raise IntegrityFailure(f"generation.json has more than the {MAX_GENERATION_BYTES} bytes that one may have")
        return check(GenerationRecord, self.generation, what="generation.json")

    @model_validator(mode="after")
    def _binds(self) -> Self:
        if canonical.sha256(self.generation_bytes) != self.generation_sha256:
            raise ValueError("generation.json inside the manifest is not the one that was sealed")
        record = self.record()
        if record.run_uid != self.run_uid:
            raise ValueError("the generation belongs to another run")
        sealed = {file.path: (file.size, file.sha256) for file in record.files}
        stored = {item.path: (item.size, item.sha256) for item in self.objects}
        if sealed != stored or len(stored) != len(self.objects):
            raise ValueError("the objects are not the files that were sealed")
        if len({item.key for item in self.objects}) != len(self.objects):
            raise ValueError("two objects share a key")
        for item in self.objects:
            if not is_key(item.key) or not item.key.startswith(self.prefix):
                raise ValueError(f"key {item.key[:200]!r} lies outside the generation's prefix")
        return self

    def encode(self) -> bytes:
        """Return the bytes of ``manifest.json``."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


def content_digest(files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> str:
    """Hex digest over paths, sizes and digests, in path order; its first eight digits go into the id."""
    lines = [f"{file.sha256} {file.size} {file.path}\n" for file in files]
    lines += [f"- - {path}/\n" for path in directories]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def parse_generation(data: bytes) -> GenerationRecord:
    """Read ``generation.json``; raises IntegrityFailure, or CapabilityMissing for a newer format."""
    return parse(GenerationRecord, data, what="generation.json", max_bytes=MAX_GENERATION_BYTES)


def parse_manifest(data: bytes) -> Manifest:
    """Read ``manifest.json``; raises IntegrityFailure, or CapabilityMissing for a newer format."""
    return parse(Manifest, data, what="manifest.json", max_bytes=MAX_MANIFEST_BYTES)


def parse(kind: type[T], data: bytes, *, what: str, max_bytes: int) -> T:
    """Read any of our documents: bounded, versioned, then checked field by field."""
    return check(kind, canonical.load(data, what=what, max_bytes=max_bytes), what=what)


def check(kind: type[T], document: dict[str, Any], *, what: str) -> T:
    """Check a document that was decoded, field by field; raises as ``parse`` does."""
    check_format(document, what)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = one_line(".".join(map(str, first["loc"]))[:200])
        words = one_line(first["msg"][:2000])
        raise IntegrityFailure(f"{what} is damaged: {where + ': ' if where else ''}{words}") from error


def check_format(document: dict[str, Any], what: str) -> None:
    """Tell a document of the future from a damaged one."""
    version = document.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise CapabilityMissing(
            f"{what} has format {version}, this version reads up to {FORMAT}",
            hint="update ckptier on this machine: a newer version wrote this",
        )
