"""The private folder in which a generation is put together before anything sees it.

It lies beside its target, so that publishing is one rename, and is guarded by a flock
on a file beside it, which dies with its holder.  What a killed restore left in it is
kept where it may serve: a file of the right size is hashed again leaf by leaf.
Everything below it is created relative to open directories and never through a link.
"""

import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from replicate.canonical import dump
from replicate.errors import Fenced, IntegrityFailure, LocalDisk, UsageError
from replicate.generation.disk import remove_tree, write_new
from replicate.generation.locks import Flock
from replicate.layout import GenerationId
from replicate.manifest import SealedFile
from replicate.verify import set_faults
from tiers import effects
from tiers.clock import Clock, rfc3339

PREFIX = ".restoring-"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = 0o600
_MAX_LOCK_NOTE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where stagings of one target lie.  ``label`` tells targets in one folder apart (empty: the store)."""

    parent: Path
    label: str

    def staging(self, generation: GenerationId) -> Path:
        """Folder in which one generation is put together."""
        return self.parent / f"{PREFIX}{generation}{self._tail}"

    @property
    def lock(self) -> Path:
        """Lock of the target."""
        return self.parent / f"{PREFIX.rstrip('-')}{self._tail}.lock"

    @property
    def _tail(self) -> str:
        return f"-{self.label}" if self.label else ""

    def leftovers(self, keep: frozenset[str]) -> Iterator[Path]:
        """Yield stagings of this target other than those of ``keep`` (generation ids)."""
        for path in sorted(self.parent.glob(f"{PREFIX}a*{self._tail}")):
            middle = path.name.removeprefix(PREFIX).removesuffix(self._tail)
            if _is_id(middle) and middle not in keep:
                yield path


def _is_id(text: str) -> bool:
    try:
        GenerationId.parse(text)
    except UsageError:
        return False
    return True


@contextmanager
def locked(place: Place, clock: Clock) -> Iterator[None]:
    """Hold the target's lock; Fenced where another restore holds it.  The file goes when it is released."""
    lock = _take(place)
    try:
        note = {"host": socket.gethostname(), "pid": os.getpid(), "since": rfc3339(clock.now())}
        place.lock.write_bytes(dump(note))
        yield
    finally:
        effects.unlink(place.lock)
        lock.release()


def _take(place: Place) -> Flock:
    while True:
        fd = os.open(place.lock, _FILE | os.O_CREAT, _PRIVATE)
        os.close(fd)
        try:
            lock = Flock.attempt(place.lock)
        except FileNotFoundError:
            continue  # its holder finished between the two calls and took the name along
        if lock is None:
            raise Fenced(
                f"another restore into this place is under way{_holder(place.lock)}",
                hint="wait for it to end, or stop it: its lock goes with its process",
            )
        if lock.guards(place.lock):
            return lock
        lock.release()


