"""The only retry of the project.

It asks the error, not a string: TierUnavailable is tried again, everything else is an
answer.  Two exceptions, each for a reason: ``create`` is never repeated, because a repeat
after a lost reply would lose against itself; and a ``put`` or ``put_part`` whose bytes
arrived damaged is sent once more, because they may have been damaged on the way.

All requests of a tier draw on one budget of retries.  A store that is down, or drowning,
is asked once by each request and not six times.
"""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, TypeVar, cast

from tiers.bodies import Body
from tiers.clock import Clock
from tiers.errors import IntegrityError, TierError, TierUnavailable
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload
from tiers.streams import ReadStream, bytes_of, fill

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How patient a tier is.  Times in seconds.

    The wait before attempt ``n + 1`` is drawn evenly from 0 to ``base * 2**(n - 1)``, at
    most ``cap``, and is never shorter than the store's own ``retry_after``.  No wait ends
    after ``deadline`` has passed since the first attempt.  ``budget`` is how many retries
    all requests together may make in excess of their successes.
    """

    attempts: int = 6
    base: float = 0.5
    cap: float = 30.0
    deadline: float = 300.0
    budget: int = 100

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.base, self.cap, self.deadline, self.budget) < 0:
            raise ValueError(f"not a policy: {self}")


class RetryBudget:
    """A bucket of tokens: a retry takes one, a request that succeeds gives one back.

    While fewer than half of the attempts fail it stays full; when everything fails it is
    soon empty, and each request has one attempt until something succeeds again.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._tokens = capacity
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many retries there may be before something has to succeed."""
        return self._tokens

    def take(self) -> bool:
        """Take a token; False where there is none."""
        with self._lock:
            taken = self._tokens > 0
            self._tokens -= taken
        return taken

    def earn(self) -> None:
        """Give a token back, for a success."""
        with self._lock:
            self._tokens = min(self._capacity, self._tokens + 1)


class _Patience:
    """What is left of one request's attempts and time."""

    def __init__(
        self,
        policy: RetryPolicy,
        clock: Clock,
        draw: Callable[[], float],
        stop: threading.Event,
        budget: RetryBudget,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._draw = draw
        self._stop = stop
        self._budget = budget
        self._start()

    def succeeded(self) -> None:
        """Earn a retry, and start counting anew."""
        self._budget.earn()
        self._start()

    def progressed(self) -> None:
        """Start counting anew; earn where this is the first progress after a failure."""
        if self._failures:
            self._budget.earn()
        self._start()

    def _start(self) -> None:
        self._failures = 0
        self._began = self._clock.monotonic()

    def wait_or_raise(self, error: TierUnavailable) -> None:
        """Wait before the next attempt, or raise ``error`` where there is to be none."""
        self._failures += 1
        if self._failures >= self._policy.attempts or self._stop.is_set():
            raise error
        delay = self._draw() * min(self._policy.cap, self._policy.base * 2.0 ** (self._failures - 1))
        delay = max(delay, error.retry_after or 0.0)
        if self._clock.monotonic() + delay - self._began > self._policy.deadline or not self._budget.take():
            raise error
        if self._clock.wait(delay, self._stop):
            raise error


class RetryingTier:
    """``inner``, with patience.

    ``draw`` returns numbers from 0 to 1 (excluded); ``stop`` ends waiting at once, and the
    request with the error that it last had.
    """

    def __init__(
        self,
        inner: Tier,
        clock: Clock,
        policy: RetryPolicy,
        *,
        draw: Callable[[], float] = random.random,
        stop: threading.Event | None = None,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._policy = policy
        self._draw = draw
        self._stop = stop if stop is not None else threading.Event()
        self._budget = RetryBudget(policy.budget)

    @property
    def name(self) -> str:
        """The name of the tier inside."""
        return self._inner.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the tier inside."""
        return self._inner.capabilities

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Put; damaged in transit is sent once more."""
        return self._resend(lambda: self._inner.put(key, body))

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Create, once: the caller reads the key to learn what a failure meant."""
        return self._inner.create(key, data)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a stream that goes on where a broken one stopped."""
        stream = self._retry(lambda: self._inner.open(key, start, length))

        def reopen(position: int) -> BinaryIO:
            return self._inner.open(key, start + position, None if length is None else length - position)

        return cast("BinaryIO", _ResumingStream(stream, reopen, length, self._patience()))

    def stat(self, key: Key) -> ObjectInfo:
        """Stat."""
        return self._retry(lambda: self._inner.stat(key))

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """List."""
        return self._retry(lambda: self._inner.list_objects(prefix, token))

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy inside the store."""
        return self._retry(lambda: self._inner.copy(key, source))

    def delete(self, key: Key) -> None:
        """Delete."""
        self._retry(lambda: self._inner.delete(key))

    def close(self) -> None:
        """Close."""
        self._inner.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Begin; a lost reply leaves an upload that nobody knows, for orphan collection to find."""
        return self._retry(lambda: self._inner.begin_upload(key, size=size, part_size=part_size))

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Put a part; damaged in transit is sent once more."""
        return self._resend(lambda: self._inner.put_part(upload, number, body))

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """List parts."""
        return self._retry(lambda: self._inner.list_parts(upload, token))

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy a part."""
        return self._retry(lambda: self._inner.copy_part(upload, number, source, start, length))

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Complete; ObjectNotFound may mean that an attempt whose reply was lost succeeded: stat the key."""
        return self._retry(lambda: self._inner.complete(upload, parts))

    def abort(self, upload: Upload) -> None:
        """Abort."""
        self._retry(lambda: self._inner.abort(upload))

    def _patience(self) -> _Patience:
        return _Patience(self._policy, self._clock, self._draw, self._stop, self._budget)

    def _retry(self, act: Callable[[], Result]) -> Result:
        patience = self._patience()
        while True:
            try:
                result = act()
            except TierUnavailable as error:
                patience.wait_or_raise(error)
            else:
                patience.succeeded()
                return result

    def _resend(self, act: Callable[[], Result]) -> Result:
        try:
            return self._retry(act)
        except IntegrityError:
            return self._retry(act)


class _ResumingStream(ReadStream):
    """A stream that is opened again at the byte it had reached.

    ``length`` is what was asked for, None meaning to the end.  Progress renews the
    patience: a large object over a bad line may break many times.
    """

    def __init__(
        self, stream: BinaryIO, reopen: Callable[[int], BinaryIO], length: int | None, patience: _Patience
    ) -> None:
        super().__init__()
        self._stream: BinaryIO | None = stream
        self._reopen = reopen
        self._length = length
        self._patience = patience
        self._position = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, empty only at the end; all that is left where it is None or negative."""
        if size is None or size < 0:
            return self.readall()
        if size == 0 or self._position == self._length:
            return b""
        data = self._resumed(lambda stream: stream.read(size))
        self._advanced(len(data))
        return data

    def readinto(self, buffer: object, /) -> int:
        view = bytes_of(buffer)
        if not view or self._position == self._length:
            return 0
        count = self._resumed(lambda stream: fill(stream, view))
        self._advanced(count)
        return count

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()

    def _resumed(self, step: Callable[[BinaryIO], Result]) -> Result:
        while True:
            try:
                return step(self._current())
            except TierUnavailable as error:
                self._drop()
                self._patience.wait_or_raise(error)

    def _advanced(self, count: int) -> None:
        if count:
            self._position += count
            self._patience.progressed()

    def _current(self) -> BinaryIO:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._stream is None:
            self._stream = self._reopen(self._position)
        return self._stream

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(TierError, OSError):  # its bytes were handed out or will be asked for again
                stream.close()
