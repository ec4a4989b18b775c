"""What goes to an S3 store and what comes back, each watched."""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any, BinaryIO, Protocol, cast

from tiers.bodies import Body
from tiers.errors import IntegrityError, TierError, TierUnavailable
from tiers.failures import Where
from tiers.pacing import on_the_way
from tiers.s3_errors import SDK_FAILURES
from tiers.s3_watchdog import STEP, Limits, Phase, Transfer, Watchdog, current_transfer
from tiers.streams import ReadStream, bytes_of, fill

SKIP_CHUNK = 1 << 20
_MISBEHAVES = "the store is misbehaving: check profile and endpoint_url"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class SentBody:
    """A local body on its way out; remembers a failure to read it.

    The SDK reports whatever goes wrong while it sends as a failed connection, which would
    be retried for ever: ``failure`` tells a broken local file from a broken network.  What
    is read is told to the request that it is for; the time that reading takes is ours.
    """

    def __init__(self, reader: BinaryIO, size: int, where: Where, *, sha256: str | None = None) -> None:
        self._reader = reader
        self._size = size
        self._where = where
        self.sha256 = sha256
        self._position = 0
        self.failure: Exception | None = None

    def __len__(self) -> int:
        """Size in bytes, so that the SDK need not seek to learn it."""
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Read at most the bytes that were declared; an early end is an error, not EOF."""
        left = self._size - self._position
        wanted = left if size < 0 else min(size, left)
        if wanted == 0:
            return b""
        transfer = current_transfer()
        try:
            with transfer.held() if transfer is not None else nullcontext():
                data = self._reader.read(wanted)
        except (OSError, TierError) as error:
            self.failure = error
            raise
        if transfer is not None:
            transfer.moved(len(data))
        self._advance(len(data))
        return data

    def readinto(self, view: memoryview, /) -> int:
        """Fill the start of ``view``, as :meth:`read` does; what is then sent of it is for the sender to count."""
        left = self._size - self._position
        if left == 0:
            return 0
        transfer = current_transfer()
        try:
            with transfer.held() if transfer is not None else nullcontext():
                count = fill(self._reader, view[:left])
        except (OSError, TierError) as error:
            self.failure = error
            raise
        self._advance(count)
        return count

    def tell(self) -> int:
        """Position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; the SDK rewinds after it hashed a body for its signature."""
        self._position = self._reader.seek(offset, whence)
        return self._position

    def _advance(self, count: int) -> None:
        if not count:
            message = f"the body ended after {self._position} of {self._size} bytes"
            self.failure = IntegrityError(message, **self._where.fields())
            raise self.failure
        self._position += count


class DigestedBody:
    """A body whose SHA-256 had to be computed by reading it once more."""

    def __init__(self, body: Body) -> None:
        self._body = body
        with body.open() as reader, on_the_way(sending=False):
            self.sha256: str | None = hashlib.file_digest(cast("Any", reader), "sha256").hexdigest()

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._body.size

    def open(self) -> BinaryIO:
        """Return a new reader."""
        return self._body.open()


class Answer(Protocol):
    """The part of botocore's StreamingBody that is used."""

    def read(self, amt: int | None = None) -> bytes:
        """Read at most ``amt`` bytes."""
        ...

    def readinto(self, view: memoryview, /) -> int:
        """Fill the start of ``view``."""
        ...

    def close(self) -> None:
        """Close the connection if it is not drained."""
        ...


class WatchedRead:
    """Reads pieces of an answer, each watched."""

    def __init__(self, watchdog: Watchdog, transfer: Transfer, limits: Limits) -> None:
        self._watchdog = watchdog
        self._transfer = transfer
        self._limits = limits

    @property
    def verdict(self) -> str:
        """Why the request was ended; empty where it was not."""
        return self._transfer.verdict

    def read(self, answer: Answer, size: int) -> bytes:
        """Read at most ``size`` bytes."""
        with self._watchdog.watching(self._transfer, self._limits):
            self._transfer.enter(Phase.RECEIVING)
            try:
                data = answer.read(size)
                self._transfer.moved(len(data))
            finally:
                self._transfer.rest()
        return data

    def readinto(self, answer: Answer, view: memoryview) -> int:
        """Fill ``view`` in steps; less is the end of what came."""
        done = 0
        with self._watchdog.watching(self._transfer, self._limits):
            self._transfer.enter(Phase.RECEIVING)
            try:
                while done < len(view) and (count := answer.readinto(view[done : done + STEP])):
                    done += count
                    self._transfer.moved(count)
            finally:
                self._transfer.rest()
        return done


