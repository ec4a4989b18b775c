"""Fetching one generation into its staging, leaf by leaf, each proved while it arrives.

A few worker threads take leaves from two lanes; each has one buffer, so memory does not
grow with the generation.  Which place is asked, and what follows where it is wrong, is in
:mod:`replicate.restore.places`.  A leaf that no place can prove gives the generation up.
"""

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from replicate.digests import CountedSha256
from replicate.errors import IntegrityFailure
from replicate.manifest import SealedFile
from replicate.restore.cloning import copy_range, share
from replicate.restore.landing import Landed, Landing
from replicate.restore.lanes import Lanes, Leaf
from replicate.restore.pages import Pages
from replicate.restore.places import Incident, Places, Wrong
from replicate.restore.sources import Source
from replicate.restore.spreading import Spread
from replicate.restore.staging import Staging
from tiers.streams import fill

MIB = 1024 * 1024
PIECE = 256 * 1024
"""Bytes of one write: for larger ones the kernel looks for so much memory in one piece, which can cost it more than
the copy itself (512 MiB into a new file: 0.12 CPU seconds in such pieces, 0.6 in pieces of 1 MiB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What fetching did.  ``by_place`` holds the bytes that each place delivered and that were proved."""

    leaves: int
    leaves_reused: int
    bytes_reused: int
    by_place: tuple[tuple[str, int], ...]
    incidents: tuple[Incident, ...]


RETIRED = "retired during restore"


class AllRetired(IntegrityFailure):
    """Every generation that there was when the logs were read has been taken back since."""


@dataclass(slots=True)
class _Counts:
    lock: threading.Lock = field(default_factory=threading.Lock)
    leaves: int = 0
    reused: int = 0
    reused_bytes: int = 0
    delivered: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How files are fetched.

    ``umask`` is what their modes get.  ``spread``: from all tiers at once, not in order, as fast as each is seen to
    be by ``monotonic``.
    """

    umask: int
    workers: int = 4
    buffer_bytes: int = MIB
    pages: Pages = Pages.KEEP
    spread: bool = False
    monotonic: Callable[[], float] = lambda: 0.0


class Fetcher:
    """Fetches the files of one generation from ``sources``, in order of preference, and makes each durable."""

    def __init__(self, staging: Staging, sources: Sequence[Source], ways: Ways) -> None:
        self._staging = staging
        self._sources = sources
        self._ways = ways
        self._counts = _Counts()
        self._places = Places(sources)
        self._spread = Spread(sources, ways.workers) if ways.spread else None
        self._stop = threading.Event()
        self._sharing = True  # until a filesystem says that it cannot

    def fetch(self, files: tuple[SealedFile, ...], resumed: frozenset[str]) -> Tally:
        """Fetch every leaf; ``resumed`` files may already hold some.

        Raises NotProved, or OSError for the local disk.
        """
        ways, lanes = self._ways, Lanes(files, resumed)
        alone = ways.workers == 1
        landing = Landing(
            self._staging, umask=ways.umask, resumed=resumed, pages=ways.pages, stop=self._stop, alone=alone
        )
        with landing:
            self._crowd(partial(self._work, lanes, landing))
        if landing.finished != {file.path for file in files}:
            raise RuntimeError("the workers ended before every file was there")
        counts = self._counts
        return Tally(
            leaves=counts.leaves,
            leaves_reused=counts.reused,
            bytes_reused=counts.reused_bytes,
            by_place=tuple(sorted(counts.delivered.items())),
            incidents=self._places.incidents,
        )

    def _crowd(self, work: Callable[[int], None]) -> None:
        """Let every worker work to its end; raises what stopped the first of them."""
        with ThreadPoolExecutor(self._ways.workers, thread_name_prefix="ckptier-restore") as pool:
            futures = [pool.submit(work, number) for number in range(self._ways.workers)]
            try:
                wait(futures)
            finally:
                self._stop.set()  # an interrupt of the waiting thread must not have to wait for every leaf
        for future in futures:
            future.result()

    def _work(self, lanes: Lanes, landing: Landing, number: int) -> None:
        buffer = aligned(self._ways.buffer_bytes)
        try:
            while not self._stop.is_set():
                leaf = lanes.take(number)
                if leaf is None:
                    return
                sources = self._sources
                if self._spread is not None:
                    sources = self._spread.order(number, leaf.length, lanes.remaining)
                self._one(landing, leaf, sources, buffer)
        except BaseException:
            self._stop.set()
            raise

    def _one(self, landing: Landing, leaf: Leaf, sources: Sequence[Source], buffer: "memoryview[int]") -> None:
        landed = landing.enter(leaf, partial(self._seed, leaf.file))
        here = (leaf.resumed or landed.place is not None) and _here(leaf, landed.fd, buffer)
        place = landed.place if here else self._timed(leaf, landed, sources, buffer)
        landing.proved(landed, leaf, written=not here)
        counts = self._counts
        with counts.lock:
            counts.leaves += 1
            if place is None:
                counts.reused += 1
                counts.reused_bytes += leaf.length
            else:
                counts.delivered[place] = counts.delivered.get(place, 0) + leaf.length

    def _timed(self, leaf: Leaf, landed: Landed, sources: Sequence[Source], buffer: "memoryview[int]") -> str:
        started = self._ways.monotonic()
        place = self._from_anywhere(leaf, landed, sources, buffer)
        if self._spread is not None:
            self._spread.note(place, leaf.length, self._ways.monotonic() - started)
        return place

    def _seed(self, file: SealedFile, fd: int) -> str | None:
        """Let a new file share its blocks with a copy that lies here; returns where, None where none can."""
        for source in self._sources if self._sharing else ():
            copy = source.descriptor(file)
            if copy is not None:
                try:
                    self._sharing = share(copy, fd, f"{self._staging.files / file.path}")
                finally:
                    os.close(copy)
                return source.name if self._sharing else None
        return None

    def _from_anywhere(self, leaf: Leaf, landed: Landed, sources: Sequence[Source], buffer: "memoryview[int]") -> str:
        """Fetch a leaf from the first place that proves it; returns its name."""

        def take(source: Source) -> None:
            if not _inside_the_kernel(source, leaf, landed.fd, buffer):
                _copy(source, leaf, landed.fd, buffer)

        return self._places.first(leaf.file, leaf.number, take, sources)[0]


def aligned(size: int) -> "memoryview[int]":
    """Return a buffer that begins at a page: the kernel copies into one that does not several times slower."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _here(leaf: Leaf, fd: int, buffer: "memoryview[int]") -> bool:
    """Tell whether the bytes of this leaf are in the file already."""
    digest = CountedSha256()
    done = 0
    while done < leaf.length:
        count = os.preadv(fd, [buffer[: leaf.length - done]], leaf.start + done)
        if count == 0:
            return False
        digest.update(buffer[:count])
        done += count
    return digest.hexdigest() == leaf.file.leaves[leaf.number]


