"""WebDAV servers that answer ranges in their own way, and those that want to know who asks."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from support.fsspec_tiers import serve
from support.webdav_server import PASSWORD

from tiers.errors import AccessDenied
from tiers.fsspec_backends import BadAnswer, Entry
from tiers.fsspec_webdav import _WebdavSource
from tiers.protocol import Key
from tiers.testing import content

DATA = content(3_000_000)
ENTRY = Entry(path="a", size=len(DATA), is_file=True, is_folder=False, etag=None, modified=None)
Handler = Callable[[httpx.Request], httpx.Response]


@dataclass(frozen=True, slots=True)
class Client:
    """The two things that a source wants of webdav4's client."""

    http: httpx.Client

    def join_url(self, path: str) -> str:
        return f"http://store/{path}"


def source(handler: Handler) -> _WebdavSource:
    return _WebdavSource(Client(httpx.Client(transport=httpx.MockTransport(handler))), "a", ENTRY)


def pieces(found: _WebdavSource, start: int) -> Iterator[bytes]:
    while piece := found.fetch(start, 1 << 20):
        start += len(piece)
        yield piece


def answer(status: int, data: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(data), headers=headers)


def ranged(request: httpx.Request) -> httpx.Response:
    start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
    return answer(206, DATA[start:], {"Content-Range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"})


def whole(_request: httpx.Request) -> httpx.Response:
    return answer(200, DATA)


@pytest.mark.parametrize("handler", [ranged, whole])
@pytest.mark.parametrize("start", [1, 1_500_000, len(DATA) - 1])
def test_a_range_is_the_range(handler: Handler, start: int) -> None:
    """A server may ignore ranges; the start of an object is never taken for its middle."""
    with closing(source(handler)) as found:
        assert b"".join(pieces(found, start)) == DATA[start:]


def test_one_request_for_all_that_is_read_in_a_row() -> None:
    asked: list[httpx.Request] = []

    def counting(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return whole(request)

    with closing(source(counting)) as found:
        assert b"".join(pieces(found, 0)) == DATA
    assert len(asked) == 1
    assert asked[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("headers", [{}, {"Content-Range": "bytes 9-10/11"}, {"Content-Range": "nonsense"}])
def test_an_answer_that_is_another_range(headers: dict[str, str]) -> None:
    with closing(source(lambda _: answer(206, DATA, headers))) as found, pytest.raises(BadAnswer):
        found.fetch(5, 10)


def test_an_object_that_is_shorter_than_the_start() -> None:
    with closing(source(lambda _: answer(200, b"abc"))) as found, pytest.raises(EOFError):
        found.fetch(5, 10)


def test_a_wrong_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs a person, is never repeated, and is not retried."""
    with serve("webdav", tmp_path, monkeypatch) as served:
        monkeypatch.setenv("CKPTIER_WEBDAV_PASSWORD", "hunter2-wrong")
        with closing(served.open()) as tier:
            for act in (
                lambda: tier.stat(Key("a")),
                lambda: tier.list_objects(""),
                lambda: tier.create(Key("a"), b"x"),
            ):
                with pytest.raises(AccessDenied) as caught:
                    act()
                text = f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"
                assert "hunter2" not in text
                assert PASSWORD not in text
