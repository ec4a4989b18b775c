"""Which bytes to read: a share of what is stored, and the part of it whose turn it is.

A leaf is read in the turn in which its first byte lies, so that parts that follow each
other read every leaf once and none twice.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from replicate.errors import UsageError
from replicate.layout import GenerationId

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for kind, base in (("B", 1000), ("iB", 1024), ("", 1024))
}
_SIZE = re.compile(r"(\d{1,15})\s*([A-Za-z]{0,3})")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")
_PORTION = re.compile(r"(\d{1,6})/(\d{1,6})")

Span = tuple[int, int]
"""First byte, and the one after the last."""
Live = Sequence[tuple[GenerationId, int]]
"""Generations with their bytes, newest first."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the stored bytes to read: a fraction of them, or (``limit``) a number of bytes."""

    fraction: Fraction = Fraction(1)
    limit: int | None = None

    def of(self, total: int) -> int:
        """Return the bytes to read of ``total``, rounded up."""
        return min(total, self.limit) if self.limit is not None else -(-self.fraction * total // 1)


@dataclass(frozen=True, slots=True)
class Part:
    """The ``number``-th (from 1) of ``count`` equal parts."""

    number: int
    count: int


def parse_share(text: str) -> Share:
    """Read ``100%``, ``2.5%``, ``1/7`` or ``5GiB``; raises UsageError."""
    wrong = UsageError(f"{text[:40]!r} is no share of the data", hint="write 100%, 10%, 1/7 or a size such as 5GiB")
    if match := _PERCENT.fullmatch(text):
        fraction = Fraction(match[1]) / 100
    elif match := _PORTION.fullmatch(text):
        if int(match[2]) == 0:
            raise wrong
        fraction = Fraction(int(match[1]), int(match[2]))
    elif text.isdecimal():
        hint = f"write {text[:40]}% or 1/7 for a share, {text[:40]}B for so many bytes"
        raise UsageError(f"{text[:40]!r} has no unit", hint=hint)
    elif (match := _SIZE.fullmatch(text)) and match[2] in _UNITS:
        return Share(limit=int(match[1]) * _UNITS[match[2]])
    else:
        raise wrong
    if not 0 <= fraction <= 1:
        raise wrong
    return Share(fraction)


def parse_part(text: str) -> Part:
    """Read ``3/7``, the third of seven equal parts; raises UsageError."""
    match = _PORTION.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{text[:40]!r} is no part of the data", hint="write --part 3/7 for the third of seven")
    return Part(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class Window:
    """Which bytes to read: ``length`` from ``start`` of ``total``, going round; ``start`` moves with the reader."""

    start: int
    length: int
    total: int

    @classmethod
    def of(cls, share: Share | None, total: int, seed: int) -> "Window":
        """Choose a window: the ``seed``-th of a sequence that covers everything."""
        length = share.of(total) if share is not None else 0
        return cls((seed * length) % total if total else 0, length, total)

    @classmethod
    def part(cls, part: Part, total: int) -> "Window":
        """Return one of so many equal windows."""
        start, end = ((number * total) // part.count for number in (part.number - 1, part.number))
        return cls(start, end - start, total)

    def after(self, size: int) -> "Window":
        """Return the same window as seen from ``size`` bytes further on."""
        return Window(self.start - size, self.length, self.total)

    def covers(self, start: int, length: int) -> bool:
        """Tell whether a leaf begins inside; there is nothing to read of an empty one."""
        return length > 0 and (start - self.start) % self.total < self.length

    def within(self, size: int) -> tuple[Span, ...]:
        """Return what of the next ``size`` bytes is inside: up to two spans, since the window goes round."""
        if not size:
            return ()
        begins = self.start % self.total
        rounds = ((first, first + self.length) for first in (begins - self.total, begins))
        cut = ((max(0, first), min(size, end)) for first, end in rounds)
        return tuple((first, end) for first, end in cut if first < end)


@dataclass(frozen=True, slots=True)
class Portion:
    """Which bytes of each generation to read; ``spans`` None: all of them."""

    spans: Mapping[GenerationId, tuple[Span, ...]] | None = None

    def covers(self, generation: GenerationId, place: int) -> bool:
        """Tell whether the leaf that begins at ``place`` of a generation's bytes is read."""
        return self.spans is None or any(first <= place < end for first, end in self.spans.get(generation, ()))


NOTHING = Portion({})
Picker = Callable[[Live], Portion]
"""What chooses, once it is known what is there."""


def pick_nothing(_live: Live) -> Portion:
    """Read no bytes."""
    return NOTHING


def pick_by_seed(share: Share, seed: int) -> Picker:
    """Return what reads the ``seed``-th of the parts that follow each other."""
    return lambda live: portion_of(Window.of(share, sum(size for _, size in live), seed), live)


def pick_part(part: Part) -> Picker:
    """Return what reads one of so many equal parts."""
    return lambda live: portion_of(Window.part(part, sum(size for _, size in live)), live)


def portion_of(window: Window, live: Live) -> Portion:
    """Return a window over generations, newest first, as what it is of each."""
    spans: dict[GenerationId, tuple[Span, ...]] = {}
    for generation, size in live:
        spans[generation] = window.within(size)
        window = window.after(size)
    return Portion(spans)