def _inside_the_kernel(source: Source, leaf: Leaf, fd: int, buffer: "memoryview[int]") -> bool:
    """Copy one leaf from a file of the store, and prove it; False where that cannot be, or did not come out right.

    A tier is read as a tier, for its pace, its counts and its errors.
    """
    copy = None if source.again else source.descriptor(leaf.file)
    if copy is None:
        return False
    try:
        return copy_range(copy, fd, leaf.start, leaf.length) and _here(leaf, fd, buffer)
    finally:
        os.close(copy)


def _copy(source: Source, leaf: Leaf, fd: int, buffer: "memoryview[int]") -> None:
    """Copy one leaf to its place in the file; Wrong where it is shorter, longer or another than sealed.

    What fits into the buffer is written once it is proved.  The last leaf is opened to the object's end and one
    byte more is asked for: an object that is longer than sealed is not the sealed one.
    """
    digest = CountedSha256()
    done = 0
    with _reading(source):
        stream = source.open(leaf.file, leaf.start, None if leaf.last else leaf.length)
    with contextlib.closing(stream):
        while leaf.length - done > len(buffer):
            _receive(source, stream, buffer, leaf.length - done)
            digest.update(buffer)
            _write(fd, buffer, leaf.start + done)
            done += len(buffer)
        rest = buffer[: leaf.length - done]
        _receive(source, stream, rest, leaf.length - done)
        digest.update(rest)
        if leaf.last:
            _require_end(source, stream, leaf)
    if digest.hexdigest() != leaf.file.leaves[leaf.number]:
        raise Wrong("its digest is not the sealed one")
    _write(fd, rest, leaf.start + done)


def _receive(source: Source, stream: BinaryIO, buffer: "memoryview[int]", due: int) -> None:
    """Fill a buffer; ``due`` bytes are to come before the leaf is whole."""
    done = 0
    while done < len(buffer):
        with _reading(source):
            count = fill(stream, buffer[done:])
        if count == 0:
            raise Wrong(f"it ends {due - done} bytes early")
        done += count


def _require_end(source: Source, stream: BinaryIO, leaf: Leaf) -> None:
    with _reading(source):
        longer = fill(stream, memoryview(bytearray(1)))
    if longer:
        raise Wrong(f"it is longer than the {leaf.file.size} bytes sealed")


@contextlib.contextmanager
def _reading(source: Source) -> Iterator[None]:
    """Tell a local copy that cannot be read from a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        raise Wrong(f"the copy at {source.name} cannot be read: {error}") from error


def _write(fd: int, data: "memoryview[int]", offset: int) -> None:
    while data:
        count = os.pwrite(fd, data[:PIECE], offset)
        data = data[count:]
        offset += count
