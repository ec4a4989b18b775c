"""Uploads in parts on a volume: their folders, and one file that parts are written into.

    .ckptier/uploads/<id>/upload.json   what begin_upload returned
                          data          sparse at first, as long as the object
                          000001.part   number, size and etag of a part that is durable in data

A part counts only by its marker, which is written after its bytes are durable and
removed before they are written anew.
"""

import errno
import fcntl
import json
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tiers import effects
from tiers.checks import check_part_set, check_parts_stored, part_length
from tiers.errors import IntegrityError
from tiers.protocol import Key, Part, Upload, UploadId
from tiers.volume_copying import copy_range
from tiers.volume_errnos import failure
from tiers.volume_files import HIDDEN, VolumeRoot, flush, lock, open_to_lock, remove_folder, sync_directory, write_all

UPLOADS = "uploads"
STALE_UPLOAD_NS = 7 * 86_400 * 10**9
"""Nanoseconds by the volume's own clock without a write, after which an upload that nobody holds is removed."""

_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
_MARKER = re.compile(r"[0-9]{6}\.part")


class UploadFolders(ABC):
    """The uploads under way below one root.  An upload that is gone is FileNotFoundError."""

    def __init__(self, root: VolumeRoot, tier: str) -> None:
        self._root = root
        self._tier = tier

    @abstractmethod
    def begin(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the upload's folder, durably."""

    @abstractmethod
    def dispose(self, folder: Path) -> None:
        """Make an upload vanish at once, then remove what is left of it."""

    def abort(self, upload: Upload) -> None:
        """Remove the upload's folder, where it is."""
        if _UPLOAD_ID.fullmatch(upload.upload_id):
            self.dispose(self._root.path / HIDDEN / UPLOADS / upload.upload_id)

    def sweep(self) -> None:
        """Remove uploads that were left behind: idle for STALE_UPLOAD_NS, and no file of theirs is locked."""
        try:
            folders = [one for one in (self._root.path / HIDDEN / UPLOADS).iterdir() if _UPLOAD_ID.fullmatch(one.name)]
        except FileNotFoundError:
            return
        if not folders:
            return
        now = self._root.clock()
        for folder in folders:
            with suppress(FileNotFoundError, NotADirectoryError):
                if now - _last_written(folder) > STALE_UPLOAD_NS and _nobody_holds(folder):
                    self.dispose(folder)

    def make_folder(self, key: Key, *, size: int, part_size: int) -> tuple[Upload, Path]:
        """Return a new upload and its folder, which is durable and empty."""
        upload = Upload(key=key, upload_id=UploadId(secrets.token_hex(16)), size=size, part_size=part_size)
        return upload, self._root.ensure((HIDDEN, UPLOADS, upload.upload_id))

    def find(self, upload: Upload) -> Path:
        """Return the upload's folder, unless it is gone, complete, or not this upload's."""
        folder = self._root.path / HIDDEN / UPLOADS / upload.upload_id
        if not _UPLOAD_ID.fullmatch(upload.upload_id):  # it may come from a journal that somebody edited
            raise failure(errno.ENOENT, folder)
        self._root.locate((HIDDEN, UPLOADS, upload.upload_id, "upload.json")).lstat()
        if self.read_record(folder / "upload.json", upload) != asdict(upload):
            raise failure(errno.ENOENT, folder)
        return folder

    def read_record(self, path: Path, upload: Upload) -> object:
        """Return a small JSON file of an upload; IntegrityError where it is damaged."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as reader:
            data = reader.read()
        try:
            return json.loads(data)
        except ValueError as error:
            raise self.damaged(path, upload) from error

    def damaged(self, path: Path, upload: Upload) -> IntegrityError:
        """Return the error for a file of an upload that is not what it should be."""
        message = f"{path.name} of upload {upload.upload_id} is damaged"
        hint = "abort the upload and start it again"
        return IntegrityError(message, tier=self._tier, operation="upload", key=upload.key, hint=hint)

    def wrong_size(self, upload: Upload, size: int) -> IntegrityError:
        """Return the error for parts that do not add up."""
        message = f"the assembled file has {size} bytes, expected {upload.size}"
        return IntegrityError(message, tier=self._tier, operation="complete", key=upload.key)


class PartWriter:
    """One part while it is written; ``finish`` makes it count.  Close it in any case."""

    def __init__(self, folder: Path, upload: Upload, number: int) -> None:
        self._folder = folder
        self._number = number
        self._size = part_length(upload, number)
        self._start = (number - 1) * upload.part_size
        self._written = 0
        self.fd = _open_locked(folder / "data", fcntl.LOCK_SH)
        try:
            self._retract()
        except BaseException:
            self.close()
            raise

    def write(self, data: memoryview | bytes) -> None:
        """Append to the part."""
        write_all(self.fd, data, self._start + self._written)
        self._written += len(data)

    def copy_from(self, source: int, start: int) -> None:
        """Fill the rest of the part from an open file, inside the filesystem where it can."""
        done = self._written
        copy_range(source, self.fd, start + done, self._start + done, self._size - done, what=self._folder)
        self._written = self._size

    def finish(self) -> Part:
        """Make bytes and then marker durable."""
        effects.fsync_fd(self.fd, str(self._folder / "data"))
        flush(self.fd)
        part = Part(number=self._number, size=self._size, etag=secrets.token_hex(8))
        record = {"number": part.number, "size": part.size, "etag": part.etag}
        _write_record(self._folder / _marker(self._number), record)
        return part

    def close(self) -> None:
        """Release the file."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            with suppress(OSError):  # a part that counts was flushed before; any other is written again
                os.close(fd)

    def _retract(self) -> None:
        # A crash between two contents of a part must not leave the old marker over a mixture.
        marker = self._folder / _marker(self._number)
        if marker.exists():
            effects.unlink(marker)
            sync_directory(self._folder)


class SparseUploads(UploadFolders):
    """Uploads whose parts are written at their places in one file, which is then renamed."""

    def begin(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the upload's folder, durably."""
        upload, folder = self.make_folder(key, size=size, part_size=part_size)
        fd = os.open(folder / "data", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(fd, size)
            effects.fsync_fd(fd, str(folder / "data"))
        finally:
            os.close(fd)
        _write_record(folder / "upload.json", asdict(upload))
        return upload

    def write_part(self, upload: Upload, number: int) -> PartWriter:
        """Open a part for writing."""
        return PartWriter(self._open(upload), upload, number)

    def parts(self, upload: Upload) -> list[Part]:
        """Return the parts that count, in order of number."""
        folder = self._open(upload)
        names = sorted(entry.name for entry in folder.iterdir() if _MARKER.fullmatch(entry.name))
        return [self._read_part(folder / name, upload) for name in names]

    def complete(self, upload: Upload, parts: Sequence[Part], components: Sequence[str]) -> os.stat_result:
        """Move the data to its key once all its parts are there; the stat of the object."""
        folder = self._open(upload)
        fd = _open_locked(folder / "data", fcntl.LOCK_EX)  # no part is being written into it
        try:
            check_part_set(upload, parts, tier=self._tier)
            check_parts_stored(upload, parts, {p.number: p for p in self.parts(upload)}, tier=self._tier)
            info = os.fstat(fd)
            if info.st_size != upload.size:
                raise self.wrong_size(upload, info.st_size)
            effects.fsync_fd(fd, str(folder / "data"))
            self._root.publish(folder / "data", components)
        finally:
            os.close(fd)
        self.dispose(folder)
        return info

    def dispose(self, folder: Path) -> None:
        """Make the upload vanish at once, then remove what is left of it."""
        condemned = self._root.ensure((HIDDEN, "tmp")) / f"{folder.name}.gone"
        try:
            effects.rename(folder, condemned)
        except FileNotFoundError:
            if not self._root.is_there():
                raise
        else:
            sync_directory(folder.parent)
        remove_folder(condemned)

    def _open(self, upload: Upload) -> Path:
        folder = self.find(upload)
        (folder / "data").lstat()  # gone once it has become the object
        return folder

    def _read_part(self, path: Path, upload: Upload) -> Part:
        match self.read_record(path, upload):
            case {"number": int(number), "size": int(size), "etag": str(etag)} if path.name == _marker(number):
                return Part(number=number, size=size, etag=etag)
        raise self.damaged(path, upload)


def _last_written(folder: Path) -> int:
    """Return when anything in a folder was last written, in nanoseconds of the volume's clock."""
    return max(path.lstat().st_mtime_ns for path in (folder, *folder.iterdir()))


def _nobody_holds(folder: Path) -> bool:
    """Tell whether no process has a file of an upload locked; False where there are no locks to tell."""
    for path in folder.iterdir():
        fd = open_to_lock(path)
        try:
            if not lock(fd, fcntl.LOCK_EX):
                return False
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
    return True


def _marker(number: int) -> str:
    return f"{number:06d}.part"


def _open_locked(path: Path, mode: int) -> int:
    """Open the data of an upload for writing, with a lock; BlockingIOError where another holds it.

    Parts hold a shared one and ``complete`` an exclusive one, so that a writer which was
    stopped and revived cannot write into an object.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock(fd, mode)
        current = os.path.samestat(os.fstat(fd), path.lstat())
    except BaseException:
        os.close(fd)
        raise
    if not current:  # completed between open and lock
        os.close(fd)
        raise failure(errno.ENOENT, path)
    return fd


def _write_record(path: Path, record: dict[str, object]) -> None:
    """Write a small JSON file whole or not at all, and durably."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        write_all(fd, json.dumps(record, sort_keys=True).encode(), 0)
        effects.fsync_fd(fd, str(temporary))
    finally:
        os.close(fd)
    effects.rename(temporary, path)
    sync_directory(path.parent)
