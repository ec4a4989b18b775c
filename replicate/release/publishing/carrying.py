"""What every place does alike: which files are carried, and telling that bytes are the authorized ones."""

import errno
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from replicate.canonical import sha256
from replicate.digests import BLOCK, CountedSha256
from replicate.errors import CkptierError, IntegrityFailure, LocalDisk
from replicate.paths import check_paths
from replicate.release.bundle import MANIFEST
from replicate.release.documents import encode
from replicate.release.publishing.places import Payload

_SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = "prepare the release again and have exactly those bytes authorized; nothing was published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A file of the published tree; ``sha256`` (hex) is what was authorized, ``source`` where it lies here."""

    path: str
    size: int
    sha256: str
    source: Path


def carried(payload: Payload) -> tuple[Carried, ...]:
    """Return every file that is published, the manifest last.

    Raises IntegrityFailure where the manifest's bytes are not those of the manifest, or a path
    in it leads anywhere but into the tree.
    """
    if encode(payload.manifest) != payload.manifest_bytes:
        raise IntegrityFailure(f"{MANIFEST}: its bytes are not those of the manifest that was checked", hint=_NEW)
    files = [*payload.files, (MANIFEST, len(payload.manifest_bytes), sha256(payload.manifest_bytes))]
    check_paths(path for path, _, _ in files)
    return tuple(
        Carried(path=path, size=size, sha256=digest, source=payload.tree / path) for path, size, digest in files
    )


def total_bytes(files: tuple[Carried, ...]) -> int:
    """Bytes of all files."""
    return sum(file.size for file in files)


def open_source(file: Carried) -> io.FileIO:
    """Open a file of the tree; never through a link, never a pipe or a device.

    Raises IntegrityFailure, naming the file, where it is missing, of another kind or another size.
    """
    try:
        fd = os.open(file.source, _SOURCE)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise IntegrityFailure(f"{file.path}: the file is missing from the prepared tree", hint=_NEW) from error
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise IntegrityFailure(f"{file.path}: not a regular file in the prepared tree", hint=_NEW) from error
        raise unreadable(file, error) from error
    fault = _fault(file, os.fstat(fd))
    if fault:
        os.close(fd)
        raise IntegrityFailure(f"{file.path}: {fault}", hint=_NEW)
    return io.FileIO(fd, "rb")


def _fault(file: Carried, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file in the prepared tree"
    if status.st_size != file.size:
        return f"{status.st_size} bytes in the prepared tree, {file.size} were authorized"
    return ""


def unreadable(file: Carried, error: OSError) -> LocalDisk:
    """Describe a file of the tree that cannot be read."""
    return LocalDisk(
        f"{file.path}: cannot be read from the prepared tree: {error.strerror or error}",
        hint=f"check {file.source}, then publish again with --resume",
    )


def source_blocks(file: Carried) -> Iterator["memoryview[int]"]:
    """Yield a file of the tree, at most 4 MiB at a time, in a buffer that is used again.

    Raises IntegrityFailure before the end is reached where the bytes are not the authorized ones.
    """
    digest = CountedSha256()
    buffer = memoryview(bytearray(min(BLOCK, max(1, file.size))))
    with open_source(file) as stream:
        left = file.size
        while left:
            try:
                count = stream.readinto(buffer[:left])
            except OSError as error:
                raise unreadable(file, error) from error
            if not count:
                raise changed(file)
            digest.update(buffer[:count])
            left -= count
            if not left and digest.hexdigest() != file.sha256:
                raise changed(file)
            yield buffer[:count]
        if not file.size and digest.hexdigest() != file.sha256:
            raise changed(file)


def check_sources(files: tuple[Carried, ...]) -> None:
    """Hash every file of the tree; raises IntegrityFailure, naming the first one that is not the authorized one."""
    for file in files:
        for _ in source_blocks(file):
            pass


def read_source(file: Carried) -> bytes:
    """Return a small file of the tree; what is returned is what was hashed."""
    return b"".join(bytes(block) for block in source_blocks(file))


def changed(file: Carried) -> IntegrityFailure:
    """Say that a file of the tree is not the authorized one."""
    return IntegrityFailure(
        f"{file.path}: its bytes are not the authorized ones (sha256 {file.sha256[:12]}… was authorized)", hint=_NEW
    )


def differs(where: str, file: Carried, what: str) -> IntegrityFailure:
    """Say that a file read back from a place is not the one that was carried there."""
    return IntegrityFailure(
        f"{where}: {file.path}: {what}",
        hint="the place does not hold what was sent: do not use it, check it, and publish again with --resume",
    )


def check_set(where: str, found: set[str], files: tuple[Carried, ...]) -> None:
    """Compare names found at a place with those that were carried there; raises IntegrityFailure."""
    wanted = {file.path for file in files}
    faults = [f"{path} is missing" for path in sorted(wanted - found)]
    faults += [f"{path} was never authorized" for path in sorted(found - wanted)]
    if faults:
        raise IntegrityFailure(
            f"{where}: {'; '.join(faults[:5])}{' …' if len(faults) > 5 else ''}",  # noqa: PLR2004 - enough to see why
            hint="something else writes to that place: find it, then publish again with --resume",
        )


def amend(error: CkptierError, note: str) -> None:
    """Add to an error what could not be put in order after it."""
    error.message = f"{error.message}; {note}"
    error.args = (error.message,)
