"""The filesystem under a volume tier: keys as paths, locks, durable steps.

Every step that makes something durable says why; functions here raise OSError, which
:class:`tiers.volume.VolumeTier` translates (:mod:`tiers.volume_errnos`).
"""

import ctypes
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tiers import effects
from tiers.volume_errnos import failure

HIDDEN = ".ckptier"
"""Folder below the root for what is not an object yet; never listed, never a key."""

RESERVED = frozenset((HIDDEN, ".s3compat_uploads"))
"""Names at the root that are no keys: the second is where a volume that also speaks S3 keeps parts of uploads."""

ATTEMPTS = 5
"""How often a folder may vanish under a write (a delete elsewhere removes empty ones) before it is an error."""

_SILLY = re.compile(r"\.(?:nfs[0-9a-f]{16,}|fuse_hidden[0-9a-f]{16,})")

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def etag_of(info: os.stat_result) -> str:
    """Name the bytes of a file: replacing or touching it gives another name."""
    return f"{info.st_ino:x}-{info.st_size:x}-{info.st_mtime_ns:x}"


def write_all(fd: int, data: memoryview | bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``; a write may take less than it is given."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def write_on(fd: int, data: memoryview | bytes) -> None:
    """Write all of ``data`` where the last write ended: all that some filesystems allow."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def flush(fd: int) -> None:
    """Have the errors that closing a file would report, while it stays open and locked.

    Network filesystems may tell of a lost write only at a close, and every close of a
    descriptor asks them, also that of a copy.
    """
    os.close(os.dup(fd))


@contextmanager
def closing_fd(fd: int) -> Iterator[None]:
    """Close a descriptor after the block; its error counts unless the block has one of its own."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # the first error is the one to report
            os.close(fd)
        raise
    os.close(fd)


NO_DIRECTORY_FSYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EACCES, errno.EISDIR)
"""How filesystems say that there is nothing to fsync in a folder; an error of the device has another number."""


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, where its filesystem knows that notion."""
    try:
        effects.fsync_directory(path)
    except OSError as error:
        # Some network filesystems refuse fsync on a directory because each change to it
        # is durable when it returns, and some refuse to open one.
        if error.errno not in NO_DIRECTORY_FSYNC:
            raise


def settle(path: Path) -> None:
    """Make durable what another process left: the bytes of a file, or the names in a folder; gone is fine."""
    with suppress(FileNotFoundError):
        if path.is_dir():
            sync_directory(path)
            return
        try:
            effects.fsync_file(path)
        except OSError as error:
            if error.errno not in NO_DIRECTORY_FSYNC:
                raise


def is_silly(name: str) -> bool:
    """Tell whether a name is what NFS or FUSE call a file that was deleted while open: it is nobody's object."""
    return _SILLY.fullmatch(name) is not None


def lock(fd: int, mode: int) -> bool:
    """Take a lock that ends with the process; BlockingIOError where it is held, False where there are no locks."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except OSError as error:
        # EBADF: NFS makes byte-range locks of it, and wants a file that is open for writing.
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF):
            raise
        return False
    return True


def open_to_lock(path: Path) -> int:
    """Open a file only to lock it: for writing, or where it may be written only once, for reading."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, os.O_WRONLY | flags)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.EROFS, errno.EBUSY):
            raise
        return os.open(path, os.O_RDONLY | flags)


def remove_folder(path: Path) -> None:
    """Remove a folder of files; others may be doing the same."""
    with suppress(FileNotFoundError):
        for entry in path.iterdir():
            if is_silly(entry.name):
                return  # it goes when whoever has it open closes it; the rest is for a later sweep
            effects.unlink(entry)
        path.rmdir()


def sweep(folder: Path) -> None:
    """Remove temporary files that nobody writes any more, and uploads that were being removed.

    A file is taken for abandoned where its lock is free.  Should that be wrong (locks that
    do not reach other machines), its writer fails with TierUnavailable and begins anew.
    """
    for path in folder.iterdir():
        if is_silly(path.name):
            continue
        try:
            fd = open_to_lock(path)
        except IsADirectoryError:
            remove_folder(path)
            continue
        except FileNotFoundError:
            continue
        try:
            if lock(fd, fcntl.LOCK_EX):
                effects.unlink(path)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)


def rename_new(source: Path, target: Path) -> None:
    """Rename, or raise FileExistsError where the target exists: put-if-absent without hard links."""
    with effects.effect(effects.Effect.RENAME, str(target)):
        rename_no_replace(source, target)


