"""I14: what a store can make a reader read, keep or do is bounded; counted in requests and bytes, not in time."""

import io
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from support.commits import REMOTE, RUN, Made, Writer, generation, make, payload

from replicate import canonical, logbook, paths
from replicate.config import load_config
from replicate.errors import ConfigInvalid, IntegrityFailure
from replicate.layout import LocalRun
from replicate.log import Attempt, LogState, Pin, parse_entry
from replicate.logbook import Endless, Logbook
from replicate.manifest import MAX_MANIFEST_BYTES, parse_manifest
from replicate.restore import RestoreOptions, RestoreRequest, restore
from tiers import protocol
from tiers.bodies import BytesBody
from tiers.errors import TierUnavailable
from tiers.memory import MemoryTier
from tiers.protocol import Key, ObjectPage, Tier, walk
from tiers.testing.manual_clock import ManualClock
from tiers.testing.passthrough import PassThroughTier


class Counting(PassThroughTier):
    """Counts requests."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier)
        self.asked: Counter[str] = Counter()

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        self.asked["open"] += 1
        return super().open(key, start, length)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        self.asked["list"] += 1
        return super().list_objects(prefix, token)


def long_log(entries: int) -> Writer:
    """Write a log of one commit and many pins."""
    writer = Writer(MemoryTier("a"))
    made = generation(1)
    writer.commit(made)
    while writer.view.next_slot < entries:
        writer.append(Pin(generation=str(made.id), reason="r"), attempt=1, attempt_id="attempt-1")
    return writer


@pytest.fixture(scope="module")
def logged() -> Writer:
    return long_log(300)


def test_a_log_that_goes_on_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = long_log(40)
    monkeypatch.setattr(logbook, "MAX_TAIL", 20)
    tier = Counting(writer.tier)
    with pytest.raises(Endless, match="slot 20 follows 20 others") as caught:
        Logbook(tier, REMOTE).read()
    assert caught.value.hint
    assert tier.asked["open"] <= 2 + 20


def test_a_hint_that_could_never_be_rewritten_makes_no_log_unreadable(
    logged: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where writing head.json is forbidden it stays at 0, and the tail beyond it grows for ever."""
    monkeypatch.setattr(logbook, "MAX_TAIL", 60)
    logged.tier.put(REMOTE.head, BytesBody(b'{"format":1,"slot":0}\n'))
    view = Logbook(logged.tier, REMOTE).read()
    assert (view.next_slot, view.first_slot, view.damaged) == (300, 256, ())


def test_slots_of_garbage_are_stepped_over_so_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    class Garbage(Counting):
        def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
            self.asked["open"] += 1
            return io.BytesIO(b"garbage")

    monkeypatch.setattr(logbook, "MAX_LOST", 30)
    tier = Garbage(MemoryTier("a"))
    tier.put(REMOTE.log(0), BytesBody(b"x"))
    with pytest.raises(Endless, match="31 damaged"):
        Logbook(tier, REMOTE).read()
    assert tier.asked["open"] <= 2 + 2 * 32


def test_a_slot_far_beyond_all_others_costs_a_few_requests() -> None:
    """One object that anybody with the bucket's key can write kept every reader busy for years."""
    writer = long_log(3)
    writer.tier.put(REMOTE.log(10**12 - 1), BytesBody(b"x"))
    tier = Counting(writer.tier)
    with pytest.raises(Endless, match="999999999999 is there"):
        Logbook(tier, REMOTE).read(thorough=True)
    assert tier.asked.total() < 20


def test_a_listing_of_more_slots_than_any_log_has_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(MemoryTier("a", page_size=5))
    writer.commit(generation(1))
    for slot in range(2, 60):
        writer.tier.put(REMOTE.log(slot), BytesBody(b"x"))
    monkeypatch.setattr(logbook, "MAX_LISTED", 20)
    tier = Counting(writer.tier)
    with pytest.raises(Endless, match="more than 20 slots"):
        Logbook(tier, REMOTE).read(thorough=True)
    assert tier.asked["list"] <= 5


def test_empty_pages_that_never_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pages(PassThroughTier):
        asked = 0

        def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
            self.asked += 1
            return ObjectPage(objects=(), next_token=f"page {self.asked}")

    monkeypatch.setattr(protocol, "MAX_EMPTY_PAGES", 10)
    tier = Pages(MemoryTier("a"))
    with pytest.raises(TierUnavailable, match="10 pages"):
        list(walk(tier, "toy/"))
    assert tier.asked == 10


