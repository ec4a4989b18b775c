"""One request and its answer on a connection of the SDK's pool.

A body goes out from one buffer a thread, the head in front of its first bytes; what comes
in goes to whoever reads it.  There is no "100 Continue": before each further piece the
connection is looked at, and an answer that is already there ends the sending.  A
connection goes back to the pool only after a whole request and a whole answer to it.
"""

import threading
from collections.abc import Iterator
from ssl import SSLEOFError, SSLWantReadError, SSLZeroReturnError
from typing import Any, Protocol

from tiers.pacing import on_the_way
from tiers.s3_answers import MAX_DOCUMENT
from tiers.s3_direct.heads import END, MAX_HEAD, MAX_INTERIM, BadHead, Head, parse_head
from tiers.s3_errors import NOT_S3, DubiousAnswer
from tiers.s3_watchdog import Phase, Transfer, current_transfer

BUFFER = 1 << 20
"""Bytes of a thread's buffer: pieces of a MiB cost least on loopback, and stay in the processor's cache."""
_PIECE = 16 << 10
"""Bytes that are asked for at once while a head or a document is read."""
_MAX_CHUNK_LINE = 1 << 10
_GONE = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, SSLEOFError, SSLZeroReturnError)

_own = threading.local()


class Reader(Protocol):
    """A body on its way out.  An early end is an error that it raises itself."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the start of ``buffer``."""
        ...


