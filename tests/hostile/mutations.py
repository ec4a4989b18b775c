"""Documents with one to three things wrong in them: changed in structure, so that most get past the parser itself."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**53,
    2**64,
    "@digits",
    1.5,
    float("nan"),
    "",
    "..",
    "../../x",
    "/etc/passwd",
    "C:\\x",
    "a\0b",
    "\x1b]0;owned\x07",
    "\ud800",
    "caf\u0301\u202e",
    "x" * 5000,
    "9" * 5000,
    "a0001-g000001-u000000000001-00000000",
    "0" * 64,
    [],
    {},
    [[]],
    ["a"] * 3000,
    {"format": 2},
    {"kind": "void"},
)


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[list[int], int, Any]]:
    """Draw where and what to change; ``apply`` takes the numbers modulo what there is."""
    number = st.integers(0, 10**6)
    one = st.tuples(st.lists(number, min_size=1, max_size=7), st.integers(0, 4), st.sampled_from(HOSTILE))
    return draw(st.lists(one, min_size=1, max_size=3))


def apply(document: Any, changes: list[tuple[list[int], int, Any]]) -> Any:
    """Return a changed copy."""
    changed = copy.deepcopy(document)
    for way, kind, value in changes:
        _change(changed, way, kind, copy.deepcopy(value))
    return changed


def _change(document: Any, way: list[int], kind: int, value: Any) -> None:
    """Walk down as far as the way leads, then replace, remove, repeat, nest, or add."""
    here = document
    for step in way[:-1]:
        inner = [child for _, child in _children(here) if isinstance(child, dict | list) and child]
        if not inner:
            break
        here = inner[step % len(inner)]
    places = _children(here)
    if not places:
        return
    key, child = places[way[-1] % len(places)]
    if kind == 0:
        here[key] = value
    elif kind == 1:
        del here[key]
    elif kind == 2:
        here[key] = _nested(child)
    elif isinstance(here, dict):
        here[f"{key}\u200b"] = value if kind == 3 else child
    else:
        here.append(value if kind == 3 else child)


def _nested(value: Any) -> Any:
    for _ in range(40):
        value = [value]
    return value


def _children(node: Any) -> list[tuple[Any, Any]]:
    return list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []


def as_json(document: Any) -> bytes:
    """Write it down, whatever it is."""
    return with_digits(json.dumps(document).encode())


def with_digits(data: bytes) -> bytes:
    """Put a number there that Python itself would not write, for its length."""
    return data.replace(b'"@digits"', b"9" * 5000)


@st.composite
def damage(draw: st.DrawFn) -> tuple[int, int, int]:
    """Draw a place, a byte to put there, and how much to cut."""
    return draw(st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 3)))


def hurt(data: bytes, how: tuple[int, int, int]) -> bytes:
    """Change a byte, or cut there, or say a piece twice."""
    at, value, kind = how[0] % max(1, len(data)), how[1], how[2]
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at // 2 :]
    return data[:at] + bytes([value]) + data[at + 1 :]
