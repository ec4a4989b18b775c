"""Somebody else in the folder: at the n-th look that a call takes at the file system, a name is made to lead elsewhere.

Python announces every system call on files to audit hooks before it is made, so that a
swap falls exactly between two of them.  The effect seam's announcements count as well.
"""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiers import effects

_LOOKS = frozenset(
    {"open", "os.mkdir", "os.rmdir", "os.chmod", "os.rename", "os.remove", "os.link", "os.truncate", "os.scandir"}
    | {"os.listdir", "shutil.rmtree", "os.chown", "os.symlink"}
)


class _Hook:
    """One hook for the process, since none can be taken away again; it does nothing but in ``counted``."""

    def __init__(self) -> None:
        self.listener: Callable[[], None] | None = None
        self._installed = False

    def install(self) -> None:
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._heard)

    def _heard(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if self.listener is not None and event in _LOOKS:
            self.listener()


_hook = _Hook()


@contextmanager
def at_look(number: int, act: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """Call ``act`` once, before the ``number``-th look; yields how many looks there were so far."""
    seen = 0
    acting = False

    def look(*_: object) -> None:
        nonlocal seen, acting
        if acting:
            return
        seen += 1
        if seen == number:
            acting = True
            act()
            acting = False

    _hook.install()
    _hook.listener = look
    try:
        with effects.observing(look):
            yield lambda: seen
    finally:
        _hook.listener = None


def replace_by_link(path: Path, target: Path) -> None:
    """Move what stands at a name aside, if anything does, and put a link there."""
    if os.path.lexists(path):
        aside = path.with_name(f"aside-{path.name}")
        if os.path.lexists(aside):
            shutil.rmtree(aside) if aside.is_dir() and not aside.is_symlink() else aside.unlink()
        path.rename(aside)
    path.symlink_to(target)


def replace_by_second_name(path: Path, target: Path) -> None:
    """Put a hard link to a file of ours where one of the staging's is due."""
    path.unlink(missing_ok=True)
    path.hardlink_to(target)


def picture(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that may not change of what lies in a folder: kind and mode, size, bytes."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_size, data)
    return found
