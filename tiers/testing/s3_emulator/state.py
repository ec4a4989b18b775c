"""What the emulated store holds.  Whoever changes it holds ``State.lock``."""

import hashlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from tiers.clock import Clock
from tiers.testing.s3_emulator.answers import Answer, Refusal
from tiers.testing.s3_emulator.behaviour import Behaviour, Encryption
from tiers.testing.s3_emulator.checksums import Algorithm, ChecksumType

NULL_VERSION = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a client says of an object beside its bytes; ``headers`` are given back as they came."""

    headers: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = "STANDARD"
    encryption: str = Encryption.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One version of an object; ``etag`` without quotes."""

    version: str
    data: bytes
    etag: str
    modified: datetime
    attributes: Attributes
    checksums: Mapping[Algorithm, str]
    checksum_type: ChecksumType = ChecksumType.FULL_OBJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMarker:
    """A version that says that there is nothing."""

    version: str
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """A part of an upload under way."""

    number: int
    data: bytes
    md5: str
    etag: str
    modified: datetime
    checksums: Mapping[Algorithm, str]


@dataclass(slots=True, kw_only=True)
class OpenUpload:
    """An upload under way; ``started`` is of the clock that only counts."""

    upload_id: str
    key: str
    initiated: datetime
    started: float
    attributes: Attributes
    algorithm: Algorithm | None
    checksum_type: ChecksumType
    parts: dict[int, StoredPart] = field(default_factory=dict)
    replaced: list[StoredPart] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Versions by key, oldest first; without versioning there is one of each."""

    name: str
    created: datetime
    versioning: str = ""
    objects: dict[str, list[StoredObject | DeleteMarker]] = field(default_factory=dict)
    uploads: dict[str, OpenUpload] = field(default_factory=dict)
    completed: dict[str, Answer] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)
    creating: set[str] = field(default_factory=set)

    def current(self, key: str) -> StoredObject | None:
        """Return the newest version, or None where there is none or it is a delete marker."""
        versions = self.objects.get(key)
        newest = versions[-1] if versions else None
        return newest if isinstance(newest, StoredObject) else None

    def current_objects(self) -> Iterator[tuple[str, StoredObject]]:
        """Yield what a listing shows, unsorted."""
        for key in self.objects:
            found = self.current(key)
            if found is not None:
                yield key, found

    def add(self, key: str, version: StoredObject | DeleteMarker) -> None:
        """Make a version the newest; one with the same id goes."""
        kept = [held for held in self.objects.get(key, []) if held.version != version.version]
        self.objects[key] = [*kept, version]


class State:
    """Buckets, clock and behaviour."""

    def __init__(self, behaviour: Behaviour, clock: Clock, buckets: tuple[str, ...]) -> None:
        self.behaviour = behaviour
        self.clock = clock
        self.lock = threading.RLock()
        self._ids = itertools.count(1)
        self.buckets: dict[str, Bucket] = {}
        for name in buckets:
            self.create_bucket(name)

    def now(self) -> datetime:
        """Return the store's own time."""
        return self.clock.now() + self.behaviour.clock_skew

    def token(self) -> str:
        """Return 32 hex digits that were not used before and say nothing."""
        return hashlib.blake2b(f"{self.behaviour.name} {next(self._ids)}".encode(), digest_size=16).hexdigest()

    def create_bucket(self, name: str) -> None:
        """Add an empty bucket."""
        status = "Enabled" if self.behaviour.versioned else ""
        self.buckets[name] = Bucket(name=name, created=self.now(), versioning=status)

    def bucket(self, name: str) -> Bucket:
        """Return a bucket; Refusal where there is none."""
        if name not in self.buckets:
            details = (("BucketName", name),)
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist", details=details)
        return self.buckets[name]

    def version_for(self, bucket: Bucket) -> str:
        """Return the id of a version to be written."""
        return self.token() if bucket.versioning == "Enabled" else NULL_VERSION

    def check_pace(self, bucket: Bucket, key: str) -> None:
        """Refuse a write too soon after the last one of the key."""
        interval, last = self.behaviour.write_interval, bucket.written.get(key)
        if interval is None or last is None:
            return
        if self.clock.monotonic() - last < interval.total_seconds():
            status, code = self.behaviour.too_fast
            raise Refusal(status, code, "Reduce your concurrent request rate for the same object.")

    def write(self, bucket: Bucket, key: str, written: StoredObject) -> None:
        """Store a version and note when."""
        bucket.written[key] = self.clock.monotonic()
        bucket.add(key, written)

    @contextmanager
    def creating(self, name: str, key: str) -> Iterator[None]:
        """Keep other creates of a key away while one is in flight."""
        with self.lock:
            bucket = self.bucket(name)
            if key in bucket.creating:
                message = "The conditional request cannot succeed due to a conflicting operation against this resource."
                raise Refusal(409, "ConditionalRequestConflict", message)
            bucket.creating.add(key)
        try:
            yield
        finally:
            with self.lock:
                bucket.creating.discard(key)

    def expire_uploads(self, bucket: Bucket) -> None:
        """Forget uploads that are too old."""
        lifetime = self.behaviour.upload_lifetime
        if lifetime is None:
            return
        now = self.clock.monotonic()
        for upload in list(bucket.uploads.values()):
            if now - upload.started >= lifetime.total_seconds():
                del bucket.uploads[upload.upload_id]
