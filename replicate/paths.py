"""Which paths a generation may hold: the same rules when sealing, uploading and restoring.

A path is relative, ``/``-separated and safe under POSIX and Windows rules on every
machine, because a generation sealed on one is restored on another.
"""

import re
import unicodedata
from collections.abc import Iterable

from replicate.errors import IntegrityFailure

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
MAX_DEPTH = 64
MAX_FOLDERS = 200_000
"""Folders with something in them; in a manifest of paths that share none, each costs memory of its own."""
_DRIVE = re.compile(r"^[A-Za-z]:")
_RESERVED = re.compile(r"^(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(\..*)?$", re.IGNORECASE)


class UnsafePath(IntegrityFailure):
    """A path that no generation may hold; the message quotes it."""


def check_path(path: str) -> str:
    """Return ``path``; raise UnsafePath saying which rule it breaks."""
    reason = _fault(path)
    if reason:
        raise UnsafePath(
            f"path {path[:200]!r} {reason}",
            hint="rename the file; where a manifest says so it is damaged or hostile, and nothing was written",
        )
    return path


def check_paths(files: Iterable[str], directories: Iterable[str] = ()) -> None:
    """Check every path, and that no two collide on a file system that folds case or has links.

    ``files`` and ``directories`` (the empty ones) together are the exact set to be created.
    """
    taken: dict[str, str] = {}
    parents: dict[str, str] = {}
    folders: set[str] = set()
    for path in (*files, *directories):
        check_path(path)
        folded = fold(path)
        if folded in taken:
            raise UnsafePath(f"paths {taken[folded]!r} and {path!r} are the same, or differ in letter case only")
        taken[folded] = path
        folder = path.rpartition("/")[0]
        if folder not in folders:  # else what is above it was looked at with the first path there
            folders.add(folder)
            _add_parents(parents, path, folded)
        if len(parents) > MAX_FOLDERS:
            raise UnsafePath(f"there are more than {MAX_FOLDERS} directories", hint="pack what is in so many")
    for folded, parent in parents.items():
        if folded in taken:
            raise UnsafePath(f"path {taken[folded]!r} is a file or an empty directory, and {parent!r} a directory")


def _add_parents(parents: dict[str, str], path: str, folded: str) -> None:
    for end, folded_end in zip(_slashes(path), _slashes(folded), strict=True):  # a slash folds to itself, alone
        parent = parents.setdefault(folded[:folded_end], path[:end])
        if parent != path[:end]:
            raise UnsafePath(f"directories {parent!r} and {path[:end]!r} differ in letter case or spelling only")


def fold(path: str) -> str:
    """Return what a case- and normalisation-insensitive file system would take ``path`` for."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _slashes(path: str) -> list[int]:
    return [index for index, letter in enumerate(path) if letter == "/"] if "/" in path else []


def _fault(path: str) -> str:
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    names = path.split("/")
    rules = (
        (not path, "is empty"),
        (length > MAX_PATH_BYTES, f"is longer than {MAX_PATH_BYTES} bytes"),
        (path.startswith("/") or bool(_DRIVE.match(path)), "is absolute"),
        ("\\" in path, "contains a backslash"),
        (
            not path.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in path),
            "contains a control character",
        ),
        (len(names) > MAX_DEPTH, f"is more than {MAX_DEPTH} deep"),
    )
    fault = next((words for broken, words in rules if broken), "")
    return fault or next((fault for fault in map(_name_fault, names) if fault), "")


def _name_fault(name: str) -> str:
    if name in ("", ".", ".."):
        return f"has the component {name!r}"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"has a component longer than {MAX_NAME_BYTES} bytes"
    if name[-1] in " .":
        return "has a component that ends in a space or a dot"
    if _RESERVED.match(name):
        return "has a component that is a reserved device name"
    return ""
