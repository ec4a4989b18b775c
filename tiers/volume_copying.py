"""Bytes from one file to another on a volume, inside the filesystem where it can."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tiers.volume_errnos import failure
from tiers.volume_files import write_all

BLOCK = 1 << 20
_CANNOT = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def copy_range(source: int, target: int, start: int, at: int, length: int, *, what: Path) -> None:
    """Copy ``length`` bytes of an open file from ``start`` to ``at`` in another.

    Filesystems that share blocks between files (XFS, Btrfs) do so here by themselves; network
    filesystems may copy on the server.  Anywhere else the bytes are read and written.
    ESTALE where the source is shorter than it was.
    """
    done = 0
    while done < length:
        try:
            count = os.copy_file_range(source, target, length - done, start + done, at + done)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            count = 0
        if count <= 0:  # not here, or the end: reading tells which
            data = os.pread(source, min(length - done, BLOCK), start + done)
            if not data:
                raise failure(errno.ESTALE, what)
            write_all(target, data, at + done)
            count = len(data)
        done += count


def pieces_of(source: int, length: int, *, what: Path, then: Callable[[], None]) -> Iterator[bytes]:
    """Read an open file from its start in pieces, and call ``then`` after the last; ESTALE where it is shorter."""
    done = 0
    while done < length:
        data = os.pread(source, min(length - done, BLOCK), done)
        if not data:
            raise failure(errno.ESTALE, what)
        yield data
        done += len(data)
    then()
