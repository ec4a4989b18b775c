"""The seam that every side effect that matters passes through.

Remote calls, fsync, rename, link, unlink and tracker transactions are announced
here before and after they happen.  In production nobody listens.  A crash test
installs an observer in a child process that kills it at the n-th announcement;
a durability test records their order.  There is no switch in the environment:
only code that imports this module can listen.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path


class Effect(StrEnum):
    """What kind of side effect is announced."""

    REMOTE = "remote"
    FSYNC = "fsync"
    RENAME = "rename"
    LINK = "link"
    UNLINK = "unlink"
    TRANSACTION = "transaction"


class Moment(StrEnum):
    """Whether the effect is about to happen or has happened."""

    BEFORE = "before"
    AFTER = "after"


Observer = Callable[[Effect, str, Moment], None]


def _nobody(_effect: Effect, _what: str, _moment: Moment) -> None:
    return


_observer: Observer = _nobody


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Install ``observer`` for the whole process while the block runs."""
    global _observer  # noqa: PLW0603 - one process, one observer: that is the point of a seam
    previous, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = previous


@contextmanager
def effect(kind: Effect, what: str) -> Iterator[None]:
    """Announce one side effect; AFTER is announced only if the block did not raise."""
    _observer(kind, what, Moment.BEFORE)
    yield
    _observer(kind, what, Moment.AFTER)


def fsync_fd(fd: int, what: str) -> None:
    """Make the bytes of an open file durable."""
    with effect(Effect.FSYNC, what):
        os.fsync(fd)


def fsync_file(path: Path) -> None:
    """Make the bytes of a closed file durable (fsync works on any descriptor of the inode)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fsync_fd(fd, str(path))
    finally:
        os.close(fd)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable: a rename is not until this returns."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fsync_fd(fd, f"{path}/")
    finally:
        os.close(fd)


def rename(source: Path, target: Path, *, dir_fd: int | None = None) -> None:
    """Rename atomically within one filesystem, replacing a file that stands there.

    ``dir_fd`` is the folder of both, open: their paths are then only what they are called.
    """
    with effect(Effect.RENAME, str(target)):
        if dir_fd is None:
            source.rename(target)
        else:
            os.rename(source.name, target.name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def link(source: Path, target: Path) -> None:
    """Hard-link; raises FileExistsError where the target exists, which makes it put-if-absent."""
    with effect(Effect.LINK, str(target)):
        target.hardlink_to(source)


def unlink(path: Path, *, dir_fd: int | None = None) -> None:
    """Remove a name, in the open folder ``dir_fd`` where one is given; one that is already gone is fine."""
    with effect(Effect.UNLINK, str(path)), contextlib.suppress(FileNotFoundError):
        os.unlink(path if dir_fd is None else path.name, dir_fd=dir_fd)
