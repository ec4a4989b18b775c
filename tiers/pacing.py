"""How fast and how wide a tier is used: a bandwidth for each direction, and a gate that narrows when asked to.

Both are shared by every thread that uses the tier.  Waiting ends when the stop event is
set.  :class:`PacedTier` sits below the retry, so that no slot is held while a retry
waits, and above the meter, so that it sees what each attempt came to.
"""

import io
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import BinaryIO, TypeVar, cast

from tiers.bodies import Body
from tiers.clock import Clock
from tiers.errors import TierUnavailable
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload
from tiers.streams import ReadStream

_log = logging.getLogger(__name__)

BURST_BYTES = 256 * 1024
BURST_SECONDS = 0.05
"""What may pass at once after a pause: as much as the rate brings in this time, and never more than those bytes."""
SUCCESSES_TO_WIDEN = 4
"""For each request that may be out at once, how many successes in a row let one more out."""
STOP_POLL = 0.25
"""Seconds between looks at the stop event while a thread waits for a slot."""

Result = TypeVar("Result")

_on_the_way: ContextVar[bool] = ContextVar("tiers.pacing.on_the_way", default=True)


@contextmanager
def on_the_way(sending: bool) -> Iterator[None]:  # noqa: FBT001 - the one thing it says
    """Say whether bodies that this thread reads are being sent, or only looked at (to sign or digest them)."""
    token = _on_the_way.set(sending)
    try:
        yield
    finally:
        _on_the_way.reset(token)


class Bandwidth:
    """At most ``rate`` bytes a second, smoothly; one for each direction of a tier.

    A schedule rather than a pot: each taker is told when its bytes are due, in the order
    of asking, so that threads share the rate and cannot starve each other.
    """

    def __init__(self, rate: int, clock: Clock, stop: threading.Event) -> None:
        if rate < 1:
            raise ValueError(f"not a rate: {rate} bytes a second")
        self.piece = max(1, min(BURST_BYTES, int(rate * BURST_SECONDS)))
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._due = clock.monotonic()

    def take(self, count: int) -> bool:
        """Wait until ``count`` bytes may have passed; False where the stop event ended it."""
        with self._lock:
            now = self._clock.monotonic()
            # What was not used is not saved, but for one piece: no burst after a pause.
            self._due = max(self._due, now - self.piece / self._rate) + count / self._rate
            delay = self._due - now
        return not (delay > 0 and self._clock.wait(delay, self._stop))


class KeySpacing:
    """Keeps writes of one key apart by ``interval`` seconds, for stores that refuse them otherwise; 0 for no such."""

    def __init__(self, interval: float, clock: Clock) -> None:
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}

    def wait(self, key: str) -> None:
        """Wait for the turn of a write to ``key``."""
        if not self._interval:
            return
        with self._lock:
            now = self._clock.monotonic()
            self._due = {known: due for known, due in self._due.items() if due > now}
            turn = self._due.get(key, now)
            self._due[key] = turn + self._interval
        if turn > now:
            self._clock.wait(turn - now)


class Gate:
    """How many requests may be out at once: halved where the store asks to slow down, widened slowly.

    ``ceiling`` is where it starts and ends.  A burst of refusals halves it once: those of
    requests that began before it was last narrowed say nothing new.  A thread that is
    inside already may enter again, so that reading a body from the same tier cannot
    wait for itself.
    """

    def __init__(self, name: str, ceiling: int, stop: threading.Event) -> None:
        self._name = name
        self._ceiling = ceiling
        self._stop = stop
        self._changed = threading.Condition()
        self._width = ceiling
        self._inside = 0
        self._successes = 0
        self._epoch = 0
        self._held = threading.local()

    @property
    def width(self) -> int:
        """How many requests may be out at once now."""
        return self._width

    @contextmanager
    def slot(self, operation: str, key: str) -> Iterator[None]:
        """Hold one of the slots; raises TierUnavailable where the stop event is set while it is waited for."""
        if getattr(self._held, "one", False):
            yield
            return
        self._enter(operation, key)
        self._held.one = True
        try:
            yield
        finally:
            self._held.one = False
            with self._changed:
                self._inside -= 1
                self._changed.notify()

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Learn from what a request comes to."""
        epoch = self._epoch
        try:
            yield
        except TierUnavailable as error:
            if error.throttled:
                self._narrow(epoch)
            raise
        self._widen()

    def _enter(self, operation: str, key: str) -> None:
        with self._changed:
            while self._inside >= self._width:
                if self._stop.is_set():
                    raise TierUnavailable("stopped", tier=self._name, operation=operation, key=key)
                self._changed.wait(STOP_POLL)
            self._inside += 1

    def _narrow(self, epoch: int) -> None:
        with self._changed:
            self._successes = 0
            if epoch != self._epoch:
                return
            self._epoch += 1
            self._width = max(1, self._width // 2)
        _log.warning(
            "%s: the store asks to slow down: %d of %d requests at once", self._name, self._width, self._ceiling
        )

    def _widen(self) -> None:
        if self._width == self._ceiling:
            return
        with self._changed:
            self._successes += 1
            if self._width < self._ceiling and self._successes >= SUCCESSES_TO_WIDEN * self._width:
                self._successes = 0
                self._width += 1
                self._changed.notify()


class PacedTier:
    """``inner``, within a bandwidth in bytes a second for each direction, and no more data requests than it can bear.

    ``connections`` is the most of them at once.  Data requests are those with a body:
    ``put``, ``put_part``, and each read of an open stream.  The others pass at once, but
    what is said of them narrows the gate too.
    """

    def __init__(
        self, inner: Tier, clock: Clock, *, connections: int, bandwidth: int | None = None, stop: threading.Event
    ) -> None:
        self._inner = inner
        self._stop = stop
        self.gate = Gate(inner.name, connections, stop)
        self._up = Bandwidth(bandwidth, clock, stop) if bandwidth is not None else None
        self._down = Bandwidth(bandwidth, clock, stop) if bandwidth is not None else None

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
        with self.gate.slot("put", key), self.gate.judged():
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
        with self.gate.slot("put_part", upload.key), self.gate.judged():
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
        view = memoryview(cast("bytearray", buffer)).cast("B")
        sending = _on_the_way.get()
        data = self._reader.read(min(len(view), self._bandwidth.piece) if sending else len(view))
        if sending and data:
            _pay(self._bandwidth, len(data), *self._about)
        view[: len(data)] = data
        return len(data)

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
            data = self._stream.read(wanted)
        _pay(self._bandwidth, len(data), self._tier, "open", self._key)
        return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
