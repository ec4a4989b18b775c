"""What a restore leaves in the page cache, and when its bytes go to the disk.

Writing to the disk begins as leaves are proved, so that the fsyncs at the end are short.
What was restored is read next, by the trainer: it stays in memory, unless it is so large
that it would push out what others read.
"""

import os
from enum import StrEnum
from pathlib import Path

from replicate.generation.writeback import start_writeback

SHARE = 2
"""A generation of more than one part in so many of the available memory does not stay in it."""

_MEMINFO = Path("/proc/meminfo")


class Pages(StrEnum):
    """What becomes of the pages that were written."""

    KEEP = "keep"
    DROP = "drop"


def page_policy(total: int, available: int | None) -> Pages:
    """Decide for ``total`` bytes, where ``available`` bytes of memory could be had; None where nobody knows."""
    return Pages.DROP if available is not None and total * SHARE > available else Pages.KEEP


def available_memory() -> int | None:
    """Return the bytes that the kernel says could be had without swapping, None where it does not say."""
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    number = fields.get("MemAvailable", "").removesuffix("kB").strip()
    return int(number) * 1024 if number.isascii() and number.isdigit() else None


def drop_written(fd: int, start: int = 0, length: int = 0) -> None:
    """Let the pages of a range go that are on the disk, and begin to write the others; ``length`` 0 is to the end."""
    start_writeback(fd, start, length)
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(fd, start, length, os.POSIX_FADV_DONTNEED)
