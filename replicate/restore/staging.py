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
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from replicate.canonical import dump
from replicate.errors import CkptierError, Fenced, IntegrityFailure, LocalDisk, TrustFailure, UsageError
from replicate.generation.disk import remove_tree, write_new
from replicate.generation.locks import Flock
from replicate.generation.seal import FILES, RECORD
from replicate.layout import GenerationId
from replicate.manifest import SealedFile
from replicate.restore.folder import FILE, PRIVATE_FILE, PRIVATE_FOLDER, Folder, check_ours, walk
from replicate.restore.lanes import is_small
from tiers import effects
from tiers.clock import Clock, rfc3339

PREFIX = ".restoring-"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_MAX_LOCK_NOTE = 4096
_MAX_FOLDERS = 64
"""How many folders of a staging stay open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where stagings of one target lie.  ``label`` tells targets in one folder apart (empty: the store).

    ``parent`` is absolute and without links.
    """

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
def locked(place: Place, clock: Clock) -> Iterator[Folder]:
    """Hold the target's lock and its folder, open; Fenced where another restore holds it.

    The lock file goes when the lock is released.
    """
    with Folder.at(place.parent) as parent:
        lock = _take(place, parent)
        try:
            lock.note(dump({"host": socket.gethostname(), "pid": os.getpid(), "since": rfc3339(clock.now())}))
            yield parent
        finally:
            with suppress(OSError):  # one that stays is taken by the next restore; what was restored is restored
                effects.unlink(place.lock, dir_fd=parent.fd)
            lock.release()


def _take(place: Place, parent: Folder) -> Flock:
    name = place.lock.name
    while True:
        os.close(os.open(name, FILE | os.O_CREAT, PRIVATE_FILE, dir_fd=parent.fd))
        try:
            lock = Flock.attempt(Path(name), dir_fd=parent.fd)
        except FileNotFoundError:
            continue  # its holder finished between the two calls and took the name along
        if lock is None:
            raise Fenced(
                f"another restore into this place is under way{_holder(parent, name)}",
                hint="wait for it to end, or stop it: its lock goes with its process",
            )
        if lock.guards(Path(name), dir_fd=parent.fd):
            return lock
        lock.release()


def _holder(parent: Folder, name: str) -> str:
    """Say who holds a lock, as far as its note tells; a note that cannot be read costs the name only."""
    try:
        note = json.loads(parent.read(name, _MAX_LOCK_NOTE))
        return f" (process {note['pid']} on {note['host']} since {note['since']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