def test_of_an_object_no_more_is_read_than_was_declared_and_one_byte(tmp_path: Path) -> None:
    """Of its last leaf; of the others, exactly their bytes.  The store sends zeros for ever."""

    class Endlessly(PassThroughTier):
        def __init__(self, tier: Tier) -> None:
            super().__init__(tier)
            self.read: dict[str, int] = {}

        def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
            stream = super().open(key, start, length)
            return cast("BinaryIO", _Zeros(self.read, key)) if "/files/" in key else stream

    writer = Writer(MemoryTier("a"))
    made: Made = make({"a": payload(1, 500)})
    writer.commit(made)
    tier = Endlessly(writer.tier)
    with pytest.raises(IntegrityFailure):
        restore(
            RestoreRequest(to=tmp_path / "out"),
            [tier],
            LocalRun(tmp_path / "runs" / RUN),
            ManualClock(),
            remote=REMOTE,
            options=RestoreOptions(workers=1, buffer_bytes=70),
        )
    (read,) = tier.read.values()
    assert 0 < read <= 2 * (500 + 1), "a leaf is asked for twice at most"
    assert not (tmp_path / "out").exists()


class _Zeros(io.RawIOBase):
    def __init__(self, counts: dict[str, int], key: str) -> None:
        self._counts, self._key = counts, key

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override] # narrower than a buffer
        self._counts[self._key] = self._counts.get(self._key, 0) + len(buffer)
        buffer[:] = bytes(len(buffer))
        return len(buffer)


def test_a_document_of_more_values_than_its_bytes_may_hold_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bytes make a list of fifty-six: a manifest of the size allowed would take gigabytes."""
    monkeypatch.setattr("json.loads", lambda *_, **__: pytest.fail("it was parsed"))
    for piece in (b"[],", b"{},", b"1,"):
        data = b'{"a":[' + piece * 20_000 + b"1]}"
        with pytest.raises(IntegrityFailure, match="more values"):
            canonical.load(data, what="it", max_bytes=100_000)


def test_a_real_manifest_has_far_fewer_values_than_are_allowed() -> None:
    made = make({f"layer-{number:03d}/weight": b"%d" % number for number in range(200)})
    data = Writer(MemoryTier("a")).manifest(made).encode()
    values = sum(map(data.count, b",[{"))
    assert values * canonical.BYTES_A_VALUE < len(data)
    assert parse_manifest(data).record() == made.record
    assert canonical.BYTES_A_VALUE * 10**6 <= MAX_MANIFEST_BYTES, "a million values, at least"


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\udfff":1}', r'["\ud83dx"]', r'"\uDEAD"'])
def test_half_of_a_surrogate_pair_is_no_text(text: str) -> None:
    with pytest.raises(IntegrityFailure, match="not valid JSON"):
        canonical.load(f'{{"a":{text}}}'.encode(), what="it", max_bytes=1000)


def test_whole_pairs_and_escaped_backslashes_are() -> None:
    document = canonical.load(rb'{"a":"\ud83d\ude00","b":"\\ud800"}', what="it", max_bytes=1000)
    assert document == {"a": "\U0001f600", "b": "\\ud800"}


def test_an_entry_of_nothing_but_line_ends_costs_no_more_than_its_bytes() -> None:
    data = b"\n" * 4_000_000
    tracemalloc.start()
    with pytest.raises(IntegrityFailure):
        parse_entry(data, slot=0, run=RUN)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(data)


def test_forks_are_found_among_any_number_of_attempts() -> None:
    """In one pass: comparing each with each, the attempts of one hostile entry took hours."""

    class Seen(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Seen.compared += 1
            return int(self) == other

        def __hash__(self) -> int:
            return int(self)

    numbers = [Seen(number) for number in (*range(1000), 7)]
    attempts = tuple(Attempt.model_construct(number=number, id=str(at)) for at, number in enumerate(numbers))
    state = LogState.model_construct(attempts=attempts)
    assert state.forks == (7,)
    assert Seen.compared < 5000


def test_each_path_is_folded_once_whatever_its_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    folded: Counter[str] = Counter()
    fold = paths.fold
    monkeypatch.setattr(paths, "fold", lambda path: folded.update([path]) or fold(path))
    paths.check_paths([f"{number}/" + "/".join("d" * 60) for number in range(20)])
    assert set(folded.values()) == {1}


def test_more_folders_than_any_checkpoint_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_FOLDERS", 100)
    paths.check_paths([f"{number}/x" for number in range(100)])
    with pytest.raises(paths.UnsafePath, match="more than 100 directories"):
        paths.check_paths([f"{number}/x" for number in range(101)])


CONFIGS = {
    "a number of thousands of digits": b'run = "a"\nbacklog = ' + b"9" * 5000,
    "lists in lists": b"a = " + b"[" * 5000 + b"]" * 5000,
    "tables in tables": b"a = " + b"{b = " * 3000 + b"1" + b"}" * 3000,
    "a dotted key": b"a" + b".a" * 5000 + b" = 1",
    "a thousand empty tiers": b"[[tier]]\n" * 1000,
    "megabytes": b"#" * 5_000_000,
    "no text": b"\xff\xfe\0",
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_would_break_its_parser_is_refused_in_few_words(case: str, tmp_path: Path) -> None:
    (tmp_path / "ckptier.toml").write_bytes(CONFIGS[case])
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path / "ckptier.toml")
    assert len(caught.value.message) < 2500
