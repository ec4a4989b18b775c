"""Reading small files of a tree that nobody answers for: no link is followed, no FIFO waited for, no size believed."""

import os
import stat
from pathlib import Path

from replicate.errors import IntegrityFailure, LocalDisk
from replicate.release.documents import MAX_DOCUMENT_BYTES


def is_plain(path: Path) -> bool:
    """Whether a regular file lies there, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def read_plain(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises IntegrityFailure for anything else and for more than 64 MiB, LocalDisk where reading fails.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise IntegrityFailure(f"{path.name} is no regular file", hint="take the release again")
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        if path.is_symlink():
            raise IntegrityFailure(f"{path.name} is a link", hint="take the release again") from error
        raise LocalDisk(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
    if len(data) > MAX_DOCUMENT_BYTES:
        raise IntegrityFailure(f"{path.name} is larger than {MAX_DOCUMENT_BYTES} bytes", hint="take the release again")
    return data
