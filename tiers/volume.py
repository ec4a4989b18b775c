"""A tier on a mounted filesystem: a disk, a network volume, NFS, a FUSE mount.

An object is a file at its key below the root.  How it gets there is the layout's affair
(:mod:`tiers.volume_layout`, :mod:`tiers.volume_direct`); which layout, is found out at the
first write (:mod:`tiers.volume_settling`).  The volume hashes nothing: it says READ_BACK,
and the caller compares bytes.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from tiers.bodies import Body
from tiers.checks import body_chunks, check_part_size, check_upload, key_components, range_length
from tiers.errors import IntegrityError, TierError, TierUnavailable, Unsupported
from tiers.medium import current_reading
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
from tiers.reliance import rely_on
from tiers.volume_errnos import failure, translate
from tiers.volume_facts import VolumeMode
from tiers.volume_files import RESERVED, VolumeRoot, etag_of, is_silly, settle
from tiers.volume_identity import VolumeIdentity
from tiers.volume_layout import Layout, PartWriting
from tiers.volume_listing import walk_files
from tiers.volume_reading import MediumStream, VolumeStream
from tiers.volume_settling import Refused, Settling

VOLUME_CAPABILITIES = Capabilities(
    fencing=Fencing.POSIX,
    verification=Verification.READ_BACK,
    multipart=True,
    resumable=True,
    copy_part=True,
    copy=True,
    max_put=5 << 30,
    min_part=1,
    max_part=5 << 30,
    max_parts=100_000,
    max_object=1 << 44,
)

_ABSENT_IS_AN_ANSWER = frozenset({"open", "stat", "put_part", "list_parts", "copy", "copy_part", "complete"})
"""Verbs for which a missing file means a missing object or upload, not a volume that changes under them."""

_REMEMBERED = 1024
"""Keys written here of which it is known that they are durable: what is read back right away."""

_NO_ROOT = "is the volume mounted? If it is new, create the folder (mkdir -p)"


class VolumeTier:
    """Objects as files below ``root``, which must exist.

    A root that is missing is TierUnavailable in every verb, never ObjectNotFound: a
    volume that is not mounted must not look like one without checkpoints.  So is one that
    is not ``expected``, the uuid of the volume that was there before (``identity``, kept
    by the caller from an earlier use).  ``mode`` AUTO finds out at the first write how
    objects can be written; DIRECT and MODAL keep writers apart only by advice.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        mode: VolumeMode = VolumeMode.AUTO,
        expected: str | None = None,
        page_size: int = 1000,
    ) -> None:
        self._name = name
        self._root = VolumeRoot(root)
        self._settling = Settling(self._root, name, mode=mode, expected=expected)
        self._page_size = page_size
        self._written: dict[Key, None] = {}
        advisory = mode in (VolumeMode.DIRECT, VolumeMode.MODAL)
        self._capabilities = replace(VOLUME_CAPABILITIES, fencing=Fencing.ADVISORY) if advisory else VOLUME_CAPABILITIES

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """What the configured mode promises."""
        return self._capabilities

    @property
    def identity(self) -> VolumeIdentity | None:
        """Which volume it is, once a request has seen its marker; makes no request."""
        return self._settling.identity

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Store the file whole and durably, replacing what is there."""
        if body.size > VOLUME_CAPABILITIES.max_put:
            message = f"{body.size} bytes: at most {VOLUME_CAPABILITIES.max_put} in one put"
            raise Unsupported(message, tier=self._name, operation="put", key=key, hint="upload it in parts")
        components = self._components(key, "put")
        pieces = _apart(body_chunks(body, tier=self._name, operation="put", key=key))
        try:
            with self._mapped("put", key):
                return self._wrote(key, self._settling.to_write().put(components, pieces))
        except _BodyFailure as failed:
            raise failed.error from None

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Store the file whole and durably where its key is free."""
        components = self._components(key, "create")
        with self._mapped("create", key):
            return self._wrote(key, self._settling.to_write().create(components, data))

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open the file; a symbolic link in its path is AccessDenied.

        Where the caller is reading the medium (:mod:`tiers.medium`), around the page cache.
        """
        components = _components(key)
        with self._mapped("open", key):
            fd, info = self._open_file(components)
        self._found(components)
        try:
            wanted = range_length(info.st_size, start, length, tier=self._name, operation="open", key=key)
            with self._mapped("open", key):
                return cast("BinaryIO", self._stream(fd, components, start, wanted))
        except BaseException:
            os.close(fd)
            raise

    def stat(self, key: Key) -> ObjectInfo:
        """Describe the file; a folder is no object."""
        components = _components(key)
        with self._mapped("stat", key):
            layout = self._settling.to_read()
            path = self._root.locate(components)
            info = path.lstat()
            _require_file(path, info)
            layout.check_whole(components, info)
        return _describe(key, info)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Read the folders that the prefix allows; the token is the last key of the page before."""
        with self._mapped("list_objects", prefix):
            files = self._whole_files(self._settling.to_read(), prefix, token)
            found = [_describe(Key(key), info) for key, info in islice(files, self._page_size + 1)]
        page = tuple(found[: self._page_size])
        return ObjectPage(objects=page, next_token=page[-1].key if len(found) > len(page) else None)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy inside the filesystem, durably, a file that has ``source.etag`` before and after."""
        components = self._components(key, "copy")
        with self._mapped("copy", source.key):
            fd, info = self._open_file(_components(source.key))
        try:
            self._require_etag(fd, source, "copy")
            if info.st_size > VOLUME_CAPABILITIES.max_put:
                message = f"{info.st_size} bytes: at most {VOLUME_CAPABILITIES.max_put} in one copy"
                raise Unsupported(message, tier=self._name, operation="copy", key=key, hint="copy it in parts")
            with self._mapped("copy", key):
                layout = self._settling.to_write()
                check = partial(self._require_etag, fd, source, "copy")
                return self._wrote(key, layout.copy(components, fd, info.st_size, check))
        finally:
            os.close(fd)

    def delete(self, key: Key) -> None:
        """Unlink the file, fsync the folder, and remove the folders that it leaves empty."""
        components = _components(key)
        with self._mapped("delete", key):
            try:
                self._settling.to_write().delete(components)
            except (FileNotFoundError, NotADirectoryError):
                if not self._root.is_there():
                    raise

    def close(self) -> None:
        """Do nothing: no file stays open between requests."""

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the folder that parts are written into."""
        self._components(key, "begin_upload")
        wanted = Upload(key=key, upload_id=UploadId(""), size=size, part_size=part_size)
        check_upload(wanted, VOLUME_CAPABILITIES, tier=self._name)
        with self._mapped("begin_upload", key):
            return self._settling.to_write().uploads.begin(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Write the part at its place, fsync, then mark it as held."""
        check_part_size(upload, number, body.size, tier=self._name, operation="put_part")
        with self._mapped("put_part", upload.key):
            part = self._part(upload, number)
        with part as writer:
            for chunk in body_chunks(body, tier=self._name, operation="put_part", key=upload.key):
                with self._mapped("put_part", upload.key):
                    writer.write(chunk)
            with self._mapped("put_part", upload.key):
                return writer.finish()

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Read the markers; the token is the last number of the page before."""
        after = int(token) if token is not None else 0
        with self._mapped("list_parts", upload.key):
            rest = [part for part in self._settling.to_read().uploads.parts(upload) if part.number > after]
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
            self._require_etag(fd, source, "copy_part")
            with self._mapped("copy_part", upload.key), self._part(upload, number) as writer:
                writer.copy_from(fd, start)
                self._require_etag(fd, source, "copy_part")
                return writer.finish()
        finally:
            os.close(fd)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Move the file into place once every part is held and marked."""
        components = _components(upload.key)
        with self._mapped("complete", upload.key):
            uploads = self._settling.to_write().uploads
            return self._wrote(upload.key, uploads.complete(upload, parts, components))

    def abort(self, upload: Upload) -> None:
        """Remove the upload's folder."""
        with self._mapped("abort", upload.key):
            self._settling.to_write().uploads.abort(upload)

    def _part(self, upload: Upload, number: int) -> AbstractContextManager[PartWriting]:
        return closing(self._settling.to_write().uploads.write_part(upload, number))

    def _whole_files(self, layout: Layout, prefix: str, token: str | None) -> Iterator[tuple[str, os.stat_result]]:
        for key, info in walk_files(self._root.path, prefix, token):
            try:
                layout.check_whole(key.split("/"), info)
            except FileNotFoundError:
                continue
            yield key, info

    def _open_file(self, components: Sequence[str]) -> tuple[int, os.stat_result]:
        layout = self._settling.to_read()
        path = self._root.locate(components)
        # O_NONBLOCK: opening a FIFO that somebody put there must not wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            _require_file(path, info)
            layout.check_whole(components, info)
        except BaseException:
            os.close(fd)
            raise
        return fd, info

    def _found(self, components: Sequence[str]) -> None:
        """Have an object that is relied upon made durable, unless that was done when it was written here."""
        key = Key("/".join(components))
        if key in self._written:
            return
        for path in self._settling.to_read().marks(components):
            rely_on((self._root.path, path), lambda path=path: self._settle(key, path))  # type: ignore[misc]

    def _settle(self, key: Key, path: Path) -> None:
        with self._mapped("open", key):
            settle(path)

    def _wrote(self, key: Key, info: os.stat_result) -> ObjectInfo:
        """Note a key that is durable, and describe it; only the latest few are known."""
        self._written[key] = None
        while len(self._written) > _REMEMBERED:
            self._written.pop(next(iter(self._written)), None)
        return _describe(key, info)

    def _stream(self, fd: int, components: Sequence[str], start: int, length: int) -> VolumeStream:
        """Return a stream that owns ``fd``, once this returns."""

        def translated(error: OSError) -> TierError:
            return self._translate(error, "open", "/".join(components))

        reading = current_reading()
        if reading is None:
            return VolumeStream(fd, start, length, translated)
        path = self._root.path.joinpath(*components)
        return MediumStream(fd, path, start, length, translated, reading.note)

    def _require_etag(self, fd: int, source: ObjectInfo, operation: str) -> None:
        etag = etag_of(os.fstat(fd))
        if etag != source.etag:
            message = f"the source is {etag}, no longer {source.etag}"
            raise IntegrityError(message, tier=self._name, operation=operation, key=source.key)

    def _components(self, key: str, operation: str) -> tuple[str, ...]:
        """Return the components of a key that is to be written."""
        components = _components(key)
        if any(is_silly(component) for component in components):
            message = "names like this are what NFS and FUSE call files that were deleted while open"
            raise Unsupported(message, tier=self._name, operation=operation, key=key, hint="give the file another name")
        return components

    @contextmanager
    def _mapped(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translate(error, operation, key) from error
        except Refused as error:
            raise error.kind(
                error.message, tier=self._name, operation=operation, key=key, hint=error.hint
            ) from error.__cause__

    def _translate(self, error: OSError, operation: str, key: str) -> TierError:
        if error.errno == errno.ESTALE:
            self._settling.handle_went_stale()
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


class _BodyFailure(Exception):
    """Reading the caller's body failed; kept apart from what the volume answers."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _apart(pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    try:
        yield from pieces
    except OSError as error:
        raise _BodyFailure(error) from error


def _components(key: str) -> tuple[str, ...]:
    components = key_components(key)
    if components[0] in RESERVED:
        raise ValueError(f"not a key: {key!r}: {components[0]} is not for objects on a volume")
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
