"""Jobs of which each may bring more, on a few threads: all are done, in time, and what one raises is raised."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import pytest
from support.commits import REMOTE, Writer, make, payload

from replicate.verify import Share
from replicate.verify.crew import Job, _Crew, work_through
from replicate.verify.shares import pick_by_seed
from replicate.verify.tiers import look
from tiers.memory import MemoryTier
from tiers.protocol import Key
from tiers.testing.passthrough import PassThroughTier


@pytest.mark.parametrize("workers", [1, 4])
def test_all_that_comes_up_is_done(workers: int) -> None:
    done: list[int] = []

    def job(depth: int) -> Job:
        def work() -> Iterable[Job]:
            done.append(depth)
            return (job(depth - 1) for _ in range(3 if depth else 0))

        return work

    work_through([job(4), job(2)], workers)
    assert sorted(done) == sorted([4] + [3] * 3 + [2] * 9 + [1] * 27 + [0] * 81 + [2] + [1] * 3 + [0] * 9)


def test_those_who_find_nothing_wait_for_what_may_come_up() -> None:
    """One job is long, and brings four that wait for each other: the others must not have left by then."""
    together = threading.Barrier(4, timeout=10)

    def meet() -> Iterable[Job]:
        together.wait()
        return ()

    def long() -> Iterable[Job]:
        others = threading.Event()
        for _ in range(1000):
            if len(crew._changed._waiters) == 3:  # type: ignore[attr-defined]
                return [meet] * 4
            others.wait(0.01)
        raise AssertionError("the others have left")

    crew = _Crew(iter([long]))
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(crew.work) for _ in range(4)]:
            done.result()


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_raised_stops_the_others(workers: int) -> None:
    def fail() -> Iterable[Job]:
        raise RuntimeError("unexpected")

    with pytest.raises(RuntimeError, match="unexpected"):
        work_through([fail, *[lambda: ()] * 5], workers)


def test_a_tier_is_read_by_as_many_as_it_may_be() -> None:
    """The leaves of one file are read at once, within the connections."""
    memory = MemoryTier("a")
    Writer(memory).commit(make({"one.bin": payload(1, 64 * 1024)}))
    gate = threading.Barrier(3, timeout=30)
    reading: list[str] = []

    class Gated(PassThroughTier):
        def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
            if "/files/" in key and len(reading) < 3:
                reading.append(key)
                gate.wait()
            return super().open(key, start, length)

    found = look(Gated(memory), REMOTE, picker=pick_by_seed(Share(), 0), workers=3)
    assert found.report.sound
    assert found.report.generations[0].bytes_read == 64 * 1024
    assert len(reading) == 3
