"""Trying out what a volume can do, in a scratch folder that is gone afterwards.

Nothing here is kept, so these effects are not announced to :mod:`tiers.effects`.
"""

import errno
import fcntl
import mmap
import os
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from tiers.volume_errnos import failure, name_of
from tiers.volume_facts import Finding, Verdict, VolumeFacts
from tiers.volume_files import HIDDEN, RESERVED, lock, open_to_lock, rename_no_replace
from tiers.volume_identity import BadMarker, read_identity
from tiers.volume_mounts import find_mount
from tiers.volume_reading import ALIGNMENT, open_direct

PROBE = "probe-"
"""What the names of scratch folders begin with."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_RACERS = 4
_LACKING = frozenset(
    getattr(errno, name)
    for name in (
        *("EPERM", "EACCES", "EROFS", "EINVAL", "ENOSYS", "EOPNOTSUPP", "EXDEV", "EMLINK"),
        *("ENOTTY", "ENAMETOOLONG", "ENOLCK", "EBADF", "EISDIR", "ESPIPE"),
    )
)
"""Answers that mean "not here"; any other means that this attempt failed."""


class _Wrong(Exception):
    """It was said to work, and did something else."""


def probe_volume(root: Path, *, store: Path | None = None) -> VolumeFacts:
    """Try out a volume whose root exists; ``store`` is the local store, to tell whether both are on one device.

    Raises OSError where the root cannot be looked at.  What cannot be written to is probed
    too: its findings say so.  Takes some forty small requests.
    """
    space = os.statvfs(root)
    scratch = root / HIDDEN / f"{PROBE}{secrets.token_hex(8)}"
    made_hidden = False
    blocked: OSError | None = None
    try:
        with suppress(FileExistsError):
            scratch.parent.mkdir()
            made_hidden = True
        scratch.mkdir()
    except OSError as error:
        blocked = error
    try:
        found = {name: _try(attempt, scratch, blocked) for name, attempt in _ATTEMPTS.items()}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # what cannot be removed, `unlink` tells
        if made_hidden:
            with suppress(OSError):
                scratch.parent.rmdir()
    return VolumeFacts(
        root=str(root),
        mount=find_mount(root),
        empty=_is_empty(root),
        identity=_identity(root),
        beside_store=_is_beside(root, store),
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        free_inodes=space.f_favail if space.f_files else None,
        **found,
    )


def _try(attempt: Callable[[Path], str], scratch: Path, blocked: OSError | None) -> Finding:
    name = attempt.__name__.removeprefix("_").replace("_", " ")
    try:
        if blocked is not None:
            raise blocked
        folder = scratch / secrets.token_hex(4)
        folder.mkdir()
        return Finding(verdict=Verdict.WORKS, evidence=f"{name}: {attempt(folder)}")
    except OSError as error:
        verdict = Verdict.REFUSED if error.errno in _LACKING else Verdict.UNKNOWN
        evidence = f"{name}: {error.strerror or error} [{name_of(error.errno)}]"
        return Finding(verdict=verdict, evidence=evidence, errno=error.errno)
    except _Wrong as error:
        return Finding(verdict=Verdict.WRONG, evidence=f"{name}: {error}")


def _write(path: Path, data: bytes, flags: int = _NEW) -> None:
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _read(path: Path) -> bytes:
    fd = os.open(path, _READ)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def _expect(path: Path, data: bytes, what: str) -> None:
    try:
        found = _read(path)
    except FileNotFoundError:
        raise _Wrong(f"{what}: there is no such file afterwards") from None
    if found != data:
        raise _Wrong(f"{what}: the file holds other bytes afterwards")


def _exclusive_create(folder: Path) -> str:
    path = folder / "claimed"

    def claim(number: int) -> bool:
        try:
            _write(path, b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(_RACERS) as pool:
        won = [number for number, first in enumerate(pool.map(claim, range(_RACERS))) if first]
    if len(won) != 1:
        raise _Wrong(f"{len(won)} of {_RACERS} creators of one name succeeded")
    _expect(path, b"%d" % won[0], "the winner's file")
    return f"of {_RACERS} creators of one name one succeeded"


def _visible_after_close(folder: Path) -> str:
    path, data = folder / "written", secrets.token_bytes(5000)
    _write(path, data)
    _expect(path, data, "another descriptor")
    if path.stat().st_size != len(data):
        raise _Wrong(f"a closed file of {len(data)} bytes is said to have {path.stat().st_size}")
    if [entry.name for entry in folder.iterdir()] != ["written"]:
        raise _Wrong("a closed file is not listed")
    return "a closed file is read, sized and listed right"


def _rename_over(folder: Path) -> str:
    _write(folder / "old", b"old")
    _write(folder / "new", b"new")
    (folder / "new").rename(folder / "old")
    _expect(folder / "old", b"new", "rename over a file")
    if (folder / "new").exists():
        raise _Wrong("the old name is still there")
    return "replaces a file"


def _rename_no_replace(folder: Path) -> str:
    _write(folder / "first", b"first")
    rename_no_replace(folder / "first", folder / "claimed")
    _write(folder / "second", b"second")
    with suppress(FileExistsError):
        rename_no_replace(folder / "second", folder / "claimed")
        raise _Wrong("it replaced a file")
    _expect(folder / "claimed", b"first", "a refused rename")
    return "leaves a file that is there"


def _hard_link(folder: Path) -> str:
    for name in ("first", "second"):
        _write(folder / name, name.encode())
    (folder / "claimed").hardlink_to(folder / "first")
    links = (folder / "first").stat().st_nlink
    if links != 2 or not (folder / "claimed").samefile(folder / "first"):  # noqa: PLR2004 - the name and the link
        raise _Wrong(f"two names of one file, and a link count of {links}")
    with suppress(FileExistsError):
        (folder / "claimed").hardlink_to(folder / "second")
        raise _Wrong("it replaced a file")
    return "makes a second name, with its count, and leaves a file that is there"


def _unlink(folder: Path) -> str:
    _write(folder / "gone", b"x")
    (folder / "gone").unlink()
    if (folder / "gone").exists():
        raise _Wrong("the name is still there")
    return "removes a file"


def _file_fsync(folder: Path) -> str:
    fd = os.open(folder / "synced", _NEW, 0o600)
    try:
        os.write(fd, b"x")
        os.fsync(fd)
    finally:
        os.close(fd)
    return "is accepted"


def _directory_fsync(folder: Path) -> str:
    _write(folder / "named", b"x")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return "is accepted"


def _write_at_offset(folder: Path) -> str:
    fd = os.open(folder / "sparse", _NEW, 0o600)
    try:
        os.pwrite(fd, b"end", 9000)
        os.pwrite(fd, b"start", 0)
    finally:
        os.close(fd)
    _expect(folder / "sparse", b"start".ljust(9000, b"\0") + b"end", "writing back to front")
    return "back to front, with a hole that reads as zeros"


def _truncate(folder: Path) -> str:
    fd = os.open(folder / "cut", _NEW, 0o600)
    try:
        os.write(fd, b"123456")
        os.ftruncate(fd, 3)
        os.ftruncate(fd, 5)
    finally:
        os.close(fd)
    _expect(folder / "cut", b"123\0\0", "cutting and extending")
    return "cuts and extends"


def _append(folder: Path) -> str:
    _write(folder / "grown", b"123")
    _write(folder / "grown", b"456", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    _expect(folder / "grown", b"123456", "appending")
    return "goes to the end of a closed file"


def _locks(folder: Path) -> str:
    _write(folder / "locked", b"x")
    first, second = (open_to_lock(folder / "locked") for _ in range(2))
    try:
        if not lock(first, fcntl.LOCK_EX):
            raise failure(errno.ENOLCK, folder)
        with suppress(BlockingIOError):
            lock(second, fcntl.LOCK_EX)
            raise _Wrong("two descriptors hold one exclusive lock")
    finally:
        os.close(first)
        os.close(second)
    return "an exclusive one is held once on this machine"


def _case_kept(folder: Path) -> str:
    _write(folder / "Name", b"upper")
    try:
        _write(folder / "name", b"lower")
    except FileExistsError:
        raise _Wrong("Name and name are one file") from None
    _expect(folder / "Name", b"upper", "a name in another case")
    return "Name and name are two files"


def _long_names(folder: Path) -> str:
    _write(folder / ("n" * 255), b"x")
    return "255 bytes"


def _direct_read(folder: Path) -> str:
    path, data = folder / "direct", secrets.token_bytes(2 * ALIGNMENT)
    _write(path, data)
    fd = os.open(path, _READ)
    try:
        direct = open_direct(path, fd)
        if direct < 0:
            raise failure(errno.EINVAL, path)
        try:
            with closing(mmap.mmap(-1, len(data))) as buffer:
                count = os.preadv(direct, [buffer], 0)
                if buffer[:count] != data:
                    raise _Wrong("it gives other bytes than were written")
        finally:
            os.close(direct)
    finally:
        os.close(fd)
    return "O_DIRECT reads around the page cache"


_ATTEMPTS: dict[str, Callable[[Path], str]] = {
    attempt.__name__.removeprefix("_"): attempt
    for attempt in (
        *(_exclusive_create, _visible_after_close, _rename_over, _rename_no_replace, _hard_link, _unlink),
        *(_file_fsync, _directory_fsync, _write_at_offset, _truncate, _append, _locks),
        *(_case_kept, _long_names, _direct_read),
    )
}


def _is_empty(root: Path) -> bool:
    ours = RESERVED | {"lost+found"}
    return all(entry.name in ours for entry in root.iterdir())


def _identity(root: Path) -> str | None:
    try:
        identity = read_identity(root)
    except BadMarker:
        return None
    return identity.uuid if identity else None


def _is_beside(root: Path, store: Path | None) -> bool | None:
    if store is None:
        return None
    present = next(folder for folder in (store, *store.parents) if folder.exists())
    return root.stat().st_dev == present.stat().st_dev