class Exchange:
    """A connection that serves one request.

    It has to end in :meth:`release` or :meth:`drop`; a whole answer does so by itself.
    ``pool`` is urllib3's, as :func:`tiers.s3_wire.pool_for` gives it.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._transfer = current_transfer()
        self._unsent = False
        self._kept = b""
        self._left = 0
        self._keeps = False
        self._connection: Any = pool._get_conn()  # noqa: SLF001 - one that the store closed meanwhile is left out
        try:
            if self._connection.sock is None:
                self._connection.timeout = pool.timeout.connect_timeout
                self._connection.connect()
        except BaseException:
            self.drop()
            raise
        self._sock: Any = self._connection.sock

    def ask(self, head: bytes, body: Reader | None, size: int) -> Head:
        """Send a request with ``size`` bytes of a body, and return the head of the answer.

        The body of the answer is then to be had once, by :meth:`document` or :meth:`read_into`.
        """
        try:
            self._enter(Phase.SENDING)
            # One for both directions, as a last resort: what may take how long is watched from outside.
            # To set it lets other threads in, which costs more than to look.
            if self._sock.gettimeout() != self._pool.timeout.read_timeout:
                self._sock.settimeout(self._pool.timeout.read_timeout)
            with on_the_way(sending=True):
                lost = self._send(head, body, size)
            self._enter(Phase.WAITING)
            return self._answer() if lost is None else self._last_words(lost)
        except BaseException:
            self.drop()
            raise

    def document(self, head: Head) -> bytes:
        """Return the whole body of an answer that is no object, and end the exchange."""
        try:
            if head.chunked:
                body = b"".join(self._chunks())
            elif head.length is None:
                body = self._all()
            else:
                body = self._exactly(head.length)
        except BaseException:
            self.drop()
            raise
        self._keeps = head.keeps
        self._finish()
        return body

    def expect(self, head: Head) -> None:
        """Prepare for an object of the length that the head says."""
        assert head.length is not None
        self._left = head.length
        self._keeps = head.keeps
        if not self._left:
            self._finish()

    def read_into(self, view: memoryview) -> int:
        """Fill ``view`` with what is left of the object; 0 at its end.

        Where the connection ends early, less comes, and ConnectionResetError after that.
        """
        wanted = min(len(view), self._left)
        done = min(len(self._kept), wanted)
        if done:  # what came with the head
            view[:done] = self._kept[:done]
            self._kept = self._kept[done:]
        try:
            while done < wanted:
                count = self._sock.recv_into(view[done:wanted])
                if not count and done:
                    break
                if not count:
                    raise ConnectionResetError("the connection ended within the body")  # noqa: TRY301 - as any other
                done += count
        except BaseException:
            self.drop()
            raise
        self._left -= done
        if done and not self._left:
            self._finish()
        return done

    def release(self) -> None:
        """Give the connection back; another request may have it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool._put_conn(connection)  # noqa: SLF001 - as in __init__

    def drop(self) -> None:
        """Close the connection; safe after either end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def left(self) -> int:
        """Bytes of the object that are to come."""
        return self._left

    @property
    def unsent(self) -> bool:
        """Whether the answer came before the whole body was sent."""
        return self._unsent

    # sending

    def _send(self, head: bytes, body: Reader | None, size: int) -> OSError | None:
        """Send until the end or an answer; return why the connection ended within, if it did."""
        buffer = _buffer(len(head))
        filled = len(head)
        buffer[:filled] = head
        left, uncounted, begun = size, filled, False
        while left or not begun:
            if left and body is not None:
                count = body.readinto(buffer[filled : filled + min(left, BUFFER)])
                left -= count
                filled += count
            try:
                if begun and self._interrupted():
                    self._unsent = True
                    return None
                self._write(buffer[:filled], uncounted)
            except _GONE as error:
                return error
            filled = uncounted = 0
            begun = True
        return None

    def _write(self, data: memoryview, uncounted: int) -> None:
        """Send everything; the first ``uncounted`` bytes belong to no body."""
        sent = 0
        while sent < len(data):
            before = max(sent, uncounted)
            sent += self._sock.send(data[sent:])  # returns with what the system could take, which is progress
            self._moved(max(0, sent - before))

    def _interrupted(self) -> bool:
        """Whether an answer is there before the body is; interim ones are passed over."""
        waited = self._sock.gettimeout()
        self._sock.settimeout(0.0)
        try:
            piece = self._sock.recv(_PIECE)
        except (BlockingIOError, SSLWantReadError):
            return False
        finally:
            self._sock.settimeout(waited)
        if not piece:
            raise ConnectionResetError("the connection ended within the request")
        self._kept += piece
        return not self._only_interim()

    def _only_interim(self) -> bool:
        while self._kept:
            head, following = self._one_head()
            if head.status >= 200:  # noqa: PLR2004 - HTTP's interim answers are below
                return False
            self._kept = following
        return True

    def _last_words(self, error: OSError) -> Head:
        """Return the answer of a store that hung up in mid-body, as those do that refuse; else raise why it ended."""
        self._unsent = True
        try:
            return self._answer()
        except (OSError, DubiousAnswer):
            raise error from None

    # receiving

    def _answer(self) -> Head:
        for _ in range(MAX_INTERIM):
            head, self._kept = self._one_head()
            if head.status >= 200:  # noqa: PLR2004 - as above
                return head
        raise DubiousAnswer("interim answers without end", NOT_S3)

    def _one_head(self) -> tuple[Head, bytes]:
        """Return a head that begins with what is kept, and the bytes after it, leaving what is kept as it is."""
        while (end := self._kept.find(END)) < 0:
            if len(self._kept) > MAX_HEAD or not self._kept.startswith(b"HTTP/1."[: len(self._kept)]):
                raise DubiousAnswer("the answer is not HTTP", NOT_S3)
            self._more()
        try:
            head = parse_head(self._kept[:end])
        except BadHead as error:
            raise DubiousAnswer(f"the answer's head cannot be read: {error}", NOT_S3) from None
        if head.status == 101:  # noqa: PLR2004 - Switching Protocols: whatever follows is no HTTP
            raise DubiousAnswer("the answer changes the protocol", NOT_S3)
        return head, self._kept[end + len(END) :]

    def _more(self) -> None:
        piece = self._sock.recv(_PIECE)
        if not piece:
            raise ConnectionResetError("the connection ended before the answer did")
        self._kept += piece

    def _exactly(self, size: int) -> bytes:
        if size > MAX_DOCUMENT:
            raise DubiousAnswer(f"the answer has {size} bytes, more than one may have", NOT_S3)
        while len(self._kept) < size:
            self._more()
        body, self._kept = self._kept[:size], self._kept[size:]
        return body

    def _all(self) -> bytes:
        pieces = [self._kept]
        received = len(self._kept)
        while piece := self._sock.recv(_PIECE):
            pieces.append(piece)
            received += len(piece)
            if received > MAX_DOCUMENT:
                raise DubiousAnswer(f"the answer has more than the {MAX_DOCUMENT} bytes that one may have", NOT_S3)
        self._kept = b""
        return b"".join(pieces)

    def _chunks(self) -> Iterator[bytes]:
        received = 0
        while size := self._chunk_size():
            received += size
            if received > MAX_DOCUMENT:
                raise DubiousAnswer(f"the answer has more than the {MAX_DOCUMENT} bytes that one may have", NOT_S3)
            yield self._exactly(size)
            if self._exactly(2) != b"\r\n":
                raise DubiousAnswer("a chunk does not end where it should", NOT_S3)
        while self._line():
            continue  # trailers say nothing that is wanted

    def _chunk_size(self) -> int:
        number = self._line().partition(b";")[0].strip(b" \t")
        if not 0 < len(number) <= 8 or number.strip(b"0123456789abcdefABCDEF"):  # noqa: PLR2004 - digits of 32 bits
            raise DubiousAnswer("a chunk has no size", NOT_S3)
        return int(number, 16)

    def _line(self) -> bytes:
        while (end := self._kept.find(b"\r\n")) < 0:
            if len(self._kept) > _MAX_CHUNK_LINE:
                raise DubiousAnswer("a line without end", NOT_S3)
            self._more()
        line, self._kept = self._kept[:end], self._kept[end + 2 :]
        return line

    # ends

    def _finish(self) -> None:
        """End; bytes beyond the answer are nobody's, and the connection is not to be used again then."""
        if self._keeps and not self._unsent and not self._kept:
            self.release()
        else:
            self.drop()

    def _enter(self, phase: Phase) -> None:
        if self._transfer is not None:
            self._transfer.enter(phase, self._sock)

    def _moved(self, count: int) -> None:
        transfer: Transfer | None = self._transfer
        if transfer is not None:
            transfer.moved(count)


def _buffer(head: int) -> memoryview:
    """Return this thread's buffer, with room for a head of this size in front."""
    needed = BUFFER + head
    held: bytearray | None = getattr(_own, "buffer", None)
    if held is None or len(held) < needed:
        held = _own.buffer = bytearray(needed + 4096)
    return memoryview(held)
