"""What the raw sink remembers: small objects whole, of data objects no more than what was said of them."""

import base64
import hashlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

LOG_KEY = "/log/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object.  ``checksum`` is what the sender claimed, as in the header; ``data`` is None for discarded bytes."""

    size: int
    etag: str
    checksum: str | None = None
    data: bytes | None = None
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class Pending:
    """A multipart upload; parts by number."""

    key: str
    metadata: tuple[tuple[str, str], ...] = ()
    parts: dict[int, Stored] = field(default_factory=dict)

    def joined(self, numbers: list[int]) -> Stored:
        """Return the object of these parts, with the composite of the claimed checksums where all have one."""
        parts = [self.parts[number] for number in numbers]
        claims = [part.checksum for part in parts]
        checksum = None
        if all(claims):
            joined = b"".join(base64.b64decode(claim) for claim in claims if claim)
            checksum = f"{base64.b64encode(hashlib.sha256(joined).digest()).decode()}-{len(parts)}"
        return Stored(
            size=sum(part.size for part in parts),
            etag=f"{hashlib.md5(repr(numbers).encode(), usedforsecurity=False).hexdigest()}-{len(parts)}",
            checksum=checksum,
            metadata=self.metadata,
        )


@dataclass(slots=True)
class Counters:
    """What arrived since the last reset; times are of the monotonic clock, which all processes share."""

    requests: dict[str, int] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    first_body: float | None = None
    last_body: float | None = None
    first_sent: float | None = None
    last_log_put: float | None = None
    open: int = 0
    most_open: int = 0
    largest: int = 0
    unknown: int = 0


class Store:
    """Objects by key, uploads by id, and the folder that data objects are read from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, Pending] = {}
        self.counters = Counters()
        self._sources: dict[str, Path] = {}
        self._number = 0

    def read_from(self, folder: Path) -> int:
        """Take every file below a folder as the bytes of the objects whose keys end in its name."""
        found = {name: Path(where) / name for where, _, names in os.walk(folder) for name in names}
        self._sources = found
        return len(found)

    def source(self, key: str) -> Path | None:
        """Return the file that a data object is read from; None for an object that is kept itself."""
        return self._sources.get(key.rpartition("/")[2])

    def begin(self, key: str, metadata: tuple[tuple[str, str], ...]) -> str:
        """Open an upload and return its id."""
        with self.lock:
            self._number += 1
            upload = f"upload-{self._number}"
            self.uploads[upload] = Pending(key=key, metadata=metadata)
        return upload

    def count(self, verb: str) -> None:
        """Count a request."""
        with self.lock:
            self.counters.requests[verb] = self.counters.requests.get(verb, 0) + 1

    def arriving(self, size: int, now: float) -> None:
        """Note that a data body begins."""
        with self.lock:
            counters = self.counters
            counters.first_body = counters.first_body or now
            counters.open += 1
            counters.most_open = max(counters.most_open, counters.open)
            counters.largest = max(counters.largest, size)

    def arrived(self) -> None:
        """Note that one ended, or was broken off."""
        with self.lock:
            self.counters.open -= 1

    def received(self, size: int, now: float) -> None:
        """Count bytes of a body as they come in."""
        with self.lock:
            self.counters.bytes_up += size
            self.counters.last_body = now

    def create(self, key: str, stored: Stored, *, only_if_absent: bool) -> bool:
        """Store an object; False where it had to be absent and is not."""
        with self.lock:
            if only_if_absent and key in self.objects:
                return False
            self.objects[key] = stored
        return True

    def listed(self, prefix: str, after: str, limit: int) -> tuple[list[tuple[str, Stored]], bool]:
        """Return a page of keys in order, and whether more follow."""
        with self.lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
            return [(key, self.objects[key]) for key in keys[:limit]], len(keys) > limit

    def reset(self) -> None:
        """Begin to count anew; what is stored stays."""
        with self.lock:
            self.counters = Counters()
