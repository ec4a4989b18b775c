"""Saying that a generation is being restored on this machine, so that nothing here deletes it meanwhile.

A marker in the run's folder, held by a flock: it ends with its process, and one that
nobody holds counts for nothing and is removed by whoever looks.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from replicate.errors import CkptierError, UsageError
from replicate.generation.locks import Flock
from replicate.layout import GenerationId, LocalRun, new_nonce

PREFIX = ".reading-"


@contextmanager
def reading(local: LocalRun, generation: GenerationId) -> Iterator[None]:
    """Hold a marker while the block runs; where the folder is missing or not writable the block runs without."""
    path = local.root / f"{PREFIX}{generation}-{new_nonce()}"
    lock: Flock | None = None
    if local.root.is_dir():
        being_read(local)  # removes what killed restores left
        with suppress(CkptierError):
            lock = _marked(path)
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            lock.release()


def being_read(local: LocalRun) -> frozenset[GenerationId]:
    """Return the generations that a process of this machine is restoring now."""
    found = set()
    for path in local.root.glob(f"{PREFIX}a*"):
        generation = _named(path)
        if generation is None:
            continue
        try:
            lock = Flock.attempt(path)
        except FileNotFoundError:
            continue
        if lock is None:
            found.add(generation)
            continue
        with suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()
    return frozenset(found)


def _marked(path: Path) -> Flock:
    while True:
        lock = Flock.take(path)
        if lock.guards(path):
            return lock
        lock.release()  # somebody looked between its creation and its lock, and took it for a dead one


def _named(path: Path) -> GenerationId | None:
    try:
        return GenerationId.parse(path.name.removeprefix(PREFIX).rpartition("-")[0])
    except UsageError:
        return None
