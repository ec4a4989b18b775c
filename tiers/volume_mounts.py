"""What the kernel says of the filesystem that a folder lies on: type, options, and who else may write there."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class MountKind(StrEnum):
    """Who holds the bytes.  ``SHARED`` kinds may be written by other machines too."""

    LOCAL = "local"
    MEMORY = "memory"
    OVERLAY = "overlay"
    NETWORK = "network"
    FUSE = "fuse"
    UNKNOWN = "unknown"


_DISKS = "ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs jfs reiserfs nilfs2 vfat exfat ntfs ntfs3 hfsplus fuseblk"
_SERVERS = "nfs nfs4 cifs smb3 smbfs 9p ceph lustre gpfs glusterfs beegfs afs ocfs2 gfs2 orangefs virtiofs"
_TYPES: Mapping[MountKind, frozenset[str]] = {
    MountKind.LOCAL: frozenset(_DISKS.split()),
    MountKind.NETWORK: frozenset(_SERVERS.split()),
    MountKind.MEMORY: frozenset(("tmpfs", "ramfs", "rootfs")),
    MountKind.OVERLAY: frozenset(("overlay", "overlayfs", "aufs", "fuse.fuse-overlayfs")),
}
_FIELDS_BEFORE, _FIELDS_AFTER = 6, 3
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted filesystem.  ``options`` are those of the mount and of its superblock, sorted."""

    point: str
    type: str
    source: str
    options: tuple[str, ...]

    @property
    def kind(self) -> MountKind:
        """Who holds the bytes, as far as the type tells."""
        for kind, types in _TYPES.items():
            if self.type in types:
                return kind
        return MountKind.FUSE if self.type.partition(".")[0] == "fuse" else MountKind.UNKNOWN

    @property
    def shared(self) -> bool:
        """Whether other machines may write there; an unknown type is taken for one."""
        return self.kind in (MountKind.NETWORK, MountKind.FUSE, MountKind.UNKNOWN)

    @property
    def read_only(self) -> bool:
        """Whether it is mounted so."""
        return "ro" in self.options


def find_mount(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> Mount | None:
    """Return the mount that an existing path lies on; None where the kernel does not tell (no Linux).

    Raises OSError where the path cannot be looked at.
    """
    real = os.path.realpath(path, strict=True)
    try:
        text = mountinfo.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    return mount_of(real, text)


def mount_of(real: str, mountinfo: str) -> Mount | None:
    """Return the mount of a path without links, from the text of ``/proc/self/mountinfo``."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        mount = _parse(line)
        if mount is not None and _below(real, mount.point) and (found is None or len(mount.point) >= len(found.point)):
            found = mount  # of two on one folder, the later one lies on top
    return found


def _parse(line: str) -> Mount | None:
    """Read ``id parent major:minor root POINT OPTIONS [fields] - TYPE SOURCE SUPER-OPTIONS``."""
    before, dash, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if not dash or len(head) < _FIELDS_BEFORE or len(tail) < _FIELDS_AFTER:
        return None
    options = {*head[5].split(","), *tail[2].split(",")}
    if "ro" in options:
        options.discard("rw")  # the stricter of mount and superblock is in force
    return Mount(
        point=_plain(head[4]), type=tail[0], source=_plain(tail[1]), options=tuple(sorted(filter(None, options)))
    )


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _below(path: str, point: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")