class ObjectStream(ReadStream):
    """Exactly ``length`` bytes of an answer after ``skip``; ending early is TierUnavailable."""

    def __init__(
        self, answer: Answer, *, skip: int, length: int, where: Where, watched: WatchedRead | None = None
    ) -> None:
        super().__init__()
        self._answer = answer
        self._watched = watched
        self._skip = skip
        self._left = length
        self._where = where

    def read(self, size: int | None = -1) -> bytes:
        """Read up to ``size`` bytes, or all that are left."""
        if self._skip:
            self._skip_start()
        if size is None or size < 0:
            return self.readall()
        return self._take(min(self._left, size))

    def readinto(self, buffer: object, /) -> int:
        """Fill the start of ``buffer``, without a copy where the way does without."""
        if self._skip:
            self._skip_start()
        view = bytes_of(buffer)[: self._left]
        if not view:
            return 0
        with self._told():
            watched = self._watched
            count = self._answer.readinto(view) if watched is None else watched.readinto(self._answer, view)
        self._advance(count)
        self._left -= count
        return count

    def close(self) -> None:
        """Release the connection."""
        if not self.closed:
            self._answer.close()
        super().close()

    def _skip_start(self) -> None:
        while self._skip:
            self._skip -= len(self._receive(min(self._skip, SKIP_CHUNK)))

    def _take(self, size: int) -> bytes:
        if size == 0:
            return b""
        data = self._receive(size)
        self._left -= len(data)
        return data

    def _receive(self, size: int) -> bytes:
        read = self._answer.read if self._watched is None else partial(self._watched.read, self._answer)
        with self._told():
            data = read(min(size, STEP))
        self._advance(len(data))
        return data

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (*SDK_FAILURES, AttributeError) as error:  # the SDK's own handlers trip over fields that are not set
            why = self._watched.verdict if self._watched is not None else ""
            message = f"the connection broke with {self._left} bytes to come ({why or type(error).__name__})"
            raise TierUnavailable(message, **self._where.fields()) from error

    def _advance(self, count: int) -> None:
        if not count:
            raise TierUnavailable(f"the answer ended with {self._left} bytes to come", **self._where.fields())


def range_header(start: int, length: int | None) -> str | None:
    """Return the Range header for a range that is not empty, or None for a whole object."""
    if length is None:
        return f"bytes={start}-" if start else None
    return f"bytes={start}-{start + length - 1}"


def object_stream(
    response: Mapping[str, Any], start: int, length: int | None, where: Where, watched: WatchedRead | None = None
) -> ObjectStream:
    """Return a stream over the range that was asked for, whatever the store made of the request.

    A store may answer a range with 206, with 200 and the whole object, or (rclone) with
    200 and the range: what the answer holds is read from Content-Range, which a 206 must
    have.  IntegrityError, with the connection released, where it is less than was asked.
    """
    answer: Answer = response["Body"]
    size = int(response["ContentLength"])
    found = _CONTENT_RANGE.fullmatch(response.get("ContentRange", ""))
    if found is None and response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.PARTIAL_CONTENT:
        answer.close()
        raise IntegrityError("a part of the object came, and not which", **where.fields(), hint=_MISBEHAVES)
    first, total = (int(found[1]), found[3]) if found else (0, str(size))
    end = first + size
    wanted_end = start + length if length is not None else int(total) if total.isdecimal() else end
    if first > start or end < wanted_end or wanted_end < start or (start and start == wanted_end):
        answer.close()
        message = f"the store has bytes {first} to {end} of {total}, wanted were {start} to {wanted_end}"
        raise IntegrityError(message, **where.fields(), hint="the object is shorter than recorded: verify this tier")
    return ObjectStream(answer, skip=start - first, length=wanted_end - start, where=where, watched=watched)
