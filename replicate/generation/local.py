"""A generation as it lies in the store, and the scan that finds them."""

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from replicate.errors import IntegrityFailure, NothingFound, UsageError
from replicate.generation.disk import local_io, read_document
from replicate.generation.evidence import Evidence, Level, read_evidence
from replicate.generation.seal import FILES, RECORD
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import MAX_GENERATION_BYTES, GenerationRecord, parse_generation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A newer generation that was passed over, and why."""

    generation: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LocalGeneration:
    """One sealed generation.  ``skipped`` is filled by resume: newer ones that could not be used."""

    id: GenerationId
    directory: Path
    evidence: Evidence | None = None
    skipped: tuple[Skipped, ...] = ()

    @property
    def files(self) -> Path:
        """Folder of the trainer's files."""
        return self.directory / FILES

    @property
    def level(self) -> Level:
        """How good it is known to be; sealed where nothing was recorded."""
        return self.evidence.level if self.evidence else Level.SEALED

    @cached_property
    def record_bytes(self) -> bytes:
        """The sealed bytes of ``generation.json``; raises IntegrityFailure where they are gone."""
        data = read_document(self.directory / RECORD, MAX_GENERATION_BYTES)
        if data is None:
            raise IntegrityFailure(f"{self.directory / RECORD} is missing", hint=_damaged_hint(self.id))
        return data

    @cached_property
    def record(self) -> GenerationRecord:
        """The parsed document; raises IntegrityFailure where it is damaged or another generation's."""
        try:
            record = parse_generation(self.record_bytes)
        except IntegrityFailure as error:
            raise IntegrityFailure(f"{self.directory}: {error.message}", hint=_damaged_hint(self.id)) from error
        if record.id != str(self.id):
            raise IntegrityFailure(f"{self.directory} holds the document of {record.id}", hint=_damaged_hint(self.id))
        return record


def _damaged_hint(generation: GenerationId) -> str:
    return f"restore it from a tier: `ckptier restore --generation {generation}`"


def scan_generations(local: LocalRun) -> tuple[LocalGeneration, ...]:
    """List what lies in ``generations/``, newest first by (attempt, sequence), whatever its state."""
    found = []
    for generation in generation_ids(local):
        try:
            found.append(load_generation(local, generation))
        except NothingFound:
            _log.info("%s was removed meanwhile", generation)
    return tuple(found)


def generation_ids(local: LocalRun) -> tuple[GenerationId, ...]:
    """List the ids of what lies there, in the same order, by its names alone."""
    with local_io(local.generations, "listing the generations"):
        names = [path.name for path in local.generations.iterdir()] if local.generations.is_dir() else []
    found = []
    for name in names:
        try:
            found.append(GenerationId.parse(name))
        except UsageError:
            _log.warning("%s is no generation and is left alone", local.generations / name)
    return tuple(sorted(found, reverse=True))


def is_usable(local: LocalRun, generation: GenerationId) -> bool:
    """Whether it is there and not quarantined."""
    try:
        return load_generation(local, generation).level is not Level.QUARANTINED
    except NothingFound:
        return False


def load_generation(local: LocalRun, generation: GenerationId) -> LocalGeneration:
    """Open one; raises NothingFound.  Damaged evidence counts as none, so that everything is checked again."""
    directory = local.generation(generation)
    if not directory.is_dir():
        raise NothingFound(
            f"{generation} is not in {local.root}", hint="`ckptier list` shows the generations there are"
        )
    try:
        evidence = read_evidence(local, generation)
    except IntegrityFailure as error:
        _log.warning("%s; it is taken as unknown and the generation checked again", error.message)
        evidence = None
    return LocalGeneration(id=generation, directory=directory, evidence=evidence)
