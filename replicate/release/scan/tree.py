"""The files of a tree: regular files with one name each, nothing that leads elsewhere."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from replicate.errors import LocalDisk
from replicate.release.bundle import MANIFEST
from replicate.release.findings import Rule
from replicate.release.scan.hits import Hit, printable
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.names import ALLOWED_FOLDERS, FileKind, kind_of, limit_of, name_fault, unknown_fault

MAX_ENTRIES = 10_000
UNSCANNED = "nothing has looked into it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """A regular file; ``path`` is relative to the tree.  ``size`` in bytes."""

    path: str
    absolute: Path
    size: int
    kind: FileKind


@dataclass(frozen=True, slots=True)
class Walk:
    """The files that can be read, and what is wrong with the tree itself."""

    files: tuple[TreeFile, ...]
    hits: tuple[Hit, ...]

    def named(self, path: str) -> TreeFile | None:
        """Return a file by its path."""
        return next((file for file in self.files if file.path == path), None)


def walk(context: ScanContext) -> Walk:
    """List a tree in a fixed order without following a link; raises LocalDisk where it cannot be read."""
    try:
        if not stat.S_ISDIR(context.tree.lstat().st_mode):
            raise LocalDisk(f"{context.tree} is no folder", hint="name the tree of a prepared release")
        entries = list(_entries(context.tree))
    except OSError as error:
        raise LocalDisk(f"{error.filename} cannot be read: {error.strerror}", hint="check its permissions") from error
    files: list[TreeFile] = []
    hits: list[Hit] = []
    further = frozenset(PurePosixPath(path).name for path in context.description.files.named())
    for path, absolute, status in entries[:MAX_ENTRIES]:
        hits += _entry_hits(path, status)
        if stat.S_ISREG(status.st_mode):
            kind = kind_of(path, context.description.kind, further)
            file = TreeFile(path=path, absolute=absolute, size=status.st_size, kind=kind)
            files.append(file)
            hits += _file_hits(file, context)
    if len(entries) > MAX_ENTRIES:
        detail = f"holds more than {MAX_ENTRIES} entries"
        hits.append(Hit(rule=Rule.FILE_NOT_ALLOWED, path=".", detail=detail, never=UNSCANNED))
    hits += _against_manifest(files, context)
    return Walk(tuple(files), tuple(hits))


def _entries(tree: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    pending, found = [("", tree)], 0
    while pending and found <= MAX_ENTRIES:
        prefix, folder = pending.pop()
        below = []
        for absolute in sorted(folder.iterdir()):
            path = f"{prefix}{absolute.name}"
            status = absolute.lstat()
            found += 1
            yield path, absolute, status
            if stat.S_ISDIR(status.st_mode):
                below.append((f"{path}/", absolute))
        pending += reversed(below)


def _entry_hits(path: str, status: os.stat_result) -> Iterator[Hit]:
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        yield Hit(rule=Rule.LINK_OR_DEVICE, path=path, detail="is a symbolic link; put the file itself there")
    elif stat.S_ISDIR(mode):
        yield from _folder_hits(path)
    elif not stat.S_ISREG(mode):
        yield Hit(rule=Rule.LINK_OR_DEVICE, path=path, detail="is a device, a socket or a FIFO")
    elif status.st_nlink > 1:
        detail = f"has {status.st_nlink} names (hard links): another name can change it; copy it"
        yield Hit(rule=Rule.LINK_OR_DEVICE, path=path, detail=detail)


def _folder_hits(path: str) -> Iterator[Hit]:
    fault = name_fault(path)
    if fault is not None:
        yield Hit(rule=fault[0], path=path, detail=f"folder {fault[1]}")
    elif path not in ALLOWED_FOLDERS:
        detail = "is a folder that releases do not have"
        yield Hit(rule=Rule.FILE_NOT_ALLOWED, path=path, detail=detail, never=UNSCANNED)


def _file_hits(file: TreeFile, context: ScanContext) -> Iterator[Hit]:
    if printable(file.path, len(file.path)) != file.path:
        detail = "its name holds bytes that are no text"
        yield Hit(rule=Rule.FILE_NOT_ALLOWED, path=file.path, detail=detail, never=UNSCANNED)
    if file.kind is FileKind.UNKNOWN:
        rule, words = name_fault(file.path) or (
            Rule.FILE_NOT_ALLOWED,
            unknown_fault(file.path, context.description.kind),
        )
        yield Hit(rule=rule, path=file.path, detail=words, never=UNSCANNED)
    elif file.kind is not FileKind.WEIGHTS and file.size > limit_of(file.path, file.kind):
        detail = f"has {file.size} bytes, more than the {limit_of(file.path, file.kind)} that are looked through"
        yield Hit(rule=Rule.FILE_NOT_ALLOWED, path=file.path, detail=detail, never=UNSCANNED)


def _against_manifest(files: list[TreeFile], context: ScanContext) -> Iterator[Hit]:
    sizes = {one.path: one.size for one in context.manifest.files}
    there = {file.path: file.size for file in files}
    for path in sorted(there.keys() - sizes.keys() - {MANIFEST}):
        detail = "is not in the export manifest"
        yield Hit(
            rule=Rule.FILE_NOT_ALLOWED, path=path, detail=detail, never="what is published is what the manifest names"
        )
    for path in sorted(sizes.keys() - there.keys()):
        yield Hit(rule=Rule.CONTAINER, path=path, detail="is in the export manifest and not in the tree")
    for path in sorted(path for path in sizes.keys() & there.keys() if sizes[path] != there[path]):
        detail = f"has {there[path]} bytes, and {sizes[path]} in the export manifest"
        yield Hit(rule=Rule.CONTAINER, path=path, detail=detail)
