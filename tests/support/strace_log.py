"""What a process does to a folder, taken from the kernel: strace, and its log turned into operations.

Unlike wrappers inside Python this sees SQLite, shutil and whatever a library does by itself.
A call counts where it returned, and only if it succeeded.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NO_STRACE = "strace is not installed, or this machine forbids it (Debian: apt install strace)"
_CREATING = ("openat", "open", "creat")
_DESCRIPTORS = ("close", "dup", "dup2", "dup3", "fcntl", "lseek")
_FORKS = ("clone", "clone3", "fork", "vfork")
_BYTES = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range", "splice")
_SIZES = ("ftruncate", "truncate", "fallocate")
_FLUSHES = ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync")
_NAMES = ("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat")
_FOLDERS = ("mkdir", "mkdirat", "rmdir")
TRACED = (*_CREATING, *_DESCRIPTORS, *_FORKS, *_BYTES, *_SIZES, *_FLUSHES, *_NAMES, *_FOLDERS)
MOST_BYTES = 1 << 20
"""Bytes of one write that are logged; a longer one is an error, since its end would be unknown."""


AT_END = -1


class NotUnderstood(Exception):
    """A line of the log that would make the record wrong if it were passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A file was opened so that it may come into being or lose its bytes."""

    path: str
    create: bool
    truncate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Bytes went into the page cache, at ``offset`` or AT_END."""

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRange:
    """Bytes of another file did, inside the kernel."""

    path: str
    offset: int
    source: str
    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A file was cut (``size``), or made at least so long (``at_least``)."""

    path: str
    size: int
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A file or folder was fsynced."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeFolder:
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    path: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    path: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlink:
    """A name went, of a file or an empty folder."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The process said something on the descriptor that the test watches."""

    text: str


Operation = Open | Write | CopyRange | Resize | Sync | MakeFolder | Rename | Link | Unlink | Mark


def strace() -> list[str]:
    """Return the command, or skip the test where there is none or where it may not trace."""
    found = shutil.which("strace")
    if found is None or subprocess.run([found, "-o", "/dev/null", "true"], check=False).returncode:
        pytest.skip(NO_STRACE)
    return [found]