class Staging:
    """One staging folder, ``name`` in ``parent``, which the caller keeps open.

    For a store it holds ``files/`` and at the end ``generation.json``; ``bare`` it holds the
    files and nothing else, and is itself what will be renamed to the target.
    """

    def __init__(self, parent: Folder, name: str, *, bare: bool = False) -> None:
        self.parent = parent
        self.path = parent.path / name
        self.files = self.path if bare else self.path / FILES
        self._stack = ExitStack()
        self._outer: Folder | None = None
        self._root: Folder | None = None
        self._lock = threading.Lock()
        self._folders: dict[str, Folder] = {}

    def open(self, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> frozenset[str]:
        """Create every folder, and every large file at its full size; returns the files that were there already.

        Raises TrustFailure where another user made the folder.
        """
        self.parent.clear_unless_folder(self.path.name)
        self._outer = self._root = self._stack.enter_context(self.parent.made(self.path.name, PRIVATE_FOLDER))
        check_ours(self.parent, self._outer)
        os.fchmod(self._outer.fd, PRIVATE_FOLDER)
        if self.files != self.path:
            effects.unlink(self.path / RECORD, dir_fd=self._outer.fd)
            self._outer.clear_unless_folder(FILES)
            self._root = self._stack.enter_context(self._outer.made(FILES))
        sizes = {file.path: file.size for file in files}
        kept = frozenset(self._kept(self._root, "", sizes, frozenset(_folders(files, directories))))
        for path in reversed(_folders(files, directories)):
            self._root.below(path, make=True).close()
        for file in files:
            if file.path not in kept and not is_small(file):
                self._reserve(file)
        return kept

    def close(self) -> None:
        """Let go of the folder; safe to repeat."""
        self._let_go()
        self._stack.close()
        self._outer = self._root = None

    def open_file(self, path: str, *, create: bool = False) -> int:
        """Open a file of the staging for reading and writing, never through a link; ``create``: it must not be there.

        One at a time: two threads that create in one folder would wait for each other in the kernel, busily.
        """
        folder, _, name = path.rpartition("/")
        with self._lock:
            parent = self._folder(folder)
            return parent.create_file(name) if create else parent.open_file(name)

    def finish_file(self, file: SealedFile, fd: int, umask: int) -> None:
        """Give an open file its mode and make it durable."""
        os.fchmod(fd, file.mode & ~umask)
        effects.fsync_fd(fd, str(self.files / file.path))

    def seal(self, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> None:
        """Check that exactly the sealed set is there, and make its folders durable; its files are, each by itself."""
        root = _opened(self._root)
        folders = _folders(files, directories)
        due = {file.path: file.size for file in files} | dict.fromkeys(folders[:-1])
        faults = sorted({path for path, _ in due.items() ^ dict(walk(root)).items()})
        if faults:
            raise IntegrityFailure(
                f"the restored set is not the sealed one: {', '.join(map(repr, faults[:5]))}",
                hint="something else writes into the staging folder: find it, then run again",
            )
        with self.fetched_anew():
            for folder in folders:
                with root.below(folder) as opened:
                    effects.fsync_fd(opened.fd, f"{self.files / folder}/")

    @contextmanager
    def fetched_anew(self) -> Iterator[None]:
        """Remove all where flushing fails: the next fsync may succeed although the bytes never arrived."""
        try:
            yield
        except OSError:
            with suppress(OSError, CkptierError):  # the first error is the one to report
                self.remove()
            raise

    def write_record(self, data: bytes) -> None:
        """Add generation.json."""
        write_new(self.path / RECORD, data, dir_fd=_opened(self._outer).fd)

    def unveil(self, mode: int) -> None:
        """Give the folder the mode that it will have, durably; until here only its owner could look in."""
        outer = _opened(self._outer)
        os.fchmod(outer.fd, mode)
        effects.fsync_fd(outer.fd, f"{self.path}/")

    def publish(self, target: Path) -> None:
        """Rename the folder to its target in the same parent, durably; TrustFailure where either was replaced.

        Network volumes may answer ENOENT for a rename whose source is there, or that took
        place: it is looked at again, and done once more only where it did not.
        """
        parent, identity = self.parent, _opened(self._outer).status
        if not parent.stands() or not parent.holds(self.path.name, identity):
            raise _replaced(self.path)
        try:
            effects.rename(self.path, target, dir_fd=parent.fd)
        except FileNotFoundError:
            if not parent.holds(target.name, identity):
                effects.rename(self.path, target, dir_fd=parent.fd)
        published = parent.look(target.name)
        if published is None or not stat.S_ISDIR(published.st_mode) or published.st_uid != identity.st_uid:
            raise _replaced(target)
        try:
            effects.fsync_fd(parent.fd, f"{parent.path}/")
        except OSError:
            with suppress(OSError):  # what failed leaves the target as it was; the first error counts
                effects.rename(target, self.path, dir_fd=parent.fd)
            raise

    def remove(self) -> None:
        """Remove the folder and all in it, unless another user made it."""
        self.close()
        status = self.parent.look(self.path.name)
        if status is None or not self.parent.is_ours(status):
            return
        if stat.S_ISDIR(status.st_mode):
            remove_tree(self.path, dir_fd=self.parent.fd)
        else:
            effects.unlink(self.path, dir_fd=self.parent.fd)

    def allocated(self) -> int:
        """Bytes of the disk that the folder already takes."""
        status = self.parent.look(self.path.name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return 0
        total = 0
        for _, _, names, fd in os.fwalk(self.path.name, dir_fd=self.parent.fd):
            total += sum(os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512 for name in names)
        return total

    def _folder(self, path: str) -> Folder:
        """Return a folder of the staging, which stays open for the next file in it."""
        if path not in self._folders:
            if len(self._folders) == _MAX_FOLDERS:
                self._let_go()
            self._folders[path] = _opened(self._root).below(path)
        return self._folders[path]

    def _let_go(self) -> None:
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()

    def _reserve(self, file: SealedFile) -> None:
        fd = self.open_file(file.path, create=True)
        try:
            allocate(fd, file.size)
        finally:
            os.close(fd)

    def _kept(self, folder: Folder, below: str, sizes: dict[str, int], folders: frozenset[str]) -> Iterator[str]:
        """Remove what does not belong, yield the files that may serve."""
        uid = folder.status.st_uid
        for name in folder.names():
            path = f"{below}/{name}" if below else name
            status = folder.look(name)
            if status is None:
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            if is_folder and path in folders and status.st_uid == uid:
                with folder.enter(name) as inner:
                    yield from self._kept(inner, path, sizes, folders)
            elif is_folder:
                remove_tree(folder.path / name, dir_fd=folder.fd)
            elif status.st_size == sizes.get(path) and folder.take_back(name, uid):
                yield path
            else:
                effects.unlink(folder.path / name, dir_fd=folder.fd)


def _opened(folder: Folder | None) -> Folder:
    if folder is None:
        raise RuntimeError("the staging is not open")
    return folder


def _replaced(path: Path) -> TrustFailure:
    return TrustFailure(
        f"{path} was replaced while it was restored: somebody else works in that folder",
        hint="restore into a folder that only this user may write to",
    )


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
