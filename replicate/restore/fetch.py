"""Fetching one generation into its staging, leaf by leaf, each proved while it arrives.

A few worker threads take leaves from one queue; each has one buffer, so memory does not
grow with the generation.  A leaf that is not what was sealed is asked for once more from
the same tier (a decision, since the transfer may be at fault; retries of requests are
below, in tiers.retrying) and then from the next place that has the file.  A leaf that no
place can prove gives the generation up.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO

from replicate.digests import CountedSha256, leaf_ranges
from replicate.errors import CkptierError, IntegrityFailure, from_tier_error
from replicate.manifest import SealedFile
from replicate.restore.sources import Source
from replicate.restore.staging import Staging
from tiers.errors import IntegrityError, ObjectNotFound, TierError

MIB = 1024 * 1024
MAX_INCIDENTS = 100
"""How many faults are kept in words; all are counted."""


class Fault(StrEnum):
    """What was wrong with a leaf at a place."""

    DIFFERS = "differs"
    MISSING = "missing"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One fault that fetching met, whether or not another place made up for it."""

    place: str
    path: str
    leaf: int
    fault: Fault
    reason: str


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


class NotProved(IntegrityFailure):
    """No place could prove a leaf.  ``incidents`` are its faults, ``cause`` the last failure to answer, if any."""

    def __init__(self, message: str, *, incidents: tuple[Incident, ...], cause: CkptierError | None) -> None:
        super().__init__(message, hint="`ckptier verify --read-data 100%` shows what is hurt where")
        self.incidents = incidents
        self.cause = cause

    @property
    def missing(self) -> frozenset[str]:
        """Places where an object was not there at all."""
        return frozenset(incident.place for incident in self.incidents if incident.fault is Fault.MISSING)


