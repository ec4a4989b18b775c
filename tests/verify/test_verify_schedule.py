"""A share of the bytes, run on a schedule: everything is covered, also while generations come and go."""

import threading
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commits import LEAF, RUN, Writer, generation, make, payload

from replicate.config import Config, TierConfig
from replicate.digests import leaf_ranges
from replicate.errors import UsageError
from replicate.layout import GenerationId
from replicate.scrubbing import ScrubRequest, scrub
from replicate.verify import Part, Share, VerifyReport, Window, parse_part
from replicate.verify.rotation import choose, read_turn
from replicate.verify.shares import Portion, pick_part, portion_of
from tiers.memory import MemoryTier
from tiers.protocol import Tier
from tiers.testing.faulty import Fault, FaultyTier
from tiers.testing.manual_clock import ManualClock

Leaf = tuple[GenerationId, int]
SHARES = st.one_of(
    st.fractions(min_value=Fraction(1, 20), max_value=1).map(Share),
    st.integers(min_value=600, max_value=20_000).map(lambda limit: Share(limit=limit)),
)
SIZES = st.lists(st.integers(min_value=0, max_value=9000), min_size=1, max_size=8)


def ids(sizes: Sequence[int], first: int = 1) -> dict[GenerationId, int]:
    return {GenerationId(1, number, number, "0" * 8): size for number, size in enumerate(sizes, start=first)}


def newest_first(sizes: dict[GenerationId, int]) -> list[tuple[GenerationId, int]]:
    return sorted(sizes.items(), reverse=True)


def leaves(sizes: dict[GenerationId, int], leaf: int = 700) -> set[Leaf]:
    return {(one, start) for one, size in sizes.items() for start, length in leaf_ranges(size, leaf) if length}


def read_by(portion: Portion, there: set[Leaf]) -> set[Leaf]:
    return {(one, place) for one, place in there if portion.covers(one, place)}