def traced(command: Sequence[str], log: Path, *, environment: Mapping[str, str]) -> None:
    """Run a command to its end under strace."""
    options = ["-f", "--seccomp-bpf", "-y", "-xx", "-s", str(MOST_BYTES), "-o", str(log)]
    done = subprocess.run(
        [*strace(), *options, "-e", f"trace={','.join(TRACED)}", *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@dataclass(slots=True)
class _Description:
    """An open file as fork and dup share it."""

    offset: int = 0
    append: bool = False


Table = dict[int, _Description]


@dataclass(frozen=True, slots=True)
class _Call:
    thread: int
    name: str
    arguments: tuple[str, ...]
    result: str

    @property
    def value(self) -> int:
        return int(re.match(r"-?\d+", self.result)[0])  # type: ignore[index]


_LINE = re.compile(r"(\d+) +(.*)")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+\S*)(?: .*)?")
_FD = re.compile(r"(-?\d+|AT_FDCWD)(?:<(.*?)>(\(deleted\))?)?$")


def _calls(lines: Iterable[str]) -> Iterator[_Call]:
    """Yield the calls that succeeded, each where it returned."""
    begun: dict[int, str] = {}
    for line in lines:
        thread_text, rest = _LINE.fullmatch(line.rstrip("\n")).groups()  # type: ignore[union-attr]
        thread = int(thread_text)
        if rest.startswith(("---", "+++")):
            continue
        if rest.endswith(_UNFINISHED):
            begun[thread] = rest.removesuffix(_UNFINISHED)
            continue
        resumed = _RESUMED.fullmatch(rest)
        if resumed:
            rest = begun.pop(thread) + resumed[2]
        found = _CALL.fullmatch(rest)
        if found is None:
            if " = ?" in rest:  # the process ended inside it
                continue
            raise NotUnderstood(line)
        if not found[3].startswith("-"):
            yield _Call(thread, found[1], tuple(_split(found[2])), found[3])


def _split(arguments: str) -> Iterator[str]:
    """Yield the arguments.  With -xx no string holds a comma or bracket of its own."""
    depth, start = 0, 0
    if "[" not in arguments and "{" not in arguments:
        yield from (one.strip() for one in arguments.split(","))
        return
    for index, letter in enumerate(arguments):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            yield arguments[start:index].strip()
            start = index + 1
    yield arguments[start:].strip()


def _text(hexed: str) -> bytes:
    """Return the bytes of a quoted or bracketed string of ``strace -xx``."""
    if hexed.endswith("..."):
        raise NotUnderstood("a string was cut")
    inner = hexed.strip('"')
    return bytes.fromhex(inner.replace("\\x", "")) if inner.startswith("\\x") or not inner else inner.encode()


def _path(argument: str) -> str:
    return os.fsdecode(_text(argument))


def _fd(argument: str) -> tuple[int, str, bool]:
    """Return number, path and whether the file has no name any more."""
    found = _FD.fullmatch(argument)
    if found is None:
        raise NotUnderstood(argument)
    number = -100 if found[1] == "AT_FDCWD" else int(found[1])
    return number, os.fsdecode(_text(found[2])) if found[2] else "", bool(found[3])


@dataclass(slots=True)
class _Reader:
    """Follows descriptors through the log, and says what happened below ``root``."""

    root: str
    mark_fd: int
    parents: dict[int, tuple[int, bool]]
    tables: dict[int, Table] = field(default_factory=dict)

    def table(self, thread: int) -> Table:
        """Return a thread's descriptors: its process's own, or at first a copy of its parent's."""
        if thread not in self.tables:
            parent, shares = self.parents.get(thread, (0, False))
            inherited = self.table(parent) if parent else {}
            self.tables[thread] = inherited if shares else dict(inherited)
        return self.tables[thread]

    def read(self, call: _Call) -> Iterator[Operation]:
        """Yield what a call did."""
        if call.name in _FORKS:
            return
        table = self.table(call.thread)
        if call.name in _CREATING:
            yield from self._open(call, table)
        elif call.name in _DESCRIPTORS:
            self._descriptor(call, table)
        elif call.name in _BYTES:
            yield from self._written(call, table)
        elif call.name in _SIZES:
            yield from self._resized(call)
        elif call.name in _FLUSHES:
            yield from self._flushed(call)
        else:
            yield from self._named(call)

    def _flushed(self, call: _Call) -> Iterator[Operation]:
        if call.name == "sync_file_range":
            return  # what is written begins to reach the disk, as it may at any time; nothing is durable by it
        if call.name not in ("fsync", "fdatasync"):
            if any(self.root.encode().hex() in argument.replace("\\x", "") for argument in call.arguments):
                raise NotUnderstood(f"{call.name} is not modelled")
            return
        _, path, gone = _fd(call.arguments[0])
        if self._inside(path) and not gone:
            yield Sync(path=path)

    def _inside(self, path: str) -> bool:
        return path == self.root or path.startswith(f"{self.root}/")

    def _open(self, call: _Call, table: Table) -> Iterator[Operation]:
        flags = next((one for one in call.arguments if one.startswith("O_")), "O_WRONLY|O_CREAT|O_TRUNC")
        number, path, _ = _fd(call.result)
        table[number] = _Description(append="O_APPEND" in flags)
        create, truncate = "O_CREAT" in flags, "O_TRUNC" in flags
        if (create or truncate) and self._inside(path):
            yield Open(path=path, create=create, truncate=truncate)

    def _descriptor(self, call: _Call, table: Table) -> None:
        number = _fd(call.arguments[0])[0]
        if call.name == "close":
            table.pop(number, None)
        elif call.name == "lseek":
            if number in table:
                table[number].offset = call.value
        elif (call.name != "fcntl" or "F_DUPFD" in call.arguments[1]) and number in table:
            table[_fd(call.result)[0]] = table[number]

    def _written(self, call: _Call, table: Table) -> Iterator[Operation]:
        if call.name in ("sendfile", "copy_file_range"):
            yield from self._copied(call, table)
            return
        number, path, gone = _fd(call.arguments[0])
        if call.name == "write" and number == self.mark_fd and not self._inside(path):
            yield Mark(text=_text(call.arguments[1]).decode())
            return
        if not self._inside(path):
            return
        if call.name not in ("write", "pwrite64"):
            raise NotUnderstood(f"{call.name} is not modelled")
        data = _text(call.arguments[1])[: call.value]
        offset = int(call.arguments[3]) if call.name == "pwrite64" else self._advance(table, number, len(data))
        if not gone:
            yield Write(path=path, offset=offset, data=data)

    def _advance(self, table: Table, number: int, length: int) -> int:
        description = table.get(number)
        if description is None:
            raise NotUnderstood(f"where descriptor {number} writes is not known")
        if description.append:
            return AT_END
        offset = description.offset
        description.offset += length
        return offset

    def _copied(self, call: _Call, table: Table) -> Iterator[Operation]:
        sending = call.name == "sendfile"
        source, target = (call.arguments[1], call.arguments[0]) if sending else (call.arguments[0], call.arguments[2])
        number, path, _ = _fd(target)
        if not self._inside(path) or call.value == 0:
            return
        places = {
            "in": call.arguments[2] if sending else call.arguments[1],
            "out": "NULL" if sending else call.arguments[3],
        }
        from_fd = _fd(source)
        start = _offset(places["in"], table, from_fd[0], call.value)
        offset = _offset(places["out"], table, number, call.value)
        yield CopyRange(path=path, offset=offset, source=from_fd[1], start=start, length=call.value)

    def _resized(self, call: _Call) -> Iterator[Operation]:
        path = _path(call.arguments[0]) if call.name == "truncate" else _fd(call.arguments[0])[1]
        if not self._inside(path):
            return
        if call.name == "fallocate":
            if call.arguments[1] != "0":
                raise NotUnderstood("fallocate other than to reserve is not modelled")
            yield Resize(path=path, size=int(call.arguments[2]) + int(call.arguments[3]), at_least=True)
        else:
            yield Resize(path=path, size=int(call.arguments[1]))

    def _named(self, call: _Call) -> Iterator[Operation]:
        paths = list(_paths(call.arguments))
        if not any(self._inside(path) for path in paths):
            return
        if not all(self._inside(path) for path in paths):
            raise NotUnderstood(f"{call.name} reaches out of {self.root}: {paths}")
        match call.name:
            case "rename" | "renameat" | "renameat2":
                yield Rename(path=paths[0], target=paths[1])
            case "link" | "linkat":
                yield Link(path=paths[0], target=paths[1])
            case "unlink" | "unlinkat" | "rmdir":
                yield Unlink(path=paths[0])
            case "mkdir" | "mkdirat":
                yield MakeFolder(path=paths[0])
            case _:
                raise NotUnderstood(call.name)


def _offset(argument: str, table: Table, number: int, length: int) -> int:
    """Return where a copy began: at its own offset (``[old] => [new]``, or a number), or the descriptor's."""
    if argument == "NULL":
        description = table[number]
        description.offset += length
        return description.offset - length
    found = re.match(r"\[(\d+)\]", argument)
    if found is None:
        raise NotUnderstood(argument)
    return int(found[1])


def _paths(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the full paths that a call names: each string below the folder before it, if there is one."""
    folder = ""
    for argument in arguments:
        if argument.startswith('"'):
            yield os.path.normpath(os.path.join(folder, _path(argument)))  # noqa: PTH118 - text of a log, no file
        elif _FD.fullmatch(argument) and "<" in argument:
            folder = _fd(argument)[1]


def read_log(log: Path, root: Path, *, mark_fd: int = 1) -> list[Operation]:
    """Return what happened below ``root``, in order; what is written to ``mark_fd`` outside of it are marks."""
    inside = "".join(f"\\x{byte:02x}" for byte in os.fsencode(root))
    with log.open() as stream:
        # Most lines are an interpreter that looks for its modules.
        calls = list(_calls(line for line in stream if "openat(" not in line or inside in line or "O_CREAT" in line))
    parents = {
        call.value: (call.thread, "CLONE_FILES" in "".join(call.arguments)) for call in calls if call.name in _FORKS
    }
    reader = _Reader(str(root), mark_fd, parents)
    return [operation for call in calls for operation in reader.read(call)]
