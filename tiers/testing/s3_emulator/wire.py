"""HTTP/1.1 as it comes over a connection: heads of requests, and bodies in pieces."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

LONGEST_LINE = 1 << 16
MOST_HEADERS = 200
PIECE = 1 << 18


class CutError(Exception):
    """The connection has to go; ``reset`` for rudely."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


class NotHttpError(Exception):
    """What came is no request."""


class Breaker(Protocol):
    """What happens in the middle of a body."""

    def in_body(self) -> bool:
        """Act; return whether the next byte is to be flipped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request without its body; ``target`` as it came, header names in lower case, repeated ones joined."""

    method: str
    target: str
    headers: Mapping[str, str]
    keep_alive: bool

    @property
    def length(self) -> int | None:
        """The declared length of the body; None where it comes in chunks."""
        if self.headers.get("transfer-encoding", "identity").lower() != "identity":
            return None
        return int(self.headers.get("content-length", "0"))


def read_head(source: BinaryIO) -> Head | None:
    """Read a head; None where the client hung up first, NotHttpError where it is none."""
    line = source.readline(LONGEST_LINE)
    if not line:
        return None
    words = line.decode("latin-1").split()
    if len(words) != 3 or words[2] not in {"HTTP/1.0", "HTTP/1.1"}:  # noqa: PLR2004 - method, target, version
        raise NotHttpError(repr(line[:80]))
    headers: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        line = source.readline(LONGEST_LINE).rstrip(b"\r\n")
        if not line:
            break
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise NotHttpError(repr(line[:80]))
        key = name.lower()
        headers[key] = f"{headers[key]},{value.strip()}" if key in headers else value.strip()
    else:
        raise NotHttpError("too many headers")
    if not headers.get("content-length", "0").isdecimal():
        raise NotHttpError("Content-Length is no number")
    keep_alive = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Head(method=words[0], target=words[1], headers=headers, keep_alive=keep_alive)


class WireBody(io.RawIOBase):
    """The body of a request, however it is framed; an early end raises CutError.

    The client is told to go on (``Expect: 100-continue``) when somebody first reads.
    ``received`` counts bytes of the body; ``breaker`` is struck once, in its middle.
    """

    def __init__(self, source: BinaryIO, head: Head, go_on: Callable[[], None], breaker: Breaker | None) -> None:
        super().__init__()
        self._source = source
        self._left = head.length
        self._chunk = 0
        self._waits = head.headers.get("expect", "").lower() == "100-continue"
        self._go_on = go_on
        self._breaker = breaker
        whole = head.length if head.length is not None else int(head.headers.get("x-amz-decoded-content-length", "0"))
        self._middle = whole // 2
        self._chunked = head.length is None
        self._buffer = bytearray(PIECE if head.length != 0 else 0)
        self.received = 0

    @property
    def waits(self) -> bool:
        """Whether the client has not been told to go on."""
        return self._waits

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "memoryview[int] | bytearray", /) -> int:  # type: ignore[override]
        """Fill the start of ``buffer``; 0 at the end of the body."""
        available = self._available()
        if available == 0:
            return 0
        view = memoryview(buffer).cast("B")
        size = min(len(view), available)
        flip = False
        if self._breaker is not None:
            if self.received < self._middle:
                size = min(size, self._middle - self.received)
            else:
                breaker, self._breaker = self._breaker, None
                flip = breaker.in_body()
        count = self._receive(view[:size])
        if flip:
            view[0] ^= 1
        return count

    def take(self) -> bytes:
        """Return a piece of the body; empty at its end."""
        count = self.readinto(self._buffer)
        return bytes(memoryview(self._buffer)[:count])

    def drain(self) -> None:
        """Read to the end."""
        while self.readinto(self._buffer):
            continue

    def _available(self) -> int:
        if self._waits and self._left != 0:
            self._waits = False
            self._go_on()
        if self._chunked and self._left is None and self._chunk == 0:
            self._chunk = self._next_chunk()
            if self._chunk == 0:
                self._left = 0
        return self._chunk if self._left is None else self._left

    def _receive(self, view: "memoryview[int]") -> int:
        count = self._source.readinto1(view)  # type: ignore[attr-defined]  # it is a BufferedReader
        if not count:
            raise CutError(reset=True)
        self.received += count
        if self._left is None:
            self._chunk -= count
            if self._chunk == 0:
                self._source.readline(LONGEST_LINE)
        else:
            self._left -= count
        return int(count)

    def _next_chunk(self) -> int:
        line = self._source.readline(LONGEST_LINE)
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise CutError(reset=False) from None
        while size == 0 and self._source.readline(LONGEST_LINE).strip():
            continue
        return size
