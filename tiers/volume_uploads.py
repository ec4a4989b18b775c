"""Uploads in parts on a volume: one file that parts are written into, and a durable marker a part.

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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tiers import effects
from tiers.checks import check_part_set, check_parts_stored, part_length
from tiers.errors import IntegrityError
from tiers.protocol import Key, Part, Upload, UploadId
from tiers.volume_files import HIDDEN, VolumeRoot, failure, lock, remove_folder, sync_directory, write_all

_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
_MARKER = re.compile(r"[0-9]{6}\.part")


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
        while self._written < self._size:
            left = self._size - self._written
            offset = start + self._written
            try:
                count = os.copy_file_range(source, self.fd, left, offset, self._start + self._written)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                count = 0
            if count > 0:
                self._written += count
                continue
            data = os.pread(source, min(left, 1 << 20), offset)
            if not data:
                raise failure(errno.ESTALE, self._folder)
            self.write(data)

    def finish(self) -> Part:
        """Make bytes and then marker durable."""
        effects.fsync_fd(self.fd, str(self._folder / "data"))
        part = Part(number=self._number, size=self._size, etag=secrets.token_hex(8))
        record = {"number": part.number, "size": part.size, "etag": part.etag}
        _write_record(self._folder / _marker(self._number), record)
        return part

    def close(self) -> None:
        """Release the file."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def _retract(self) -> None:
        # A crash between two contents of a part must not leave the old marker over a mixture.
        marker = self._folder / _marker(self._number)
        if marker.exists():
            effects.unlink(marker)
            sync_directory(self._folder)


class VolumeUploads:
    """The uploads under way below one root.  An upload that is gone is FileNotFoundError."""

    def __init__(self, root: VolumeRoot, tier: str) -> None:
        self._root = root
        self._tier = tier

    def begin(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the upload's folder, durably."""
        upload = Upload(key=key, upload_id=UploadId(secrets.token_hex(16)), size=size, part_size=part_size)
        folder = self._root.ensure((HIDDEN, "uploads", upload.upload_id))
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
        return PartWriter(self._find(upload), upload, number)

    def parts(self, upload: Upload) -> list[Part]:
        """Return the parts that count, in order of number."""
        folder = self._find(upload)
        names = sorted(entry.name for entry in folder.iterdir() if _MARKER.fullmatch(entry.name))
        return [self._read_part(folder / name, upload) for name in names]

    def complete(self, upload: Upload, parts: Sequence[Part], components: Sequence[str]) -> os.stat_result:
        """Move the data to its key once all its parts are there; the stat of the object."""
        folder = self._find(upload)
        fd = _open_locked(folder / "data", fcntl.LOCK_EX)  # no part is being written into it
        try:
            check_part_set(upload, parts, tier=self._tier)
            check_parts_stored(upload, parts, {p.number: p for p in self.parts(upload)}, tier=self._tier)
            info = os.fstat(fd)
            if info.st_size != upload.size:
                message = f"the assembled file has {info.st_size} bytes, expected {upload.size}"
                raise IntegrityError(message, tier=self._tier, operation="complete", key=upload.key)
            effects.fsync_fd(fd, str(folder / "data"))
            self._root.publish(folder / "data", components)
        finally:
            os.close(fd)
        self._dispose(folder)
        return info

    def abort(self, upload: Upload) -> None:
        """Remove the upload's folder, where it is."""
        if _UPLOAD_ID.fullmatch(upload.upload_id):
            self._dispose(self._root.path / HIDDEN / "uploads" / upload.upload_id)

    def _find(self, upload: Upload) -> Path:
        """Return the upload's folder, unless it is gone, complete, or not this upload's."""
        folder = self._root.path / HIDDEN / "uploads" / upload.upload_id
        if not _UPLOAD_ID.fullmatch(upload.upload_id):  # it may come from a journal that somebody edited
            raise failure(errno.ENOENT, folder)
        self._root.locate((HIDDEN, "uploads", upload.upload_id, "data")).lstat()
        if self._read_record(folder / "upload.json", upload) != asdict(upload):
            raise failure(errno.ENOENT, folder)
        return folder

    def _read_part(self, path: Path, upload: Upload) -> Part:
        match self._read_record(path, upload):
            case {"number": int(number), "size": int(size), "etag": str(etag)} if path.name == _marker(number):
                return Part(number=number, size=size, etag=etag)
        raise self._damaged(path, upload)

    def _read_record(self, path: Path, upload: Upload) -> object:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as reader:
            data = reader.read()
        try:
            return json.loads(data)
        except ValueError as error:
            raise self._damaged(path, upload) from error

    def _damaged(self, path: Path, upload: Upload) -> IntegrityError:
        message = f"{path.name} of upload {upload.upload_id} is damaged"
        hint = "abort the upload and start it again"
        return IntegrityError(message, tier=self._tier, operation="upload", key=upload.key, hint=hint)

    def _dispose(self, folder: Path) -> None:
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
