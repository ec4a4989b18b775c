"""A tier that hands every verb on: the base of doubles that change one of them."""

from collections.abc import Sequence
from typing import BinaryIO

from tiers.bodies import Body
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload


class PassThroughTier:
    """Every verb of ``inner``; override what should differ."""

    def __init__(self, inner: Tier) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The name of the tier inside."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the tier inside."""
        return self.inner.capabilities

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Hand on."""
        return self.inner.put(key, body)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Hand on."""
        return self.inner.create(key, data)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Hand on."""
        return self.inner.open(key, start, length)

    def stat(self, key: Key) -> ObjectInfo:
        """Hand on."""
        return self.inner.stat(key)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Hand on."""
        return self.inner.list_objects(prefix, token)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Hand on."""
        return self.inner.copy(key, source)

    def delete(self, key: Key) -> None:
        """Hand on."""
        self.inner.delete(key)

    def close(self) -> None:
        """Hand on."""
        self.inner.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Hand on."""
        return self.inner.begin_upload(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Hand on."""
        return self.inner.put_part(upload, number, body)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Hand on."""
        return self.inner.list_parts(upload, token)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Hand on."""
        return self.inner.copy_part(upload, number, source, start, length)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Hand on."""
        return self.inner.complete(upload, parts)

    def abort(self, upload: Upload) -> None:
        """Hand on."""
        self.inner.abort(upload)
