"""The keys below a volume's root, in order of bytes."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tiers.checks import is_key
from tiers.volume_files import RESERVED, is_silly

Result = TypeVar("Result")


def walk_files(folder: Path, prefix: str, after: str | None, base: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield key and stat of the files whose keys start with ``prefix`` and come after ``after``.

    ``base`` is the key of ``folder``, with its slash.  Links, special files, names that no
    key can have (``lost+found``), and files that NFS keeps for whoever has them open are
    passed over: they are not this tier's objects.  Folders and files that vanish meanwhile
    are not listed; a root that is missing raises.
    """
    try:
        names = _twice(lambda: _names(folder, base))
    except (FileNotFoundError, NotADirectoryError):
        if base:
            return
        raise
    # With its slash, a folder's name sorts where all keys in it do: a-b/c, a.b, a/b, a0.
    for key in sorted(names):
        place = folder / key[len(base) :]
        if key.endswith("/"):
            inside = key.startswith(prefix) or prefix.startswith(key)
            if inside and (after is None or key > after or after.startswith(key)):
                yield from walk_files(place, prefix, after, key)
        elif key.startswith(prefix) and (after is None or key > after):
            try:
                info = _twice(place.lstat)
            except FileNotFoundError:
                continue
            yield key, info


def _names(folder: Path, base: str) -> set[str]:
    """Return each name once: a network filesystem may give one twice while the folder changes."""
    with os.scandir(folder) as entries:
        return {name for entry in entries if (name := _sortable(entry, base))}


def _twice(act: Callable[[], Result]) -> Result:
    """Look again where a handle is stale: something that was removed meanwhile is then said to be missing.

    Only that may be passed over.  What stays stale is an error, or a listing could lack objects.
    """
    try:
        return act()
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return act()


def _sortable(entry: os.DirEntry[str], base: str) -> str | None:
    """Return the entry's key, with a slash for a folder, or None where it is not to be listed."""
    key = base + entry.name
    if key in RESERVED or is_silly(entry.name) or not is_key(key):
        return None
    if entry.is_dir(follow_symlinks=False):
        return key + "/"
    return key if entry.is_file(follow_symlinks=False) else None
