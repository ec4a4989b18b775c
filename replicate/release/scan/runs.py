"""Printable runs inside binary data, as `strings` finds them."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MIN_RUN = 8
MAX_RUN = 4_096
_PIECE = 4 * 1024 * 1024
_PRINTABLE = re.compile(rb"[\x20-\x7e]{1,%d}+" % MAX_RUN)
_LETTERS = frozenset(range(0x20, 0x7F))
_IS_PRINTABLE = np.array([byte in _LETTERS for byte in range(256)])


def printable_runs(path: Path, start: int, end: int) -> Iterator[str]:
    """Yield runs of printable ASCII between two positions of a file, read in bounded pieces."""
    kept = b""
    with path.open("rb") as opened:
        opened.seek(start)
        left = end - start
        while left > 0:
            piece = opened.read(min(_PIECE, left))
            if not piece:
                return
            left -= len(piece)
            data, kept = kept + piece, b""
            for at in _starts(data):
                for begin, run in _from(data, at):
                    if begin + len(run) < len(data) or not left or len(run) == MAX_RUN:
                        yield run.decode("ascii")
            kept = _tail(data) if left else b""


def _starts(data: bytes) -> Iterator[int]:
    """Yield where runs of at least MIN_RUN begin; NumPy, since packed weights have gigabytes."""
    window = _IS_PRINTABLE[np.frombuffer(data, np.uint8)]
    before = window
    for step in (1, 2, 4):  # windows of two, four and eight: MIN_RUN
        window = window[:-step] & window[step:]
    if len(window) < 1:
        return
    begins = window.copy()
    begins[1:] &= ~before[: len(window) - 1]
    yield from map(int, np.flatnonzero(begins))


def _from(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while found := _PRINTABLE.match(data, at):
        yield at, found[0]
        at = found.end()


def _tail(data: bytes) -> bytes:
    """Return a run at the end, which may go on in the next piece; at most MAX_RUN of it."""
    tail = data[-MAX_RUN:]
    last = max((at for at, byte in enumerate(tail) if byte not in _LETTERS), default=-1)
    return tail[last + 1 :]
