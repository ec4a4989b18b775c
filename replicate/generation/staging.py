"""Directories on their way to becoming generations: ``.incoming-…`` and ``.staged-…``.

Each holds ``tree/`` (what will be renamed to ``generations/<id>``) and ``owner``, the
file whose lock says that somebody is at work.  Incoming ones whose lock is free were
left by a killed process and are swept; staged ones hold a complete state and never are.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from replicate import canonical
from replicate.errors import IntegrityFailure, LocalDisk
from replicate.generation.disk import (
    TEMPORARY,
    local_io,
    make_directory,
    read_document,
    remove_tree,
    sweep_temporaries,
    write_new,
)
from replicate.generation.locks import Flock, held
from replicate.generation.seal import FILES, Description, Place
from replicate.layout import LocalRun, new_nonce
from replicate.manifest import Count, Record, parse
from tiers import effects

INCOMING = ".incoming-"
STAGED = ".staged-"
TRASH = ".trash-"
_OWNER = "owner"
_TREE = "tree"
_METADATA = "staged.json"
_MAX_METADATA_BYTES = 16 * 1024 * 1024
_log = logging.getLogger(__name__)


class StagedRecord(Record):
    """``staged.json``: everything about a deferred generation but its digests."""

    format: Literal[1] = 1
    place: Place
    description: Description
    save_milliseconds: Count


@dataclass(slots=True)
class Staging:
    """A staging directory that this process holds."""

    directory: Path
    lock: Flock

    @classmethod
    def open(cls, local: LocalRun) -> Self:
        """Create an incoming directory; the store's lock keeps a sweep away until it is owned."""
        make_directory(local.root, settle=True)
        directory = local.root / f"{INCOMING}{new_nonce()}"
        with held(local.lock), local_io(local.root, "preparing to publish"):
            directory.mkdir()
            lock = Flock.take(directory / _OWNER)
        staging = cls(directory, lock)
        try:
            with local_io(local.root, "preparing to publish"):
                staging.files.mkdir(parents=True)
        except BaseException:
            staging.drop()
            raise
        return staging

    @property
    def tree(self) -> Path:
        """What will become the generation."""
        return self.directory / _TREE

    @property
    def files(self) -> Path:
        """Where the trainer writes."""
        return self.tree / FILES

    def stage(self, record: StagedRecord) -> None:
        """Make it a staged directory, durably, and let go of it."""
        write_new(self.directory / _METADATA, canonical.dump(record.model_dump(mode="json")) + b"\n")
        target = self.directory.with_name(self.directory.name.replace(INCOMING, STAGED, 1))
        with local_io(target, "staging"):
            effects.fsync_directory(self.tree)
            effects.fsync_directory(self.directory)
            effects.rename(self.directory, target)
            self.directory = target
            effects.fsync_directory(target.parent)
        self.lock.release()

    def read(self) -> StagedRecord:
        """Read ``staged.json``; raises IntegrityFailure."""
        path = self.directory / _METADATA
        data = read_document(path, _MAX_METADATA_BYTES)
        if data is None:
            raise IntegrityFailure(f"{path} is missing", hint=f"look into {self.directory}; its files are whole")
        return parse(StagedRecord, data, what=str(path), max_bytes=_MAX_METADATA_BYTES)

    def discard(self) -> None:
        """Remove it and let go; what cannot be removed is told, and swept another time."""
        try:
            self.drop()
        except LocalDisk as error:
            _log.warning("%s stays behind and will be swept: %s", self.directory, error.message)

    def drop(self) -> None:
        """Remove it and let go."""
        try:
            remove_tree(self.directory)
        finally:
            self.lock.release()


def staged(local: LocalRun) -> tuple[Path, ...]:
    """List the staged directories."""
    return tuple(sorted(local.root.glob(f"{STAGED}*")))


def hold(directory: Path, *, wait: bool) -> Staging | None:
    """Take over a staged directory; None where another has finished it or, without ``wait``, is at it."""
    with local_io(directory, "locking it"):
        try:
            lock = Flock.attempt(directory / _OWNER, wait=wait)
        except FileNotFoundError:
            return None
    if lock is None or lock.guards(directory / _OWNER):
        return Staging(directory, lock) if lock else None
    lock.release()
    return None


def sweep(local: LocalRun) -> tuple[Path, ...]:
    """Remove what killed processes left unfinished; returns what was removed."""
    if not local.root.is_dir():
        return ()
    removed = []
    with held(local.lock):
        for path in local.root.glob(f"{TEMPORARY}*-*.json"):
            if path.name.endswith((local.lineage.name, local.latest.name)):
                effects.unlink(path)
        sweep_temporaries(local.root)
        sweep_temporaries(local.evidence)
        orphans: list[tuple[Path, Flock | None]] = [(path, None) for path in staged(local) if _is_shell(path)]
        orphans += [(path, lock) for path in _leftovers(local) for free, lock in [_orphaned(path)] if free]
    for path, lock in orphans:
        _log.info("sweeping %s, which a process that ended left unfinished", path)
        try:
            remove_tree(path)
            removed.append(path)
        except LocalDisk as error:  # what nobody needs must not keep anybody from saving
            _log.warning("%s cannot be swept: %s", path, error.message)
        finally:
            if lock is not None:
                lock.release()
    return tuple(removed)


def _is_shell(directory: Path) -> bool:
    """Whether a staged directory was sealed, and only its removal was interrupted, after the owner's file."""
    return not (directory / _TREE).exists() and not (directory / _OWNER).exists()


def _leftovers(local: LocalRun) -> list[Path]:
    return [*sorted(local.root.glob(f"{INCOMING}*")), *sorted(local.root.glob(f"{TRASH}*"))]


def _orphaned(directory: Path) -> tuple[bool, Flock | None]:
    """Whether nobody owns a leftover, and its lock if it got as far as having one."""
    with local_io(directory, "locking it"):
        try:
            lock = Flock.attempt(directory / _OWNER)
        except FileNotFoundError:
            return True, None
    return lock is not None, lock
