"""Answers that come early, and connections that end in the middle, on the direct way."""

import threading
from dataclasses import dataclass, field
from io import BytesIO
from socket import SHUT_RDWR, SHUT_WR, SO_LINGER, SOL_SOCKET, socket
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from support.misers import Behave, miser, read_head
from support.scripted import BIG, MIB, OK, WAYS, Script, error, length_of, opened, put, read, swallow

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, TierError, TierUnavailable
from tiers.protocol import Key
from tiers.s3_direct.wire import Exchange
from tiers.testing import content


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")


@dataclass
class Early:
    """Answers a request before its body has come, and then counts what comes all the same."""

    answer: bytes
    received: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, connection: socket, stop: threading.Event) -> None:
        head = read_head(connection)
        if length_of(head) < BIG:
            connection.sendall(OK)
            return
        connection.sendall(self.answer)
        try:
            while piece := connection.recv(MIB):
                self.received += len(piece)
        finally:
            self.done.set()


def test_a_refusal_before_the_body_ends_stops_the_sending() -> None:
    early = Early(error("403 Forbidden", "AccessDenied"))
    with miser(early) as server, opened(server.endpoint_url, "auto") as tier:
        with pytest.raises(AccessDenied, match="AccessDenied"):
            put(tier, BIG)
        tier.put(Key("k"), BytesBody(b""))
        tier.close()
        assert early.done.wait(10)
        assert early.received < BIG
        assert server.served == 2, "what is half sent is never used again"


def test_a_success_before_the_body_ends_is_none() -> None:
    with miser(Early(OK)) as server, opened(server.endpoint_url, "auto") as tier:
        with pytest.raises(TierUnavailable, match="before it had the body"):
            put(tier, BIG)
        tier.put(Key("k"), BytesBody(b""))
        assert server.served == 2


def test_interim_answers_within_the_body_do_not_stop_it() -> None:
    def encourage(connection: socket, _stop: threading.Event) -> None:
        head = read_head(connection)
        for _ in range(3):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        swallow(connection, length_of(head))
        connection.sendall(OK)

    with miser(encourage) as server, opened(server.endpoint_url, "auto") as tier:
        put(tier, BIG)
        assert server.served == 1


def hang_up(connection: socket) -> None:
    connection.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
    connection.close()


def resets_within_the_body(connection: socket, _stop: threading.Event) -> None:
    head = read_head(connection)
    if length_of(head) < BIG:
        connection.sendall(OK)
        return
    swallow(connection, 100_000)
    hang_up(connection)


def refuses_and_leaves(connection: socket, _stop: threading.Event) -> None:
    """Say why, stop listening, and let the client find out by writing."""
    head = read_head(connection)
    if length_of(head) < BIG:
        connection.sendall(OK)
        return
    connection.sendall(error("400 Bad Request", "EntityTooLarge", "Connection: close"))
    connection.shutdown(SHUT_WR)
    while connection.recv(MIB):
        continue


def ends_within_the_head(connection: socket, _stop: threading.Event) -> None:
    swallow(connection, length_of(read_head(connection)))
    connection.sendall(OK[:20])


def ends_within_the_document(connection: socket, _stop: threading.Event) -> None:
    swallow(connection, length_of(read_head(connection)))
    connection.sendall(error("403 Forbidden", "AccessDenied")[:-5])


@pytest.mark.parametrize("behave", [resets_within_the_body, ends_within_the_head, ends_within_the_document])
def test_a_connection_that_ends_is_a_failure_and_the_next_one_works(behave: Behave) -> None:
    broken = threading.Event()

    def once(connection: socket, stop: threading.Event) -> None:
        if broken.is_set():
            Script([OK])(connection, stop)
            return
        broken.set()
        behave(connection, stop)

    with miser(once) as server, opened(server.endpoint_url, "auto") as tier:
        with pytest.raises(TierUnavailable):
            put(tier, BIG)
        put(tier)
        assert server.served == 2


