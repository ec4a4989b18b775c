"""Local writes that are durable or leave nothing, and errors that say what to do.

Every small document of a store is replaced through :func:`write_durably`; every
local ``OSError`` becomes a :class:`LocalDisk` in :func:`local_io`, so that a full
disk reads the same wherever it struck.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicate.errors import LocalDisk
from replicate.layout import new_nonce
from tiers import effects

TEMPORARY = ".tmp-"
"""Prefix of a document that is being written; one that a killed process left is swept."""

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
    temporary = path.with_name(f"{TEMPORARY}{new_nonce()}-{path.name}")
    with local_io(path, f"writing {path.name}"):
        try:
            _write_new(temporary, data, mode)
            effects.rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        effects.fsync_directory(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Create a file that must not exist, and make its bytes (not yet its name) durable."""
    with local_io(path, f"writing {path.name}"):
        _write_new(path, data, 0o666)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
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
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, path, f"reading {path.name}") from error


def make_directory(path: Path) -> None:
    """Create a directory and its parents, each made durable; permissions follow the umask."""
    with local_io(path, "creating the directory"):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            effects.fsync_directory(folder.parent)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def remove_tree(path: Path) -> None:
    """Remove a directory of ours; one that is already gone, or going, is fine."""

    def gone(_call: object, _name: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise info[1]

    with local_io(path, "removing it"), effects.effect(effects.Effect.UNLINK, str(path)):
        shutil.rmtree(path, onerror=gone)
