"""JSON read so that nothing of it is lost: every key of a name that stands there twice, in order, bounded."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from replicate.release.scan.fragments import Node, Origin, Piece, label_of

MAX_DEPTH = 128
WORDS_IN_A_PIECE = 256
BASE64_FIELDS = frozenset({"precompiled_charsmap"})
"""Fields of tokenizers that hold compiled tables: random to look at, and no secret."""
TEMPLATE_FIELDS = frozenset({"chat_template", "template"})


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, in the order of the file."""

    def get(self, key: str) -> Any:
        """Return the last value of a key, as most readers do; None where there is none."""
        return next((value for name, value in reversed(self) if name == key), None)


class Member(NamedTuple):
    """A value with its place; ``key`` is None in a list.  ``learned`` where it is a tokenizer's vocabulary, whole."""

    node: Node | None
    label: str
    key: str | None
    value: Any
    learned: bool


@dataclass(slots=True)
class Parsed:
    """A parsed document and what is wrong with its JSON; ``document`` is None where it is no JSON."""

    document: Any = None
    faults: list[str] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Parse JSON; what is wrong is said without repeating it."""
    parsed = Parsed()
    twice: list[int] = []

    def pairs(found: list[tuple[str, Any]]) -> Pairs:
        more = len(found) - len({key for key, _ in found})
        if more:
            twice.append(more)
        return Pairs(found)

    try:
        parsed.document = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        parsed.faults.append(f"is no JSON: {error.msg} in line {error.lineno}, column {error.colno}")
    except (ValueError, RecursionError) as error:
        why = "is nested too deep" if isinstance(error, RecursionError) else "holds a number that JSON has not"
        parsed.faults.append(f"is no JSON that readers take: it {why}")
    if twice:
        parsed.faults.append(f"has {sum(twice)} keys that stand there twice: readers disagree about which counts")
    return parsed


def _no_constant(_: str) -> float:
    raise ValueError("NaN and Infinity are no JSON")


def members(document: Any, learned_at: tuple[tuple[str, ...], ...] = ()) -> Iterator[Member]:
    """Yield every value of a document with its place, depth first, without recursion.

    ``learned_at`` are paths of keys at which the vocabulary of a tokenizer lies: it is one member.
    """
    if () in learned_at and isinstance(document, list):
        yield Member(None, "", None, document, learned=True)
        return
    stack: list[tuple[Iterator[tuple[int, str | None, Any]], Node | None, tuple[str, ...]]] = [
        (_items(document), None, ())
    ]
    while stack:
        items, node, path = stack[-1]
        for position, key, value in items:
            label = str(position) if key is None else label_of(key, position)
            below = (*path, key) if key is not None and len(path) < MAX_DEPTH else path
            learned = bool(learned_at) and below in learned_at and isinstance(value, list)
            yield Member(node, label, key, value, learned)
            if isinstance(value, list) and not learned:
                stack.append((_items(value), Node(node, label), below))
                break
        else:
            stack.pop()


def _items(value: Any) -> Iterator[tuple[int, str | None, Any]]:
    if isinstance(value, Pairs):
        return ((position, key, item) for position, (key, item) in enumerate(value))
    if isinstance(value, list):
        return ((position, None, item) for position, item in enumerate(value))
    return iter([(0, None, value)])


def pieces(found: Iterator[Member]) -> Iterator[Piece]:
    """Yield the text of every key and every string; a vocabulary in pieces of many words, a line each."""
    for node, label, key, value, learned in found:
        if key is not None:
            yield Piece(Origin.NAME, node, label, key)
        if learned:
            yield from _vocabulary(Node(node, label), value)
        elif isinstance(value, str):
            yield Piece(_origin(key), node, label, value)


def _origin(key: str | None) -> Origin:
    if key in BASE64_FIELDS:
        return Origin.BYTES
    return Origin.TEMPLATE if key in TEMPLATE_FIELDS else Origin.VALUE


def _vocabulary(node: Node, value: Any) -> Iterator[Piece]:
    words, start = _words(value), 0
    while batch := list(itertools.islice(words, WORDS_IN_A_PIECE)):
        text = "\n".join(word.replace("\n", " ") for word in batch)
        yield Piece(Origin.VOCABULARY, node, f"(from {start})", text)
        start += len(batch)


def _words(value: Any) -> Iterator[str]:
    """Yield every string below a value; those of a flat list, which a merge or a scored word is, in one."""
    pending = [value]
    while pending:
        one = pending.pop()
        for item in itertools.chain.from_iterable(one) if isinstance(one, Pairs) else one:
            if isinstance(item, str):
                yield item
            elif isinstance(item, Pairs) or (isinstance(item, list) and any(isinstance(each, list) for each in item)):
                pending.append(item)
            elif isinstance(item, list):
                yield " ".join(each for each in item if isinstance(each, str))
