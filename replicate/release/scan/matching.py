"""What a rule found in a block of text, and how it becomes a hit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from replicate.release.findings import Rule
from replicate.release.scan.fragments import Block
from replicate.release.scan.hits import Hit
from replicate.release.scan.inputs import ScanContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A rule struck at a position of a block's text; the other fields are those of a hit."""

    rule: Rule
    start: int
    detail: str
    never: str = ""
    secret: str = ""


TextRule = Callable[[Block, ScanContext], Iterator[Match]]
"""A rule over text: looks at one block, says what it found.  It must be linear in the text."""


def hits_of(block: Block, path: str, found: Iterator[Match]) -> Iterator[Hit]:
    """Give each match its place."""
    counted, line = 0, 1
    for match in found:
        piece, start = block.piece_at(match.start)
        place = piece.place
        if "\n" in piece.text:
            if not start <= counted <= match.start:
                counted, line = start, 1
            line += block.text.count("\n", counted, match.start)
            counted = match.start
            place = f"{place} line {line}"
        yield Hit(rule=match.rule, path=path, place=place, detail=match.detail, never=match.never, secret=match.secret)
