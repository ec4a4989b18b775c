"""Ranges of a generation in memory: proved leaf by leaf, each fetched once, from whichever place has it."""

import io
from collections.abc import Sequence

import pytest
from support.commits import LEAF, flip, payload, sealed_file

from replicate.errors import IntegrityFailure
from replicate.manifest import SealedFile
from replicate.restore.places import Fault, NotProved
from replicate.restore.ranges import BESIDE, LOOKING, ProvedRanges, Span
from tiers.errors import ObjectNotFound, TierUnavailable

SIZE = 100 * LEAF + 300
DATA = payload(7, SIZE)
FILE = sealed_file("model.bin", DATA)
EMPTY = sealed_file("empty", b"")
WORKERS = 2


class Kept:
    """A place that has the bytes, or what became of them, and counts how often each leaf was asked for."""

    again = True

    def __init__(self, name: str, data: bytes = DATA, failure: Exception | None = None) -> None:
        self.name = name
        self._data = data
        self._failure = failure
        self.asked: list[int] = []

    def holds(self, file: SealedFile) -> bool:
        return file.path == "model.bin"

    def descriptor(self, file: SealedFile) -> None:
        return None

    def open(self, file: SealedFile, start: int, length: int | None) -> io.BytesIO:
        assert file.path == "model.bin"
        self.asked.append(start // LEAF)
        if self._failure is not None:
            raise self._failure
        return io.BytesIO(self._data[start : start + (length or 0)])


def ranges(*sources: Kept) -> ProvedRanges:
    return ProvedRanges([FILE, EMPTY], sources, workers=WORKERS)


def span(start: int, length: int, path: str = "model.bin") -> Span:
    return Span(path=path, start=start, length=length)


def unavailable() -> TierUnavailable:
    return TierUnavailable("it does not answer", tier="a", operation="open", key="k")


@pytest.mark.parametrize(
    ("start", "length", "leaves"),
    [
        (0, 0, []),
        (5, 10, [0]),
        (LEAF - 1, 2, [0, 1]),
        (LEAF, LEAF, [1]),
        (SIZE - 1, 1, [100]),
        (SIZE, 0, []),
        (0, SIZE, list(range(101))),
    ],
)
def test_a_span_is_its_bytes_and_reads_no_other_leaf(start: int, length: int, leaves: Sequence[int]) -> None:
    place = Kept("a")
    assert ranges(place).read(span(start, length)) == DATA[start : start + length]
    assert sorted(place.asked) == leaves


def test_an_empty_file_needs_no_place() -> None:
    assert ranges().read(span(0, 0, "empty")) == b""


def test_spans_come_in_order_and_share_their_leaves() -> None:
    place = Kept("a")
    wanted = [span(at, 700) for at in range(90 * LEAF, 0, -500)]
    got = [(one, stream.read()) for one, stream in ranges(place).each([*wanted, *wanted])]
    assert [one for one, _ in got] == sorted(wanted)
    assert all(data == DATA[one.start : one.start + one.length] for one, data in got)
    assert len(place.asked) == len(set(place.asked))


def test_a_long_span_holds_a_few_leaves_at_a_time() -> None:
    place = Kept("a")
    reader = ranges(place)
    ((_, stream),) = [next(reader.each([span(0, SIZE)]))]
    first = stream.read(LOOKING + 1)
    ahead = len(place.asked)
    assert LOOKING // LEAF <= ahead <= LOOKING // LEAF + 1 + WORKERS + BESIDE, "far more was fetched than asked for"
    assert first + stream.read() == DATA
    assert sorted(place.asked) == list(range(101)), "each once"


def test_looking_at_the_end_first_fetches_nothing_twice() -> None:
    place = Kept("a")
    for _, stream in ranges(place).each([span(0, SIZE)]):
        stream.seek(-3000, io.SEEK_END)
        assert stream.read(3000) == DATA[-3000:]
        stream.seek(0)
        assert stream.read(100) == DATA[:100]
        stream.seek(0)
        assert stream.read() == DATA
    assert len(place.asked) == len(set(place.asked))


@pytest.mark.parametrize(
    ("hurt", "fault"),
    [
        (Kept("a", flip(3 * LEAF + 5)(DATA)), Fault.DIFFERS),
        (Kept("a", DATA[: 3 * LEAF + 5]), Fault.DIFFERS),
        (Kept("a", failure=ObjectNotFound("gone", tier="a", operation="open", key="k")), Fault.MISSING),
        (Kept("a", failure=unavailable()), Fault.UNANSWERED),
        (Kept("a", failure=OSError("input/output error")), Fault.DIFFERS),
    ],
    ids=["flipped", "cut", "gone", "down", "unreadable"],
)
def test_what_one_place_cannot_prove_comes_from_the_next(hurt: Kept, fault: Fault) -> None:
    good = Kept("b")
    reader = ranges(hurt, good)
    assert reader.read(span(3 * LEAF, 10)) == DATA[3 * LEAF : 3 * LEAF + 10]
    assert {(one.place, one.leaf, one.fault) for one in reader.incidents} == {("a", 3, fault)}
    assert hurt.asked == ([3, 3] if fault is Fault.DIFFERS else [3]), "wrong bytes are asked for twice"
    assert good.asked == [3]


def test_a_place_that_does_not_answer_is_asked_once() -> None:
    down, good = Kept("a", failure=unavailable()), Kept("b")
    reader = ProvedRanges([FILE], [down, good], workers=1)
    assert reader.read(span(0, SIZE)) == DATA
    assert len(down.asked) == 1


def test_nothing_is_handed_out_that_no_place_can_prove() -> None:
    one, two = Kept("a", flip(50 * LEAF)(DATA)), Kept("b", DATA[: 50 * LEAF])
    with pytest.raises(
        NotProved, match=r"model.bin: leaf 50 .*a: its digest is not the sealed one; b: it ends"
    ) as caught:
        ranges(one, two).read(span(0, SIZE))
    assert caught.value.cause is None
    with pytest.raises(NotProved, match="it does not answer") as caught:
        ranges(Kept("a", failure=unavailable())).read(span(0, 1))
    assert caught.value.cause is not None


@pytest.mark.parametrize(
    "wrong", [span(-1, 5), span(0, SIZE + 1), span(SIZE + 1, 0), span(5, -6), span(0, 1, "other"), span(0, 1, "empty")]
)
def test_a_span_outside_of_its_file_is_refused(wrong: Span) -> None:
    place = Kept("a")
    with pytest.raises(IntegrityFailure, match="in no sealed file"):
        list(ranges(place).each([span(0, 5), wrong]))
    assert not place.asked


def test_after_closing_nothing_is_fetched() -> None:
    place = Kept("a")
    reader = ranges(place)
    _, stream = next(reader.each([span(0, SIZE)]))
    reader.close()
    asked = len(place.asked)
    with pytest.raises(RuntimeError, match="shutdown"):
        stream.read()
    assert len(place.asked) == asked
