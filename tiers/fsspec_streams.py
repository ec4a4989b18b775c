"""What goes to an fsspec filesystem and what comes back, each watched; and who holds a connection."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from tiers.bodies import Body
from tiers.checks import body_chunks
from tiers.errors import TierError
from tiers.fsspec_backends import Backend, Source
from tiers.streams import ReadStream


class SentBody:
    """The pieces of a local body on their way out; remembers a failure to read it.

    It reaches the tier through the filesystem, which may wrap it in an error of its own:
    ``failure`` tells a broken local file from a broken store.
    """

    def __init__(self, body: Body, *, tier: str, operation: str, key: str) -> None:
        self._chunks = body_chunks(body, tier=tier, operation=operation, key=key)
        self.failure: OSError | TierError | None = None

    def __iter__(self) -> Iterator[memoryview]:
        try:
            yield from self._chunks
        except (OSError, TierError) as error:
            self.failure = error
            raise


class Loan:
    """A filesystem that a verb or a stream may use until ``end``; ``broken`` says that it is not to be used again."""

    def __init__(self, backend: Backend, end: Callable[["Loan"], None]) -> None:
        self.backend = backend
        self.broken = False
        self._end = end

    def end(self) -> None:
        """Give it back."""
        self._end(self)


class Pool:
    """Filesystems, lent to one borrower at a time, or to all where threads may share them.

    ``connect`` is called when one is needed, and again after ``close``.
    """

    def __init__(self, connect: Callable[[], Backend]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[Backend] = []
        self._era = 0

    def lend(self) -> Loan:
        """Lend a filesystem; raises what connecting raises."""
        with self._lock:
            era = self._era
            found = self._idle[-1] if self._idle else None
            if found is not None and not found.shared:
                self._idle.pop()
        if found is None:
            found = self._connected(era)
        return Loan(found, lambda loan: self._take_back(loan, era))

    def close(self) -> None:
        """Let go of what is not lent; what is lent is let go when it comes back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._era += 1
        for backend in idle:
            _close(backend)

    def _connected(self, era: int) -> Backend:
        made = self._connect()
        if not made.shared:
            return made
        with self._lock:
            if era == self._era and not self._idle:
                self._idle.append(made)
            kept = self._idle[-1] if self._idle else made
        if kept is not made:  # another thread was faster
            _close(made)
        return kept

    def _take_back(self, loan: Loan, era: int) -> None:
        if loan.backend.shared:
            return
        with self._lock:
            keep = not loan.broken and era == self._era
            if keep:
                self._idle.append(loan.backend)
        if not keep:
            _close(loan.backend)


def _close(backend: Backend) -> None:
    with suppress(Exception):  # what it was asked for is done; a connection that cannot say goodbye is gone anyway
        backend.close()


class RangeStream(ReadStream):
    """Exactly ``length`` bytes of an object from ``start``; ending early is an error, never EOF.

    ``window``: bytes that are asked for at a time.  ``translated`` makes a tier's error of
    a filesystem's; ``release`` is called once.
    """

    def __init__(
        self,
        source: Source,
        start: int,
        length: int,
        *,
        window: int,
        translated: Callable[[Exception], TierError],
        release: Callable[[], None],
    ) -> None:
        super().__init__()
        self._source = source
        self._position = start
        self._end = start + length
        self._window = window
        self._translated = translated
        self._release = release
        self._buffer = memoryview(b"")

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, or all that are left."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if size is None or size < 0:
            return self.readall()
        if not self._buffer and size:
            self._fill()
        data, self._buffer = bytes(self._buffer[:size]), self._buffer[size:]
        return data

    def close(self) -> None:
        """Release the file and what it was read through."""
        if not self.closed:
            with suppress(Exception):  # every byte that was handed out was there
                self._release()
        super().close()

    def _fill(self) -> None:
        wanted = min(self._window, self._end - self._position)
        if wanted == 0:
            return
        try:
            data = self._source.fetch(self._position, wanted)[:wanted]
        except Exception as error:  # noqa: BLE001 - an implementation may raise anything; the table judges
            raise self._translated(error) from None
        if not data:
            raise self._translated(EOFError())
        self._position += len(data)
        self._buffer = memoryview(data)
