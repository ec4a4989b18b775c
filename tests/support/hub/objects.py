"""Git as far as the Hub shows it: blobs, trees and commits, with the ids that git would give them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def moment(number: int) -> datetime:
    """Return the time of the server's ``number``-th change: one second each, from a fixed start."""
    return _EPOCH + timedelta(seconds=number)


def api_date(when: datetime) -> str:
    """Return a time in the API's format."""
    return f"{when:%Y-%m-%dT%H:%M:%S.000Z}"


def git_id(kind: str, content: bytes) -> str:
    """Return the id of a git object: SHA-1 over its kind, size and content."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularFile:
    """A file that lies in git itself."""

    content: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content)

    @property
    def blob_id(self) -> str:
        """The git id, which is also what ``preupload`` names for comparison."""
        return git_id("blob", self.content)

    @property
    def compared_by(self) -> str:
        """What the library compares to tell whether a file has changed."""
        return self.blob_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeFile:
    """A pointer in git to an LFS object."""

    sha256: str
    size: int

    @property
    def pointer(self) -> bytes:
        """The text that git stores."""
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()

    @property
    def blob_id(self) -> str:
        """The git id of the pointer."""
        return git_id("blob", self.pointer)

    @property
    def compared_by(self) -> str:
        """What the library compares to tell whether a file has changed."""
        return self.sha256


StoredFile = RegularFile | LargeFile
Tree = Mapping[str, StoredFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One state of all files, and where it came from."""

    oid: str
    parents: tuple[str, ...]
    tree: Tree
    title: str
    message: str
    author: str
    date: datetime


def make_commit(
    tree: Tree, *, parents: tuple[str, ...], title: str, message: str = "", author: str, number: int
) -> Commit:
    """Return a commit with the id that git would give it, had the server's ``number``-th change been made then."""
    date = moment(number)
    who = f"{author} <{author}@users.example> {int(date.timestamp())} +0000"
    ancestry = [f"tree {folder_ids(tree)['']}", *(f"parent {parent}" for parent in parents)]
    text = [title, "", message] if message else [title]
    content = "\n".join([*ancestry, f"author {who}", f"committer {who}", "", *text])
    return Commit(
        oid=git_id("commit", content.encode()),
        parents=parents,
        tree=dict(tree),
        title=title,
        message=message,
        author=author,
        date=date,
    )


def folder_ids(tree: Tree) -> dict[str, str]:
    """Return the git id of every folder that a file lies in; the root is ``""``."""
    children: dict[str, dict[str, StoredFile | None]] = {"": {}}
    for path, file in tree.items():
        folder, _slash, name = path.rpartition("/")
        _folder_entry(children, folder)[name] = file
    ids: dict[str, str] = {}
    for folder in sorted(children, key=lambda name: (-name.count("/"), not name)):  # the deepest first, the root last
        ids[folder] = _folder_id(folder, children[folder], ids)
    return ids


def _folder_entry(children: dict[str, dict[str, StoredFile | None]], folder: str) -> dict[str, StoredFile | None]:
    if folder not in children:
        children[folder] = {}
        above, _slash, name = folder.rpartition("/")
        _folder_entry(children, above)[name] = None
    return children[folder]


def _folder_id(folder: str, names: Mapping[str, StoredFile | None], ids: Mapping[str, str]) -> str:
    entries: list[tuple[bytes, bytes]] = []
    for name, file in names.items():
        path = f"{folder}/{name}" if folder else name
        mode, oid = (b"40000", ids[path]) if file is None else (b"100644", file.blob_id)
        sort_key = name.encode() + (b"/" if file is None else b"")  # git compares folders as if they ended in a slash
        entries.append((sort_key, mode + b" " + name.encode() + b"\0" + bytes.fromhex(oid)))
    return git_id("tree", b"".join(entry for _key, entry in sorted(entries)))