def rename_no_replace(source: Path, target: Path) -> None:
    """Do what :func:`rename_new` does, unannounced: for scratch files that nobody keeps."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        raise failure(errno.ENOSYS, target)
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) != 0:
        raise failure(ctypes.get_errno(), target)


class VolumeRoot:
    """The folder that a volume tier lives in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pinned: tuple[int, int] | None = None
        self._durable: set[tuple[Path, int, int]] = set()

    def is_there(self) -> bool:
        """Tell whether the root can be looked at and is a folder."""
        try:
            return stat.S_ISDIR(self.path.stat().st_mode)
        except OSError:
            return False  # whatever the reason, nothing can be said of what is below

    def pin(self) -> None:
        """Raise ESTALE where the root is another folder, on another device, than at the first use.

        A volume that is unmounted under a running process leaves the folder below it, which
        answers as an empty one and lies on a disk that nobody meant.  One number alone may
        change: a device's by mounting again, a folder's on FUSE at any time.
        """
        info = self.path.stat()
        if self._pinned is None:
            self._pinned = (info.st_dev, info.st_ino)
        elif info.st_dev != self._pinned[0] and info.st_ino != self._pinned[1]:
            raise failure(errno.ESTALE, self.path)

    @property
    def moved(self) -> bool:
        """Whether something about the root's place is not what it was at the first use.  Raises OSError."""
        info = self.path.stat()
        return self._pinned not in (None, (info.st_dev, info.st_ino))

    def forget(self) -> None:
        """Take the root for what it will be at the next use, and nothing in it for durable."""
        self._pinned = None
        self._durable.clear()

    def clock(self) -> int:
        """Return the time that the volume gives to a file written now, in nanoseconds: ages are told by one clock."""
        path = self.ensure((HIDDEN, "tmp")) / secrets.token_hex(16)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)
            effects.unlink(path)

    def locate(self, components: Sequence[str]) -> Path:
        """Return the path of a key whose folders exist and are no symbolic links (ELOOP)."""
        self.pin()
        path = self.path
        for component in components[:-1]:
            path /= component
            if stat.S_ISLNK(path.lstat().st_mode):
                raise failure(errno.ELOOP, path)
        return path / components[-1]

    def ensure(self, components: Sequence[str]) -> Path:
        """Return a folder below the root, made where it is missing, and durable.

        A name is durable once the folder that holds it was fsynced.  That holds as well
        for folders that were found: whoever made them may have died before their fsync.
        It is done once for each folder that this object sees.
        """
        self.pin()
        path = self.path
        for component in components:
            parent, path = path, path / component
            made = False
            try:
                info = path.lstat()
            except FileNotFoundError:
                with suppress(FileExistsError):  # another writer was faster
                    path.mkdir()
                    made = True
                info = path.lstat()
            if not stat.S_ISDIR(info.st_mode):
                raise failure(errno.ELOOP if stat.S_ISLNK(info.st_mode) else errno.ENOTDIR, path)
            identity = (path, info.st_dev, info.st_ino)
            if made or identity not in self._durable:
                sync_directory(parent)
                self._durable.add(identity)
        return path

    def new_temporary(self) -> tuple[int, Path]:
        """Open a new file that is not an object yet, with the mode that the umask leaves.

        Its lock says that somebody still writes it.
        """
        folder = self.ensure((HIDDEN, "tmp"))
        while True:
            path = folder / secrets.token_hex(16)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                lock(fd, fcntl.LOCK_EX)
            except BlockingIOError:  # somebody sweeps, and was faster than the lock
                os.close(fd)
                continue
            if os.fstat(fd).st_nlink:
                return fd, path
            os.close(fd)

    def publish(self, source: Path, components: Sequence[str]) -> None:
        """Rename a fsynced file to its key, replacing what is there, and make the name durable."""
        identity = source.lstat()
        for attempt in range(1, ATTEMPTS + 1):
            folder = self.ensure(components[:-1])
            target = folder / components[-1]
            self.clear(target)
            try:
                effects.rename(source, target)
                break
            except FileNotFoundError:
                # A network volume may say ENOENT although the source is there (look again
                # and repeat), or because its reply was lost and the repeat found it gone.
                if _same_file(target, identity):
                    break
                if attempt == ATTEMPTS or not source.exists():
                    raise
        sync_directory(folder)

    def publish_new(self, source: Path, components: Sequence[str]) -> None:
        """Give a fsynced file its key if that is free (FileExistsError), and make the name durable."""
        identity = source.lstat()
        for attempt in range(1, ATTEMPTS + 1):
            folder = self.ensure(components[:-1])
            target = folder / components[-1]
            try:
                _link_or_rename(source, target)
                break
            except OSError as error:
                # A lost reply, repeated by the client's kernel, looks like a refusal; the link
                # count of a name that only this call knows tells.
                if _link_count(source) > 1 or _same_file(target, identity):
                    break
                if isinstance(error, FileExistsError):
                    self.clear(target)
                    if _exists(target):
                        raise
                elif not isinstance(error, FileNotFoundError) or attempt == ATTEMPTS or not source.exists():
                    raise
        else:
            raise failure(errno.EBUSY, target)
        sync_directory(folder)
        effects.unlink(source)

    def remove_empty(self, components: Sequence[str], *, keep: int = 0) -> None:
        """Remove the folders above a key that are empty, innermost first, but for the outermost ``keep``."""
        for depth in range(len(components) - 1, keep, -1):
            try:
                self.path.joinpath(*components[:depth]).rmdir()
            except OSError:
                return  # in use, already gone, or not ours to remove: an empty folder is not content

    @staticmethod
    def clear(target: Path) -> None:
        """Remove an empty folder where an object is to stand; refuse a full one (EISDIR) and a link (ELOOP)."""
        try:
            mode = target.lstat().st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(mode):
            raise failure(errno.ELOOP, target)
        if stat.S_ISDIR(mode):
            try:
                target.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                raise failure(errno.EISDIR, target) from error


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _same_file(path: Path, identity: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), identity)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _link_count(path: Path) -> int:
    try:
        return path.lstat().st_nlink
    except FileNotFoundError:
        return 0


def _link_or_rename(source: Path, target: Path) -> None:
    try:
        effects.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        rename_new(source, target)
        return
    if _link_count(source) == 1 and not _same_file(target, source.lstat()):
        raise failure(errno.EOPNOTSUPP, target)  # a "link" that is a copy proves nothing
