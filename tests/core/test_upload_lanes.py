"""What goes next: lanes, turns, the budget, and the order; first by values, then with real threads."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from core.builders import Machine, RecordingTier
from core.senders import Sender

from replicate.upload import lanes
from replicate.upload.lanes import Lane, Lanes, Work
from tiers.bodies import Body
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, ObjectInfo, Part, Upload
from tiers.testing import content

LIMIT = 20.0


def work(place: int, lane: Lane, step: int = 0, size: int = 0) -> Work:
    return Work(place=place, step=step, lane=lane, size=size, run=lambda: ())


def small(count: int) -> list[Work]:
    return [work(place, Lane.SMALL, size=1) for place in range(count)]


def large(count: int, size: int = 10) -> list[Work]:
    return [work(place, Lane.LARGE, size=size) for place in range(100, 100 + count)]


def names(taken: list[Work]) -> str:
    return "".join("s" if one.lane is Lane.SMALL else "L" for one in taken)


def take_all(queue: Lanes) -> list[Work]:
    return list(iter(queue.take, None))


def test_one_thread_takes_turns() -> None:
    queue = Lanes({Lane.SMALL: small(3), Lane.LARGE: large(5)})
    order = []
    while one := queue.take():
        order.append(one)
        queue.done(one)
    assert names(order) == "LsLsLsLL"
    assert queue.finished


def test_several_threads_are_shared_between_the_lanes_and_used_where_only_one_waits() -> None:
    queue = Lanes({Lane.SMALL: small(2), Lane.LARGE: large(9)})
    taken = [queue.take() for _ in range(4)]
    running = [one for one in taken if one is not None]
    assert names(running) == "LsLs"
    queue.done(running[1])
    queue.done(running[3])
    assert [one.lane for one in take_all(queue)] == [Lane.LARGE] * 7


def test_the_budget_bounds_what_is_in_flight_and_small_files_pass() -> None:
    queue = Lanes({Lane.SMALL: small(2), Lane.LARGE: large(5, size=40)}, budget=100)
    first = take_all(queue)
    assert sorted(names(first)) == ["L", "L", "s", "s"]
    queue.done(next(one for one in first if one.lane is Lane.LARGE))
    assert names(take_all(queue)) == "L"


def test_what_is_larger_than_the_budget_goes_alone() -> None:
    queue = Lanes({Lane.LARGE: [*large(1, size=40), work(200, Lane.LARGE, size=500), *large(1, size=1)]}, budget=100)
    first = take_all(queue)
    assert [one.size for one in first] == [40]  # it waits at the head: what comes later does not overtake it for ever
    queue.done(first[0])
    second = take_all(queue)
    assert [one.size for one in second] == [500]
    queue.done(second[0])
    assert [one.size for one in take_all(queue)] == [1]


def test_what_an_object_leads_to_goes_before_objects_that_were_not_begun() -> None:
    queue = Lanes({Lane.LARGE: large(3)})
    begun = queue.take()
    assert begun is not None
    queue.add([work(begun.place, Lane.LARGE, step) for step in (2, 1, 9)])
    queue.done(begun)
    assert [(one.place, one.step) for one in take_all(queue)] == [(100, 1), (100, 2), (100, 9), (101, 0), (102, 0)]


def test_a_plan_of_any_length_is_asked_for_one_by_one() -> None:
    asked = 0

    def endless() -> Iterator[Work]:
        nonlocal asked
        while True:
            asked += 1
            yield work(asked, Lane.SMALL)

    queue = Lanes({Lane.SMALL: endless()})
    for _ in range(10):
        assert queue.take() is not None
    assert asked == 11
    queue.drop()
    assert queue.take() is None


class HeldTier(RecordingTier):
    """Answers for large parts only once so many small files have arrived."""

    def __init__(self, inner: MemoryTier, wanted: int) -> None:
        super().__init__(inner)
        self.wanted = wanted
        self.arrived = threading.Event()
        self.lock = threading.Lock()
        self.order: list[str] = []

    def put(self, key: Key, body: Body) -> ObjectInfo:
        info = super().put(key, body)
        with self.lock:
            self.order.append("s")
            if self.order.count("s") >= self.wanted:
                self.arrived.set()
        return info

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        assert self.arrived.wait(LIMIT), "small files waited behind large parts"
        part = super().put_part(upload, number, body)
        with self.lock:
            self.order.append("L")
        return part


def files(count: int, parts: int) -> dict[str, bytes]:
    return {"a-big.bin": content(parts * 64)} | {f"s{number:03}": b"x" for number in range(count)}


def test_small_files_do_not_wait_behind_large_parts(machine: Machine, tmp_path: Path) -> None:
    """Though the large file comes first in the plan and its parts take for ever."""
    machine.recorder = HeldTier(MemoryTier("remote", machine.store), wanted=40)
    one = Sender(machine, tmp_path, files(40, 8))
    one.check_arrived(one.send(connections=2), files(40, 8))


def test_thousands_of_small_files_do_not_starve_a_large_one(machine: Machine, tmp_path: Path) -> None:
    """With one thread they take turns, so the large one is through long before they are."""
    tier = HeldTier(MemoryTier("remote", machine.store), wanted=0)
    tier.arrived.set()
    machine.recorder = tier
    Sender(machine, tmp_path, files(60, 5)).send(connections=1)
    assert tier.order[:12].count("L") == 5


def test_the_same_plan_goes_up_in_the_same_order(tmp_path: Path) -> None:
    orders = []
    for name in ("one", "two"):
        machine = Machine(tmp_path / name / "m", MemoryStore())
        Sender(machine, tmp_path / name, files(10, 6)).send(connections=1)
        orders.append(machine.recorder.requests)
        machine.tracker.close()
    assert orders[0] == orders[1]


class Gauge(RecordingTier):
    """Measures the bytes that are under way; each part waits a little for company."""

    def __init__(self, inner: MemoryTier) -> None:
        super().__init__(inner)
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.company = threading.Event()

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        with self.lock:
            self.now += body.size
            self.most = max(self.most, self.now)
        self.company.wait(0.02)
        try:
            return super().put_part(upload, number, body)
        finally:
            with self.lock:
                self.now -= body.size


def test_no_more_bytes_in_flight_than_the_budget(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gauge = Gauge(MemoryTier("remote", machine.store))
    machine.recorder = gauge
    monkeypatch.setattr(lanes.Lanes.__init__, "__defaults__", (2 * 64,))
    one = Sender(machine, tmp_path, files(3, 12))
    one.check_arrived(one.send(connections=8), files(3, 12))
    assert gauge.most == 2 * 64
