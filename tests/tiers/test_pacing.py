"""Bandwidth that is kept exactly, and a gate that narrows when a store asks for it."""

import io
import threading
from collections.abc import Callable
from typing import BinaryIO

import pytest

from tiers.bandwidth import BURST_BYTES, BURST_SECONDS, Bandwidth, KeySpacing
from tiers.bodies import Body, BytesBody
from tiers.errors import TierUnavailable
from tiers.gate import PASSING_SECONDS, SUCCESSES_TO_WIDEN, Gate
from tiers.memory import MemoryStore, MemoryTier
from tiers.pacing import PacedTier, on_the_way
from tiers.protocol import Key, ObjectInfo, Tier
from tiers.testing import (
    Fault,
    FaultyTier,
    ManualClock,
    PassThroughTier,
    TierConformance,
    TierFactory,
    content,
    read_all,
)

KIB = 1024
RATE = 1024 * KIB
LIMIT = 10.0


def paced(inner: Tier, clock: ManualClock, *, rate: int | None = RATE, connections: int = 4) -> PacedTier:
    """Return a tier whose gate is as wide as it may be from the start; how it gets there is in test_knee.py."""
    stop = threading.Event()
    return PacedTier(inner, clock, connections=connections, first=connections, bandwidth=rate, stop=stop)


class TestPacedMemory(TierConformance):
    """A wrapper is a tier."""

    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        store = MemoryStore()
        return lambda: paced(MemoryTier("memory", store, page_size=3), ManualClock(), rate=64 * KIB)


