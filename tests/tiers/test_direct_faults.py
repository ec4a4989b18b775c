"""Answers that are refusals or odd, on the direct way and on the SDK's: the same words for the same failures.

And no connection is used again that must not be.
"""

from collections.abc import Callable

import pytest
from support.misers import miser
from support.scripted import OK, WAYS, Script, create, error, opened, put, put_part, read

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, IntegrityError, ObjectExists, TierError, TierUnavailable
from tiers.protocol import Key, Tier


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_serves_one_request_after_another(way: str) -> None:
    with miser(Script([OK])) as server, opened(server.endpoint_url, way) as tier:
        for _ in range(3):
            put(tier)
            put_part(tier)
    assert server.served == 1


Case = tuple[str, bytes, Callable[[Tier], object], type[TierError], str, bool]
SLOW = error("503 Slow Down", "SlowDown", "Retry-After: 7")
CHUNKED = (
    b"HTTP/1.1 503 Slow Down\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1c;x=y\r\n<Error><Code>SlowDown</Code>\r\n8\r\n</Error>\r\n0\r\nx-trailer: t\r\n\r\n"
)
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>Hi</html>"
CASES: list[Case] = [
    ("refused", error("403 Forbidden", "AccessDenied"), put, AccessDenied, "AccessDenied (HTTP 403)", True),
    ("refused part", error("404 Not Found", "NoSuchUpload"), put_part, TierError, "NoSuchUpload (HTTP 404)", True),
    ("taken", error("412 Precondition Failed", "PreconditionFailed"), create, ObjectExists, "412", True),
    ("busy", SLOW, put, TierUnavailable, "SlowDown (HTTP 503)", True),
    ("busy in chunks", CHUNKED, put, TierUnavailable, "SlowDown (HTTP 503)", True),
    ("busy reading", SLOW, read, TierUnavailable, "SlowDown (HTTP 503)", True),
    ("damaged", error("400 Bad Request", "BadDigest"), put, IntegrityError, "BadDigest (HTTP 400)", True),
    ("broken success", error("200 OK", "InternalError", 'ETag: "e"'), put, TierUnavailable, "InternalError", True),
    ("no words", b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", put, AccessDenied, "403 (HTTP 403)", True),
    ("page", PAGE, put, TierUnavailable, "no ETag", True),
    ("page for an object", PAGE, read, TierUnavailable, "no ETag", False),
    ("moved", error("301 Moved", "PermanentRedirect", "Location: http://127.0.0.1:1/"), put, AccessDenied, "301", True),
    ("moved object", error("307 Moved", "TemporaryRedirect"), read, AccessDenied, "TemporaryRedirect", True),
    ("last", error("403 Forbidden", "AccessDenied", "Connection: close"), put, AccessDenied, "AccessDenied", False),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("answer", "act", "kind", "words", "kept"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_refusal_is_read_and_the_connection_goes_on(
    way: str, answer: bytes, act: Callable[[Tier], object], kind: type[TierError], words: str, kept: bool
) -> None:
    script = Script([answer, OK])
    with miser(script) as server, opened(server.endpoint_url, way) as tier:
        with pytest.raises(kind) as caught:
            act(tier)
        put(tier)
    assert words in caught.value.message
    assert len(script.requests) == 2, "nothing is followed, nothing is tried again"
    assert server.served == (1 if kept else 2)
    if isinstance(caught.value, TierUnavailable) and "SlowDown" in words:
        assert (caught.value.retry_after, caught.value.throttled) == (7.0, True)


ODD = {
    "no http": b"\x00\x01\x02 not http at all\r\n\r\n",
    "no status": b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n',
    "length and chunks": b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": b'HTTP/1.1 200 OK\r\nETag: "e"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    "negative chunk": b'HTTP/1.1 200 OK\r\nETag: "e"\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n',
    "chunk too long": b'HTTP/1.1 200 OK\r\nETag: "e"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n',
    "a vast document": b"HTTP/1.1 403 No\r\nContent-Length: 999999999999\r\n\r\n<Error>",
    "switched": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "head without end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    "interim without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + OK,
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_odd_ends_the_connection(odd: str) -> None:
    script = Script([ODD[odd], OK])
    with miser(script) as server, opened(server.endpoint_url, "auto") as tier:
        with pytest.raises(TierUnavailable):
            put(tier)
        put(tier)
    assert server.served == 2


def test_bytes_beyond_an_answer_are_nobodys() -> None:
    """A second answer that nobody asked for must not be taken for that to the next request."""
    stale = OK + b'HTTP/1.1 200 OK\r\nETag: "stale"\r\nContent-Length: 0\r\n\r\n'
    with miser(Script([stale, OK])) as server, opened(server.endpoint_url, "auto") as tier:
        put(tier)
        found = tier.put(Key("k"), BytesBody(b"x"))
    assert (found.etag, server.served) == ("e", 2)


@pytest.mark.parametrize("way", WAYS)
def test_interim_answers_are_passed_over(way: str) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" if way == "auto" else b""
    script = Script([b"HTTP/1.1 100 Continue\r\n\r\n" + hints + OK])
    with miser(script) as server, opened(server.endpoint_url, way) as tier:
        put(tier)
        put(tier)
        assert server.served == 1
