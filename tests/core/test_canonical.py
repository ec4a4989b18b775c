"""Canonical JSON: one spelling out, bounded and strict in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicate import canonical
from replicate.errors import IntegrityFailure

PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def load(data: bytes, max_bytes: int = 10_000) -> dict[str, Any]:
    return canonical.load(data, what="the document", max_bytes=max_bytes)


@given(st.dictionaries(st.text(max_size=8), PLAIN, max_size=5))
def test_round_trip_keeps_bytes(document: dict[str, Any]) -> None:
    data = canonical.dump(document)
    assert load(data) == document
    assert canonical.dump(load(data)) == data


def test_order_and_spaces_do_not_matter() -> None:
    assert canonical.dump({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()
    assert canonical.dump(load(b'{ "b": 1, "a": 2 }')) == b'{"a":2,"b":1}'


@pytest.mark.parametrize("value", [1.0, float("nan"), float("inf"), b"x", {1}, object()])
def test_what_has_no_one_spelling_is_not_written(value: object) -> None:
    """Above all floats, which ``load`` refuses: a document must not be written that nobody reads."""
    with pytest.raises((TypeError, ValueError)):
        canonical.dump({"a": [{"b": value}]})


def test_lone_surrogate_is_not_written() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        canonical.dump({"a": "\ud800"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":1}{"b":2}',
        b"[]",
        b"null",
        b'"text"',
        b'{"a":1.0}',
        b'{"a":1e3}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1,"a":1}',
        b'{"x":{"a":1,"a":2}}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        json.dumps({"a": 1}).encode("utf-16"),
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"' + b"x" * 10_000 + b'"}',
    ],
)
def test_what_is_not_a_plain_document_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityFailure, match="the document"):
        load(data)


def test_large_integers_survive() -> None:
    assert load(b'{"a":%d}' % 2**100) == {"a": 2**100}


def test_depth_is_bounded_and_brackets_in_strings_do_not_count() -> None:
    assert load(b'{"a":' + b"[" * 31 + b"]" * 31 + b"}")
    assert load(canonical.dump({"a": "[" * 500 + '\\"' + "{" * 500}))
    with pytest.raises(IntegrityFailure, match="deep"):
        load(b'{"a":' + b"[" * 32 + b"]" * 32 + b"}")
    with pytest.raises(IntegrityFailure, match="deep"):
        load(b"[" * 9_000)


def test_string_without_an_end_costs_no_more_than_its_length() -> None:
    """A hostile manifest of many megabytes must not keep a reader busy for hours."""
    data = b'{"' + rb"\"" * 500_000
    with pytest.raises(IntegrityFailure, match="JSON"):
        load(data, max_bytes=len(data))
