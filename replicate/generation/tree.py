"""What a directory holds, seen by lstat only: nothing is opened before its kind is known."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from replicate.errors import IntegrityFailure
from replicate.generation.disk import local_io
from replicate.paths import MAX_DEPTH, UnsafePath, check_paths

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class SpecialFile(IntegrityFailure):
    """Something that is no regular file, where only those are kept; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A regular file (or, in an adopted tree, a link) with the status lstat gave."""

    path: str
    status: os.stat_result

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """What changes when the file is replaced or rewritten."""
        return (self.status.st_dev, self.status.st_ino, self.status.st_size, self.status.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The contents of a directory, sorted by path.  ``directories`` are all, ``empty`` those with nothing in them."""

    files: tuple[Found, ...]
    links: tuple[Found, ...]
    directories: tuple[str, ...]
    empty: tuple[str, ...]


def scan(root: Path, *, links: bool = False) -> Tree:
    """List a directory; raises SpecialFile or UnsafePath naming the first entry that may not be kept.

    With ``links``, symbolic links are listed for the caller to judge instead of refused.
    """
    files: list[Found] = []
    directories: list[str] = []
    linked: list[Found] = []
    filled: set[str] = set()
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in _entries(root / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            filled.add(folder)
            with local_io(root / path, "looking at it"):
                status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                _bounded(path)
                directories.append(path)
                pending.append(path)
            elif stat.S_ISREG(status.st_mode):
                files.append(Found(path=path, status=status))
            elif links and stat.S_ISLNK(status.st_mode):
                linked.append(Found(path=path, status=status))
            else:
                raise special(path, status)
    empty = tuple(sorted(set(directories) - filled))
    check_paths((found.path for found in (*files, *linked)), empty)
    return Tree(files=_sorted(files), links=_sorted(linked), directories=tuple(sorted(directories)), empty=empty)


def special(path: str, status: os.stat_result) -> SpecialFile:
    """Name what is no regular file."""
    kind = next((words for test, words in _KINDS if test(status.st_mode)), "no regular file")
    return SpecialFile(
        f"{path!r} is {kind}; a generation holds regular files only",
        hint=f"remove {path!r}, or write a regular file in its place",
    )


def _sorted(found: list[Found]) -> tuple[Found, ...]:
    return tuple(sorted(found, key=lambda one: one.path))


def _bounded(path: str) -> None:
    if path.count("/") >= MAX_DEPTH:
        raise UnsafePath(
            f"path {path[:200]!r} is more than {MAX_DEPTH} deep", hint="flatten the tree, or remove a loop of mounts"
        )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with local_io(folder, "listing it"), os.scandir(folder) as entries:
        return list(entries)
