"""A real FUSE filesystem with chosen shortcomings: a folder passed through, over the kernel's own protocol.

Run as ``python fuse_server.py BACKING MOUNTPOINT``.  It mounts, says ``ready``, and then takes
a JSON object a line on standard input (see :class:`Rules`), answering each with what fired so
far.  When standard input ends, it unmounts and leaves.  Needs /dev/fuse and the right to mount.
"""

import ctypes
import errno
import json
import os
import select
import stat
import struct
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TYPE = "fuse.ckptier-test"
_IN, _OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_ATTR, _ENTRY = struct.Struct("<6Q10I"), struct.Struct("<4Q2I")
_MAX_WRITE = 1 << 20
_INIT_FLAGS = (1 << 0) | (1 << 5) | (1 << 22)  # asynchronous reads, big writes, as many pages as we say
_GETATTR_FH, _SET_MODE, _SET_SIZE, _SET_FH, _SET_MTIME = 1, 1, 8, 64, 32
_MNT_DETACH = 2

OPCODES = {
    1: "LOOKUP", 2: "FORGET", 3: "GETATTR", 4: "SETATTR", 8: "MKNOD", 9: "MKDIR", 10: "UNLINK", 11: "RMDIR",
    12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE", 20: "FSYNC",
    25: "FLUSH", 26: "INIT", 27: "OPENDIR", 28: "READDIR", 29: "RELEASEDIR", 30: "FSYNCDIR", 35: "CREATE",
    36: "INTERRUPT", 38: "DESTROY", 42: "BATCH_FORGET", 45: "RENAME2",
}  # fmt: skip
_SILENT = frozenset(("FORGET", "BATCH_FORGET", "INTERRUPT"))


@dataclass
class Failure:
    """One answer to give instead: to ``operation``, ``times`` times (-1: always), where the path contains ``within``.

    ``skip`` requests pass first.  ``lose`` empties the file, as a cache does that gives up.
    """

    operation: str
    errno: int
    times: int = -1
    within: str = ""
    skip: int = 0
    lose: bool = False


@dataclass
class Rules:
    """What the filesystem cannot do: sequential writes only; no writing to a closed file; no O_DIRECT."""

    failures: list[Failure] = field(default_factory=list)
    sequential: bool = False
    write_once: bool = False
    no_direct: bool = False