class Watching(PassThroughTier):
    """Reads bodies in blocks and notes when each piece came, and how large it was."""

    def __init__(self, inner: Tier, clock: ManualClock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.pieces: list[tuple[float, int]] = []

    def put(self, key: Key, body: Body) -> ObjectInfo:
        with body.open() as reader:
            while data := reader.read(16 * KIB):
                self.pieces.append((self.clock.monotonic(), len(data)))
        return self.inner.put(key, body)


def test_the_schedule_of_an_upload_is_exact() -> None:
    clock = ManualClock()
    watching = Watching(MemoryTier("memory"), clock)
    paced(watching, clock).put(Key("a"), BytesBody(content(RATE)))
    sent = 0
    for moment, size in watching.pieces:
        sent += size
        assert moment == pytest.approx(sent / RATE)
    assert sent == RATE


def test_the_schedule_of_a_download_is_exact() -> None:
    clock = ManualClock()
    memory = MemoryTier("memory")
    memory.put(Key("a"), BytesBody(content(RATE)))
    stream = paced(memory, clock).open(Key("a"))
    received = 0
    while data := stream.read(1 << 20):
        received += len(data)
        assert len(data) <= RATE * BURST_SECONDS
        assert clock.monotonic() == pytest.approx(received / RATE)
    assert received == RATE


def test_directions_do_not_share() -> None:
    clock = ManualClock()
    tier = paced(MemoryTier("memory"), clock)
    tier.put(Key("a"), BytesBody(content(RATE // 2)))
    between = clock.monotonic()
    read_all(tier.open(Key("a")))
    # What the second direction did not use meanwhile is not saved, but for one piece.
    assert clock.monotonic() - between == pytest.approx(0.5 - BURST_SECONDS, abs=1e-3)


def test_small_writes_are_paid_for() -> None:
    clock = ManualClock()
    paced(MemoryTier("memory"), clock).create(Key("a"), bytes(RATE // 4))
    assert clock.monotonic() == pytest.approx(0.25)


@pytest.mark.parametrize("rate", [64 * KIB, RATE, 1 << 30])
def test_no_burst_after_a_pause(rate: int) -> None:
    clock = ManualClock()
    bandwidth = Bandwidth(rate, clock, threading.Event())
    clock.advance(3_600)
    assert bandwidth.piece <= min(BURST_BYTES, rate * BURST_SECONDS)
    before = clock.monotonic()
    for _ in range(100):
        assert bandwidth.take(bandwidth.piece)
    assert clock.monotonic() - before == pytest.approx(99 * bandwidth.piece / rate)


def test_the_rate_is_shared_by_threads() -> None:
    """In any order: what they pass together takes as long as it takes."""
    delays: list[float] = []

    class Ledger(ManualClock):
        def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
            delays.append(seconds)
            return False

    bandwidth = Bandwidth(RATE, Ledger(), threading.Event())
    threads = [threading.Thread(target=lambda: [bandwidth.take(RATE // 64) for _ in range(8)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    # Time stands still, so each is told its place in the one queue.
    assert sorted(delays) == pytest.approx([(place + 1) / 64 for place in range(64)])


def test_stop_ends_waiting_for_bandwidth() -> None:
    stop = threading.Event()
    stop.set()
    tier = PacedTier(MemoryTier("memory"), ManualClock(), connections=1, bandwidth=1, stop=stop)
    with pytest.raises(TierUnavailable, match="stopped"):
        tier.create(Key("a"), b"xx")
    with pytest.raises(TierUnavailable, match="stopped"):
        tier.put(Key("a"), BytesBody(b"xx"))


def test_what_is_only_looked_at_is_free() -> None:
    """A signature hashes the whole body before it is sent; that moves nothing."""
    clock = ManualClock()
    bodies: list[BinaryIO] = []

    class Signing(PassThroughTier):
        def put(self, key: Key, body: Body) -> ObjectInfo:
            with on_the_way(sending=False), body.open() as reader:
                bodies.append(io.BytesIO(reader.read()))
            assert clock.monotonic() == 0
            return self.inner.put(key, body)

    paced(Signing(MemoryTier("memory")), clock).put(Key("a"), BytesBody(content(RATE)))
    assert bodies[0].read() == content(RATE)
    assert clock.monotonic() == pytest.approx(1.0)


def test_a_rate_that_is_none() -> None:
    with pytest.raises(ValueError, match="not a rate"):
        Bandwidth(0, ManualClock(), threading.Event())


def throttled(tier: str, verb: str, key: str) -> Exception:
    return TierUnavailable("slow down", tier=tier, operation=verb, key=key, throttled=True)


def unavailable(tier: str, verb: str, key: str) -> Exception:
    return TierUnavailable("down", tier=tier, operation=verb, key=key)


def gated(*faults: Fault, connections: int = 8) -> PacedTier:
    memory = MemoryTier("memory")
    memory.put(Key("there"), BytesBody(content(100)))
    return paced(FaultyTier(memory, faults), ManualClock(), rate=None, connections=connections)


VERBS: dict[str, Callable[[PacedTier], object]] = {
    "put": lambda tier: tier.put(Key("k"), BytesBody(b"x")),
    "create": lambda tier: tier.create(Key("k"), b"x"),
    "open": lambda tier: tier.open(Key("there")),
    "stat": lambda tier: tier.stat(Key("there")),
    "list_objects": lambda tier: tier.list_objects(""),
    "delete": lambda tier: tier.delete(Key("k")),
    "begin_upload": lambda tier: tier.begin_upload(Key("k"), size=1, part_size=1),
}


@pytest.mark.parametrize("verb", VERBS)
def test_any_request_can_say_slow_down(verb: str) -> None:
    tier = gated(Fault(verb=verb, error=throttled))
    with pytest.raises(TierUnavailable):
        VERBS[verb](tier)
    assert tier.gate.width == 4


@pytest.mark.parametrize("verb", VERBS)
def test_other_failures_do_not(verb: str) -> None:
    tier = gated(Fault(verb=verb, error=unavailable))
    with pytest.raises(TierUnavailable):
        VERBS[verb](tier)
    assert tier.gate.width == 8


def test_it_widens_slowly_and_to_its_ceiling() -> None:
    tier = gated(Fault(verb="stat", times=3, error=throttled))
    for _ in range(3):
        with pytest.raises(TierUnavailable):
            tier.stat(Key("there"))
    assert tier.gate.width == 1
    widths = []
    for _ in range(SUCCESSES_TO_WIDEN * sum(range(1, 9))):
        tier.stat(Key("there"))
        widths.append(tier.gate.width)
    assert [widths.index(width) + 1 for width in range(2, 9)] == [
        SUCCESSES_TO_WIDEN * sum(range(1, width)) for width in range(2, 9)
    ]
    assert widths[-1] == 8


def test_a_burst_of_refusals_halves_it_once() -> None:
    """Eight requests that were out together say one thing."""
    gate = Gate("t", 8, threading.Event(), ManualClock(), first=8)
    together = [gate.judged() for _ in range(8)]
    for one in together:
        one.__enter__()
    refusal = throttled("t", "put", "k")
    for one in together:
        assert not one.__exit__(type(refusal), refusal, None)
    assert gate.width == 4
    with pytest.raises(TierUnavailable), gate.judged():
        raise refusal
    assert gate.width == 2


def test_no_more_data_requests_at_once_than_its_width() -> None:
    tier = gated(Fault(verb="stat", times=1, error=throttled), connections=4)
    with pytest.raises(TierUnavailable):
        tier.stat(Key("there"))
    assert tier.gate.width == 2
    together, most, lock = 0, 0, threading.Lock()
    both_inside = threading.Barrier(2)

    class Counting(PassThroughTier):
        def put(self, key: Key, body: Body) -> ObjectInfo:
            nonlocal together, most
            with lock:
                together += 1
                most = max(most, together)
            both_inside.wait(LIMIT)  # it is also used to the full
            with lock:
                together -= 1
            return self.inner.put(key, body)

    tier._inner = Counting(tier._inner)
    threads = [threading.Thread(target=tier.put, args=(Key(f"k{n}"), BytesBody(b"x"))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert most == 2


def test_a_thread_that_is_inside_does_not_wait_for_itself() -> None:
    """A body may be read from the tier that it goes to."""
    tier = gated(connections=1)

    class FromTier:
        size = 100
        sha256 = None

        def open(self) -> BinaryIO:
            return tier.open(Key("there"))

    tier.put(Key("copy"), FromTier())
    assert read_all(tier.open(Key("copy"))) == content(100)


def test_an_open_stream_holds_no_slot() -> None:
    tier = gated(connections=1)
    first, second = tier.open(Key("there")), tier.open(Key("there"))
    assert (read_all(first), read_all(second)) == (content(100), content(100))


def test_who_waits_long_is_not_passed_any_more() -> None:
    """A thread that comes back again and again lets those in that stood before it."""
    clock = ManualClock()
    gate = Gate("t", 1, threading.Event(), clock)
    order: list[str] = []

    def wait() -> None:
        with gate.slot("put", "waiting"):
            order.append("waiting")

    with gate.slot("put", "first"):
        waiter = threading.Thread(target=wait)
        waiter.start()
        for _ in range(1000):
            if gate._line:
                break
            waiter.join(0.01)
        assert gate._line
        clock.advance(PASSING_SECONDS)
        order.append("first")
    with gate.slot("put", "again"):
        order.append("again")
    waiter.join(LIMIT)
    assert order == ["first", "waiting", "again"]


def test_stop_ends_waiting_for_a_slot() -> None:
    stop = threading.Event()
    gate = Gate("t", 1, stop, ManualClock())
    failures: list[TierUnavailable] = []

    def wait() -> None:
        with pytest.raises(TierUnavailable, match="stopped") as caught, gate.slot("put", "k"):
            pass
        failures.append(caught.value)

    with gate.slot("put", "other"):
        waiter = threading.Thread(target=wait)
        waiter.start()
        stop.set()
        waiter.join(LIMIT)
    assert [failure.key for failure in failures] == ["k"]


def test_writes_of_one_key_are_kept_apart() -> None:
    clock = ManualClock()
    spacing = KeySpacing(1.0, clock)
    moments = []
    for key in ("head", "head", "other", "head"):
        spacing.wait(key)
        moments.append(clock.monotonic())
    assert moments == [0.0, 1.0, 1.0, 2.0]
    clock.advance(10)
    spacing.wait("head")
    assert clock.monotonic() == 12.0
    assert len(spacing._due) == 1, "what is long past is forgotten"


def test_no_spacing_where_none_is_needed() -> None:
    clock = ManualClock()
    for _ in range(3):
        KeySpacing(0.0, clock).wait("head")
    assert clock.waits == []
