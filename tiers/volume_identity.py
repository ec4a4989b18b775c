"""The marker of a volume: ``.ckptier/volume.json``, written once, before the first object.

It tells a volume from the empty folder that its mount point is while nothing is mounted
there, and says in which way the objects on it were written.
"""

import errno
import fcntl
import json
import os
import stat
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tiers import effects
from tiers.protocol import Fencing
from tiers.volume_errnos import failure
from tiers.volume_facts import VolumeMode
from tiers.volume_files import HIDDEN, VolumeRoot, lock, open_to_lock

MARKER = "volume.json"
_MAX_BYTES = 4096


class BadMarker(Exception):
    """The marker is there and is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeIdentity:
    """What a volume says of itself.

    ``layout`` is RENAME or DIRECT, ``fencing`` what its first writer could rely on, and
    ``created_at`` (RFC 3339) by the volume's own clock.
    """

    uuid: str
    created_at: str
    layout: VolumeMode
    fencing: Fencing


def read_identity(root: Path) -> VolumeIdentity | None:
    """Return what the marker below ``root`` says; None where there is none, or one that was never finished.

    Raises OSError where it cannot be read, BadMarker where it is damaged or of a newer format.
    """
    path = root / HIDDEN / MARKER
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadMarker(f"{path} is no regular file")
        data = os.read(fd, _MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > _MAX_BYTES:
        raise BadMarker(f"{path} has more than {_MAX_BYTES} bytes")
    if not data.endswith(b"\n"):
        return None  # its writer was killed, before it wrote any object
    return _parse(data, path)


def write_identity(
    root: VolumeRoot, layout: VolumeMode, fencing: Fencing, create: Callable[[tuple[str, str], bytes], object]
) -> VolumeIdentity:
    """Give a volume its identity, durably; returns that of another writer where one was faster.

    ``create`` is the layout's put-if-absent.  Raises OSError and BadMarker.
    """
    folder = root.ensure((HIDDEN,))
    document = {
        "format": 1,
        "uuid": str(uuid.uuid4()),
        "created_at": _rfc3339(folder.stat().st_mtime),
        "layout": str(layout),
        "fencing": str(fencing),
    }
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    for _ in range(2):
        with suppress(FileExistsError):
            create((HIDDEN, MARKER), data)
        identity = read_identity(root.path)
        if identity is not None:
            return identity
        _remove_unfinished(folder / MARKER)
    raise failure(errno.EBUSY, folder / MARKER)


def _remove_unfinished(path: Path) -> None:
    """Remove a marker without its last byte, unless somebody is writing it (BlockingIOError)."""
    with suppress(FileNotFoundError):
        fd = open_to_lock(path)
        try:
            if lock(fd, fcntl.LOCK_EX) and read_identity(path.parent.parent) is None:
                effects.unlink(path)
        finally:
            os.close(fd)


def _parse(data: bytes, path: Path) -> VolumeIdentity:
    try:
        match json.loads(data):
            case {
                "format": 1,
                "uuid": str(text),
                "created_at": str(at),
                "layout": "rename" | "direct" as layout,
                "fencing": str(fencing),
            }:
                return VolumeIdentity(
                    uuid=str(uuid.UUID(text)), created_at=at, layout=VolumeMode(layout), fencing=Fencing(fencing)
                )
            case {"format": int(number)} if number > 1:
                raise BadMarker(f"{path} has format {number}: a newer ckptier wrote it")
    except ValueError as error:
        raise BadMarker(f"{path} is damaged: {error}") from error
    raise BadMarker(f"{path} is damaged: it is no marker of format 1")


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
