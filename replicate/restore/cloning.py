"""Bytes of a file that lies here already: shared with it where the filesystem can, else copied inside the kernel.

Nothing that was cloned counts before it was read and proved like any other leaf.
"""

import fcntl
import os
import stat
from pathlib import Path

from tiers import effects

FICLONE = 0x40049409


def open_copy(path: Path, size: int) -> int | None:
    """Open a copy for reading; None unless it is a regular file of this size.  Never through a link at its name."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # whoever reads it the ordinary way tells what is wrong with it
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size == size:
        return fd
    os.close(fd)
    return None


def share(source: int, target: int, what: str) -> bool:
    """Let ``target``, which is empty or of the same size, share every block of ``source``; False where it did not.

    What stood in the way, be it the filesystem, a full disk or a bad one, shows where the bytes are written one by one.
    """
    try:
        with effects.effect(effects.Effect.LINK, what):
            fcntl.ioctl(target, FICLONE, source)
    except OSError:
        return False
    return True


def copy_range(source: int, target: int, start: int, length: int) -> bool:
    """Copy a range inside the kernel, to the same place; False where it did not all arrive.

    An error does not tell whether it was the source or the target that failed: reading and writing does.
    """
    call = getattr(os, "copy_file_range", None)
    done = 0
    while call is not None and done < length:
        try:
            count = call(source, target, length - done, start + done, start + done)
        except OSError:
            return False
        if count == 0:
            return False
        done += count
    return call is not None
