"""Counts what a tier is asked for, as a bill would: below the retry, so that each attempt counts.

This is also the one place that announces remote calls to :mod:`tiers.effects`.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import BinaryIO, cast

from tiers.bodies import Body
from tiers.effects import Effect, effect
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload
from tiers.streams import ReadStream, bytes_of, fill


class BillingClass(StrEnum):
    """How stores group requests on a bill."""

    A = "A"
    B = "B"
    FREE = "free"


BILLING_CLASSES: Mapping[str, BillingClass] = MappingProxyType(
    {
        "put": BillingClass.A,
        "create": BillingClass.A,
        "list_objects": BillingClass.A,
        "begin_upload": BillingClass.A,
        "put_part": BillingClass.A,
        "list_parts": BillingClass.A,
        "copy_part": BillingClass.A,
        "copy": BillingClass.A,
        "complete": BillingClass.A,
        "open": BillingClass.B,
        "stat": BillingClass.B,
        "delete": BillingClass.FREE,
        "abort": BillingClass.FREE,
    }
)
"""Every verb that is a request, by its class."""

OK = "ok"
"""Outcome of a request that returned; the others are names of exception classes."""

Count = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was asked for so far, by verb and outcome; bytes up and down.

    The bytes of a request that failed are those it was to send: an upper bound.  Bytes
    down are those that were read.  ``later - earlier`` is what happened in between.
    """

    requests: Mapping[Count, int] = field(default_factory=dict)
    bytes_up: Mapping[Count, int] = field(default_factory=dict)
    bytes_down: int = 0

    def count(self, verb: str | None = None, outcome: str | None = None) -> int:
        """Return the number of requests, of one verb or of all, with one outcome or any."""
        return _total(self.requests, verb, outcome)

    def sent(self, verb: str | None = None, outcome: str | None = None) -> int:
        """Return the bytes up, of one verb or of all, with one outcome or any."""
        return _total(self.bytes_up, verb, outcome)

    def by_class(self) -> dict[BillingClass, int]:
        """Return the number of requests in each billing class, failed ones included."""
        return {
            wanted: sum(n for (verb, _), n in self.requests.items() if BILLING_CLASSES[verb] is wanted)
            for wanted in BillingClass
        }

    def __sub__(self, earlier: "Usage") -> "Usage":
        return Usage(
            requests=_difference(self.requests, earlier.requests),
            bytes_up=_difference(self.bytes_up, earlier.bytes_up),
            bytes_down=self.bytes_down - earlier.bytes_down,
        )


def _total(counts: Mapping[Count, int], verb: str | None, outcome: str | None) -> int:
    return sum(n for (v, o), n in counts.items() if verb in (None, v) and outcome in (None, o))


def _difference(later: Mapping[Count, int], earlier: Mapping[Count, int]) -> Mapping[Count, int]:
    changed = {key: later.get(key, 0) - earlier.get(key, 0) for key in later.keys() | earlier.keys()}
    return MappingProxyType({key: n for key, n in changed.items() if n != 0})


class Meter:
    """Counters that any number of threads and tiers may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Count] = Counter()
        self._bytes_up: Counter[Count] = Counter()
        self._bytes_down = 0

    def request(self, verb: str, outcome: str, bytes_up: int) -> None:
        """Count one request."""
        with self._lock:
            self._requests[verb, outcome] += 1
            if bytes_up:
                self._bytes_up[verb, outcome] += bytes_up

    def received(self, count: int) -> None:
        """Count bytes that were read."""
        with self._lock:
            self._bytes_down += count

    def snapshot(self) -> Usage:
        """Return what was counted so far, as a value."""
        with self._lock:
            return Usage(
                requests=MappingProxyType(dict(self._requests)),
                bytes_up=MappingProxyType(dict(self._bytes_up)),
                bytes_down=self._bytes_down,
            )


class MeteredTier:
    """``inner``, with every request counted by ``meter`` and announced."""

    def __init__(self, inner: Tier, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    @property
    def name(self) -> str:
        """The name of the tier inside."""
        return self._inner.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the tier inside."""
        return self._inner.capabilities

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Put."""
        with self._request("put", key, body.size):
            return self._inner.put(key, body)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Create."""
        with self._request("create", key, len(data)):
            return self._inner.create(key, data)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open; the bytes are counted as they are read."""
        with self._request("open", key):
            stream = self._inner.open(key, start, length)
        return cast("BinaryIO", _CountingStream(stream, self._meter.received))

    def stat(self, key: Key) -> ObjectInfo:
        """Stat."""
        with self._request("stat", key):
            return self._inner.stat(key)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """List."""
        with self._request("list_objects", prefix):
            return self._inner.list_objects(prefix, token)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy inside the store; no bytes pass through here."""
        with self._request("copy", key):
            return self._inner.copy(key, source)

    def delete(self, key: Key) -> None:
        """Delete."""
        with self._request("delete", key):
            self._inner.delete(key)

    def close(self) -> None:
        """Close; no request."""
        self._inner.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Begin an upload."""
        with self._request("begin_upload", key):
            return self._inner.begin_upload(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Put a part."""
        with self._request("put_part", upload.key, body.size):
            return self._inner.put_part(upload, number, body)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """List parts."""
        with self._request("list_parts", upload.key):
            return self._inner.list_parts(upload, token)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy a part; no bytes pass through here."""
        with self._request("copy_part", upload.key):
            return self._inner.copy_part(upload, number, source, start, length)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Complete."""
        with self._request("complete", upload.key):
            return self._inner.complete(upload, parts)

    def abort(self, upload: Upload) -> None:
        """Abort."""
        with self._request("abort", upload.key):
            self._inner.abort(upload)

    @contextmanager
    def _request(self, verb: str, key: str, bytes_up: int = 0) -> Iterator[None]:
        """Announce the request and count it, with the name of what it raised."""
        outcome = OK
        try:
            with effect(Effect.REMOTE, f"{self.name} {verb} {key}"):
                yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._meter.request(verb, outcome, bytes_up)


class _CountingStream(ReadStream):
    """A stream whose bytes are counted as they are read."""

    def __init__(self, stream: BinaryIO, received: Callable[[int], None]) -> None:
        super().__init__()
        self._stream = stream
        self._received = received

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(-1 if size is None else size)
        self._received(len(data))
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: object, /) -> int:
        count = fill(self._stream, bytes_of(buffer))
        self._received(count)
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
