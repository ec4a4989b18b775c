"""Whose turn it is to be read: a queue of generations that keeps its place between runs.

What was read goes to the end of the queue, and so does what is new; so nothing that comes
can push back what waits.  Before the shares of successive runs add up to what there was at
the first of them, every leaf that is still there has been read: with a share of 10 %, in ten.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.generation.disk import make_directory, read_document, write_durably
from replicate.layout import GenerationId
from replicate.manifest import Count, GenerationText, Record, Text, parse
from replicate.verify.shares import Live, Portion, Share, Span

_MAX_BYTES = 16 * 1024 * 1024
_log = logging.getLogger(__name__)


class Turn(Record):
    """``verify/<place>.json``: the queue, and how many bytes of its first were read.  ``again``: as at the last run.

    ``place`` names the tier, ``url`` where it was.
    """

    format: Literal[1] = 1
    place: Text
    url: Text
    at: Text = ""
    queue: Annotated[tuple[GenerationText, ...], Field(strict=False)] = ()
    offset: Count = 0
    again: bool = False

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What one run reads, and the queue after it."""

    portion: Portion
    queue: tuple[GenerationId, ...]
    offset: int


def choose(queue: Sequence[GenerationId], offset: int, live: Live, share: Share) -> Chosen:
    """Take a share of what is live from the front of the queue."""
    sizes = dict(live)
    waiting = [one for one in queue if one in sizes]
    if waiting[:1] != list(queue[:1]):
        offset = 0
    waiting += [one for one, _ in live if one not in set(waiting)]
    total = sum(sizes.values())
    left = share.of(total)
    if left >= total:
        return Chosen(portion=Portion(), queue=tuple(waiting), offset=offset if total else 0)
    spans: dict[GenerationId, tuple[Span, ...]] = {}
    while left > 0:
        first = waiting[0]
        offset = min(offset, sizes[first])
        taken = min(left, sizes[first] - offset)
        spans[first] = (*spans.get(first, ()), (offset, offset + taken))
        left, offset = left - taken, offset + taken
        if offset >= sizes[first]:
            waiting, offset = [*waiting[1:], first], 0
    return Chosen(portion=Portion(spans), queue=tuple(waiting), offset=offset)


class Rotation:
    """One run's turn at one place: chooses by what is there, and remembers when the run is over."""

    def __init__(self, path: Path, share: Share, *, place: str, url: str) -> None:
        self._path = path
        self._share = share
        self._known = read_turn(path, place=place, url=url)
        self._chosen: Chosen | None = None

    def pick(self, live: Live) -> Portion:
        """Choose; see ``Picker``."""
        queue = [GenerationId.parse(one) for one in self._known.queue]
        self._chosen = choose(queue, self._known.offset, live, self._share)
        return self._chosen.portion

    def remember(self, at: str, *, answered: bool) -> None:
        """Keep the place; raises LocalDisk.  What did not answer has its turn once more, and no oftener."""
        if self._chosen is None:
            return
        again = not answered and not self._known.again
        turn = replace_turn(self._known, self._chosen, at) if not again else self._known.model_copy(update={"at": at})
        make_directory(self._path.parent)
        write_durably(self._path, turn.model_copy(update={"again": again}).encode())


def replace_turn(known: Turn, chosen: Chosen, at: str) -> Turn:
    """Return the turn after what was chosen."""
    queue = tuple(str(one) for one in chosen.queue)
    return known.model_copy(update={"queue": queue, "offset": chosen.offset, "at": at})


def read_turn(path: Path, *, place: str, url: str) -> Turn:
    """Return the place that was kept; the beginning where there is none, or where it is of another tier."""
    fresh = Turn(place=place, url=url)
    try:
        data = read_document(path, _MAX_BYTES)
        turn = parse(Turn, data, what=str(path), max_bytes=_MAX_BYTES) if data is not None else fresh
    except IntegrityFailure as error:
        _log.warning("%s; reading begins anew", error.message)
        return fresh
    return turn if (turn.place, turn.url) == (place, url) else fresh
