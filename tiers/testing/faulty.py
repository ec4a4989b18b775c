"""A tier whose bad days are written down beforehand."""

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import BinaryIO, TypeVar, cast

from tiers.bodies import Body
from tiers.errors import TierError, TierUnavailable
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload

Reply = TypeVar("Reply", Part, ObjectInfo)


class When(StrEnum):
    """Whether an error comes instead of the request or of its reply."""

    BEFORE = "before"
    AFTER = "after"


class Action(StrEnum):
    """What goes wrong.

    ``ERROR`` raises before or after the request.  ``LOST_REPLY`` does the request and
    raises TierUnavailable.  ``SHORT_READ`` breaks the stream of ``open`` by TierUnavailable
    after ``at`` bytes, ``SILENT_SHORT_READ`` ends it there as if that were EOF (no
    conforming tier does).  ``CORRUPT`` flips a bit at byte ``at``: of what ``open`` reads,
    of what ``put`` and ``put_part`` send, or of what ``create`` stores.  ``WRONG_DIGEST`` and
    ``NO_DIGEST`` do a copy, and have the reply attest another digest, or none.
    """

    ERROR = "error"
    LOST_REPLY = "lost-reply"
    SHORT_READ = "short-read"
    SILENT_SHORT_READ = "silent-short-read"
    CORRUPT = "corrupt"
    WRONG_DIGEST = "wrong-digest"
    NO_DIGEST = "no-digest"


def unavailable(tier: str, verb: str, key: str) -> TierError:
    """Return the usual passing failure."""
    return TierUnavailable("a fault was scheduled", tier=tier, operation=verb, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    It fires at the ``nth`` request (from 1) whose verb and key match, and at the
    ``times - 1`` ones after it.  ``verb`` is a verb or ``*``, ``key`` a glob over the whole
    key (the prefix for listings).  ``error`` makes what ``ERROR`` raises from tier name,
    verb and key.
    """

    verb: str
    key: str = "*"
    nth: int = 1
    times: int = 1
    when: When = When.BEFORE
    action: Action = Action.ERROR
    error: Callable[[str, str, str], Exception] = unavailable
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A fault that did happen, and to what."""

    fault: Fault
    verb: str
    key: str


@dataclass(frozen=True, slots=True)
class _TamperedBody:
    """Sends bytes with one bit flipped under the digest of the right ones."""

    body: Body
    at: int
    size: int = field(init=False)
    sha256: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.body.size)
        object.__setattr__(self, "sha256", self.body.sha256)

    def open(self) -> BinaryIO:
        with self.body.open() as reader:
            return io.BytesIO(flip(reader.read(), self.at))


def flip(data: bytes, at: int) -> bytes:
    """Return ``data`` with the lowest bit of byte ``at`` flipped; ValueError where there is no such byte."""
    if not 0 <= at < len(data):
        raise ValueError(f"no byte {at} in {len(data)} to flip")
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class _BreakingStream(io.BytesIO):
    """Gives what it holds and then raises instead of ending."""

    def __init__(self, data: bytes, error: Exception) -> None:
        super().__init__(data)
        self._error = error

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size == 0 or (data and size is not None and size > 0):
            return data
        raise self._error

    def readinto(self, buffer: object, /) -> int:
        count = super().readinto(cast("bytearray", buffer))
        if count == 0:
            raise self._error
        return count


