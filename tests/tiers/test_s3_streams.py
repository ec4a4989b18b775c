"""Whatever a store makes of a range request, the caller gets exactly those bytes, or an error before any."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiers.bodies import BytesBody
from tiers.errors import IntegrityError, TierUnavailable
from tiers.failures import Where
from tiers.s3_streams import DigestedBody, SentBody, object_stream, range_header
from tiers.testing import content

WHERE = Where(tier="store", operation="open", key="a")


class Reply(io.BytesIO):
    """A body that comes in pieces of at most ``piece`` bytes."""

    def __init__(self, data: bytes, piece: int) -> None:
        super().__init__(data)
        self.piece = piece

    def read(self, amt: int | None = None) -> bytes:
        return super().read(self.piece if amt is None else min(amt, self.piece))

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[: self.piece])


def reply(data: bytes, first: int, last: int, *, honest: bool, piece: int = 1 << 20) -> dict[str, Any]:
    """Answer with bytes ``first`` to ``last``, naming them where ``honest``."""
    held = data[first : last + 1]
    named = {"ContentRange": f"bytes {first}-{last}/{len(data)}"} if honest else {}
    return {**answer(held, piece), **named}


def answer(held: bytes, piece: int = 7, *, declared: int | None = None, status: int = 200) -> dict[str, Any]:
    """Answer without saying which bytes these are."""
    length = len(held) if declared is None else declared
    return {
        "Body": Reply(held, piece),
        "ContentLength": length,
        "ResponseMetadata": {"HTTPStatusCode": status},
    }


@given(data=st.data())
def test_exactly_the_range_or_nothing(data: st.DataObject) -> None:
    whole = content(data.draw(st.integers(1, 200)))
    start = data.draw(st.integers(0, 220))
    length = data.draw(st.none() | st.integers(1, 220))
    honest = data.draw(st.booleans())
    first = data.draw(st.integers(0, len(whole) - 1)) if honest else 0
    last = data.draw(st.integers(first, len(whole) - 1)) if honest else len(whole) - 1
    end = len(whole) if length is None else start + length
    given_answer = reply(whole, first, last, honest=honest, piece=data.draw(st.integers(1, 50)))
    if first <= start < end <= last + 1:
        with object_stream(given_answer, start, length, WHERE) as stream:
            chunk = data.draw(st.integers(1, 64))
            assert b"".join(iter(lambda: stream.read(chunk), b"")) == whole[start:end]
    else:
        with pytest.raises(IntegrityError):
            object_stream(given_answer, start, length, WHERE)
        assert given_answer["Body"].closed


@given(held=st.integers(0, 99), skip=st.integers(0, 20))
def test_an_early_end_is_never_the_end(held: int, skip: int) -> None:
    cut = answer(content(100)[:held], declared=100)
    with object_stream(cut, skip, 100 - skip, WHERE) as stream, pytest.raises(TierUnavailable):
        stream.read()


def test_an_empty_object() -> None:
    with object_stream(answer(b""), 0, None, WHERE) as stream:
        assert stream.read() == b""


def test_a_part_that_does_not_say_which_is_refused() -> None:
    with pytest.raises(IntegrityError, match="and not which"):
        object_stream(answer(b"abc", status=206), 0, 3, WHERE)


def test_readinto_and_readable() -> None:
    buffer = bytearray(8)
    with object_stream(answer(b"0123456789", 4), 0, None, WHERE) as stream:
        assert stream.readable()
        assert (stream.readinto(buffer), bytes(buffer[:4])) == (4, b"0123")
        assert stream.readall() == b"456789"
        assert stream.readinto(buffer) == 0


@pytest.mark.parametrize(
    ("start", "length", "header"),
    [(0, None, None), (5, None, "bytes=5-"), (0, 1, "bytes=0-0"), (5, 10, "bytes=5-14")],
)
def test_range_header(start: int, length: int | None, header: str | None) -> None:
    assert range_header(start, length) == header


def test_a_sent_body_can_be_rewound() -> None:
    """The SDK reads it once for the signature where payloads are signed."""
    body = SentBody(io.BytesIO(b"abcdef"), 6, WHERE)
    assert (len(body), body.read(), body.read(), body.tell()) == (6, b"abcdef", b"", 6)
    assert body.seek(2) == 2
    assert (body.read(1), body.read(100)) == (b"c", b"def")


def test_a_sent_body_never_gives_more_than_was_declared() -> None:
    assert SentBody(io.BytesIO(b"abcdef"), 4, WHERE).read() == b"abcd"


def test_a_body_without_digest_gets_one() -> None:
    body = DigestedBody(BytesBody(b"abc"))
    assert (body.size, body.sha256) == (3, BytesBody(b"abc").sha256)
    with body.open() as reader:
        assert reader.read() == b"abc"
