"""A page cache and the disk below it: what a process sees, and what a power cut may leave.

The page cache holds everything; the disk has, of a file, the bytes as of its last fsync, and
of a folder, the names as of its last fsync.  Anything later may have reached it too, in any
combination:

* a write: whole, not at all, cut at a sector, or as a longer file with zeros;
* a change of a folder: made or not, whatever became of other changes, also of earlier ones
  in the same folder.  A rename within a folder is one change.
* a rename from folder to folder: not, whole, or (files only) as a second name.  Only where
  the old folder alone was fsynced, the file may have no name at all.

Stronger than what ext4, XFS, btrfs and ZFS do (they order changes of folders), and weaker
than plain POSIX in one point: a rename between folders is one step until either is fsynced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from support.strace_log import (
    AT_END,
    CopyRange,
    Link,
    MakeFolder,
    Mark,
    Open,
    Operation,
    Rename,
    Resize,
    Sync,
    Unlink,
    Write,
)

SECTOR = 512
PAGE = 4096
Tree = dict[str, bytes | None]
"""Relative paths with the bytes of files; None is a folder."""


def forgettable(path: str) -> bool:
    """Tell the files that nothing depends on after a power cut: shared memory, locks, the daemon's status."""
    return path.endswith(("-shm", ".lock", "status.json"))


class Fate(StrEnum):
    """What became of one change that was not durable."""

    LOST = "lost"
    DONE = "done"
    TORN = "torn"
    ZEROS = "zeros"
    BOTH = "both names"


@dataclass(eq=False, slots=True)
class Node:
    """A file or folder: what the disk is sure to have of it, and what the page cache shows."""

    folder: bool
    safe_data: bytes = b""
    data: bytearray = field(default_factory=bytearray)
    safe_names: "dict[str, Node]" = field(default_factory=dict)
    names: "dict[str, Node]" = field(default_factory=dict)


@dataclass(eq=False, slots=True, kw_only=True)
class Change:
    """One change that is not durable yet.  ``what`` is for people."""

    what: str
    file: Node | None = None
    write: tuple[int, bytes] | None = None
    size: tuple[int, bool] | None = None
    names: list[tuple[Node, str, Node | None]] = field(default_factory=list)
    moved: bool = False

    def fates(self) -> tuple[Fate, ...]:
        """Return what may become of it, besides being lost."""
        if self.write is not None:
            return (Fate.DONE, Fate.TORN, Fate.ZEROS) if len(self.write[1]) > 1 else (Fate.DONE,)
        if self.moved and self.names[0][2] is not None and not self.names[0][2].folder:
            return (Fate.DONE, Fate.BOTH)
        return (Fate.DONE,)


Choice = tuple[tuple[Change, Fate], ...]


