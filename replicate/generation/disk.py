"""Local writes that are durable or leave nothing, and errors that say what to do.

Every small document of a store is replaced through :func:`write_durably`; every
local ``OSError`` becomes a :class:`LocalDisk` in :func:`local_io`, so that a full
disk reads the same wherever it struck.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicate import canonical
from replicate.errors import LocalDisk
from replicate.layout import new_nonce
from tiers import effects
from tiers.volume_files import closing_fd, flush, lock, sync_directory, write_on

TEMPORARY = ".tmp-"
"""Prefix of a document that is being written; one that a killed process left is swept."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def local_io(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into LocalDisk; ``doing`` completes "while …"."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, doing) from error


def disk_error(error: OSError, path: Path, doing: str) -> LocalDisk:
    """Describe a local failure: the file that the system named, else ``path``, and the next step."""
    where = error.filename if isinstance(error.filename, str) else str(path)
    words = error.strerror or str(error)
    return LocalDisk(f"{where}: {words} (while {doing})", hint=_hint(error.errno, path))


def _hint(code: int | None, path: Path) -> str:
    if code in FULL:
        return (
            f"free space or quota on the disk of {path} ({_free(path)}), then publish again; "
            "the generations sealed before are untouched"
        )
    if code in _DENIED:
        return f"make {path} writable for uid {os.geteuid()}, or choose another store"
    if code == errno.EXDEV:
        return f"stage on the same filesystem as {path}"
    return f"check the disk and mount of {path}; the generations sealed before are untouched"


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        if folder.is_dir():
            return f"{shutil.disk_usage(folder).free} bytes are free"
    return "its free space is unknown"


def write_durably(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Replace a small document: temporary file, fsync, rename, fsync of the directory.

    Readers see the old bytes or the new ones.  ``mode`` is narrowed by the umask.
    """
    with local_io(path, f"writing {path.name}"):
        temporary, fd = _new_temporary(path, mode)
        # Not closed before it has its name: open, it is locked, and nobody sweeps it.
        with closing_fd(fd):
            try:
                write_on(fd, data)
                effects.fsync_fd(fd, str(temporary))
                flush(fd)
                effects.rename(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        effects.fsync_directory(path.parent)


def _new_temporary(path: Path, mode: int) -> tuple[Path, int]:
    while True:
        temporary = path.with_name(f"{TEMPORARY}{new_nonce()}-{path.name}")
        fd = os.open(temporary, _NEW, mode)
        try:
            lock(fd, fcntl.LOCK_EX)
        except BlockingIOError:  # somebody sweeps, and was faster than the lock
            os.close(fd)
            continue
        if os.fstat(fd).st_nlink:
            return temporary, fd
        os.close(fd)


def sweep_temporaries(folder: Path) -> None:
    """Remove the documents that killed processes were writing; what is being written is locked, and stays."""
    with local_io(folder, "sweeping"):
        for temporary in folder.glob(f"{TEMPORARY}*-*.json"):
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                if lock(fd, fcntl.LOCK_EX):
                    effects.unlink(temporary)
            except BlockingIOError:
                continue
            finally:
                os.close(fd)


def write_new(path: Path, data: bytes, *, dir_fd: int | None = None) -> None:
    """Create a file that must not exist, and make its bytes (not yet its name) durable.

    ``dir_fd`` is its folder, open: the path is then only what messages call it.
    """
    with local_io(path, f"writing {path.name}"):
        _write_new(path, data, 0o666, dir_fd)


def _write_new(path: Path, data: bytes, mode: int, dir_fd: int | None = None) -> None:
    fd = os.open(path if dir_fd is None else path.name, _NEW, mode, dir_fd=dir_fd)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        effects.fsync_fd(fd, str(path))
    finally:
        os.close(fd)


def read_document(path: Path, max_bytes: int) -> bytes | None:
    """Read a document, at most one byte more than it may have; None where there is none."""
    try:
        return canonical.read(path, max_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, path, f"reading {path.name}") from error


def make_directory(path: Path, *, settle: bool = False) -> None:
    """Do what :func:`create_directory` does; raises LocalDisk."""
    with local_io(path, "creating the directory"):
        create_directory(path, settle=settle)


def create_directory(path: Path, *, settle: bool = False) -> None:
    """Create a directory and its parents, each made durable; permissions follow the umask.  Raises OSError.

    ``settle`` makes the name of one that was found durable too: whoever made it may have
    been killed before its fsync.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    if settle:
        found = missing[-1].parent if missing else path
        sync_directory(found.parent)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        effects.fsync_directory(folder.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def remove_tree(path: Path, *, dir_fd: int | None = None) -> None:
    """Remove a directory of ours, whose own folder ``dir_fd`` may be; one that is already gone, or going, is fine."""

    def gone(_call: object, _name: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise info[1]

    with local_io(path, "removing it"), effects.effect(effects.Effect.UNLINK, str(path)):
        shutil.rmtree(path if dir_fd is None else path.name, onerror=gone, dir_fd=dir_fd)
