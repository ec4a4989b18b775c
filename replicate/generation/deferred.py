"""Sealing later what was published with ``defer_seal``, oldest first."""

from collections.abc import Iterable
from dataclasses import dataclass

from replicate.errors import IntegrityFailure
from replicate.generation.bench import Bench
from replicate.generation.lineage import read_lineage
from replicate.generation.local import LocalGeneration, Skipped, generation_ids
from replicate.generation.staging import StagedRecord, Staging, hold, staged


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLater:
    """What became of the staged directories."""

    done: tuple[LocalGeneration, ...]
    failed: tuple[Skipped, ...]


def seal_staged(bench: Bench, *, wait: bool) -> SealedLater:
    """Seal every staged directory; ``wait`` for those that another process is sealing, or leave them to it.

    One that cannot be sealed is reported and stays where it is; a disk error ends the work.
    """
    held = [staging for path in staged(bench.local) if (staging := hold(path, wait=wait))]
    done: list[LocalGeneration] = []
    try:
        readable, failed = _read(held)
        for staging, record in sorted(readable, key=lambda pair: (pair[1].place.attempt, pair[1].place.sequence)):
            try:
                done.append(_seal(bench, staging, record))
            except IntegrityFailure as error:
                failed.append(Skipped(generation=staging.directory.name, reason=error.message))
    finally:
        for staging in held:
            staging.lock.release()
    return SealedLater(done=tuple(done), failed=tuple(failed))


def _read(held: Iterable[Staging]) -> tuple[list[tuple[Staging, StagedRecord]], list[Skipped]]:
    """Read what is there; a shell without a tree was sealed and only its removal was interrupted."""
    readable, failed = [], []
    for staging in held:
        try:
            if staging.tree.exists():
                readable.append((staging, staging.read()))
            else:
                staging.drop()
        except IntegrityFailure as error:
            failed.append(Skipped(generation=staging.directory.name, reason=error.message))
    return readable, failed


def _seal(bench: Bench, staging: Staging, record: StagedRecord) -> LocalGeneration:
    began = bench.clock.monotonic()
    place, lineage = record.place, read_lineage(bench.local)
    if lineage is not None:
        present = generation_ids(bench.local)
        place = bench.place(lineage, place.attempt, place.attempt_id, place.sequence, present)
    return bench.seal(staging, place, record.description, began=began, spent=record.save_milliseconds)