class _Wrong(Exception):
    """A leaf that arrived is not the sealed one."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    file: SealedFile
    number: int
    start: int
    length: int
    resumed: bool

    @property
    def last(self) -> bool:
        return self.number == len(self.file.leaves) - 1


@dataclass(slots=True)
class _Counts:
    lock: threading.Lock = field(default_factory=threading.Lock)
    leaves: int = 0
    reused: int = 0
    reused_bytes: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    incidents: list[Incident] = field(default_factory=list)
    down: dict[str, CkptierError] = field(default_factory=dict)


class Fetcher:
    """Fetches the files of one generation from ``sources``, in order of preference."""

    def __init__(
        self, staging: Staging, sources: Sequence[Source], *, workers: int = 4, buffer_bytes: int = MIB
    ) -> None:
        self._staging = staging
        self._sources = sources
        self._workers = workers
        self._buffer_bytes = buffer_bytes
        self._counts = _Counts()
        self._stop = threading.Event()

    def fetch(self, files: tuple[SealedFile, ...], resumed: frozenset[str]) -> Tally:
        """Fetch every leaf; ``resumed`` files may already hold some.

        Raises NotProved, or OSError for the local disk.
        """
        leaves = _leaves(files, resumed)
        with ThreadPoolExecutor(self._workers, thread_name_prefix="ckptier-restore") as pool:
            futures = [pool.submit(self._work, leaves) for _ in range(self._workers)]
            try:
                wait(futures)
            finally:
                self._stop.set()  # an interrupt of the waiting thread must not have to wait for every leaf
        for future in futures:
            future.result()
        counts = self._counts
        return Tally(
            leaves=counts.leaves,
            leaves_reused=counts.reused,
            bytes_reused=counts.reused_bytes,
            by_place=tuple(sorted(counts.delivered.items())),
            incidents=tuple(counts.incidents),
        )

    def _work(self, leaves: Iterator[_Leaf]) -> None:
        buffer = memoryview(bytearray(self._buffer_bytes))
        try:
            while not self._stop.is_set():
                with self._counts.lock:
                    leaf = next(leaves, None)
                if leaf is None:
                    return
                self._one(leaf, buffer)
        except BaseException:
            self._stop.set()
            raise

    def _one(self, leaf: _Leaf, buffer: "memoryview[int]") -> None:
        fd = self._staging.open_file(leaf.file.path)
        try:
            place = None if leaf.resumed and self._here(leaf, fd, buffer) else self._from_anywhere(leaf, fd, buffer)
        finally:
            os.close(fd)
        counts = self._counts
        with counts.lock:
            counts.leaves += 1
            if place is None:
                counts.reused += 1
                counts.reused_bytes += leaf.length
            else:
                counts.delivered[place] = counts.delivered.get(place, 0) + leaf.length

    def _here(self, leaf: _Leaf, fd: int, buffer: "memoryview[int]") -> bool:
        """Tell whether an earlier run already wrote this leaf."""
        digest = CountedSha256()
        done = 0
        while done < leaf.length:
            count = os.preadv(fd, [buffer[: leaf.length - done]], leaf.start + done)
            if count == 0:
                return False
            digest.update(buffer[:count])
            done += count
        return digest.hexdigest() == leaf.file.leaves[leaf.number]

    def _from_anywhere(self, leaf: _Leaf, fd: int, buffer: "memoryview[int]") -> str:
        """Fetch a leaf from the first place that proves it; returns its name."""
        faults: list[Incident] = []
        for source in self._sources:
            if source.holds(leaf.file) and source.name not in self._counts.down:
                fault = self._from_one(source, leaf, fd, buffer)
                if fault is None:
                    return source.name
                faults.append(fault)
        with self._counts.lock:
            down = dict(self._counts.down)
        cause = next((down[source.name] for source in self._sources if source.name in down), None)
        words = [f"{fault.place}: {fault.reason}" for fault in faults]
        words += [f"{name}: {error.message}" for name, error in down.items() if name not in {f.place for f in faults}]
        raise NotProved(
            f"{leaf.file.path}: leaf {leaf.number} cannot be proved ({'; '.join(words) or 'no place has the file'})",
            incidents=tuple(faults),
            cause=cause,
        )

    def _from_one(self, source: Source, leaf: _Leaf, fd: int, buffer: "memoryview[int]") -> Incident | None:
        """Fetch a leaf from one place, twice where what arrives is wrong; returns the fault, None when proved."""
        fault: Incident | None = None
        for _ in range(2 if source.again else 1):
            try:
                _copy(source, leaf, fd, buffer)
            except (_Wrong, IntegrityError) as error:
                fault = self._note(source, leaf, Fault.DIFFERS, str(error))
            except ObjectNotFound as error:
                return self._note(source, leaf, Fault.MISSING, error.message)
            except TierError as error:
                with self._counts.lock:
                    self._counts.down[source.name] = from_tier_error(error)
                return self._note(source, leaf, Fault.UNANSWERED, error.message)
            else:
                return None
        return fault

    def _note(self, source: Source, leaf: _Leaf, fault: Fault, reason: str) -> Incident:
        incident = Incident(place=source.name, path=leaf.file.path, leaf=leaf.number, fault=fault, reason=reason)
        with self._counts.lock:
            if len(self._counts.incidents) < MAX_INCIDENTS:
                self._counts.incidents.append(incident)
        return incident


def _leaves(files: tuple[SealedFile, ...], resumed: frozenset[str]) -> Iterator[_Leaf]:
    for file in files:
        for number, (start, length) in enumerate(leaf_ranges(file.size, file.leaf_size)):
            yield _Leaf(file, number, start, length, file.path in resumed)


def _copy(source: Source, leaf: _Leaf, fd: int, buffer: "memoryview[int]") -> None:
    """Copy one leaf to its place in the file; _Wrong where it is shorter, longer or another than sealed.

    The last leaf is opened to the object's end and one byte more is asked for: an object
    that is longer than sealed is not the sealed one.
    """
    digest = CountedSha256()
    done = 0
    with _reading(source):
        stream = source.open(leaf.file, leaf.start, None if leaf.last else leaf.length)
    with contextlib.closing(stream):
        while done < leaf.length:
            with _reading(source):
                count = _read_into(stream, buffer[: leaf.length - done])
            if count == 0:
                raise _Wrong(f"it ends {leaf.length - done} bytes early")
            digest.update(buffer[:count])
            _write(fd, buffer[:count], leaf.start + done)
            done += count
        if leaf.last:
            with _reading(source):
                longer = bool(_read_into(stream, buffer[:1]))
            if longer:
                raise _Wrong(f"it is longer than the {leaf.file.size} bytes sealed")
    if digest.hexdigest() != leaf.file.leaves[leaf.number]:
        raise _Wrong("its digest is not the sealed one")


@contextlib.contextmanager
def _reading(source: Source) -> Iterator[None]:
    """Tell a local copy that cannot be read from a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        raise _Wrong(f"the copy at {source.name} cannot be read: {error}") from error


def _read_into(stream: BinaryIO, buffer: "memoryview[int]") -> int:
    """Fill a buffer from a stream, without a copy where the stream can."""
    readinto = getattr(stream, "readinto", None)
    if readinto is not None:
        return int(readinto(buffer) or 0)
    data = stream.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)


def _write(fd: int, data: "memoryview[int]", offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data = data[count:]
        offset += count
