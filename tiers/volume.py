"""A tier on a mounted filesystem: a disk, a network volume, NFS.

An object is a file at its key below the root.  It is written beside, made durable, and
renamed (``put``, ``complete``) or linked (``create``) into place, so that it appears whole.
The volume hashes nothing: it says READ_BACK, and the caller compares bytes.
"""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from tiers import effects
from tiers.bodies import Body, BytesBody
from tiers.checks import body_chunks, check_part_size, check_upload, key_components, range_length
from tiers.errors import IntegrityError, TierError, TierUnavailable, Unsupported
from tiers.protocol import (
    Capabilities,
    Fencing,
    Key,
    ObjectInfo,
    ObjectPage,
    Part,
    PartPage,
    Upload,
    UploadId,
    Verification,
)
from tiers.volume_files import HIDDEN, VolumeRoot, etag_of, failure, sync_directory, translate, write_all
from tiers.volume_listing import walk_files
from tiers.volume_uploads import VolumeUploads

VOLUME_CAPABILITIES = Capabilities(
    fencing=Fencing.POSIX,
    verification=Verification.READ_BACK,
    multipart=True,
    resumable=True,
    copy_part=True,
    max_put=5 << 30,
    min_part=1,
    max_part=5 << 30,
    max_parts=100_000,
    max_object=1 << 44,
)

_ABSENT_IS_AN_ANSWER = frozenset({"open", "stat", "put_part", "list_parts", "copy_part", "complete"})
"""Verbs for which a missing file means a missing object or upload, not a volume that changes under them."""

_NO_ROOT = "is the volume mounted? If it is new, create the folder (mkdir -p)"