def _holder(path: Path) -> str:
    """Say who holds a lock, as far as its note tells; a note that cannot be read costs the name only."""
    try:
        with path.open("rb") as stream:
            note = json.loads(stream.read(_MAX_LOCK_NOTE))
        return f" (process {note['pid']} on {note['host']} since {note['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class Staging:
    """One staging folder.

    For a store it holds ``files/`` and at the end ``generation.json``; ``bare`` it holds the
    files and nothing else, and is itself what will be renamed to the target.
    """

    def __init__(self, path: Path, *, bare: bool = False) -> None:
        self.path = path
        self.files = path if bare else path / "files"
        self._root = -1

    def open(self, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> frozenset[str]:
        """Create every folder and file at its full size; returns the files that were there already."""
        if self.path.is_symlink():
            effects.unlink(self.path)
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.path.chmod(0o700)
        if self.files != self.path:
            effects.unlink(self.path / "generation.json")
        kept = self._prune(files, directories)
        self._root = os.open(self.files, _DIRECTORY)
        for path in directories:
            os.close(self._directory(path))
        for file in files:
            if file.path not in kept:
                self._create(file)
        return kept

    def close(self) -> None:
        """Let go of the folder; safe to repeat."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def open_file(self, path: str, flags: int = 0) -> int:
        """Open a file of the staging for reading and writing, never through a link."""
        folder, _, name = path.rpartition("/")
        parent = self._directory(folder)
        try:
            return os.open(name, _FILE | flags, _PRIVATE, dir_fd=parent)
        finally:
            os.close(parent)

    def seal(self, files: tuple[SealedFile, ...], directories: tuple[str, ...], umask: int) -> None:
        """Give every file its mode, make all durable, and check that exactly the sealed set is there."""
        for file in files:
            fd = self.open_file(file.path)
            try:
                os.fchmod(fd, file.mode & ~umask)
                effects.fsync_fd(fd, str(self.files / file.path))
            finally:
                os.close(fd)
        faults = tuple(set_faults(self.files, files, directories))
        if faults:
            raise IntegrityFailure(
                f"the restored set is not the sealed one: {'; '.join(faults[:5])}",
                hint="something else writes into the staging folder: find it, then run again",
            )
        for folder in _folders(files, directories):
            effects.fsync_directory(self.files / folder)

    def write_record(self, data: bytes) -> None:
        """Add generation.json."""
        write_new(self.path / "generation.json", data)

    def unveil(self, mode: int) -> None:
        """Give the folder the mode that it will have, durably; until here only its owner could look in."""
        self.close()
        self.path.chmod(mode)
        effects.fsync_directory(self.path)

    def remove(self) -> None:
        """Remove the folder and all in it."""
        self.close()
        remove_tree(self.path)

    def allocated(self) -> int:
        """Bytes of the disk that the folder already takes."""
        total = 0
        for folder, _, names in os.walk(self.files):
            total += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in names)  # noqa: PTH118
        return total

    def _directory(self, path: str) -> int:
        """Open a folder below files/, creating what is missing of it."""
        fd = os.dup(self._root)
        try:
            for name in path.split("/") if path else ():
                fd = _enter(fd, name)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _create(self, file: SealedFile) -> None:
        fd = self.open_file(file.path, os.O_CREAT | os.O_EXCL)
        try:
            allocate(fd, file.size)
        finally:
            os.close(fd)

    def _prune(self, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> frozenset[str]:
        """Remove what does not belong, return the files that may serve."""
        if self.files.is_symlink() or (self.files.exists() and not self.files.is_dir()):
            effects.unlink(self.files)
        self.files.mkdir(exist_ok=True)
        sizes = {file.path: file.size for file in files}
        folders = set(_folders(files, directories))
        return frozenset(self._kept("", sizes, folders))

    def _kept(self, below: str, sizes: dict[str, int], folders: set[str]) -> Iterator[str]:
        with os.scandir(self.files / below) as entries:
            found = list(entries)
        for entry in found:
            path = f"{below}/{entry.name}" if below else entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and path in folders:
                yield from self._kept(path, sizes, folders)
            elif stat.S_ISDIR(status.st_mode):
                remove_tree(Path(entry.path))
            elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == sizes.get(path):
                Path(entry.path).chmod(_PRIVATE)
                yield path
            else:
                effects.unlink(Path(entry.path))


def _enter(parent: int, name: str) -> int:
    """Open a folder in an open one, creating it where it is missing; closes ``parent``."""
    try:
        child = os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(name, dir_fd=parent)
        child = os.open(name, _DIRECTORY, dir_fd=parent)
    os.close(parent)
    return child


def _folders(files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> list[str]:
    """Return every folder of a generation, the deepest first, the root ("") last."""
    folders = {""} | set(directories)
    for path in (*directories, *(file.path for file in files)):
        folders.update(path[:index] for index, letter in enumerate(path) if letter == "/")
    return sorted(folders, key=lambda folder: (-folder.count("/"), folder == "", folder))


def allocate(fd: int, size: int) -> None:
    """Reserve the bytes of a file, so that a full disk is found out now; sparse where that cannot be had."""
    if size == 0:
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise
        os.ftruncate(fd, size)


def current_umask() -> int:
    """Return the process's umask.  Reading means setting: for an instant it is the strictest one."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def publish(source: Path, target: Path) -> None:
    """Rename a complete folder into place and make that durable.

    Network volumes may answer ENOENT for a rename whose source is there, or that took
    place: it is looked at again, and done once more only where it did not.
    """
    identity = source.stat()
    try:
        effects.rename(source, target)
    except FileNotFoundError:
        if not (target.is_dir() and os.path.samestat(identity, target.stat())):
            effects.rename(source, target)
    effects.fsync_directory(target.parent)


def disk_failure(error: OSError, path: Path, doing: str) -> LocalDisk:
    """Describe a local failure during a restore, with what to do next."""
    where = error.filename if isinstance(error.filename, str) else str(path)
    if error.errno in FULL:
        hint = "make room (or raise the quota) and run again, or restore to another disk with --to DIR"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"make {path} writable for uid {os.geteuid()}, or choose another folder"
    else:
        hint = f"check the disk and mount of {path}, then run again: what is there is reused"
    return LocalDisk(f"{where}: {error.strerror or error} (while {doing}); the target is untouched", hint=hint)
