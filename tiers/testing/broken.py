"""Tiers that are wrong on purpose, each in one way that loses somebody's checkpoints.

The conformance suite must refuse every one of them by the check named in its docstring.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from tiers.bodies import Body, BytesBody
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound
from tiers.protocol import Key, ObjectInfo, ObjectPage, Part, Upload, UploadId, walk
from tiers.testing.passthrough import PassThroughTier


class OverwritingCreate(PassThroughTier):
    """``create`` replaces what is there: two writers both win (test_create_once)."""

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Put, whatever is there."""
        return self.inner.put(key, BytesBody(data))


class LookThenPutCreate(PassThroughTier):
    """``create`` looks first and puts then: right alone, wrong in a race (test_create_has_one_winner)."""

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Stat, and put where that found nothing."""
        try:
            self.inner.stat(key)
        except ObjectNotFound:
            self.between(key)
            return self.inner.put(key, BytesBody(data))
        raise ObjectExists("the key is taken", tier=self.name, operation="create", key=key)

    def between(self, key: Key) -> None:
        """Override to make other creators meet here."""


class ShortReadAsEof(PassThroughTier):
    """A stream that breaks looks like one that ended (test_open_gives_every_promised_byte)."""

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Give at most 256 KiB."""
        with self.inner.open(key, start, length) as stream:
            return io.BytesIO(stream.read(1 << 18))


class ClampedRange(PassThroughTier):
    """A range past the end is quietly shortened (test_open_past_the_end_is_refused)."""

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Give what there is of the range."""
        with self.inner.open(key) as stream:
            data = stream.read()
        return io.BytesIO(data[start:] if length is None else data[start : start + length])


class LostPage(PassThroughTier):
    """A listing ends after its first page (test_list_is_complete_over_pages)."""

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Give the first page as if it were the last."""
        return replace(self.inner.list_objects(prefix, token), next_token=None)


class UnorderedList(PassThroughTier):
    """Pages are complete, their keys in some other order (test_list_is_in_byte_order)."""

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Give each page backwards."""
        page = self.inner.list_objects(prefix, token)
        return replace(page, objects=page.objects[::-1])


class FolderPrefix(PassThroughTier):
    """A prefix is taken for a folder (test_list_by_plain_prefix)."""

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """List below the folder."""
        return self.inner.list_objects(prefix if prefix.endswith("/") or not prefix else prefix + "/", token)


class GreedyDelete(PassThroughTier):
    """``delete`` removes all that starts with the key (test_delete_is_exact)."""

    def delete(self, key: Key) -> None:
        """Delete by prefix."""
        for info in list(walk(self.inner, key)):
            self.inner.delete(info.key)


class EmptyWhenMissing(PassThroughTier):
    """``stat`` of a missing key describes an empty object (test_missing_keys)."""

    def stat(self, key: Key) -> ObjectInfo:
        """Describe something in any case."""
        try:
            return self.inner.stat(key)
        except ObjectNotFound:
            return ObjectInfo(key=key, size=0)


@dataclass(frozen=True, slots=True)
class _Undigested:
    """A body that hides its digest from the store."""

    body: Body
    sha256: None = None

    @property
    def size(self) -> int:
        return self.body.size

    def open(self) -> BinaryIO:
        return self.body.open()


class SizeOnlyVerify(PassThroughTier):
    """Compares sizes and attests the digest that it was told (test_put_of_wrong_bytes)."""

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Store without the digest, then repeat it."""
        return replace(self.inner.put(key, _Undigested(body)), sha256=body.sha256)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Store without the digest, then repeat it."""
        return replace(self.inner.put_part(upload, number, _Undigested(body)), sha256=body.sha256)


class HoleyComplete(PassThroughTier):
    """``complete`` makes an object of the parts it is given (test_complete_refuses_a_missing_part)."""

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Join what there is, in an upload that has just the right size."""
        try:
            return self.inner.complete(upload, parts)
        except IntegrityError:
            return self.inner.put(upload.key, BytesBody(bytes(sum(part.size for part in parts))))


class EarlyVisible(PassThroughTier):
    """An upload shows under its key before it is complete (test_unfinished_upload_is_invisible)."""

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Put a placeholder of the final size."""
        self.inner.put(key, BytesBody(bytes(size)))
        return self.inner.begin_upload(key, size=size, part_size=part_size)


class ForgetfulUploads(PassThroughTier):
    """``abort`` only says that it did (test_abort_frees_and_repeats)."""

    def abort(self, upload: Upload) -> None:
        """Abort nothing."""
        self.inner.abort(replace(upload, upload_id=UploadId("none")))


class UncheckedCopy(PassThroughTier):
    """``copy_part`` takes whatever is at the key by now (test_copy_part_of_a_changed_source_is_refused)."""

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy from the present object."""
        return self.inner.copy_part(upload, number, self.inner.stat(source.key), start, length)


class UncheckedWholeCopy(PassThroughTier):
    """``copy`` takes whatever is at the key by now (test_copy_of_a_changed_source_is_refused)."""

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy the present object."""
        return self.inner.copy(key, self.inner.stat(source.key))


class CarriedDigest(PassThroughTier):
    """``copy`` repeats what is recorded of the source, as if it had looked (test_copy_attests_only_its_own_bytes)."""

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy, and carry the digest over."""
        return replace(self.inner.copy(key, source), sha256=self.inner.stat(source.key).sha256)