@dataclass(slots=True)
class Disk:
    """A folder as the page cache shows it and as a power cut may leave it; ``forget`` names files that never matter."""

    root: str
    forget: Callable[[str], bool] = forgettable
    top: Node = field(default_factory=lambda: Node(folder=True))
    pending: list[Change] = field(default_factory=list)

    def settle(self, below: str = "") -> None:
        """Take all that was done (below a folder) for durable."""
        stack = [self._find(below)] if below else [self.top]
        nodes: list[Node] = []
        while stack:
            node = stack.pop()
            nodes.append(node)
            stack += node.names.values()
        for node in nodes:
            self._sync(node)

    def apply(self, operation: Operation) -> None:
        """Do to the page cache what the process did."""
        match operation:
            case Mark():
                return
            case Sync():
                if f"{operation.path}/".startswith(f"{self.root}/"):  # the folder above is there already
                    self._sync(self._find(operation.path))
            case Rename() | Link():
                self._move(operation)
            case Unlink() | MakeFolder():
                self._name(operation)
            case _:
                self._change_file(operation)

    def _name(self, operation: Unlink | MakeFolder) -> None:
        if operation.path == self.root:
            return
        folder, name = self._locate(operation.path)
        short = self._short(operation.path)
        if isinstance(operation, MakeFolder):
            self._rename_entries([(folder, name, Node(folder=True))], f"mkdir {short}")
        elif not self._never_was(folder, name):
            self._rename_entries([(folder, name, None)], f"unlink {short}")

    def _change_file(self, operation: Open | Write | CopyRange | Resize) -> None:
        match operation:
            case Open():
                self._open(operation)
            case Write():
                self._write(operation.path, operation.offset, operation.data)
            case CopyRange():
                data = bytes(self._find(operation.source).data[operation.start : operation.start + operation.length])
                self._write(operation.path, operation.offset, data)
            case Resize():
                self._resize(operation.path, operation.size, at_least=operation.at_least)

    def tree(self) -> Tree:
        """Return what the page cache shows: what a process that was killed leaves."""
        return self.after(tuple((change, Fate.DONE) for change in self.pending))

    def after(self, choice: Choice) -> Tree:
        """Return what is on the disk where exactly these changes reached it."""
        names: dict[int, dict[str, Node]] = {}
        data: dict[int, bytearray] = {}
        for change, fate in choice:
            if change.file is not None:
                held = data.setdefault(id(change.file), bytearray(change.file.safe_data))
                _put(held, change, fate)
            for number, (folder, name, node) in enumerate(change.names):
                if fate is Fate.BOTH and number:
                    break
                _name(names.setdefault(id(folder), dict(folder.safe_names)), name, node)
        found: Tree = {}
        self._walk(self.top, "", names, data, found)
        return found

    def is_safe(self, path: str) -> list[str]:
        """Say what of a path (the bytes, or a name on the way to it) a power cut may still take; empty if nothing."""
        node, faults, way = self.top, [], ""
        for name in self._short(path).split("/"):
            way = f"{way}/{name}" if way else name
            if name not in node.names:
                return [f"{way}: is not there"]
            if node.safe_names.get(name) is not node.names[name]:
                faults.append(f"{way}: its name is not durable")
            node = node.names[name]
        if not node.folder and node.safe_data != bytes(node.data):
            faults.append(f"{way}: its bytes are not durable")
        return faults

    def files(self, path: str) -> list[str]:
        """Return the full paths of the files below a folder, as the page cache shows it."""
        found, folder = [], self.find(path)
        stack = [(path, folder)] if folder is not None else []
        while stack:
            way, node = stack.pop()
            if node.folder:
                stack += [(f"{way}/{name}", child) for name, child in node.names.items()]
            else:
                found.append(way)
        return found

    def find(self, path: str) -> Node | None:
        """Return what stands at a path."""
        try:
            return self._find(path)
        except KeyError:
            return None

    def _walk(
        self, node: Node, path: str, names: dict[int, dict[str, Node]], data: dict[int, bytearray], found: Tree
    ) -> None:
        for name, child in sorted(names.get(id(node), node.safe_names).items()):
            full = f"{path}/{name}" if path else name
            if self.forget(full):
                continue
            if child.folder:
                found[full] = None
                self._walk(child, full, names, data, found)
            else:
                found[full] = bytes(data.get(id(child), child.safe_data))

    def _short(self, path: str) -> str:
        return path.removeprefix(self.root).lstrip("/")

    def _find(self, path: str) -> Node:
        node = self.top
        for name in filter(None, self._short(path).split("/")):
            node = node.names[name]
        return node

    def _locate(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rpartition("/")
        return self._find(folder), name

    def _drop_pair(self, removal: Change) -> None:
        """Forget what is left of a rename whose old name never became durable."""
        folder, name, _ = removal.names[0]
        mine = [one for one in self.pending if any(entry[:2] == (folder, name) for entry in one.names)]
        if len(mine) == 2 and mine[1] is removal and len(mine[0].names) == 1 and name not in folder.safe_names:
            self.pending = [one for one in self.pending if one not in mine]

    def _never_was(self, folder: Node, name: str) -> bool:
        """Forget a name that came and goes without an fsync in between: it left nothing that matters."""
        mine = [one for one in self.pending if any(entry[:2] == (folder, name) for entry in one.names)]
        if len(mine) != 1 or len(mine[0].names) != 1 or name in folder.safe_names:
            return False
        self.pending.remove(mine[0])
        folder.names.pop(name)
        return True

    def _rename_entries(self, names: list[tuple[Node, str, Node | None]], what: str, *, moved: bool = False) -> None:
        for folder, name, node in names:
            _name(folder.names, name, node)
        self.pending.append(Change(what=what, names=names, moved=moved))

    def _move(self, operation: Rename | Link) -> None:
        source, old = self._locate(operation.path)
        target, new = self._locate(operation.target)
        node = source.names[old]
        what = f"{type(operation).__name__.lower()} {self._short(operation.path)} to {self._short(operation.target)}"
        names: list[tuple[Node, str, Node | None]] = [(target, new, node)]
        if isinstance(operation, Rename):
            if target.names.get(new) is node:  # two names of one file: rename does nothing
                return
            names.append((source, old, None))
        self._rename_entries(names, what, moved=source is not target and isinstance(operation, Rename))

    def _open(self, operation: Open) -> None:
        folder, name = self._locate(operation.path)
        if operation.create and name not in folder.names:
            self._rename_entries([(folder, name, Node(folder=False))], f"create {self._short(operation.path)}")
        elif operation.truncate:
            self._resize(operation.path, 0, at_least=False)

    def _write(self, path: str, offset: int, data: bytes) -> None:
        node = self._find(path)
        offset = len(node.data) if offset == AT_END else offset
        change = Change(what=f"write {len(data)} at {offset} of {self._short(path)}", file=node, write=(offset, data))
        _put(node.data, change, Fate.DONE)
        self.pending.append(change)

    def _resize(self, path: str, size: int, *, at_least: bool) -> None:
        node = self._find(path)
        change = Change(what=f"{size} bytes for {self._short(path)}", file=node, size=(size, at_least))
        _put(node.data, change, Fate.DONE)
        self.pending.append(change)

    def _sync(self, node: Node) -> None:
        left = [rest for change in self.pending for rest in _synced(change, node)]
        self.pending = left
        for change in [one for one in left if len(one.names) == 1 and one.names[0][2] is None]:
            self._drop_pair(change)
        if not node.folder:
            node.safe_data = bytes(node.data)


def _synced(change: Change, node: Node) -> list[Change]:
    """Make durable what of a change the fsync of ``node`` does; return what is left of it."""
    if change.file is node:
        return []
    mine = [one for one in change.names if one[0] is node]
    if not mine:
        return [change]
    for _, name, child in mine:
        _name(node.safe_names, name, child)
    rest = [one for one in change.names if one[0] is not node]
    moved = change.names[0][2]
    if change.names[0][0] is node and moved is not None and moved.folder:
        for folder, name, child in rest:  # a folder has one name: with the new one the old one went
            _name(folder.safe_names, name, child)
        return []
    return [Change(what=change.what, names=rest)] if rest else []


def _name(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _put(held: bytearray, change: Change, fate: Fate) -> None:
    if change.size is not None:
        size, at_least = change.size
        if not at_least:
            del held[size:]
        held.extend(bytes(max(0, size - len(held))))
        return
    assert change.write is not None
    offset, data = change.write
    if fate is Fate.TORN:
        data = data[: _cut(offset, len(data))]
    elif fate is Fate.ZEROS:
        data = bytes(len(data))
    held.extend(bytes(max(0, offset - len(held))))
    held[offset : offset + len(data)] = data


def _cut(offset: int, length: int) -> int:
    """Return how many bytes of a torn write arrive: to a page's or sector's end in its middle, else half of them."""
    for unit in (PAGE, SECTOR):
        cut = (offset + length // 2) // unit * unit - offset
        if 0 < cut < length:
            return cut
    return length // 2
