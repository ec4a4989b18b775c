"""What comes back from the Hub and its storage: exactly the bytes that were asked for, or an error."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import BinaryIO, cast

from tiers.errors import IntegrityError, TierUnavailable
from tiers.failures import Where
from tiers.hub_errors import of_exception
from tiers.hub_repo import Opened
from tiers.hub_sdk import LIBRARY_ERRORS, httpx2
from tiers.streams import ReadStream

_BROKEN: tuple[type[Exception], ...] = (*LIBRARY_ERRORS, OSError)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_MISBEHAVES = "the Hub, or a proxy in between, is misbehaving: check endpoint_url"
_SHORTER = "the object is shorter than recorded: verify this tier"


def range_header(start: int, length: int | None) -> dict[str, str]:
    """Return the header for a range that is not empty; none for a whole object."""
    if length is None:
        return {"Range": f"bytes={start}-"} if start else {}
    return {"Range": f"bytes={start}-{start + length - 1}"}


def stream_of(opened: Opened, start: int, length: int | None, where: Where) -> BinaryIO:
    """Return a stream over the range that was asked for.

    IntegrityError, with the connection released, where the answer holds less, or where the
    storage has another size than the Hub says: an upload that was cut short looks like that.
    """
    try:
        skip, left = _judge(opened, start, length, where)
    except BaseException:
        opened.response.close()
        raise
    return cast("BinaryIO", HubStream(opened.response, skip=skip, left=left, where=where))


def _judge(opened: Opened, start: int, length: int | None, where: Where) -> tuple[int, int | None]:
    """Return how many bytes to skip, and how many follow (None: to the end of the answer)."""
    headers, status = opened.response.headers, opened.response.status_code
    if headers.get("content-encoding", "identity") != "identity":
        raise TierUnavailable("the object came compressed", **where.fields(), hint=_MISBEHAVES)
    found = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if found is None and status == HTTPStatus.PARTIAL_CONTENT:
        raise IntegrityError("a part of the object came, and not which", **where.fields(), hint=_MISBEHAVES)
    sent = headers.get("content-length", "")
    size = int(sent) if sent.isdecimal() and sent.isascii() else None
    first = int(found[1]) if found else 0
    total = int(found[3]) if found and found[3].isdecimal() else None if found else size
    _compare_sizes(total, opened.linked_size, where)
    total = total if total is not None else opened.linked_size
    end = int(found[2]) + 1 if found else total
    wanted = start + length if length is not None else total
    if wanted is None or end is None:
        return start - first, length
    if first > start or end < wanted or wanted < start or (start and start == wanted):
        message = f"the Hub has bytes {first} to {end} of {total}, wanted were {start} to {wanted}"
        raise IntegrityError(message, **where.fields(), hint=_SHORTER)
    return start - first, wanted - start


def _compare_sizes(stored: int | None, linked: int | None, where: Where) -> None:
    if stored is not None and linked is not None and stored != linked:
        message = f"the Hub says {linked} bytes, its storage has {stored}"
        raise IntegrityError(message, **where.fields(), hint="the object was never whole: do not use it")


class HubStream(ReadStream):
    """``left`` bytes of an answer after ``skip``; ending early is TierUnavailable, and what is too much is not read."""

    def __init__(self, response: httpx2.Response, *, skip: int, left: int | None, where: Where) -> None:
        super().__init__()
        self._response = response
        self._pieces: Iterator[bytes] = response.iter_raw()
        self._rest = memoryview(b"")
        self._skip = skip
        self._left = left
        self._where = where

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, or all that are left."""
        if size is None or size < 0:
            return self.readall()
        return self._take(size)

    def close(self) -> None:
        """Release the connection."""
        if not self.closed:
            self._response.close()
        super().close()

    def _take(self, size: int) -> bytes:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        while self._skip:
            self._skip -= len(self._more(self._skip))
        wanted = size if self._left is None else min(size, self._left)
        data = self._more(wanted) if wanted else b""
        if self._left is not None:
            self._left -= len(data)
        return bytes(data)

    def _more(self, size: int) -> "memoryview[int] | bytes":
        """Return at least one byte and at most ``size``; nothing only where the end is nowhere promised."""
        while not self._rest:
            piece = self._piece()
            if piece is None:
                if self._left is None and not self._skip:
                    return b""
                raise self._broken(f"the answer ended with {self._left} bytes to come")
            self._rest = memoryview(piece)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _piece(self) -> bytes | None:
        failure: TierUnavailable
        try:
            return next(self._pieces, None)
        except _BROKEN as error:
            failure = self._broken(f"the connection broke with {self._left} bytes to come ({of_exception(error)})")
        raise failure

    def _broken(self, message: str) -> TierUnavailable:
        return TierUnavailable(message, **self._where.fields())