class VolumeTier:
    """Objects as files below ``root``, which must exist.

    A root that is missing is TierUnavailable in every verb, never ObjectNotFound: a
    volume that is not mounted must not look like one without checkpoints.
    """

    def __init__(self, name: str, root: Path, *, page_size: int = 1000) -> None:
        self._name = name
        self._root = VolumeRoot(root)
        self._uploads = VolumeUploads(self._root, name)
        self._page_size = page_size

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """The same for every volume."""
        return VOLUME_CAPABILITIES

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Write beside, fsync, rename into place, fsync the folder."""
        if body.size > VOLUME_CAPABILITIES.max_put:
            message = f"{body.size} bytes: at most {VOLUME_CAPABILITIES.max_put} in one put"
            raise Unsupported(message, tier=self._name, operation="put", key=key, hint="upload it in parts")
        return self._store("put", key, body, self._root.publish)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Write beside, fsync, link into place where the key is free, fsync the folder."""
        return self._store("create", key, BytesBody(data), self._root.publish_new)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open the file; a symbolic link in its path is AccessDenied."""
        components = _components(key)
        with self._mapped("open", key):
            fd, info = self._open_file(components)
        try:
            wanted = range_length(info.st_size, start, length, tier=self._name, operation="open", key=key)
        except BaseException:
            os.close(fd)
            raise
        return cast("BinaryIO", _VolumeStream(fd, start, wanted, lambda e: self._translate(e, "open", key)))

    def stat(self, key: Key) -> ObjectInfo:
        """Describe the file; a folder is no object."""
        components = _components(key)
        with self._mapped("stat", key):
            path = self._root.locate(components)
            info = path.lstat()
            _require_file(path, info)
        return _describe(key, info)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Read the folders that the prefix allows; the token is the last key of the page before."""
        with self._mapped("list_objects", prefix):
            self._root.pin()
            files = walk_files(self._root.path, prefix, token)
            found = [_describe(Key(key), info) for key, info in islice(files, self._page_size + 1)]
        page = tuple(found[: self._page_size])
        return ObjectPage(objects=page, next_token=page[-1].key if len(found) > len(page) else None)

    def delete(self, key: Key) -> None:
        """Unlink the file, fsync the folder, and remove the folders that it leaves empty."""
        components = _components(key)
        with self._mapped("delete", key):
            try:
                path = self._root.locate(components)
                if stat.S_ISDIR(path.lstat().st_mode):
                    return  # the folder of other keys
                effects.unlink(path)
                with suppress(FileNotFoundError):  # another delete removed the folder with it
                    sync_directory(path.parent)
                self._root.remove_empty(components)
            except (FileNotFoundError, NotADirectoryError):
                if not self._root.is_there():
                    raise

    def close(self) -> None:
        """Do nothing: no file stays open between requests."""

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the folder that parts are written into."""
        _components(key)
        wanted = Upload(key=key, upload_id=UploadId(""), size=size, part_size=part_size)
        check_upload(wanted, VOLUME_CAPABILITIES, tier=self._name)
        with self._mapped("begin_upload", key):
            return self._uploads.begin(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Write the part at its place, fsync, then mark it as held."""
        check_part_size(upload, number, body.size, tier=self._name, operation="put_part")
        with self._mapped("put_part", upload.key):
            writer = self._uploads.write_part(upload, number)
        with closing(writer):
            for chunk in body_chunks(body, tier=self._name, operation="put_part", key=upload.key):
                with self._mapped("put_part", upload.key):
                    writer.write(chunk)
            with self._mapped("put_part", upload.key):
                return writer.finish()

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Read the markers; the token is the last number of the page before."""
        after = int(token) if token is not None else 0
        with self._mapped("list_parts", upload.key):
            rest = [part for part in self._uploads.parts(upload) if part.number > after]
        page = tuple(rest[: self._page_size])
        return PartPage(parts=page, next_token=str(page[-1].number) if len(rest) > len(page) else None)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy inside the filesystem from a file that has ``source.etag`` before and after."""
        check_part_size(upload, number, length, tier=self._name, operation="copy_part")
        components = _components(source.key)
        with self._mapped("copy_part", source.key):
            fd, info = self._open_file(components)
        try:
            range_length(info.st_size, start, length, tier=self._name, operation="copy_part", key=source.key)
            self._require_etag(fd, source)
            with self._mapped("copy_part", upload.key), closing(self._uploads.write_part(upload, number)) as writer:
                writer.copy_from(fd, start)
                self._require_etag(fd, source)
                return writer.finish()
        finally:
            os.close(fd)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Move the file into place once every part is held and marked."""
        components = _components(upload.key)
        with self._mapped("complete", upload.key):
            return _describe(upload.key, self._uploads.complete(upload, parts, components))

    def abort(self, upload: Upload) -> None:
        """Remove the upload's folder."""
        with self._mapped("abort", upload.key):
            self._uploads.abort(upload)

    def _store(
        self, operation: str, key: Key, body: Body, publish: Callable[[Path, Sequence[str]], None]
    ) -> ObjectInfo:
        components = _components(key)
        with self._mapped(operation, key):
            fd, temporary = self._root.new_temporary()
        try:
            offset = 0
            for chunk in body_chunks(body, tier=self._name, operation=operation, key=key):
                with self._mapped(operation, key):
                    write_all(fd, chunk, offset)
                offset += len(chunk)
            with self._mapped(operation, key):
                effects.fsync_fd(fd, str(temporary))
                info = os.fstat(fd)
                publish(temporary, components)
        except BaseException:
            with suppress(OSError):  # a leftover is not content; the first error is the one to report
                effects.unlink(temporary)
            raise
        finally:
            # Not before it has its key: open, it is locked, and nobody sweeps it.  Network
            # filesystems may report a lost write only here.
            with self._mapped(operation, key):
                os.close(fd)
        return _describe(key, info)

    def _open_file(self, components: Sequence[str]) -> tuple[int, os.stat_result]:
        path = self._root.locate(components)
        # O_NONBLOCK: opening a FIFO that somebody put there must not wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            _require_file(path, info)
        except BaseException:
            os.close(fd)
            raise
        return fd, info

    def _require_etag(self, fd: int, source: ObjectInfo) -> None:
        etag = etag_of(os.fstat(fd))
        if etag != source.etag:
            message = f"the source is {etag}, no longer {source.etag}"
            raise IntegrityError(message, tier=self._name, operation="copy_part", key=source.key)

    @contextmanager
    def _mapped(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translate(error, operation, key) from error

    def _translate(self, error: OSError, operation: str, key: str) -> TierError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            if not self._root.is_there():
                message = f"there is no folder {self._root.path}"
                return TierUnavailable(message, tier=self._name, operation=operation, key=key, hint=_NO_ROOT)
            if operation in _ABSENT_IS_AN_ANSWER:
                error = failure(errno.ENOENT, self._root.path)  # below a file there is nothing either
            elif isinstance(error, FileNotFoundError):
                message = "a folder vanished while it was written into"
                return TierUnavailable(message, tier=self._name, operation=operation, key=key)
        return translate(error, tier=self._name, operation=operation, key=key)


class _VolumeStream(io.RawIOBase):
    """``length`` bytes of an open file; a file that ends before is an error, not EOF."""

    def __init__(self, fd: int, start: int, length: int, translated: Callable[[OSError], TierError]) -> None:
        super().__init__()
        self._fd = fd
        self._position = start
        self._end = start + length
        self._translated = translated

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")[: self._end - self._position]
        if not view:
            return 0
        try:
            count = os.preadv(self._fd, [view], self._position)
            if count == 0:
                raise failure(errno.ESTALE, Path())
        except OSError as error:
            raise self._translated(error) from error
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def _components(key: str) -> tuple[str, ...]:
    components = key_components(key)
    if components[0] == HIDDEN:
        raise ValueError(f"not a key: {key!r}: {HIDDEN} is the volume tier's own folder")
    return components


def _require_file(path: Path, info: os.stat_result) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise failure(errno.ELOOP, path)
    if stat.S_ISDIR(info.st_mode):
        raise failure(errno.ENOENT, path)
    if not stat.S_ISREG(info.st_mode):
        raise failure(errno.EOPNOTSUPP, path)


def _describe(key: Key, info: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(info.st_mtime, UTC)
    return ObjectInfo(key=key, size=info.st_size, etag=etag_of(info), modified=modified)
