"""Reading ranges of a generation's files into memory: no byte of a leaf is handed out before the leaf is proved.

Spans are read in the order of the files, so that each leaf that they touch is fetched once;
a few threads fetch ahead.  A leaf that is not what was sealed is asked for again, and then at
the next place that has the file, as in a restore.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from replicate.digests import CountedSha256
from replicate.errors import IntegrityFailure
from replicate.manifest import SealedFile
from replicate.restore.places import Incident, Places, Wrong
from replicate.restore.sources import Source
from tiers.streams import fill

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BESIDE = 4
"""Leaves that are held besides those that are fetched ahead: the first and last of a span, and those in between."""
PIECE = 1024 * 1024
LOOKING = 64 * 1024
"""A read of no more than this may be of an archive's directory, and what lies before that is still to come."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Span:
    """Bytes of a file: ``length`` of them from ``start`` on."""

    path: str
    start: int
    length: int


@dataclass(frozen=True, slots=True, order=True)
class _Leaf:
    path: str
    number: int


class ProvedRanges:
    """Spans of one generation's files, from ``sources`` in order of preference; close it after use.

    Holds about ``workers`` + 4 leaves in memory.  Only one thread may ask.
    """

    def __init__(self, files: Sequence[SealedFile], sources: Sequence[Source], *, workers: int = 4) -> None:
        self._files = {file.path: file for file in files}
        self._places = Places(sources)
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ckptier-ranges")
        self._held: dict[_Leaf, Future[bytearray]] = {}
        self._coming: list[_Leaf] = []
        self._spent: dict[_Leaf, None] = {}

    def close(self) -> None:
        """Stop fetching; safe to repeat."""
        self._let_go(list(self._held))
        self._coming.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Faults that were met so far, whether or not another place made up for them."""
        return self._places.incidents

    def read(self, span: Span) -> bytes:
        """Return the bytes of one span; raises as ``each``."""
        return b"".join(stream.read() for _, stream in self.each([span]))

    def each(self, spans: Sequence[Span]) -> Iterator[tuple[Span, BinaryIO]]:
        """Yield every span once, in order, with its bytes: a stream that is good until the next one is asked for.

        Raises NotProved, from the stream too, where no place has a leaf as it was sealed, and IntegrityFailure
        for a span that does not lie in a file.
        """
        ordered = sorted(set(spans))
        touched = {leaf: None for span in ordered for leaf in self._leaves(span)}
        self._coming = list(reversed(touched))
        for span in ordered:
            first = next(iter(self._leaves(span)), None)
            self._let_go([leaf for leaf in self._held if first is not None and leaf < first])
            self._fetch_ahead()
            yield span, cast("BinaryIO", _SpanStream(self, span))
        self._let_go(list(self._held))

    def _leaves(self, span: Span) -> list[_Leaf]:
        file = self._files.get(span.path)
        if file is None or not 0 <= span.start <= span.start + span.length <= file.size:
            raise IntegrityFailure(
                f"bytes {span.start} to {span.start + span.length} of {span.path!r} are in no sealed file",
                hint="what says that they are belongs to another checkpoint; `ckptier show` lists the files",
            )
        if not span.length:
            return []
        last = (span.start + span.length - 1) // file.leaf_size
        return [_Leaf(span.path, number) for number in range(span.start // file.leaf_size, last + 1)]

    def leaf(self, path: str, number: int) -> bytearray:
        """Return a proved leaf; to be read and not to be kept."""
        leaf = _Leaf(path, number)
        self._spent.pop(leaf, None)
        if leaf not in self._held:
            self._held[leaf] = self._pool.submit(self._fetch, leaf)
        self._fetch_ahead()
        return self._held[leaf].result()

    def spend(self, path: str, number: int) -> None:
        """Say that a leaf from the middle of a long span was read to its end: it goes first where room is needed."""
        self._spent[_Leaf(path, number)] = None

    def leaf_size(self, path: str) -> int:
        """Return how a file is cut."""
        return self._files[path].leaf_size

    def _let_go(self, leaves: Sequence[_Leaf]) -> None:
        for leaf in leaves:
            self._held.pop(leaf, None)
            self._spent.pop(leaf, None)

    def _fetch_ahead(self) -> None:
        while self._coming:
            if len(self._held) >= self._workers + BESIDE:
                spent = next(iter(self._spent), None)
                if spent is None:
                    return
                self._let_go([spent])
            leaf = self._coming.pop()
            if leaf not in self._held:
                self._held[leaf] = self._pool.submit(self._fetch, leaf)

    def _fetch(self, leaf: _Leaf) -> bytearray:
        """Fetch a leaf from the first place that proves it."""
        file = self._files[leaf.path]
        return self._places.first(file, leaf.number, lambda source: _received(source, file, leaf.number))[1]


def _received(source: Source, file: SealedFile, number: int) -> bytearray:
    """Read one leaf into memory and prove it; raises Wrong, TierError."""
    start = number * file.leaf_size
    data = bytearray(min(file.leaf_size, file.size - start))
    view = memoryview(data)
    digest = CountedSha256()
    done = 0
    try:
        with contextlib.closing(source.open(file, start, len(data))) as stream:
            while done < len(data):
                count = fill(stream, view[done : done + PIECE])
                if not count:
                    raise Wrong(f"it ends {len(data) - done} bytes early")
                digest.update(view[done : done + count])
                done += count
    except OSError as error:
        raise Wrong(f"the copy at {source.name} cannot be read: {error}") from error
    if digest.hexdigest() != file.leaves[number]:
        raise Wrong("its digest is not the sealed one")
    return data


class _SpanStream(io.RawIOBase):
    """The bytes of one span; what is asked for is fetched and proved then, where it was not ahead of that."""

    def __init__(self, ranges: ProvedRanges, span: Span) -> None:
        self._ranges = ranges
        self._span = span
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._span.length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readall(self) -> bytes:
        """Return what is left, in one piece."""
        data = bytearray(max(0, self._span.length - self._at))
        self.readinto(data)
        return bytes(data)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer, but for the end of the span."""
        view = memoryview(buffer).cast("B")
        span, size = self._span, self._ranges.leaf_size(self._span.path)
        count = max(0, min(len(view), span.length - self._at))
        outer = (span.start // size, (span.start + span.length - 1) // size)
        done = 0
        while done < count:
            number, offset = divmod(span.start + self._at, size)
            leaf = self._ranges.leaf(span.path, number)
            piece = min(count - done, len(leaf) - offset)
            view[done : done + piece] = memoryview(leaf)[offset : offset + piece]
            done += piece
            self._at += piece
            if count > LOOKING and offset + piece == len(leaf) and number not in outer:
                self._ranges.spend(span.path, number)
        return count
