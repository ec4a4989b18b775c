"""A tier in this process's memory: the reference for what a store does, and the double for tests."""

import hashlib
import io
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from tiers.bodies import Body
from tiers.checks import (
    body_chunks,
    check_part_set,
    check_part_size,
    check_parts_stored,
    check_upload,
    key_components,
    range_length,
)
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, Unsupported
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

MEMORY_CAPABILITIES = Capabilities(
    fencing=Fencing.CAS,
    verification=Verification.STORE_SHA256,
    multipart=True,
    resumable=True,
    copy_part=True,
    copy=True,
    max_put=1 << 30,
    min_part=1,
    max_part=1 << 30,
    max_parts=10_000,
    max_object=1 << 34,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    data: bytes
    info: ObjectInfo


@dataclass(slots=True)
class _Pending:
    upload: Upload
    parts: dict[int, tuple[Part, bytes]] = field(default_factory=dict)


class MemoryStore:
    """The bytes behind one or several MemoryTiers; its lock guards all of it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, _Pending] = {}
        self._counter = itertools.count(1)

    def serial(self, prefix: str) -> str:
        """Return a new opaque name, never handed out before by this store."""
        return f"{prefix}-{next(self._counter):08x}"


class MemoryTier:
    """Objects in a dict.

    Several tiers over one ``store`` see the same objects, as two machines would.
    ``capabilities`` sets the limits that are enforced, ``page_size`` the length of a page.
    """

    def __init__(
        self,
        name: str,
        store: MemoryStore | None = None,
        *,
        capabilities: Capabilities = MEMORY_CAPABILITIES,
        page_size: int = 1000,
    ) -> None:
        self._name = name
        self._store = store if store is not None else MemoryStore()
        self._capabilities = capabilities
        self._page_size = page_size

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """What was set when it was made."""
        return self._capabilities

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Store the body; IntegrityError where its bytes are not ``body.sha256``."""
        key_components(key)
        if body.size > self._capabilities.max_put:
            message = f"{body.size} bytes: at most {self._capabilities.max_put} in one put"
            raise Unsupported(message, tier=self._name, operation="put", key=key, hint="upload it in parts")
        data, digest = self._receive(body, "put", key)
        with self._store.lock:
            return self._set(key, data, digest)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Store the data unless the key is taken."""
        key_components(key)
        with self._store.lock:
            if key in self._store.objects:
                raise ObjectExists("the key is taken", tier=self._name, operation="create", key=key)
            return self._set(key, bytes(data), hashlib.sha256(data).hexdigest())

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Return a reader over a copy of the range."""
        data = self._get(key, "open").data
        wanted = range_length(len(data), start, length, tier=self._name, operation="open", key=key)
        return io.BytesIO(data[start : start + wanted])

    def stat(self, key: Key) -> ObjectInfo:
        """Return what ``put`` returned."""
        return self._get(key, "stat").info

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Return a page; the token is the last key of the page before."""
        with self._store.lock:
            found = [o.info for o in self._store.objects.values() if o.info.key.startswith(prefix)]
        rest = sorted((i for i in found if token is None or i.key > token), key=lambda i: i.key)
        page = tuple(rest[: self._page_size])
        return ObjectPage(objects=page, next_token=page[-1].key if len(rest) > len(page) else None)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Store what ``source`` holds under another key too, where it still has ``source.etag``."""
        key_components(key)
        if not self._capabilities.copy:
            raise Unsupported("no copies inside the store", tier=self._name, operation="copy", key=key)
        with self._store.lock:
            held = self._source(source, "copy")
            if len(held.data) > self._capabilities.max_put:
                message = f"{len(held.data)} bytes: at most {self._capabilities.max_put} in one copy"
                raise Unsupported(message, tier=self._name, operation="copy", key=key, hint="copy it in parts")
            return self._set(key, held.data, hashlib.sha256(held.data).hexdigest())

    def delete(self, key: Key) -> None:
        """Remove the key if it is there."""
        key_components(key)
        with self._store.lock:
            self._store.objects.pop(key, None)

    def close(self) -> None:
        """Do nothing: the store outlives its tiers."""

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Open an upload."""
        key_components(key)
        if not self._capabilities.multipart:
            raise Unsupported("no uploads in parts", tier=self._name, operation="begin_upload", key=key)
        upload = Upload(key=key, upload_id=UploadId(self._store.serial("upload")), size=size, part_size=part_size)
        check_upload(upload, self._capabilities, tier=self._name)
        with self._store.lock:
            self._store.uploads[upload.upload_id] = _Pending(upload)
        return upload

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Store a part; IntegrityError where its size or digest is wrong."""
        self._pending(upload, "put_part")
        check_part_size(upload, number, body.size, tier=self._name, operation="put_part")
        data, digest = self._receive(body, "put_part", upload.key)
        return self._set_part(upload, number, data, digest, "put_part")

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Return a page; the token is the last number of the page before."""
        after = int(token) if token is not None else 0
        with self._store.lock:
            held = self._pending(upload, "list_parts").parts
            rest = [held[number][0] for number in sorted(held) if number > after]
        page = tuple(rest[: self._page_size])
        return PartPage(parts=page, next_token=str(page[-1].number) if len(rest) > len(page) else None)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Fill a part from an object that still has ``source.etag``."""
        if not self._capabilities.copy_part:
            raise Unsupported("no copies inside the store", tier=self._name, operation="copy_part", key=upload.key)
        check_part_size(upload, number, length, tier=self._name, operation="copy_part")
        held = self._source(source, "copy_part")
        range_length(len(held.data), start, length, tier=self._name, operation="copy_part", key=source.key)
        data = held.data[start : start + length]
        return self._set_part(upload, number, data, hashlib.sha256(data).hexdigest(), "copy_part")

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Join the parts under the upload's key."""
        with self._store.lock:
            held = self._pending(upload, "complete").parts
            check_part_set(upload, parts, tier=self._name)
            check_parts_stored(upload, parts, {n: part for n, (part, _) in held.items()}, tier=self._name)
            chosen = [held[part.number] for part in parts]
            composite = hashlib.sha256(b"".join(bytes.fromhex(part.sha256 or "") for part, _ in chosen)).hexdigest()
            info = self._set(upload.key, b"".join(data for _, data in chosen), composite)
            del self._store.uploads[upload.upload_id]
            return info

    def abort(self, upload: Upload) -> None:
        """Forget the upload if it is there."""
        with self._store.lock:
            self._store.uploads.pop(upload.upload_id, None)

    def _get(self, key: Key, operation: str) -> _Object:
        key_components(key)
        with self._store.lock:
            held = self._store.objects.get(key)
        if held is None:
            raise ObjectNotFound("no such key", tier=self._name, operation=operation, key=key)
        return held

    def _source(self, source: ObjectInfo, operation: str) -> _Object:
        held = self._get(source.key, operation)
        if held.info.etag != source.etag:
            message = f"the source is no longer {source.etag}"
            raise IntegrityError(message, tier=self._name, operation=operation, key=source.key)
        return held

    def _set(self, key: Key, data: bytes, digest: str) -> ObjectInfo:
        info = ObjectInfo(key=key, size=len(data), etag=self._store.serial("etag"), sha256=digest)
        self._store.objects[key] = _Object(data=data, info=info)
        return info

    def _pending(self, upload: Upload, operation: str) -> _Pending:
        with self._store.lock:
            pending = self._store.uploads.get(upload.upload_id)
        if pending is None or pending.upload != upload:
            raise ObjectNotFound("no such upload", tier=self._name, operation=operation, key=upload.key)
        return pending

    def _set_part(self, upload: Upload, number: int, data: bytes, digest: str, operation: str) -> Part:
        part = Part(number=number, size=len(data), etag=self._store.serial("part"), sha256=digest)
        with self._store.lock:
            self._pending(upload, operation).parts[number] = (part, data)
        return part

    def _receive(self, body: Body, operation: str, key: Key) -> tuple[bytes, str]:
        chunks = body_chunks(body, tier=self._name, operation=operation, key=key)
        data = b"".join(bytes(chunk) for chunk in chunks)
        digest = hashlib.sha256(data).hexdigest()
        if body.sha256 is not None and body.sha256 != digest:
            message = f"the body is {digest}, declared was {body.sha256}"
            raise IntegrityError(message, tier=self._name, operation=operation, key=key)
        return data, digest


_shared: dict[str, MemoryStore] = {}
_shared_lock = threading.Lock()


def shared_store(name: str) -> MemoryStore:
    """Return this process's store of that name, the same one every time (``memory://name``)."""
    with _shared_lock:
        return _shared.setdefault(name, MemoryStore())
