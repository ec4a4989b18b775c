"""Which local generations may go where the disk is needed: ``released.json``, and making room by it.

The replicating process knows what the tiers hold; the trainer does not, and may have to
make room while no such process runs.  So that process writes down, durably, what it has
released, and a save that would not fit takes from that list, oldest first.
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import CkptierError, Fenced, IntegrityFailure, NothingFound
from replicate.generation.bench import Bench
from replicate.generation.disk import read_document, write_durably
from replicate.generation.lineage import read_lineage
from replicate.generation.removal import remove
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import GenerationText, Record, Text, parse

MARGIN = 64 * 1024 * 1024
"""Bytes that should be free beside the next save."""
_GROWTH = (11, 10)
"""How much larger than the newest generation the next one is taken to be."""
_MAX_BYTES = 16 * 1024 * 1024
_log = logging.getLogger(__name__)


class DiskNearlyFull(UserWarning):
    """The next generation may not fit, and nothing here may be removed to make room for it."""


class ReleasedGeneration(Record):
    """A generation that may go, and where it is instead."""

    generation: GenerationText
    reason: Text


class Released(Record):
    """``released.json``.  In the order in which they should go."""

    format: Literal[1] = 1
    run_uid: Text
    generations: Annotated[tuple[ReleasedGeneration, ...], Field(strict=False)] = ()

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What making room came to.  Bytes."""

    needed: int
    free: int
    removed: tuple[GenerationId, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether the next generation is expected to fit."""
        return self.free >= self.needed


def write_released(local: LocalRun, released: Released) -> None:
    """Replace the list, durably, where it has changed."""
    data = released.encode()
    if read_document(_path(local), _MAX_BYTES) != data:
        write_durably(_path(local), data)


def read_released(local: LocalRun) -> Released | None:
    """Read the list; None where there is none, where it is damaged or of another run: then nothing may go."""
    try:
        data = read_document(_path(local), _MAX_BYTES)
        released = parse(Released, data, what=str(_path(local)), max_bytes=_MAX_BYTES) if data is not None else None
        lineage = read_lineage(local)
    except IntegrityFailure as error:
        _log.warning("%s; nothing is removed by it", error.message)
        return None
    if released is None or lineage is None or lineage.run_uid != released.run_uid:
        return None
    return released


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write to the file system of ``path``."""
    return shutil.disk_usage(path).free


def make_room(bench: Bench, free: Callable[[Path], int] = free_bytes) -> Room | None:
    """Remove released generations, oldest first, until one like the newest fits; None where there is none yet.

    Never raises for what cannot be read or removed: the save itself says whether it fits.
    """
    try:
        needed = _expected(bench.local)
        if needed is None:
            return None
        room = Room(needed=needed, free=free(bench.local.root))
        released = None if room.enough else read_released(bench.local)
    except (CkptierError, OSError) as error:
        _log.warning("whether the next generation fits is not known: %s", error)
        return None
    for one in released.generations if released else ():
        generation = GenerationId.parse(one.generation)
        try:
            remove(bench, generation)
        except (Fenced, NothingFound):
            continue  # in use, protected since, or gone already
        except CkptierError as error:
            _log.warning("%s could not be removed to make room: %s", generation, error.message)
            continue
        _log.warning("%s was removed to make room for the next save: %s", generation, one.reason)
        room = Room(needed=needed, free=free(bench.local.root), removed=(*room.removed, generation))
        if room.enough:
            break
    return room


def _expected(local: LocalRun) -> int | None:
    """Guess the next generation's size from the one that LATEST names; None where it names none."""
    data = read_document(local.latest, _MAX_BYTES)
    if data is None:
        return None
    size = canonical.load(data, what=local.latest.name, max_bytes=_MAX_BYTES).get("total_bytes")
    grown, of = _GROWTH
    return size * grown // of + MARGIN if isinstance(size, int) else None


def describe_shortage(local: LocalRun, room: Room) -> str:
    """Say that the next save may not fit, and what to do."""
    return (
        f"the next generation may not fit: {room.free} bytes are free on the disk of {local.root}, "
        f"about {room.needed} are needed, and nothing more here is released for removal; "
        "`ckptier prune --tier local` says what keeps each one"
    )


def _path(local: LocalRun) -> Path:
    return local.root / "released.json"
