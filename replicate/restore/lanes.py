"""In which order the leaves of a generation are fetched: large files first, small ones on a lane of their own.

What is large is bound by the bytes, what is small by the round trips, so both are under way at
once.  Whoever has emptied its lane helps on the other.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from replicate.digests import leaf_ranges
from replicate.manifest import SealedFile

MIB = 1024 * 1024
SMALL = MIB
"""A file of one leaf and of so many bytes at most is created, written and closed in one go."""
SMALL_SHARE = 4
"""One worker in so many begins with the small files."""
DEFAULT_WORKERS = 4
MOST_WORKERS = 8
"""Workers for one tier at most: each has a buffer, and more of them make no link faster."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf to be fetched, or with ``resumed`` perhaps only to be proved."""

    file: SealedFile
    number: int
    start: int
    length: int
    resumed: bool

    @property
    def last(self) -> bool:
        """Whether the file ends with it."""
        return self.number == len(self.file.leaves) - 1


def is_small(file: SealedFile) -> bool:
    """Whether a file is small enough to need no place on the disk beforehand."""
    return len(file.leaves) == 1 and file.size <= SMALL


class Lanes:
    """The leaves that are not begun, for any number of threads."""

    def __init__(self, files: tuple[SealedFile, ...], resumed: frozenset[str]) -> None:
        self._lock = threading.Lock()
        large = sorted((file for file in files if not is_small(file)), key=lambda file: -file.size)
        self._large = deque(_leaves(large, resumed))
        self._small = deque(_leaves([file for file in files if is_small(file)], resumed))
        self._remaining = sum(file.size for file in files)

    @property
    def remaining(self) -> int:
        """Bytes of the leaves that are not begun."""
        return self._remaining

    def take(self, worker: int) -> Leaf | None:
        """Return the next leaf for a worker, None where there is none."""
        with self._lock:
            lanes = [self._large, self._small]
            lane = next(filter(None, reversed(lanes) if begins_small(worker) else lanes), None)
            if lane is None:
                return None
            leaf = lane.popleft()
            self._remaining -= leaf.length
            return leaf


def workers_for(connections: Sequence[int], *, spread: bool) -> int:
    """Return how many workers suit tiers that bear so many requests at once; with ``spread`` each has its own.

    Two at least: while one waits for the only connection the other hashes and writes.
    """
    each = [max(2, min(MOST_WORKERS, count)) for count in connections]
    return min(2 * MOST_WORKERS, sum(each)) if spread and each else max(each, default=DEFAULT_WORKERS)


def begins_small(worker: int) -> bool:
    """Whether a worker (numbered from 0) begins with small files."""
    return worker % SMALL_SHARE == 1


def _leaves(files: list[SealedFile], resumed: frozenset[str]) -> list[Leaf]:
    return [
        Leaf(file, number, start, length, file.path in resumed)
        for file in files
        for number, (start, length) in enumerate(leaf_ranges(file.size, file.leaf_size))
    ]