class FaultyTier:
    """``inner``, except for what ``schedule`` says; ``fired`` records what really happened.

    A test asserts on ``fired`` (or calls :meth:`assert_all_fired`): a fault that never
    fired proves nothing.
    """

    def __init__(self, inner: Tier, schedule: Sequence[Fault]) -> None:
        self.inner = inner
        self.schedule = tuple(schedule)
        self.fired: list[Fired] = []
        self._seen = [0] * len(self.schedule)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the tier inside."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the tier inside."""
        return self.inner.capabilities

    def assert_all_fired(self) -> None:
        """Fail where a scheduled fault never happened."""
        missing = [fault for fault in self.schedule if fault not in [fired.fault for fired in self.fired]]
        assert not missing, f"never fired: {missing}"

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Put, unless scheduled otherwise."""
        with self._fault("put", key) as fault:
            return self.inner.put(key, _tampered(body, fault))

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Create, unless scheduled otherwise."""
        with self._fault("create", key) as fault:
            corrupt = fault is not None and fault.action is Action.CORRUPT
            return self.inner.create(key, flip(data, fault.at) if fault is not None and corrupt else data)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open, unless scheduled otherwise."""
        with self._fault("open", key) as fault:
            stream = self.inner.open(key, start, length)
            if fault is None or fault.action not in (Action.SHORT_READ, Action.SILENT_SHORT_READ, Action.CORRUPT):
                return stream
            with stream:
                data = stream.read()
            if fault.action is Action.CORRUPT:
                return io.BytesIO(flip(data, fault.at))
            if fault.action is Action.SILENT_SHORT_READ:
                return io.BytesIO(data[: fault.at])
            return _BreakingStream(data[: fault.at], unavailable(self.name, "open", key))

    def stat(self, key: Key) -> ObjectInfo:
        """Stat, unless scheduled otherwise."""
        with self._fault("stat", key):
            return self.inner.stat(key)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """List, unless scheduled otherwise."""
        with self._fault("list_objects", prefix):
            return self.inner.list_objects(prefix, token)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy, unless scheduled otherwise."""
        with self._fault("copy", key) as fault:
            return _attesting(self.inner.copy(key, source), fault)

    def delete(self, key: Key) -> None:
        """Delete, unless scheduled otherwise."""
        with self._fault("delete", key):
            self.inner.delete(key)

    def close(self) -> None:
        """Close; never faulty."""
        self.inner.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Begin, unless scheduled otherwise."""
        with self._fault("begin_upload", key):
            return self.inner.begin_upload(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Put a part, unless scheduled otherwise."""
        with self._fault("put_part", upload.key) as fault:
            return self.inner.put_part(upload, number, _tampered(body, fault))

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """List parts, unless scheduled otherwise."""
        with self._fault("list_parts", upload.key):
            return self.inner.list_parts(upload, token)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy a part, unless scheduled otherwise."""
        with self._fault("copy_part", upload.key) as fault:
            return _attesting(self.inner.copy_part(upload, number, source, start, length), fault)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Complete, unless scheduled otherwise."""
        with self._fault("complete", upload.key):
            return self.inner.complete(upload, parts)

    def abort(self, upload: Upload) -> None:
        """Abort, unless scheduled otherwise."""
        with self._fault("abort", upload.key):
            self.inner.abort(upload)

    @contextmanager
    def _fault(self, verb: str, key: str) -> Iterator[Fault | None]:
        """Raise before or after the block where scheduled; the fault, if any, for those that bend data."""
        fault = self._next(verb, key)
        if fault is not None and fault.action is Action.ERROR and fault.when is When.BEFORE:
            raise fault.error(self.name, verb, key)
        yield fault
        if fault is None:
            return
        if fault.action is Action.LOST_REPLY:
            raise unavailable(self.name, verb, key)
        if fault.action is Action.ERROR and fault.when is When.AFTER:
            raise fault.error(self.name, verb, key)

    def _next(self, verb: str, key: str) -> Fault | None:
        """Count the request for every fault that it matches; the first that is due fires."""
        with self._lock:
            due: Fault | None = None
            for index, fault in enumerate(self.schedule):
                if fault.verb in ("*", verb) and fnmatchcase(key, fault.key):
                    self._seen[index] += 1
                    if due is None and fault.nth <= self._seen[index] < fault.nth + fault.times:
                        due = fault
            if due is not None:
                self.fired.append(Fired(fault=due, verb=verb, key=key))
            return due


def _tampered(body: Body, fault: Fault | None) -> Body:
    if fault is None or fault.action is not Action.CORRUPT:
        return body
    return _TamperedBody(body, fault.at)


def _attesting(reply: Reply, fault: Fault | None) -> Reply:
    if fault is None or fault.action not in (Action.WRONG_DIGEST, Action.NO_DIGEST):
        return reply
    return replace(reply, sha256="f" * 64 if fault.action is Action.WRONG_DIGEST else None)
