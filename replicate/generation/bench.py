"""The steps that publishing, sealing later, restoring and resuming have in common."""

import logging
from dataclasses import dataclass

from replicate import canonical
from replicate.digests import Leave
from replicate.errors import IntegrityFailure, LocalDisk
from replicate.generation import descent
from replicate.generation.disk import local_io, read_document, write_durably
from replicate.generation.evidence import Evidence, Level, write_evidence
from replicate.generation.lineage import Lineage, allocate, read_lineage
from replicate.generation.local import LocalGeneration, generation_ids, is_usable, load_generation, scan_generations
from replicate.generation.locks import held
from replicate.generation.seal import Description, Place, SealOrder, seal_tree
from replicate.generation.staging import Staging
from replicate.generation.tree import Tree
from replicate.generation.validate import Limits, Verdict, is_as_sealed, validate_generation
from replicate.layout import GenerationId, LocalRun, RunName
from tiers import effects
from tiers.clock import Clock, rfc3339

_MAX_HINT_BYTES = 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One store and how to work in it.  Holds no state between calls."""

    local: LocalRun
    run: RunName
    clock: Clock
    hash_workers: int
    leave: Leave | None = None
    limits: Limits

    def now(self) -> str:
        """Return the time for a record."""
        return rfc3339(self.clock.now())

    def reserve(self) -> Place:
        """Take the next place in the current attempt, opening the first attempt of a fresh store."""
        with held(self.local.lock):
            present = generation_ids(self.local)  # by name: a save should not wait for the evidence of thousands
            highest = max((one.sequence for one in present), default=0)
            lineage = allocate(self.local, self.clock, run=self.run, present=highest)
            return self.place(lineage, lineage.attempt, lineage.attempt_id, lineage.highest_sequence, present)

    def seal(
        self,
        staging: Staging,
        place: Place,
        description: Description,
        *,
        began: float,
        spent: int = 0,
        tree: Tree | None = None,
    ) -> LocalGeneration:
        """Seal a staging directory and drop its shell; after an error it is the caller's.

        ``tree`` is what was found there, where it was looked over already.
        ``began`` is monotonic; ``spent`` are milliseconds that saving took before.
        """

        def elapsed() -> int:
            return spent + round((self.clock.monotonic() - began) * 1000)

        order = SealOrder(
            place=place,
            description=description,
            elapsed=elapsed,
            now=self.now,
            hash_workers=self.hash_workers,
            leave=self.leave,
        )
        sealed = seal_tree(staging.tree, order, self.local, tree)
        staging.discard()
        return LocalGeneration(id=sealed.record.generation, directory=sealed.directory, evidence=sealed.evidence)

    def place(
        self, lineage: Lineage, attempt: int, attempt_id: str, sequence: int, present: tuple[GenerationId, ...]
    ) -> Place:
        """Return a generation's place; its parent is the newest usable one before it in the attempt.

        ``present`` is newest first.
        """
        before = (one for one in present if one.attempt == attempt and one.sequence < sequence)
        parent = next((str(one) for one in before if is_usable(self.local, one)), None)
        return Place(
            run=self.run,
            run_uid=lineage.run_uid,
            attempt=attempt,
            attempt_id=attempt_id,
            sequence=sequence,
            parent=parent or lineage.parent_of_attempt(attempt),
        )

    def validate(self, generation: GenerationId) -> Evidence:
        """Check a generation and record the outcome.  What was quarantined stays so; it is not checked again."""
        evidence, is_news = self._assess(generation)
        if is_news:
            write_evidence(self.local, evidence)
        if evidence.level is Level.QUARANTINED:
            self.point_latest()
        return evidence

    def judge(self, generation: GenerationId) -> Evidence:
        """Like validate; a full or read-only disk keeps the outcome from being recorded, not from being used."""
        evidence, is_news = self._assess(generation)
        if is_news:
            try:
                write_evidence(self.local, evidence)
            except LocalDisk as error:
                _log.warning("%s is %s, which could not be recorded: %s", generation, evidence.level, error.message)
        return evidence

    def _assess(self, generation: GenerationId) -> tuple[Evidence, bool]:
        """Return what is known of a generation, checking what has to be, and whether that is news."""
        found = load_generation(self.local, generation)
        known = found.evidence
        if known is not None and known.level is Level.QUARANTINED:
            return known, False
        if known is not None and known.level.reaches(Level.VALIDATED) and is_as_sealed(found):
            return known, False
        verdict = validate_generation(found, limits=self.limits, hash_workers=self.hash_workers)
        evidence = _conclude(found, verdict, self.now())
        if evidence.level is Level.QUARANTINED:
            _log.error("%s is quarantined: %s", generation, verdict.reason)
        return evidence, True

    def quarantine(self, generation: GenerationId, reason: str) -> None:
        """Record that a generation must not be used, whatever was known of it before."""
        known = load_generation(self.local, generation).evidence
        identities = known.identities if known else {}
        found = Evidence(
            generation=str(generation), level=Level.QUARANTINED, at=self.now(), reason=reason, identities=identities
        )
        write_evidence(self.local, found)
        self.point_latest()

    def line(self) -> list[LocalGeneration]:
        """Return what the run may continue from, the preferred one first, whatever its state."""
        lineage = read_lineage(self.local)
        if lineage is None:
            return []
        present = {one.id: one for one in scan_generations(self.local)}
        order = descent.candidates(lineage, list(present), lambda one: _recorded_parent(present[one]))
        return [present[one] for one in order]

    def latest(self) -> LocalGeneration | None:
        """Return the first on the line that is known to be good."""
        return next((one for one in self.line() if one.level.reaches(Level.VALIDATED)), None)

    def point_latest(self) -> None:
        """Let LATEST.json name it.  Decided under the lock, so that concurrent publishers agree."""
        if self._latest_is_written():
            return
        with held(self.local.lock):
            hint = self._latest_hint()
            if hint is not None:
                write_durably(self.local.latest, hint)
            else:
                with local_io(self.local.latest, "removing it"):
                    effects.unlink(self.local.latest)

    def _latest_is_written(self) -> bool:
        return read_document(self.local.latest, _MAX_HINT_BYTES) == self._latest_hint()

    def _latest_hint(self) -> bytes | None:
        latest = self.latest()
        if latest is None:
            return None
        document = {
            "format": 1,
            "generation": str(latest.id),
            "generation_sha256": canonical.sha256(latest.record_bytes),
            "next_update": latest.id.next_update,
            "payload": latest.record.payload,
            "total_bytes": latest.record.total_bytes,
        }
        return canonical.dump(document) + b"\n"


def _conclude(found: LocalGeneration, verdict: Verdict, at: str) -> Evidence:
    """Turn a verdict into evidence; a generation that passes again keeps a better standing that it had."""
    known = found.evidence
    level, record_sha256 = verdict.level, known.record_sha256 if known else None
    if level is not Level.QUARANTINED:
        record_sha256 = canonical.sha256(found.record_bytes)
        level = max(level, known.level, key=lambda one: one.rank) if known else level
    return Evidence(
        generation=str(found.id),
        level=level,
        at=at,
        reason=verdict.reason,
        detail=verdict.detail,
        record_sha256=record_sha256,
        identities=verdict.identities,
    )


def _recorded_parent(generation: LocalGeneration) -> str | None:
    try:
        return generation.record.parent
    except IntegrityFailure as error:
        _log.warning("%s: the line of descent ends here (%s)", generation.id, error.message)
        return None