class Filesystem:
    """The requests, by name; each returns the bytes of its answer or raises OSError."""

    def __init__(self, backing: Path) -> None:
        self._backing = backing
        self._paths: dict[int, str | None] = {1: ""}
        self._nodes: dict[str, int] = {"": 1}
        self._files: dict[int, tuple[int, int]] = {}  # handle: (descriptor, node)
        self._ends: dict[int, int] = {}
        self._folders: dict[int, list[Path]] = {}
        self._last_folder = 0
        self._last = 1
        self.rules = Rules()
        self.fired: Counter[str] = Counter()

    def answer(self, name: str, node: int, body: bytes) -> bytes:
        """Carry out one request, or fail as the rules say."""
        subject = self._subject(name, node, body)
        for failing in self.rules.failures:
            if failing.operation == name and failing.within in subject and failing.times:
                if failing.skip:
                    failing.skip -= 1
                    continue
                failing.times -= 1
                self.fired[name] += 1
                if failing.lose:
                    os.truncate(self._at(node), 0)
                raise OSError(failing.errno, os.strerror(failing.errno))
        handler = getattr(self, name.lower(), None)
        if handler is None:
            raise OSError(errno.ENOSYS, "not implemented")
        result: bytes = handler(node, body)
        return result

    def _subject(self, name: str, node: int, body: bytes) -> str:
        """Return the path that a request is about, for the rules."""
        own = self._paths.get(node) or ""
        if name in ("CREATE", "MKDIR", "UNLINK", "RMDIR", "RENAME", "RENAME2", "LINK", "MKNOD"):
            return f"{own}/{body.rstrip(bytes(1)).rpartition(bytes(1))[2].decode(errors='replace')}"
        return own

    def _at(self, node: int) -> Path:
        path = self._paths.get(node)
        if path is None:
            raise OSError(errno.ESTALE, "stale")
        return self._backing / path

    def _child(self, node: int, name: bytes) -> str:
        text = name.rstrip(b"\0").decode()
        if len(text) > 255:
            raise OSError(errno.ENAMETOOLONG, "too long")
        parent = self._paths.get(node)
        if parent is None:
            raise OSError(errno.ENOENT, "gone")
        return f"{parent}/{text}" if parent else text

    def _attributes(self, info: os.stat_result) -> bytes:
        times = [divmod(ns, 10**9) for ns in (info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns)]
        return _ATTR.pack(
            *(info.st_ino, info.st_size, info.st_blocks, *(second for second, _ in times)),
            *(*(nano for _, nano in times), info.st_mode, info.st_nlink, info.st_uid, info.st_gid, 0, 4096, 0),
        )

    def _entry(self, path: str) -> bytes:
        info = (self._backing / path).lstat()
        if path not in self._nodes:
            self._last += 1
            self._nodes[path] = self._last
            self._paths[self._last] = path
        return _ENTRY.pack(self._nodes[path], 0, 0, 0, 0, 0) + self._attributes(info)

    def _opened(self, node: int, fd: int) -> bytes:
        self._files[fd] = (fd, node)
        self._ends[fd] = os.fstat(fd).st_size
        return struct.pack("<QII", fd, 0, 0)

    def _forget_path(self, path: str) -> None:
        node = self._nodes.pop(path, None)
        if node is not None:  # a file with another name goes by that one
            self._paths[node] = next((other for other, known in self._nodes.items() if known == node), None)

    def init(self, _node: int, body: bytes) -> bytes:
        """Agree on version 7.31 and on what we can do."""
        _major, _minor, readahead, flags = struct.unpack_from("<4I", body)
        return struct.pack(
            "<4I2H2I2H8I", 7, 31, readahead, flags & _INIT_FLAGS, 12, 10, _MAX_WRITE, 1, 256, 0, *[0] * 8
        )

    def lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(self._child(node, body))

    def getattr(self, node: int, body: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", body)
        return struct.pack("<QII", 0, 0, 0) + self._attributes(
            self._info(node, handle if flags & _GETATTR_FH else None)
        )

    def _info(self, node: int, handle: int | None) -> os.stat_result:
        if handle is not None and handle in self._files:
            return os.fstat(handle)
        if self._paths.get(node) is None:
            for fd, owner in self._files.values():
                if owner == node:
                    return os.fstat(fd)
        return self._at(node).lstat()

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, handle, size, _, _, mtime, _, _, mtime_ns, _, mode = struct.unpack_from("<IIQQQQQQIIII", body)
        fd = handle if valid & _SET_FH and handle in self._files else None
        if valid & _SET_SIZE:
            if self.rules.sequential:
                raise OSError(errno.EOPNOTSUPP, "no truncating")
            os.truncate(fd if fd is not None else self._at(node), size)
        if valid & _SET_MODE:
            self._at(node).chmod(stat.S_IMODE(mode))
        if valid & _SET_MTIME:
            os.utime(self._at(node), ns=(mtime * 10**9 + mtime_ns,) * 2)
        return struct.pack("<QII", 0, 0, 0) + self._attributes(self._info(node, fd))

    def mkdir(self, node: int, body: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        path = self._child(node, body[8:])
        (self._backing / path).mkdir(mode=mode & ~umask)
        return self._entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        (self._backing / path).unlink()
        self._forget_path(path)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        (self._backing / path).rmdir()
        self._forget_path(path)
        return b""

    def rename(self, node: int, body: bytes) -> bytes:
        (newdir,) = struct.unpack_from("<Q", body)
        return self._rename(node, newdir, body[8:])

    def rename2(self, node: int, body: bytes) -> bytes:
        newdir, flags, _ = struct.unpack_from("<QII", body)
        old, new = body[16:].rstrip(b"\0").split(b"\0")
        if flags & 1 and (self._backing / self._child(newdir, new)).exists():
            raise OSError(errno.EEXIST, "exists")
        return self._rename(node, newdir, old + b"\0" + new)

    def _rename(self, node: int, newdir: int, names: bytes) -> bytes:
        old, new = (
            self._child(parent, name)
            for parent, name in zip((node, newdir), names.rstrip(b"\0").split(b"\0"), strict=True)
        )
        (self._backing / old).rename(self._backing / new)
        self._forget_path(new)
        for path in [one for one in self._nodes if one == old or one.startswith(old + "/")]:
            moved = self._nodes.pop(path)
            self._nodes[new + path[len(old) :]] = moved
            self._paths[moved] = new + path[len(old) :]
        return b""

    def link(self, node: int, body: bytes) -> bytes:
        (source,) = struct.unpack_from("<Q", body)
        path = self._child(node, body[8:])
        (self._backing / path).hardlink_to(self._at(source))
        self._nodes[path] = source  # one file, one node
        return self._entry(path)

    def open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        if flags & os.O_DIRECT and self.rules.no_direct:
            raise OSError(errno.EINVAL, "no O_DIRECT")
        if writing and self.rules.write_once:
            raise OSError(errno.EPERM, "written once only")
        access = os.O_RDWR if writing else os.O_RDONLY
        return self._opened(node, os.open(self._at(node), access | (flags & os.O_TRUNC)))

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode, umask, _ = struct.unpack_from("<4I", body)
        path = self._child(node, body[16:])
        fd = os.open(self._backing / path, os.O_RDWR | os.O_CREAT | (flags & os.O_EXCL), mode & ~umask)
        return self._entry(path) + self._opened(self._nodes[path], fd)

    def read(self, _node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def write(self, _node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        if self.rules.sequential and offset != self._ends[handle]:
            raise OSError(errno.EOPNOTSUPP, "sequential writes only")
        count = os.pwrite(handle, body[40 : 40 + size], offset)
        self._ends[handle] = max(self._ends[handle], offset + count)
        return struct.pack("<II", count, 0)

    def statfs(self, _node: int, _body: bytes) -> bytes:
        info = os.statvfs(self._backing)
        counts = (info.f_blocks, info.f_bfree, info.f_bavail, info.f_files, info.f_ffree)
        return struct.pack("<5Q4I6I", *counts, info.f_bsize, 255, info.f_frsize, 0, *[0] * 6)

    def release(self, _node: int, body: bytes) -> bytes:
        (handle,) = struct.unpack_from("<Q", body)
        if self._files.pop(handle, None) is not None:
            os.close(handle)
        return b""

    def fsync(self, _node: int, _body: bytes) -> bytes:
        return b""

    def flush(self, _node: int, _body: bytes) -> bytes:
        return b""

    def fsyncdir(self, _node: int, _body: bytes) -> bytes:
        return b""

    def opendir(self, node: int, _body: bytes) -> bytes:
        """Take the names down once: an offset has to mean the same while others come and go."""
        self._last_folder += 1
        self._folders[self._last_folder] = sorted(self._at(node).iterdir())
        return struct.pack("<QII", self._last_folder, 0, 0)

    def releasedir(self, _node: int, body: bytes) -> bytes:
        self._folders.pop(struct.unpack_from("<Q", body)[0], None)
        return b""

    def readdir(self, _node: int, body: bytes) -> bytes:
        folder, offset, size = struct.unpack_from("<QQI", body)
        found = b""
        for number, path in list(enumerate(self._folders[folder], start=1))[offset:]:
            name = os.fsencode(path.name)
            try:
                info = path.lstat()
            except FileNotFoundError:
                continue
            entry = struct.pack("<QQII", info.st_ino, number, len(name), stat.S_IFMT(info.st_mode) >> 12) + name
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found

    def destroy(self, _node: int, _body: bytes) -> bytes:
        return b""


def mount(point: Path) -> int:
    """Mount; return the descriptor that requests come from."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if libc.mount(b"ckptier-test", os.fsencode(point), TYPE.encode(), ctypes.c_ulong(0), options.encode()):
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")
    return fd


def unmount(point: Path) -> None:
    """Detach, however busy it is; one that is not there is fine."""
    ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(point), _MNT_DETACH)


def handle(fd: int, filesystem: Filesystem) -> bool:
    """Answer one request; False where the filesystem was unmounted."""
    try:
        request = os.read(fd, _MAX_WRITE + 4096)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN)  # interrupted before we saw it
    _, opcode, unique, node, *_ = _IN.unpack_from(request)
    name = OPCODES.get(opcode, "UNKNOWN")
    number, answer = 0, b""
    try:
        if name not in _SILENT:
            answer = filesystem.answer(name, node, request[_IN.size :])
    except OSError as error:
        number = error.errno or errno.EIO
    if name not in _SILENT:
        with suppress(FileNotFoundError):  # nobody waits for it any more
            os.write(fd, _OUT.pack(_OUT.size + len(answer), -number, unique) + answer)
    return True


def control(line: str, filesystem: Filesystem) -> str:
    """Take new rules; answer with what fired until now."""
    document: dict[str, Any] = json.loads(line)
    fired = json.dumps(filesystem.fired)
    if document:
        failures = [Failure(**one) for one in document.pop("failures", ())]
        filesystem.rules = Rules(failures=failures, **document)
        filesystem.fired.clear()
    return fired


def main(backing: Path, point: Path) -> None:
    """Serve until standard input ends."""
    os.umask(0)
    filesystem = Filesystem(backing)
    fd = mount(point)
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([fd, sys.stdin], [], [])
            if fd in ready and not handle(fd, filesystem):
                return
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                sys.stdout.write(control(line, filesystem) + "\n")
                sys.stdout.flush()
    finally:
        unmount(point)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
