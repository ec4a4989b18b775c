"""Bringing in a checkpoint that something else wrote, without trusting it to hold still.

Everything is judged by lstat before it is opened, opened without following links or
blocking on FIFOs, shared by reflink where the filesystem can, and looked at again
afterwards.  Never a hard link: the trainer may rewrite its file in place, and that
would change what was sealed.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

from replicate.errors import IntegrityFailure, UsageError
from replicate.generation.disk import local_io
from replicate.generation.tree import Found, SpecialFile, Tree, scan, special
from replicate.paths import check_path

_FICLONE = 0x40049409
_NO_REFLINK = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM})
_CHUNK = 64 * 1024 * 1024


class SourceChanged(IntegrityFailure):
    """What was being adopted was written to meanwhile."""


def resolve_source(path: Path, store: Path) -> Path:
    """Follow a link that the user named, once; refuse what is not there or overlaps the store."""
    with local_io(path, "looking for it"):
        source = path.resolve(strict=True)
    inside = store.resolve()
    if source == inside or source in inside.parents or inside in source.parents:
        raise UsageError(f"{source} overlaps the store {inside}", hint="adopt a folder outside of the run's store")
    return source


def bring(source: Path, target: Path) -> None:
    """Copy a directory's contents, or one file, into the empty directory ``target``."""
    before = _look(source)
    base = source if source.is_dir() else source.parent
    for path in before.directories:
        with local_io(target / path, "creating it"):
            (target / path).mkdir()
    for found in before.files:
        _copy(base / found.path, target / found.path, found)
    for link in before.links:
        _copy_target(base, link, target / link.path)
    if _identities(before) != _identities(_look(source)):
        raise SourceChanged(
            f"{source} was written to while it was adopted",
            hint="adopt it again when its writer has finished",
        )


def _look(source: Path) -> Tree:
    with local_io(source, "looking at it"):
        status = source.lstat()
    if stat.S_ISDIR(status.st_mode):
        return scan(source, links=True)
    if not stat.S_ISREG(status.st_mode):
        raise special(source.name, status)
    found = Found(path=check_path(source.name), status=status)
    return Tree(files=(found,), links=(), directories=(), empty=())


def _identities(tree: Tree) -> tuple[object, ...]:
    return (
        {found.path: found.identity for found in (*tree.files, *tree.links)},
        tree.directories,
    )


def _copy_target(base: Path, link: Found, target: Path) -> None:
    """Store a link as the bytes of its target, which has to be a regular file of the same tree."""
    aim = Path(os.path.realpath(base / link.path))
    words = f"{link.path!r} is a symbolic link"
    if not aim.is_relative_to(base):
        raise SpecialFile(
            f"{words} that leads outside of the tree", hint="put the file itself there, or remove the link"
        )
    try:
        status = aim.lstat()
    except OSError as error:
        raise SpecialFile(f"{words} to nothing: {error.strerror}", hint="remove the link") from error
    if not stat.S_ISREG(status.st_mode):
        raise SpecialFile(
            f"{words} to something that is no regular file", hint="remove the link; directories are not followed"
        )
    _copy(aim, target, Found(path=link.path, status=status))


def _copy(source: Path, target: Path, found: Found) -> None:
    """Copy one file under the source's permissions, narrowed by the umask."""
    reading = _open_found(source, found)
    try:
        with local_io(target, "copying what is adopted"):
            mode = found.status.st_mode & 0o777
            writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
            try:
                _clone(reading, writing, found.status.st_size)
            finally:
                os.close(writing)
    finally:
        os.close(reading)


def _open_found(source: Path, found: Found) -> int:
    """Open the very file that was looked at; the caller closes the descriptor."""
    changed = SourceChanged(
        f"{source} was replaced while it was adopted", hint="adopt it again when its writer has finished"
    )
    with local_io(source, "reading what is adopted"):
        try:
            fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise changed from error
    now = Found(path=found.path, status=os.fstat(fd))
    if now.identity == found.identity and stat.S_ISREG(now.status.st_mode):
        return fd
    os.close(fd)
    raise changed


def _clone(reading: int, writing: int, size: int) -> None:
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as error:
        if error.errno not in _NO_REFLINK:
            raise
        done = 0
        while done < size and (count := os.sendfile(writing, reading, done, min(_CHUNK, size - done))):
            done += count
