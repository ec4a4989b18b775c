"""A private folder to restore into, gone afterwards: with its block, or with the next one if its process was killed.

Each has a lock file beside it, whose flock says whether its process lives.  The file comes
before the folder and goes after it, so that there is never a folder without one.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicate.generation.disk import local_io, make_directory, remove_tree
from replicate.generation.locks import Flock
from replicate.layout import new_nonce
from tiers import effects

PREFIX = ".rehearsing-"
_LOCK = ".lock"
_log = logging.getLogger(__name__)


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Give a new folder below ``parent`` (which is created) to the block; raises LocalDisk."""
    make_directory(parent)
    sweep(parent)
    folder = parent / f"{PREFIX}{new_nonce()}"
    path = _lock_of(folder)
    lock = _held(path)
    try:
        with local_io(folder, "making the scratch folder"):
            folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            _remove(folder, path)
        finally:
            lock.release()


def sweep(parent: Path) -> tuple[Path, ...]:
    """Remove what killed processes left below ``parent``; returns the folders."""
    removed = []
    with local_io(parent, "looking for what killed rehearsals left"):
        locks = sorted(parent.glob(f"{PREFIX}*{_LOCK}"))
    for path in locks:
        folder = path.with_suffix("")
        lock = _free(path)
        if lock is None:
            continue
        try:
            _log.info("sweeping %s, which a process that ended left", folder)
            _remove(folder, path)
        finally:
            lock.release()
        removed.append(folder)
    return tuple(removed)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _held(path: Path) -> Flock:
    while True:
        lock = Flock.take(path)
        if lock.guards(path):
            return lock
        lock.release()  # a sweep looked between its creation and its lock, and took it for a dead one's


def _free(path: Path) -> Flock | None:
    """Take the lock of a dead process; None where it lives, or where another sweep was faster."""
    with local_io(path, "locking it"):
        try:
            lock = Flock.attempt(path)
        except FileNotFoundError:
            return None
    if lock is None or lock.guards(path):
        return lock
    lock.release()
    return None


def _remove(folder: Path, lock: Path) -> None:
    if folder.is_dir():
        _open_up(folder)
        remove_tree(folder)
    with local_io(lock, "removing it"):
        effects.unlink(lock)


def _open_up(folder: Path) -> None:
    """Make every folder writable again: what ran in it may have taken that away."""
    with local_io(folder, "removing it"):
        folder.chmod(0o700)
        for found in folder.rglob("*"):
            if found.is_dir() and not found.is_symlink():
                found.chmod(0o700)
