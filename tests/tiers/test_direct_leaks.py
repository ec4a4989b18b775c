"""Nothing that a socket or the HTTP library raises comes out of the direct way, and no connection stays behind."""

import http.client
import inspect
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3.exceptions

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, TierError, TierUnavailable
from tiers.profiles import PROFILES
from tiers.protocol import Key
from tiers.s3 import S3Tier
from tiers.s3_client import build_client
from tiers.s3_direct import direct
from tiers.testing import read_all

OBJECT = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 300000\r\n\r\n'
OF_LIBRARY = [
    cls
    for _, cls in inspect.getmembers(urllib3.exceptions, inspect.isclass)
    if issubclass(cls, urllib3.exceptions.HTTPError) and not issubclass(cls, http.client.IncompleteRead)
]
"""Without those that cannot say what they are before they are told."""
OF_SYSTEM: list[type[Exception]] = [
    OSError,
    ConnectionResetError,
    BrokenPipeError,
    TimeoutError,
    ssl.SSLError,
    ssl.SSLEOFError,
    ValueError,
]
SECRET = "geheim"


class Line:
    """A pool, its only connection and the socket of that; raises what is pending at its ``stage``."""

    def __init__(self) -> None:
        self.stage = ""
        self.pending: list[Exception] = []
        self.opened = self.closed = 0
        self.sock: Any = None
        self.answer = b""

    @property
    def timeout(self) -> SimpleNamespace:
        return SimpleNamespace(connect_timeout=1.0, read_timeout=1.0)

    @timeout.setter
    def timeout(self, _of_connection: float) -> None:
        """Take what a connection is told."""

    def _at(self, stage: str) -> None:
        if stage == self.stage and self.pending:
            raise self.pending.pop()

    def _get_conn(self) -> "Line":
        self._at("pool")
        self.opened += 1
        self.sock = None
        return self

    def _put_conn(self, _connection: object) -> None:
        self.closed += 1

    def connect(self) -> None:
        self._at("connect")
        self.sock = self
        self.answer = OBJECT

    def close(self) -> None:
        self.closed += 1

    def settimeout(self, _timeout: float | None) -> None:
        """Nothing to wait for."""

    def gettimeout(self) -> float:
        return 1.0

    def send(self, data: memoryview) -> int:
        self._at("send")
        return len(data)

    def recv(self, _size: int) -> bytes:
        self._at("recv")
        answer, self.answer = self.answer, b""
        return answer

    def recv_into(self, view: memoryview) -> int:
        self._at("body")
        return len(view)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Line, S3Tier]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    client: Any = direct(build_client(PROFILES["aws"], "http://127.0.0.1:1", "us-east-1", 1))
    way = client._way({"Bucket": "bucket"})
    pool = Line()
    way.pool = pool
    monkeypatch.setattr("tiers.s3_direct.client.pool_for", lambda _client, _url: pool)
    yield pool, S3Tier("store", bucket="bucket", prefix="p", profile=PROFILES["aws"], connect=lambda: client)
    client.close()


def use(tier: S3Tier, stage: str) -> object:
    return read_all(tier.open(Key("k"))) if stage == "body" else tier.put(Key("k"), BytesBody(b"x"))


@pytest.mark.parametrize("stage", ["pool", "connect", "send", "recv", "body"])
def test_whatever_a_connection_raises(line: tuple[Line, S3Tier], stage: str) -> None:
    pool, tier = line
    kinds: list[Any] = [*OF_LIBRARY, *OF_SYSTEM]
    for cls in kinds:
        pool.stage, pool.opened, pool.closed = stage, 0, 0
        # a pool that was closed is opened anew, once
        pool.pending[:] = [cls.__new__(cls) for _ in range(2 if cls is urllib3.exceptions.ClosedPoolError else 1)]
        with pytest.raises(TierError) as caught:
            use(tier, stage)
        assert not pool.pending or stage != "pool", f"{cls} was not raised"
        assert isinstance(caught.value, TierUnavailable | AccessDenied), cls
        assert stage == "body" or caught.value.__cause__ is None, "its text may quote secrets"
        assert SECRET not in repr(caught.value)
        assert pool.opened == pool.closed, f"after {cls} the connection is still there"


@pytest.mark.parametrize("stage", ["connect", "send", "recv"])
def test_a_certificate_that_is_refused_needs_a_person(line: tuple[Line, S3Tier], stage: str) -> None:
    pool, tier = line
    pool.stage, pool.pending = stage, [ssl.SSLCertVerificationError.__new__(ssl.SSLCertVerificationError)]
    with pytest.raises(AccessDenied) as caught:
        tier.put(Key("k"), BytesBody(b"x"))
    assert "ca_bundle" in caught.value.hint
