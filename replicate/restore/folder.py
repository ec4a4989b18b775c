"""An open directory, and what is in it: reached by descriptor, so that a name swapped meanwhile leads nowhere else.

Who may write to the folder that a restore works in can replace any name there between two
calls.  Therefore a folder is opened once and everything below it is opened, created,
changed, renamed and removed relative to that descriptor, and never through a link.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from replicate.errors import TrustFailure
from replicate.layout import new_nonce
from tiers import effects

FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


class Folder:
    """An open directory; a context manager.  ``path`` is what messages call it and leads nowhere by itself."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def at(cls, path: Path) -> Self:
        """Open a folder by its absolute path in which no link may stand: one that does was put there meanwhile."""
        here = os.open("/", _PASS if path.parts[1:] else _DIRECTORY)
        for number, name in enumerate(path.parts[1:], start=2):
            flags = _DIRECTORY if number == len(path.parts) else _PASS
            try:
                below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
            finally:
                os.close(here)
            here = below
        return cls(here, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go; safe to repeat."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def status(self) -> os.stat_result:
        """What fstat says of the folder itself."""
        return os.fstat(self.fd)

    def enter(self, name: str) -> "Folder":
        """Open a folder in this one; NotADirectoryError where a link or a file stands there."""
        return Folder(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd), self.path / name)

    def made(self, name: str, mode: int = 0o777) -> "Folder":
        """Open a folder in this one, creating it where it is missing."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=self.fd)
        return self.enter(name)

    def below(self, path: str, *, make: bool = False) -> "Folder":
        """Open a folder any number of levels down; ``make`` creates what is missing."""
        here = Folder(os.dup(self.fd), self.path)
        for name in path.split("/") if path else ():
            with here:
                here = here.made(name) if make else here.enter(name)
        return here

    def names(self) -> list[str]:
        """Return what is in it, in order."""
        with os.scandir(self.fd) as entries:
            return sorted(entry.name for entry in entries)

    def look(self, name: str) -> os.stat_result | None:
        """Return what lstat says of a name, None where there is none."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read(self, name: str, limit: int) -> bytes:
        """Read the beginning of a file; OSError for a link, and for what would make a reader wait."""
        fd = os.open(name, _LOOK, dir_fd=self.fd)
        try:
            _refuse_special(fd, name)
            return os.read(fd, limit)
        finally:
            os.close(fd)

    def create_file(self, name: str) -> int:
        """Create a private file and open it for reading and writing; FileExistsError for whatever stands there."""
        return os.open(name, FILE | os.O_CREAT | os.O_EXCL, PRIVATE_FILE, dir_fd=self.fd)

    def open_file(self, name: str) -> int:
        """Open a file for reading and writing; OSError unless it is one, of one name."""
        fd = os.open(name, FILE | os.O_NONBLOCK, dir_fd=self.fd)
        try:
            _refuse_special(fd, name)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def take_back(self, name: str, uid: int) -> bool:
        """Make a file that is there private again; False unless it is a regular one, of one name, and of ``uid``."""
        try:
            fd = os.open(name, _LOOK, dir_fd=self.fd)
        except OSError:
            return False
        try:
            status = os.fstat(fd)
            ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == uid
            if ours:
                os.fchmod(fd, PRIVATE_FILE)
            return ours
        finally:
            os.close(fd)

    def clear_unless_folder(self, name: str) -> None:
        """Remove what stands where a folder is due, a link above all."""
        status = self.look(name)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            effects.unlink(self.path / name, dir_fd=self.fd)

    def owner(self) -> int:
        """Return the uid that what is created here belongs to: ours, but for mounts that say another."""
        name = f".restoring-probe-{new_nonce()}"
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=self.fd)
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_uid
        finally:
            os.rmdir(name, dir_fd=self.fd)

    def is_ours(self, status: os.stat_result) -> bool:
        """Whether something in this folder was made by this user."""
        return status.st_uid == os.geteuid() or status.st_uid == self.owner()

    def stands(self) -> bool:
        """Whether the path that the folder was opened by still leads to it."""
        try:
            return os.path.samestat(self.status, self.path.stat())
        except OSError:
            return False

    def holds(self, name: str, status: os.stat_result) -> bool:
        """Whether a name leads to what ``status`` was taken of."""
        found = self.look(name)
        return found is not None and os.path.samestat(found, status)


def check_ours(parent: Folder, folder: Folder) -> None:
    """Refuse a folder that another user put where ours is due: whoever owns it can read and replace what is in it."""
    if not parent.is_ours(folder.status):
        raise TrustFailure(
            f"{folder.path} belongs to uid {folder.status.st_uid}, not to this user: nothing is written into it",
            hint="remove it, or restore into a folder that only this user may write to",
        )


def walk(folder: Folder, below: str = "") -> Iterator[tuple[str, int | None]]:
    """Yield (path, size) of all below a folder: None for a folder, -1 for what is no regular file of one name."""
    for name in folder.names():
        path = f"{below}/{name}" if below else name
        status = folder.look(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            yield path, None
            with folder.enter(name) as inner:
                yield from walk(inner, path)
        elif status is not None:
            yield path, status.st_size if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else -1


def _refuse_special(fd: int, name: str) -> None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise OSError(errno.EPERM, "is no regular file of one name", name)
