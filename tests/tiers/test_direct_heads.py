"""Heads of answers: what http.client makes of the same bytes, and what is refused although it would not."""

import io
import string
from http.client import HTTPResponse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiers.s3_direct.heads import MAX_LINES, BadHead, Head, parse_head


class Wire:
    """What http.client reads from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def oracle(head: bytes) -> HTTPResponse:
    found = HTTPResponse(Wire(head + b"\r\n\r\n"), method="PUT")  # type: ignore[arg-type]
    found.begin()
    return found


names = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=20).filter(
    lambda name: name.lower() not in {"content-length", "transfer-encoding", "connection"}
)
values = st.text([chr(code) for code in range(0x20, 0x100) if code != 0x7F and not 0x80 <= code < 0xA0], max_size=30)
statuses = st.integers(200, 599)


@given(
    minor=st.sampled_from("01"),
    status=statuses,
    reason=st.sampled_from(["OK", "", "Not Found", "Sehr gut"]),
    headers=st.lists(st.tuples(names, values), max_size=8),
    length=st.one_of(st.none(), st.integers(0, 10**15)),
    connection=st.sampled_from([None, "close", "keep-alive", "Close"]),
)
def test_heads_read_as_the_library_reads_them(
    minor: str,
    status: int,
    reason: str,
    headers: list[tuple[str, str]],
    length: int | None,
    connection: str | None,
) -> None:
    headers = [*headers, *([("Connection", connection)] if connection else [])]
    headers = [*headers, *([("Content-Length", str(length))] if length is not None else [])]
    lines = [f"HTTP/1.{minor} {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    raw = "\r\n".join(lines).encode("latin-1")
    found, theirs = parse_head(raw), oracle(raw)
    assert found.status == theirs.status
    assert found.length == theirs.length
    expected: dict[str, str] = {}
    for name, value in headers:
        text = value.strip(" \t")
        expected[name.lower()] = f"{expected[name.lower()]}, {text}" if name.lower() in expected else text
    assert found.headers == expected
    for name, text in expected.items():
        assert (theirs.getheader(name) or "").strip(" \t").replace(" ", "") == text.replace(" ", "")
    if found.keeps:
        assert not theirs.will_close, "what the library would close is not kept"


GOOD = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 5'


@given(st.binary(max_size=200), st.integers(0, len(GOOD)))
def test_no_bytes_lead_to_anything_but_a_head_or_a_refusal(noise: bytes, place: int) -> None:
    for data in (noise, GOOD[:place] + noise + GOOD[place:], b"HTTP/1.1 200 OK\r\n" + noise):
        try:
            found = parse_head(data)
        except BadHead:
            continue
        else:
            assert 100 <= found.status <= 999
            assert found.length is None or found.length >= 0


def head(*lines: str, first: str = "HTTP/1.1 200 OK") -> Head:
    return parse_head("\r\n".join((first, *lines)).encode("latin-1"))


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 6"],
        ["Content-Length: -1"],
        ["Content-Length: +1"],
        ["Content-Length: 5x"],
        ["Content-Length:"],
        ["Content-Length: 1e3"],
        ["Content-Length: \u00b2"],
        [f"Content-Length: {10**19}"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: identity"],
        ["X: a", " folded"],
        ["X: a\nContent-Length: 5"],
        ["X: a\0b"],
        ["X : a"],
        [": a"],
        ["no colon"],
        [""],
        [f"X-{number}: a" for number in range(MAX_LINES + 1)],
    ],
)
def test_what_is_odd_is_no_head(lines: list[str]) -> None:
    with pytest.raises(BadHead):
        head(*lines)


@pytest.mark.parametrize(
    "first",
    [
        *("", "ICY 200 OK", "http/1.1 200 OK", "HTTP/2 200 OK", "HTTP/1.2 200 OK", "HTTP/1.1  200 OK"),
        *("HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 0200 OK", "HTTP/1.1 099 OK", "HTTP/1.1 200 O\0K"),
    ],
)
def test_what_is_no_status_line(first: str) -> None:
    with pytest.raises(BadHead):
        head(first=first)


def test_how_long_a_body_is() -> None:
    assert head("Content-Length: 5") == Head(200, {"content-length": "5"}, 5, False, True)
    assert head("Content-Length: 5", "content-length: 5").length == 5
    chunked = head("Transfer-Encoding: Chunked")
    assert (chunked.length, chunked.chunked, chunked.keeps) == (None, True, True)
    to_the_end = head()
    assert (to_the_end.length, to_the_end.chunked, to_the_end.keeps) == (None, False, False)
    for first in ("HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified", "HTTP/1.1 100 Continue"):
        assert head("Content-Length: 5", first=first).length == 0
        assert head(first=first).length == 0
    assert not head("Content-Length: 5", "Connection: keep-alive, Close").keeps
    assert not head("Content-Length: 5", first="HTTP/1.0 200 OK").keeps
    with pytest.raises(BadHead):
        head("Transfer-Encoding: chunked", first="HTTP/1.0 200 OK")
