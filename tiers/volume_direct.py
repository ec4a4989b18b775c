"""Objects on a filesystem that cannot rename: written once, under their keys, in one go.

    <key>                      the bytes; a file without a mark that fits is no object
    .ckptier/done/<key>        the mark: the object's size, written after its bytes are durable

A writer makes the file with O_EXCL and holds a lock on it until it is marked.  A file
without mark and lock was left by a killed writer, and is removed by whoever next wants its
place.  A mark that names another size than the file has is none, so that neither half of
the two counts alone.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tiers import effects
from tiers.volume_copying import pieces_of
from tiers.volume_direct_uploads import SeparateUploads
from tiers.volume_errnos import failure
from tiers.volume_facts import VolumeMode
from tiers.volume_files import (
    ATTEMPTS,
    HIDDEN,
    VolumeRoot,
    closing_fd,
    flush,
    lock,
    open_to_lock,
    settle,
    sync_directory,
    write_on,
)
from tiers.volume_layout import Pieces, Uploads

MARKS = "done"

_TRIES = 20
"""How often a place is looked at again where others come and go; a writer that stays is still there then."""

_ABANDONED_NS = 3600 * 10**9
"""Nanoseconds by the volume's own clock after which an unmarked file is abandoned where there are no locks to tell."""

_MARK = re.compile(rb"[0-9]{1,19}\n")
_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectLayout:
    """Written under the key and marked when whole.

    An object that is replaced is gone from its mark's removal until the new one is marked;
    a writer that is killed in between leaves none.
    """

    mode = VolumeMode.DIRECT

    def __init__(self, root: VolumeRoot, tier: str) -> None:
        self._root = root
        self.uploads: Uploads = SeparateUploads(root, tier, self._replace)

    def put(self, components: Sequence[str], pieces: Pieces) -> os.stat_result:
        """Write where nothing is; else beside first, so that a body that fails costs nothing."""
        if not self._is_whole(components):
            try:
                return self._write(components, pieces)
            except FileExistsError:  # whole by now; no piece was asked for yet
                pass
        return self._overwrite(components, pieces)

    def create(self, components: Sequence[str], data: bytes) -> os.stat_result:
        """Write where nothing is.  A key that another process is writing counts as taken."""
        try:
            return self._write(components, (data,))
        except BlockingIOError as error:
            raise failure(errno.EEXIST, self._root.path.joinpath(*components)) from error

    def copy(self, components: Sequence[str], source: int, size: int, check: Callable[[], None]) -> os.stat_result:
        """Read and write: a file that may be written only once, and in order, can share no blocks."""
        what = self._root.path.joinpath(*components)
        return self.put(components, pieces_of(source, size, what=what, then=check))

    def check_whole(self, components: Sequence[str], info: os.stat_result) -> None:
        """Compare the file's size with its mark."""
        if not stat.S_ISREG(info.st_mode) or self._marked_size(components) != info.st_size:
            raise failure(errno.ENOENT, self._root.path.joinpath(*components))

    def marks(self, components: Sequence[str]) -> tuple[Path, ...]:
        """Return the mark and its folder: all else was fsynced before the mark was made."""
        mark = self._root.path.joinpath(HIDDEN, MARKS, *components)
        return mark, mark.parent

    def delete(self, components: Sequence[str]) -> None:
        """Unlink mark and file, in this order, and remove the folders that they leave empty."""
        path = self._root.locate(components)
        if stat.S_ISDIR(path.lstat().st_mode):
            return
        whole = self._is_whole(components)
        self._unmark(components)
        if whole:
            effects.unlink(path)
        else:
            with suppress(BlockingIOError):  # another process is writing what is no object yet
                self._remove_debris(components, path)
        with suppress(FileNotFoundError):
            sync_directory(path.parent)
        self._root.remove_empty(components)
        self._root.remove_empty((HIDDEN, MARKS, *components), keep=2)

    def _is_whole(self, components: Sequence[str]) -> bool:
        try:
            self.check_whole(components, self._root.locate(components).lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _write(self, components: Sequence[str], pieces: Pieces) -> os.stat_result:
        """Write an object whose key has none; FileExistsError where it has, BlockingIOError where one is written."""
        fd, path = self._claim(components)
        with closing_fd(fd):
            try:
                for piece in pieces:
                    write_on(fd, piece)
                effects.fsync_fd(fd, str(path))
                flush(fd)
                sync_directory(path.parent)
                size = os.fstat(fd).st_size
                self._mark(components, size)
            except BaseException:
                with suppress(OSError):  # without a mark it is not content; the first error is the one to report
                    effects.unlink(path)
                raise
        info = path.lstat()
        self.check_whole(components, info)
        return info

    def _claim(self, components: Sequence[str]) -> tuple[int, Path]:
        """Make the file of a key that has none, and lock it."""
        place = self._root.path.joinpath(*components)
        hindered = failure(errno.EBUSY, place)
        for _ in range(_TRIES):
            path = self._root.ensure(components[:-1]) / components[-1]
            self._root.clear(path)
            try:
                with effects.effect(effects.Effect.LINK, str(path)):
                    fd = os.open(path, _NEW, 0o666)
            except FileNotFoundError:
                continue  # a delete elsewhere removed the folder
            except FileExistsError:
                if self._is_whole(components):
                    raise
                try:
                    self._remove_debris(components, path)
                except BlockingIOError as error:
                    hindered = error
                continue
            if self._hold(fd, path):
                try:
                    self._unmark(components)  # of an object whose file was removed by other means
                except BaseException:
                    os.close(fd)
                    raise
                return fd, path
            os.close(fd)
        raise hindered

    @staticmethod
    def _hold(fd: int, path: Path) -> bool:
        """Lock a file that was just made, unless somebody took it for abandoned before the lock."""
        try:
            lock(fd, fcntl.LOCK_EX)
            return os.path.samestat(os.fstat(fd), path.lstat())
        except (BlockingIOError, FileNotFoundError):
            return False

    def _remove_debris(self, components: Sequence[str], path: Path) -> None:
        """Remove a file that is not whole and that nobody writes; BlockingIOError where somebody does, or may."""
        try:
            fd = open_to_lock(path)
        except FileNotFoundError:
            return
        try:
            if not lock(fd, fcntl.LOCK_EX) and self._root.clock() - os.fstat(fd).st_mtime_ns < _ABANDONED_NS:
                raise failure(errno.EAGAIN, path)
            # Who removes a name holds the lock of the very file that it names, so it is no other one by now.
            if os.path.samestat(os.fstat(fd), path.lstat()) and not self._is_whole(components):
                effects.unlink(path)
        except FileNotFoundError:
            return
        finally:
            os.close(fd)

    def _overwrite(self, components: Sequence[str], pieces: Pieces) -> os.stat_result:
        fd, spooled = self._root.new_temporary()
        with closing_fd(fd):
            try:
                for piece in pieces:
                    write_on(fd, piece)
                effects.fsync_fd(fd, str(spooled))
                path = self._root.locate(components)
                if self._is_whole(components) and _same_bytes(spooled, path):
                    for mark in self.marks(components):
                        settle(mark)
                    return path.lstat()
                return self._replace(components, _pieces(spooled))
            finally:
                with suppress(OSError):  # a leftover is not content
                    effects.unlink(spooled)

    def _replace(self, components: Sequence[str], pieces: Pieces) -> os.stat_result:
        """Write an object in place of whatever has its key."""
        self._unmark(components)
        try:
            return self._write(components, pieces)
        except FileExistsError as error:  # another writer was faster, with bytes that need not be ours
            raise failure(errno.EBUSY, self._root.path.joinpath(*components)) from error

    def _mark(self, components: Sequence[str], size: int) -> None:
        for _ in range(ATTEMPTS):
            mark = self._root.ensure((HIDDEN, MARKS, *components[:-1])) / components[-1]
            self._root.clear(mark)
            try:
                with effects.effect(effects.Effect.LINK, str(mark)):
                    fd = os.open(mark, _NEW, 0o666)
                break
            except FileNotFoundError:
                continue  # a delete elsewhere removed the folder
            except FileExistsError as error:
                raise failure(errno.EBUSY, mark) from error  # a writer elsewhere, whom no lock kept out
        else:
            raise failure(errno.EBUSY, self._root.path.joinpath(*components))
        try:
            with closing_fd(fd):
                write_on(fd, b"%d\n" % size)
                effects.fsync_fd(fd, str(mark))
            sync_directory(mark.parent)
        except BaseException:
            with suppress(OSError):
                effects.unlink(mark)
            raise

    def _unmark(self, components: Sequence[str]) -> None:
        mark = self._root.path.joinpath(HIDDEN, MARKS, *components)
        try:
            if stat.S_ISDIR(mark.lstat().st_mode):
                return
        except (FileNotFoundError, NotADirectoryError):
            return
        effects.unlink(mark)
        with suppress(FileNotFoundError):
            sync_directory(mark.parent)

    def _marked_size(self, components: Sequence[str]) -> int | None:
        mark = self._root.path.joinpath(HIDDEN, MARKS, *components)
        try:
            fd = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with closing_fd(fd):
            try:
                data = os.read(fd, 32)
            except IsADirectoryError:
                return None
        return int(data) if _MARK.fullmatch(data) else None


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as reader:
        yield from iter(lambda: reader.read(_BLOCK), b"")


def _same_bytes(one: Path, other: Path) -> bool:
    if one.lstat().st_size != other.lstat().st_size:
        return False
    return all(left == right for left, right in zip(_pieces(one), _pieces(other), strict=True))
