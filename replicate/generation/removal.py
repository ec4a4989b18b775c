"""Removing a local generation, and leases that keep it from being removed.

The lock is on the generation's own ``generation.json``: readers share it, a removal
needs it alone, and it goes with the process that holds it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicate.errors import Fenced, NothingFound
from replicate.generation.bench import Bench
from replicate.generation.disk import local_io, remove_tree
from replicate.generation.evidence import evidence_path
from replicate.generation.lineage import read_lineage
from replicate.generation.local import LocalGeneration, load_generation
from replicate.generation.locks import Flock, held
from replicate.generation.seal import RECORD
from replicate.generation.staging import TRASH
from replicate.layout import GenerationId, LocalRun, new_nonce
from tiers import effects


@contextmanager
def lease(local: LocalRun, generation: GenerationId) -> Iterator[LocalGeneration]:
    """Keep a generation's files from being removed while the block runs; many may hold one."""
    document = local.generation(generation) / RECORD
    lock = _attempt(document, shared=True)
    try:
        if lock is None or not lock.guards(document):
            raise NothingFound(f"{generation} is gone or being removed", hint="`ckptier list` shows what is there")
        yield load_generation(local, generation)
    finally:
        if lock is not None:
            lock.release()


def remove(bench: Bench, generation: GenerationId) -> None:
    """Remove a generation; Fenced for the newest good one, the one resumed from, and a leased one."""
    local = bench.local
    directory = load_generation(local, generation).directory
    trash = local.root / f"{TRASH}{generation}-{new_nonce()}"
    with held(local.lock):
        _refuse_protected(bench, generation)
        lock = _attempt(directory / RECORD, shared=False)
        try:
            if lock is None and (directory / RECORD).exists():
                raise Fenced(f"{generation} is in use by another process", hint="try again when its upload has ended")
            with local_io(directory, "removing it"):
                effects.rename(directory, trash)
                effects.fsync_directory(local.generations)
                effects.unlink(evidence_path(local, generation))
        finally:
            if lock is not None:
                lock.release()
    remove_tree(trash)


def _refuse_protected(bench: Bench, generation: GenerationId) -> None:
    latest, lineage = bench.latest(), read_lineage(bench.local)
    if latest is not None and latest.id == generation:
        raise Fenced(f"{generation} is what training would continue from", hint="publish a newer one first")
    if lineage is not None and lineage.parent == str(generation):
        raise Fenced(f"{generation} is what this attempt started from", hint="it stays until the next restore")


def _attempt(document: Path, *, shared: bool) -> Flock | None:
    with local_io(document, "locking it"):
        try:
            return Flock.attempt(document, shared=shared)
        except FileNotFoundError:
            return None
