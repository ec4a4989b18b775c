"""The keys below a volume's root, in order of bytes."""

import os
from collections.abc import Iterator
from pathlib import Path

from tiers.checks import is_key
from tiers.volume_files import HIDDEN


def walk_files(folder: Path, prefix: str, after: str | None, base: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield key and stat of the files whose keys start with ``prefix`` and come after ``after``.

    ``base`` is the key of ``folder``, with its slash.  Links, special files and names that no
    key can have (``lost+found``) are passed over: they are not this tier's objects.  Folders
    and files that vanish meanwhile are not listed; a root that is missing raises.
    """
    try:
        with os.scandir(folder) as entries:
            names = [name for entry in entries if (name := _sortable(entry, base))]
    except (FileNotFoundError, NotADirectoryError):
        if base:
            return
        raise
    # With its slash, a folder's name sorts where all keys in it do: a-b/c, a.b, a/b, a0.
    for key in sorted(names):
        if key.endswith("/"):
            inside = key.startswith(prefix) or prefix.startswith(key)
            if inside and (after is None or key > after or after.startswith(key)):
                yield from walk_files(folder / key[len(base) : -1], prefix, after, key)
        elif key.startswith(prefix) and (after is None or key > after):
            try:
                info = (folder / key[len(base) :]).lstat()
            except FileNotFoundError:
                continue
            yield key, info


def _sortable(entry: os.DirEntry[str], base: str) -> str | None:
    """Return the entry's key, with a slash for a folder, or None where it is not to be listed."""
    key = base + entry.name
    if key == HIDDEN or not is_key(key):
        return None
    if entry.is_dir(follow_symlinks=False):
        return key + "/"
    return key if entry.is_file(follow_symlinks=False) else None
