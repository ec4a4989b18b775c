"""Text as the rules see it: pieces with their place, joined into blocks so that a rule runs once over many.

A tokenizer has a million strings; a call of each rule for each of them would take minutes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

BLOCK_CHARACTERS = 65_536
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Origin(Enum):
    """What kind of text a piece is: rules differ in what they look for where."""

    CARD = auto()
    TEMPLATE = auto()
    PROSE = auto()
    VALUE = auto()
    NAME = auto()
    VOCABULARY = auto()
    """Learned from data by a tokenizer: common words say nothing here."""
    BYTES = auto()
    """Printable runs inside binary data, and tables in base64."""


class Node(NamedTuple):
    """A step of a JSON pointer; rendered only where a rule struck."""

    parent: "Node | None"
    label: str


class Piece(NamedTuple):
    """One piece of text; its place is ``label`` below ``node``."""

    origin: Origin
    node: Node | None
    label: str
    text: str

    @property
    def place(self) -> str:
        """The line or JSON pointer."""
        return pointer(self.node, self.label)


def pointer(node: Node | None, label: str = "") -> str:
    """Render a place: labels joined by ``/`` where it is below a node."""
    labels = [label] if label else []
    while node is not None:
        labels.append(node.label)
        node = node.parent
    return "/".join(reversed(labels))


def label_of(key: str, position: int) -> str:
    """Return how a key is named in a place; one that is long or strange only by its position."""
    return key if _PLAIN.fullmatch(key) else f"(key {position})"


@dataclass
class Block:
    """Pieces of one origin, joined by line breaks."""

    pieces: list[Piece] = field(default_factory=list)

    @property
    def origin(self) -> Origin:
        """What all its pieces are."""
        return self.pieces[0].origin

    @cached_property
    def text(self) -> str:
        """The joined text."""
        return "\n".join(piece.text for piece in self.pieces)

    @cached_property
    def lowered(self) -> str:
        """The joined text in lower case, for a quick look; its positions are not those of ``text``."""
        return self.text.lower()

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(piece.text) + 1 for piece in self.pieces[:-1]), initial=0))

    def piece_at(self, position: int) -> tuple[Piece, int]:
        """Return the piece that a position of ``text`` lies in, and where that piece starts."""
        index = bisect_right(self._starts, position) - 1
        return self.pieces[index], self._starts[index]


def blocks(pieces: Iterable[Piece]) -> Iterator[Block]:
    """Join pieces that follow each other and have one origin."""
    block, length = Block(), 0
    for piece in pieces:
        if block.pieces and (length > BLOCK_CHARACTERS or piece.origin is not block.origin):
            yield block
            block, length = Block(), 0
        block.pieces.append(piece)
        length += len(piece.text) + 1
    if block.pieces:
        yield block


def lines(text: str, origin: Origin, node: Node | None = None) -> Iterator[Piece]:
    """Yield the lines of a text, numbered from one."""
    for number, line in enumerate(text.split("\n"), 1):
        if line and not line.isspace():
            yield Piece(origin, node, f"line {number}", line)
