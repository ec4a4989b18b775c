"""From which tiers a generation is read: near ones first, or with ``spread`` from all at once."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest
from support.commits import Made, Restore, Writer, expected, generation, make, payload, tree

from replicate.manifest import SealedFile
from replicate.restore import RestoreOptions
from replicate.restore.spreading import Spread, in_time, in_turn
from tiers.memory import MemoryTier
from tiers.protocol import Key, Tier
from tiers.testing.faulty import Fault, FaultyTier
from tiers.testing.passthrough import PassThroughTier

FOUR = RestoreOptions(workers=4)


@dataclass(frozen=True)
class Named:
    """A source of which only the name matters."""

    name: str
    again: bool = True

    def holds(self, file: SealedFile) -> bool:
        raise NotImplementedError

    def open(self, file: SealedFile, start: int, length: int | None) -> BinaryIO:
        raise NotImplementedError

    def descriptor(self, file: SealedFile) -> int | None:
        raise NotImplementedError


HERE, A, B, C = Named("local", again=False), Named("a"), Named("b"), Named("c")


class Meeting(PassThroughTier):
    """Lets the first object be opened only when one of the other tier is opened too: both are in use at once."""

    def __init__(self, inner: Tier, barrier: threading.Barrier) -> None:
        super().__init__(inner)
        self._barrier = barrier
        self._met = threading.Event()

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Wait for the other, once."""
        if "/files/" in key and not self._met.is_set():
            self._met.set()
            self._barrier.wait(timeout=30)
        return super().open(key, start, length)


@pytest.fixture
def both(writer: Writer, other: Writer) -> Made:
    """Return a generation that both tiers have."""
    made = make({"model.bin": payload(1, 40_000), "optim/state.bin": payload(2, 20_000), "config.json": b"{}"})
    writer.commit(made)
    other.commit(made)
    return made


def test_by_default_the_declared_order_holds_and_one_tier_gives_all(
    writer: Writer, other: Writer, both: Made, run_restore: Restore, tmp_path: Path
) -> None:
    for number, (tiers, first) in enumerate((((writer, other), "a"), ((other, writer), "b"))):
        report = run_restore(*(one.tier for one in tiers), to=tmp_path / str(number), options=FOUR)
        assert dict(report.by_place) == {first: both.record.total_bytes}


def test_a_volume_is_read_first_also_where_it_is_declared_later(
    writer: Writer, other: Writer, both: Made, run_restore: Restore, tmp_path: Path
) -> None:
    report = run_restore(writer.tier, other.tier, to=tmp_path / "out", near=frozenset({"b"}))
    assert dict(report.by_place) == {"b": both.record.total_bytes}
    assert [replica.tier for replica in report.plan.candidates[0].replicas] == ["b", "a"]


def test_with_spread_both_deliver_at_once(
    writer: Writer, other: Writer, both: Made, run_restore: Restore, tmp_path: Path
) -> None:
    barrier = threading.Barrier(2)
    tiers = (Meeting(writer.tier, barrier), Meeting(other.tier, barrier))
    report = run_restore(*tiers, to=tmp_path / "out", options=FOUR, spread=True)
    assert tree(tmp_path / "out") == expected(both)
    assert set(dict(report.by_place)) == {"a", "b"}
    assert sum(dict(report.by_place).values()) == both.record.total_bytes
    assert report.incidents == ()


def test_the_leaves_of_a_tier_that_fails_go_to_the_other(
    writer: Writer, other: Writer, both: Made, run_restore: Restore, tmp_path: Path
) -> None:
    broken = FaultyTier(other.tier, [Fault(verb="open", key="*/files/*", times=10**6)])
    for number in (1, 2):  # a worker alone has the first tier, the second of two has the broken one
        options = RestoreOptions(workers=number)
        tiers = (broken, writer.tier) if number == 1 else (writer.tier, broken)
        report = run_restore(*tiers, to=tmp_path / str(number), options=options, spread=True)
        assert tree(tmp_path / str(number)) == expected(both)
        assert dict(report.by_place) == {"a": both.record.total_bytes}
    broken.assert_all_fired()


def test_a_tier_without_the_generation_takes_no_part(
    writer: Writer, other: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    old, new = generation(1), generation(2)
    for one in (writer, other):
        one.commit(old)
    writer.commit(new)
    report = run_restore(writer.tier, other.tier, to=tmp_path / "out", options=FOUR, spread=True)
    assert dict(report.by_place) == {"a": new.record.total_bytes}


def test_every_worker_has_another_tier_first_and_what_is_here_before_all() -> None:
    assert [[one.name for one in in_turn([HERE, A, B, C], worker)] for worker in range(4)] == [
        ["local", "a", "b", "c"],
        ["local", "b", "c", "a"],
        ["local", "c", "a", "b"],
        ["local", "a", "b", "c"],
    ]
    assert in_turn([HERE], 3) == [HERE]
    assert in_turn([], 3) == []


@pytest.mark.parametrize(
    ("mine", "others", "leaf", "remaining", "due"),
    [
        (None, 100.0, 64, 0, True),
        (1.0, 0.0, 64, 0, True),
        (1.0, 100.0, 64, 6400, True),
        (1.0, 100.0, 64, 6000, False),
        (100.0, 100.0, 64, 0, True),
        (99.0, 100.0, 64, 0, False),
    ],
)
def test_a_slow_tier_takes_no_leaf_that_the_others_would_wait_for(
    mine: float | None,
    others: float,
    leaf: int,
    remaining: int,
    due: bool,
) -> None:
    assert in_time(mine, others, leaf, remaining) is due


def test_at_the_end_the_slow_tiers_workers_read_from_the_fast_one() -> None:
    spread = Spread([HERE, A, B], workers=4)
    assert [one.name for one in spread.order(1, 64, 0)] == ["local", "b", "a"], "nothing is known yet"
    spread.note("a", 1000, 1.0)
    assert [one.name for one in spread.order(1, 64, 0)] == ["local", "b", "a"], "still nothing of b"
    spread.note("b", 10, 1.0)
    assert [one.name for one in spread.order(1, 64, 10**6)] == ["local", "b", "a"], "there is time"
    assert [one.name for one in spread.order(1, 64, 0)] == ["local", "a", "b"]
    assert [one.name for one in spread.order(0, 64, 0)] == ["local", "a", "b"]


def test_what_took_no_time_by_the_clock_says_nothing() -> None:
    spread = Spread([A, B], workers=2)
    spread.note("a", 10, 0.0)
    spread.note("b", 10, 0.0)
    assert [one.name for one in spread.order(1, 64, 0)] == ["b", "a"]


def test_memory_tiers_of_one_generation_are_all_used_without_a_clock(run_restore: Restore, tmp_path: Path) -> None:
    writers = [Writer(MemoryTier(name)) for name in ("a", "b", "c")]
    made = make({f"{number}.bin": payload(number, 3000) for number in range(9)})
    for one in writers:
        one.commit(made)
    run_restore(*(one.tier for one in writers), to=tmp_path / "out", options=FOUR, spread=True)
    assert tree(tmp_path / "out") == expected(made)
