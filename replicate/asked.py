"""Requests of a tier as values: the verb, what came of it, how many, and their bytes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from tiers.errors import ObjectNotFound
from tiers.metered import OK, Usage

PAGE = 1000
"""Keys, or parts, that a page of a listing holds on every tier."""
NOT_FOUND = ObjectNotFound.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Equal requests of one verb with one outcome; bytes are those of all of them together.

    ``pages``: how many pages a listing has, whether or not a tier gives them one by one.
    ``empty``: opens of no bytes at all, which a store may answer without handing anything out.
    """

    verb: str
    outcome: str = OK
    count: int = 1
    up: int = 0
    down: int = 0
    pages: int = 0
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Requests:
    """What is asked of one tier, each kind once."""

    asked: tuple[Asked, ...] = ()

    @classmethod
    def of(cls, asked: Iterable[Asked]) -> "Requests":
        """Add up requests of one kind."""
        found: dict[tuple[str, str, bool], Asked] = {}
        for each in asked:
            kind = (each.verb, each.outcome, each.empty)
            seen = found.get(kind)
            found[kind] = each if seen is None else _sum(seen, each)
        return cls(tuple(each for each in found.values() if each.count))

    def __add__(self, other: "Requests") -> "Requests":
        return Requests.of((*self.asked, *other.asked))

    def __mul__(self, times: int) -> "Requests":
        return Requests.of(
            replace(
                each,
                count=each.count * times,
                up=each.up * times,
                down=each.down * times,
                pages=each.pages * times,
            )
            for each in self.asked
        )

    @property
    def count(self) -> int:
        """All requests."""
        return sum(each.count for each in self.asked)

    @property
    def up(self) -> int:
        """Bytes sent."""
        return sum(each.up for each in self.asked)

    @property
    def down(self) -> int:
        """Bytes received."""
        return sum(each.down for each in self.asked)

    @property
    def usage(self) -> Usage:
        """The same as the metering wrapper would count it."""
        counts: dict[tuple[str, str], int] = {}
        sent: dict[tuple[str, str], int] = {}
        for each in self.asked:
            key = (each.verb, each.outcome)
            counts[key] = counts.get(key, 0) + each.count
            if each.up:
                sent[key] = sent.get(key, 0) + each.up
        return Usage(requests=MappingProxyType(counts), bytes_up=MappingProxyType(sent), bytes_down=self.down)


def _sum(one: Asked, other: Asked) -> Asked:
    return replace(
        one,
        count=one.count + other.count,
        up=one.up + other.up,
        down=one.down + other.down,
        pages=one.pages + other.pages,
    )


def pages(entries: int) -> int:
    """Return how many pages a listing of so many entries has; one where there are none."""
    return max(1, -(-entries // PAGE))