@settings(max_examples=50)
@given(SIZES, SHARES)
def test_a_schedule_covers_everything_in_as_many_runs_as_the_share_says(sizes: list[int], share: Share) -> None:
    there = ids(sizes)
    total = sum(sizes)
    budget = share.of(total)
    queue: tuple[GenerationId, ...] = ()
    offset, left = 0, leaves(there)
    for _ in range(-(-total // budget) if budget else 0):
        chosen = choose(queue, offset, newest_first(there), share)
        queue, offset = chosen.queue, chosen.offset
        left -= read_by(chosen.portion, leaves(there))
    assert not left


@settings(max_examples=50)
@given(SIZES, st.fractions(min_value=Fraction(1, 12), max_value=Fraction(9, 10)).map(Share), st.data())
def test_what_comes_and_goes_pushes_back_nothing_that_waits(
    sizes: list[int], share: Share, data: st.DataObject
) -> None:
    """Before the shares add up to what there was at first, every leaf of it that is still there was read."""
    there = ids(sizes)
    waiting = leaves(there)
    due = sum(sizes)
    queue: tuple[GenerationId, ...] = ()
    offset, read = 0, 0
    coming = len(sizes) + 1
    while read < due:
        chosen = choose(queue, offset, newest_first(there), share)
        queue, offset = chosen.queue, chosen.offset
        waiting -= read_by(chosen.portion, leaves(there))
        read += max(1, share.of(sum(there.values())))
        new = ids(data.draw(st.lists(st.integers(min_value=0, max_value=9000), max_size=2)), coming)
        coming += len(new)
        gone = data.draw(st.sets(st.sampled_from(sorted(there)), max_size=1)) if len(there) > 1 else set()
        there = {one: size for one, size in {**there, **new}.items() if one not in gone}
        waiting = {leaf for leaf in waiting if leaf[0] in there}
    assert not waiting


@settings(max_examples=30)
@given(SIZES, st.integers(min_value=1, max_value=9))
def test_parts_are_everything_and_do_not_overlap(sizes: list[int], count: int) -> None:
    there = ids(sizes)
    live = newest_first(there)
    parts = [read_by(pick_part(Part(number, count))(live), leaves(there)) for number in range(1, count + 1)]
    assert set().union(*parts) == leaves(there)
    assert sum(map(len, parts)) == len(leaves(there))


@settings(max_examples=30)
@given(SIZES, SHARES, st.integers(min_value=0, max_value=50))
def test_what_is_read_is_what_a_forecast_counts(sizes: list[int], share: Share, seed: int) -> None:
    there = ids(sizes)
    live = newest_first(there)
    window = Window.of(share, sum(sizes), seed)
    portion = portion_of(window, live)
    for one, size in live:
        for start, length in leaf_ranges(size, 700):
            assert window.covers(start, length) == (bool(length) and portion.covers(one, start))
        window = window.after(size)


@pytest.mark.parametrize("text", ["", "3", "0/7", "8/7", "1/0", "a/b", "1/2/3"])
def test_other_parts_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_part(text)
    assert "--part 3/7" in caught.value.hint


class Bench:
    """A run on one tier, and the command that is run again and again."""

    def __init__(self, folder: Path, *, store: bool = True) -> None:
        self.memory = MemoryTier("a")
        self.writer = Writer(self.memory)
        self.clock = ManualClock()
        self.config = Config(
            run=RUN, store="runs", tier=(TierConfig(name="a", url="memory://a"),), source=folder / "ckptier.toml"
        )
        if store:
            self.config.local.root.mkdir(parents=True)

    def run(self, tier: Tier | None = None, **request: Any) -> VerifyReport:
        opened = tier or self.memory
        found = scrub(
            ScrubRequest(tier="a", **request),
            self.config,
            clock=self.clock,
            stop=threading.Event(),
            opener=lambda *_: opened,
        )
        return found.reports[0]


def read_bytes(report: VerifyReport) -> int:
    return sum(one.bytes_read for one in report.generations)


def test_a_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in (1, 2, 3):
        bench.writer.commit(generation(number))
    total = sum(one.total_bytes for one in bench.writer.view.live)
    read = [read_bytes(bench.run(share=Share(Fraction(1, 7)))) for _ in range(7)]
    assert total <= sum(read) <= total + LEAF, "every leaf, and the first ones again where the shares are rounded up"
    assert all(abs(count - total / 7) <= LEAF for count in read)
    path = tmp_path / "runs/toy/verify/a.json"
    assert read_turn(path, place="a", url="memory://a").queue
    assert not read_turn(path, place="a", url="memory://elsewhere").queue, "another place has another queue"
    path.write_bytes(b"{")
    assert read_bytes(bench.run(share=Share(Fraction(1, 7)))) == read[0], "what cannot be read is begun anew"


def test_what_did_not_answer_has_its_turn_once_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in (1, 2):
        bench.writer.commit(make({"a": payload(number, 4 * LEAF)}, sequence=number))
    path = tmp_path / "runs/toy/verify/a.json"
    half = Share(Fraction(1, 2))
    faulty = FaultyTier(bench.memory, [Fault(verb="open", key="*/files/*", times=10**6)])

    def first() -> str:
        return "".join(read_turn(path, place="a", url="memory://a").queue[:1])

    assert read_bytes(bench.run(faulty, share=half)) == 0
    assert faulty.fired
    assert first() == ""
    assert read_bytes(bench.run(faulty, share=half)) == 0
    assert first() == str(bench.writer.view.live[1].id), "then it is the turn of the others"
    assert read_bytes(bench.run(share=half)) == 4 * LEAF


def test_without_a_store_the_day_decides(tmp_path: Path) -> None:
    bench = Bench(tmp_path, store=False)
    for number in (1, 2):
        bench.writer.commit(generation(number))
    total = sum(one.total_bytes for one in bench.writer.view.live)
    reports = []
    for _ in range(4):
        reports.append(bench.run(share=Share(Fraction(1, 4))))
        bench.clock.advance(86400.0)
    assert sum(map(read_bytes, reports)) == total
    assert all("run it daily" in report.notes[0].text for report in reports)
    assert not list(tmp_path.iterdir()), "looking leaves nothing behind"


def test_a_part_is_the_same_part_every_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.writer.commit(generation(1))
    read = [read_bytes(bench.run(part=Part(number, 3))) for number in (1, 2, 3, 1)]
    assert sum(read[:3]) == bench.writer.view.live[0].total_bytes
    assert read[3] == read[0]
    with pytest.raises(UsageError):
        ScrubRequest(part=Part(1, 3), share=Share())
