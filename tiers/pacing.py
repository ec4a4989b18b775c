"""How fast and how wide a tier is used: a bandwidth for each direction, and a gate that narrows when asked to.

Both are shared by every thread that uses the tier.  Waiting ends when the stop event is
set.  :class:`PacedTier` sits below the retry, so that no slot is held while a retry
waits, and above the meter, so that it sees what each attempt came to.
"""

import io
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import BinaryIO, cast

from tiers.bandwidth import Bandwidth
from tiers.bodies import Body
from tiers.clock import Clock
from tiers.errors import TierUnavailable
from tiers.gate import Gate
from tiers.knee import FEW
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload
from tiers.streams import ReadStream, bytes_of, fill
from tiers.timetable import Timetable

_on_the_way: ContextVar[bool] = ContextVar("tiers.pacing.on_the_way", default=True)


class on_the_way:  # noqa: N801 - a `with` of it reads like the function that it could be, at a third of the time
    """Say whether bodies that this thread reads are being sent, or only looked at (to sign or digest them)."""

    __slots__ = ("_sending", "_token")

    def __init__(self, sending: bool) -> None:  # noqa: FBT001 - the one thing it says
        self._sending = sending

    def __enter__(self) -> None:
        self._token = _on_the_way.set(self._sending)

    def __exit__(self, *_raised: object) -> None:
        _on_the_way.reset(self._token)


class PacedTier:
    """``inner``, within a bandwidth in bytes a second for each direction, and no more data requests than it can bear.

    ``leave`` is asked before each piece besides, and waits by itself: the process's share of the CPU.
    ``connections`` is the most of them at once, ``first`` what it begins with.  Data requests are those with a body:
    ``put``, ``put_part``, and each read of an open stream.  The others pass at once, but
    what is said of them narrows the gate too.
    """

    def __init__(
        self,
        inner: Tier,
        clock: Clock,
        *,
        connections: int,
        first: int = FEW,
        bandwidth: int | Timetable | None = None,
        leave: Callable[[], bool] | None = None,
        stop: threading.Event,
    ) -> None:
        self._inner = inner
        self._stop = stop
        self.gate = Gate(inner.name, connections, stop, clock, first=first)
        limited = bandwidth is not None or leave is not None
        self._up = Bandwidth(bandwidth, clock, stop, leave) if limited else None
        self._down = Bandwidth(bandwidth, clock, stop, leave) if limited else None

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
        with self.gate.slot("put", key), self.gate.judged(), self.gate.carrying(body.size):
            return self._inner.put(key, self._paced(body, "put", key))

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Create; its few bytes are paid for and wait for no slot."""
        with self.gate.judged():
            _pay(self._up, len(data), self.name, "create", key)
            return self._inner.create(key, data)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open; every read of the stream takes a slot and pays for its bytes."""
        with self.gate.slot("open", key), self.gate.judged():
            stream = self._inner.open(key, start, length)
        return cast("BinaryIO", _PacedStream(stream, self.gate, self._down, self.name, key))

    def stat(self, key: Key) -> ObjectInfo:
        """Stat."""
        with self.gate.judged():
            return self._inner.stat(key)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """List."""
        with self.gate.judged():
            return self._inner.list_objects(prefix, token)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy inside the store; no bytes pass through here."""
        with self.gate.judged():
            return self._inner.copy(key, source)

    def delete(self, key: Key) -> None:
        """Delete."""
        with self.gate.judged():
            self._inner.delete(key)

    def close(self) -> None:
        """Close."""
        self._inner.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Begin an upload."""
        with self.gate.judged():
            return self._inner.begin_upload(key, size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Put a part."""
        with self.gate.slot("put_part", upload.key), self.gate.judged(), self.gate.carrying(body.size):
            return self._inner.put_part(upload, number, self._paced(body, "put_part", upload.key))

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """List parts."""
        with self.gate.judged():
            return self._inner.list_parts(upload, token)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy a part inside the store."""
        with self.gate.judged():
            return self._inner.copy_part(upload, number, source, start, length)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Complete."""
        with self.gate.judged():
            return self._inner.complete(upload, parts)

    def abort(self, upload: Upload) -> None:
        """Abort."""
        with self.gate.judged():
            self._inner.abort(upload)

    def _paced(self, body: Body, operation: str, key: str) -> Body:
        return body if self._up is None else _PacedBody(body, self._up, self.name, operation, key)


def _pay(bandwidth: Bandwidth | None, count: int, tier: str, operation: str, key: str) -> None:
    if bandwidth is not None and not bandwidth.take(count):
        raise TierUnavailable("stopped", tier=tier, operation=operation, key=key)


class _PacedBody:
    """A body whose readers pay for what they hand out while it is on the way."""

    def __init__(self, body: Body, bandwidth: Bandwidth, tier: str, operation: str, key: str) -> None:
        self._body = body
        self._bandwidth = bandwidth
        self._about = (tier, operation, key)

    @property
    def size(self) -> int:
        return self._body.size

    @property
    def sha256(self) -> str | None:
        return self._body.sha256

    def open(self) -> BinaryIO:
        return cast("BinaryIO", _PacedReader(self._body.open(), self._bandwidth, self._about))


class _PacedReader(io.RawIOBase):
    """A seekable reader in pieces, each paid for before it is handed out."""

    def __init__(self, reader: BinaryIO, bandwidth: Bandwidth, about: tuple[str, str, str]) -> None:
        super().__init__()
        self._reader = reader
        self._bandwidth = bandwidth
        self._about = about

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def readinto(self, buffer: object, /) -> int:
        view = bytes_of(buffer)
        sending = _on_the_way.get()
        count = fill(self._reader, view[: self._bandwidth.piece] if sending else view)
        if sending and count:
            _pay(self._bandwidth, count, *self._about)
        return count

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()


class _PacedStream(ReadStream):
    """A stream whose reads take a slot, and whose bytes are paid for before they are handed out."""

    def __init__(self, stream: BinaryIO, gate: Gate, bandwidth: Bandwidth | None, tier: str, key: str) -> None:
        super().__init__()
        self._stream = stream
        self._gate = gate
        self._bandwidth = bandwidth
        self._tier = tier
        self._key = key

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        wanted = size if self._bandwidth is None else min(size, self._bandwidth.piece)
        with self._gate.slot("open", self._key), self._gate.judged():
            began = self._gate.now()
            data = self._stream.read(wanted)
            self._gate.carried(len(data), began)
        _pay(self._bandwidth, len(data), self._tier, "open", self._key)
        return data

    def readinto(self, buffer: object, /) -> int:
        view = bytes_of(buffer)
        if self._bandwidth is not None:
            view = view[: self._bandwidth.piece]
        with self._gate.slot("open", self._key), self._gate.judged():
            began = self._gate.now()
            count = fill(self._stream, view)
            self._gate.carried(count, began)
        _pay(self._bandwidth, count, self._tier, "open", self._key)
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