def test_a_store_that_refuses_and_hangs_up_is_heard() -> None:
    with miser(refuses_and_leaves) as server, opened(server.endpoint_url, "auto") as tier:
        with pytest.raises(TierError, match="EntityTooLarge"):
            put(tier, BIG)
        put(tier)
        assert server.served == 2


class Hung:
    """A socket that takes one piece and then no more; ``words`` are what had come until then."""

    def __init__(self, words: bytes) -> None:
        self.sent = 0
        self.words = words
        self.timeout: float | None = None

    def settimeout(self, timeout: float | None) -> None:
        self.timeout = timeout

    def gettimeout(self) -> float | None:
        return self.timeout

    def send(self, data: memoryview) -> int:
        if self.sent:
            raise BrokenPipeError
        self.sent = len(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        if self.timeout == 0.0:
            raise BlockingIOError
        words, self.words = self.words[:size], self.words[size:]
        return words


@pytest.mark.parametrize("words", [error("403 Forbidden", "AccessDenied"), b""], ids=["words", "none"])
def test_last_words_are_heard_where_only_writing_shows_that_it_is_over(words: bytes) -> None:
    hung = Hung(words)
    closed: list[bool] = []
    connection = SimpleNamespace(sock=hung, close=lambda: closed.append(True))
    pool = SimpleNamespace(timeout=SimpleNamespace(read_timeout=1.0, connect_timeout=1.0))
    pool._get_conn = lambda: connection
    exchange = Exchange(pool)
    body: Any = BytesIO(bytes(3 * MIB))
    if words:
        head = exchange.ask(b"PUT / HTTP/1.1\r\n\r\n", body, 3 * MIB)
        assert (head.status, exchange.unsent) == (403, True)
        assert b"AccessDenied" in exchange.document(head)
    else:
        with pytest.raises(BrokenPipeError):
            exchange.ask(b"PUT / HTTP/1.1\r\n\r\n", body, 3 * MIB)
    assert closed == [True]


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_was_closed_meanwhile_is_not_used(way: str) -> None:
    left = threading.Event()

    def leaving(connection: socket, _stop: threading.Event) -> None:
        head = read_head(connection)
        if b"100-continue" in head.lower():
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        swallow(connection, length_of(head))
        connection.sendall(OK)
        connection.shutdown(SHUT_RDWR)
        left.set()

    with miser(leaving) as server, opened(server.endpoint_url, way) as tier:
        for count in (1, 2, 3):
            put(tier)
            assert left.wait(10)
            left.clear()
            assert server.served == count


def test_the_tier_can_be_closed_and_used_again() -> None:
    with miser(Script([OK])) as server, opened(server.endpoint_url, "auto") as tier:
        put(tier)
        tier.close()
        put(tier)
        assert server.served == 2


def sends(answer: bytes, body: bytes) -> Behave:
    def behave(connection: socket, _stop: threading.Event) -> None:
        read_head(connection)
        connection.sendall(answer + body)

    return behave


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (sends(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 100\r\n\r\n', b"x" * 60), "to come"),
        (
            sends(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nTransfer-Encoding: chunked\r\n\r\n', b"0\r\n\r\n"),
            "no Content-Length",
        ),
        (sends(b'HTTP/1.1 200 OK\r\nETag: "e"\r\n\r\n', b"x" * 60), "no Content-Length"),
    ],
    ids=["short", "chunked", "to the end"],
)
def test_an_object_is_what_its_length_says(behave: Behave, words: str, way: str) -> None:
    with (
        miser(behave) as server,
        opened(server.endpoint_url, way) as tier,
        pytest.raises(TierUnavailable, match=words),
    ):
        read(tier)


@pytest.mark.parametrize("way", WAYS)
def test_an_object_that_is_drained_frees_its_connection_and_one_that_is_not_closes_it(way: str) -> None:
    body = content(300_000)
    script = Script([b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 300000\r\n\r\n' + body])
    with miser(script) as server, opened(server.endpoint_url, way) as tier:
        assert read(tier) == body
        assert read(tier) == body
        assert server.served == 1
        with tier.open(Key("k")) as stream:
            assert stream.read(1_000) == body[:1_000]
        assert read(tier) == body
        assert server.served == 2
