"""The retry: what is repeated, how often, how long, and what never is."""

import hashlib
import threading
from collections.abc import Callable
from functools import partial

import pytest

from tiers.bodies import BytesBody
from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    IntegrityError,
    ObjectExists,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, Tier
from tiers.retrying import RetryBudget, RetryingTier, RetryPolicy
from tiers.testing import (
    Action,
    Fault,
    FaultyTier,
    ManualClock,
    TierConformance,
    TierFactory,
    When,
    content,
    read_all,
)

POLICY = RetryPolicy(attempts=4, base=1.0, cap=3.0, deadline=100.0)
DATA = content(1_000)


def failing(kind: type[TierError], tier: str, verb: str, key: str) -> TierError:
    return kind("scheduled", tier=tier, operation=verb, key=key)


def busy(retry_after: float | None) -> Callable[[str, str, str], Exception]:
    def make(tier: str, verb: str, key: str) -> Exception:
        return TierUnavailable("busy", tier=tier, operation=verb, key=key, retry_after=retry_after)

    return make


class Rig:
    """A retrying tier over a faulty one over memory."""

    def __init__(self, *faults: Fault, policy: RetryPolicy = POLICY, draw: float = 1.0) -> None:
        self.clock = ManualClock()
        self.memory = MemoryTier("memory")
        self.memory.put(Key("there"), BytesBody(DATA))
        self.faulty = FaultyTier(self.memory, faults)
        self.stop = threading.Event()
        self.tier = RetryingTier(self.faulty, self.clock, policy, draw=lambda: draw, stop=self.stop)
        self.upload = self.memory.begin_upload(Key("up"), size=4, part_size=2)
        self.parts = [self.memory.put_part(self.upload, n, BytesBody(b"ab")) for n in (1, 2)]


class TestRetryingMemory(TierConformance):
    """A wrapper is a tier."""

    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        store = MemoryStore()
        return lambda: RetryingTier(MemoryTier("memory", store, page_size=3), ManualClock(), POLICY)


class TestRetryingFaulty(TierConformance):
    """And a wrapper over a tier that fails at every verb, and in most reads, is a tier as well."""

    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        store = MemoryStore()
        verbs = ("put", "stat", "list_objects", "begin_upload", "put_part", "list_parts", "copy", "copy_part")
        faults = [Fault(verb=verb, nth=n) for verb in (*verbs, "delete", "abort") for n in (1, 2, 5, 7)]
        faults += [Fault(verb=verb, nth=4, action=Action.LOST_REPLY) for verb in ("put", "put_part", "delete", "abort")]
        faults += [Fault(verb="open", nth=n, action=Action.SHORT_READ) for n in (1, 3, 4, 6, 9)]

        def make() -> Tier:
            inner = FaultyTier(MemoryTier("memory", store, page_size=3), faults)
            return RetryingTier(inner, ManualClock(), RetryPolicy(attempts=8))

        return make


VERBS: dict[str, Callable[[Rig], object]] = {
    "put": lambda rig: rig.tier.put(Key("k"), BytesBody(b"x")),
    "open": lambda rig: rig.tier.open(Key("there")),
    "stat": lambda rig: rig.tier.stat(Key("there")),
    "list_objects": lambda rig: rig.tier.list_objects(""),
    "delete": lambda rig: rig.tier.delete(Key("there")),
    "begin_upload": lambda rig: rig.tier.begin_upload(Key("k"), size=1, part_size=1),
    "put_part": lambda rig: rig.tier.put_part(rig.upload, 1, BytesBody(b"ab")),
    "list_parts": lambda rig: rig.tier.list_parts(rig.upload),
    "copy": lambda rig: rig.tier.copy(Key("k"), rig.memory.stat(Key("there"))),
    "copy_part": lambda rig: rig.tier.copy_part(rig.upload, 1, rig.memory.stat(Key("there")), 0, 2),
    "complete": lambda rig: rig.tier.complete(rig.upload, rig.parts),
    "abort": lambda rig: rig.tier.abort(rig.upload),
}


class TestAttempts:
    @pytest.mark.parametrize("verb", VERBS)
    def test_unavailable_is_repeated(self, verb: str) -> None:
        rig = Rig(Fault(verb=verb, times=3))
        VERBS[verb](rig)
        assert len(rig.faulty.fired) == 3
        assert rig.clock.waits == [1.0, 2.0, 3.0]

    @pytest.mark.parametrize("verb", VERBS)
    def test_attempts_are_bounded(self, verb: str) -> None:
        rig = Rig(Fault(verb=verb, times=100))
        with pytest.raises(TierUnavailable):
            VERBS[verb](rig)
        assert len(rig.faulty.fired) == 4
        assert len(rig.clock.waits) == 3

    @pytest.mark.parametrize("kind", [ObjectNotFound, ObjectExists, AccessDenied, CapacityExceeded, Unsupported])
    @pytest.mark.parametrize("verb", VERBS)
    def test_answers_are_not_repeated(self, verb: str, kind: type[TierError]) -> None:
        rig = Rig(Fault(verb=verb, times=100, error=partial(failing, kind)))
        with pytest.raises(kind):
            VERBS[verb](rig)
        assert len(rig.faulty.fired) == 1
        assert rig.clock.waits == []

    @pytest.mark.parametrize("action", [Action.ERROR, Action.LOST_REPLY])
    def test_create_is_never_repeated(self, action: Action) -> None:
        """A repeat after a lost reply would find its own object and report a loss."""
        rig = Rig(Fault(verb="create", action=action))
        with pytest.raises(TierUnavailable):
            rig.tier.create(Key("log/1"), b"x")
        assert rig.clock.waits == []
        rig.faulty.assert_all_fired()


class TestWaiting:
    def test_jitter_is_full(self) -> None:
        """The wait is a fraction of the whole bound, so that many clients spread out."""
        rig = Rig(Fault(verb="stat", times=3), draw=0.25)
        rig.tier.stat(Key("there"))
        assert rig.clock.waits == [0.25, 0.5, 0.75]

    def test_retry_after_is_a_lower_bound(self) -> None:
        rig = Rig(Fault(verb="stat", error=busy(7.0)), Fault(verb="stat", nth=2, error=busy(0.5)))
        rig.tier.stat(Key("there"))
        assert rig.clock.waits == [7.0, 2.0]

    def test_no_wait_beyond_the_deadline(self) -> None:
        """A store that asks for an hour is not waited for; the error is raised at once."""
        rig = Rig(Fault(verb="stat", error=busy(3_600.0)))
        with pytest.raises(TierUnavailable) as caught:
            rig.tier.stat(Key("there"))
        assert caught.value.retry_after == 3_600.0
        assert rig.clock.waits == []

    def test_deadline_counts_the_attempts_too(self) -> None:
        rig = Rig(Fault(verb="stat", times=100), policy=RetryPolicy(attempts=100, base=1.0, cap=1.0, deadline=10.0))
        with pytest.raises(TierUnavailable):
            rig.tier.stat(Key("there"))
        assert rig.clock.waits == [1.0] * 10

    def test_stop_ends_waiting(self) -> None:
        """The last error is what the caller gets, and nothing is asked again."""
        rig = Rig(Fault(verb="stat", times=100))
        rig.stop.set()
        with pytest.raises(TierUnavailable):
            rig.tier.stat(Key("there"))
        assert len(rig.faulty.fired) == 1

    def test_stop_during_the_wait(self) -> None:
        rig = Rig(Fault(verb="stat", times=100))

        class StoppingClock(ManualClock):
            def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
                rig.stop.set()
                return super().wait(seconds, stop)

        tier = RetryingTier(rig.faulty, StoppingClock(), POLICY, stop=rig.stop)
        with pytest.raises(TierUnavailable):
            tier.stat(Key("there"))
        assert len(rig.faulty.fired) == 1

    @pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1.0}, {"deadline": -0.1}])
    def test_policy_that_is_none(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="not a policy"):
            RetryPolicy(**wrong)  # type: ignore[arg-type]


class TestDamagedInTransit:
    def test_sent_again_once(self) -> None:
        rig = Rig(Fault(verb="put", action=Action.CORRUPT), Fault(verb="put_part", action=Action.CORRUPT))
        rig.tier.put(Key("k"), BytesBody(b"x"))
        rig.tier.put_part(rig.upload, 1, BytesBody(b"ab"))
        rig.faulty.assert_all_fired()
        assert read_all(rig.memory.open(Key("k"))) == b"x"

    @pytest.mark.parametrize("verb", ["put", "put_part"])
    def test_not_twice(self, verb: str) -> None:
        """Twice the same is no accident: the source itself differs from its seal."""
        rig = Rig(Fault(verb=verb, times=100, action=Action.CORRUPT))
        with pytest.raises(IntegrityError):
            VERBS[verb](rig)
        assert len(rig.faulty.fired) == 2

    def test_no_other_verb(self) -> None:
        rig = Rig(Fault(verb="complete", times=100, error=partial(failing, IntegrityError)))
        with pytest.raises(IntegrityError):
            VERBS["complete"](rig)
        assert len(rig.faulty.fired) == 1


class TestComplete:
    def test_lost_reply_is_not_found(self) -> None:
        """The repeat finds no upload; the caller stats the key, and there it is."""
        rig = Rig(Fault(verb="complete", action=Action.LOST_REPLY))
        with pytest.raises(ObjectNotFound):
            rig.tier.complete(rig.upload, rig.parts)
        assert rig.tier.stat(Key("up")).size == 4


class TestStreams:
    def test_goes_on_where_it_broke(self) -> None:
        faults = [Fault(verb="open", nth=n, action=Action.SHORT_READ, at=100) for n in range(1, 9)]
        rig = Rig(*faults)
        assert read_all(rig.tier.open(Key("there"), 50)) == DATA[50:]
        rig.faulty.assert_all_fired()

    def test_range_goes_on_to_its_end_only(self) -> None:
        rig = Rig(Fault(verb="open", action=Action.SHORT_READ, at=100))
        assert read_all(rig.tier.open(Key("there"), 50, 300)) == DATA[50:350]
        rig.faulty.assert_all_fired()

    def test_all_bytes_then_a_break(self) -> None:
        """A line that breaks after the last promised byte has not broken."""
        rig = Rig(Fault(verb="open", action=Action.SHORT_READ, at=300))
        assert read_all(rig.tier.open(Key("there"), 0, 300)) == DATA[:300]
        assert rig.clock.waits == []

    def test_attempts_without_progress_are_bounded(self) -> None:
        rig = Rig(Fault(verb="open", action=Action.SHORT_READ, at=100), Fault(verb="open", nth=2, times=100))
        stream = rig.tier.open(Key("there"))
        assert stream.read(100) == DATA[:100]
        with pytest.raises(TierUnavailable):
            stream.read(100)
        assert len(rig.faulty.fired) == 4

    def test_progress_renews_the_attempts(self) -> None:
        """A large object over a bad line breaks more often than one request may."""
        faults = [Fault(verb="open", nth=n, action=Action.SHORT_READ, at=10) for n in range(1, 31)]
        rig = Rig(*faults)
        assert read_all(rig.tier.open(Key("there"))) == DATA
        assert rig.clock.waits == [1.0] * 30

    def test_gone_while_reading(self) -> None:
        """What the store answers on reopening is an answer."""
        rig = Rig(Fault(verb="open", action=Action.SHORT_READ, at=10))
        stream = rig.tier.open(Key("there"))
        stream.read(10)
        rig.memory.delete(Key("there"))
        with pytest.raises(ObjectNotFound):
            stream.read(10)

    def test_readinto_and_close(self) -> None:
        rig = Rig()
        stream = rig.tier.open(Key("there"))
        buffer = bytearray(300)
        assert stream.readinto(buffer) == 300  # type: ignore[attr-defined]
        assert buffer == DATA[:300]
        assert stream.read(0) == b""
        stream.close()
        stream.close()
        with pytest.raises(ValueError, match="closed"):
            stream.read(1)


class TestSchedules:
    """The double itself: a fault that does not fire as written would make other tests lie."""

    def test_key_and_count(self) -> None:
        rig = Rig(Fault(verb="*", key="b*", nth=2, error=partial(failing, AccessDenied)))
        for key in ("a", "b1", "a"):
            rig.faulty.put(Key(key), BytesBody(b"x"))
        with pytest.raises(AccessDenied):
            rig.faulty.stat(Key("b1"))
        rig.faulty.stat(Key("b1"))
        assert [(fired.verb, fired.key) for fired in rig.faulty.fired] == [("stat", "b1")]

    def test_after_means_done(self) -> None:
        rig = Rig(Fault(verb="put", when=When.AFTER))
        with pytest.raises(TierUnavailable):
            rig.faulty.put(Key("k"), BytesBody(b"x"))
        assert rig.memory.stat(Key("k")).size == 1

    def test_corrupt_reads_and_creates(self) -> None:
        rig = Rig(Fault(verb="open", action=Action.CORRUPT, at=7), Fault(verb="create", action=Action.CORRUPT))
        read = read_all(rig.faulty.open(Key("there")))
        assert hashlib.sha256(read).digest() != hashlib.sha256(DATA).digest()
        assert sum(a != b for a, b in zip(read, DATA, strict=True)) == 1
        rig.faulty.create(Key("k"), b"x")
        assert read_all(rig.memory.open(Key("k"))) == b"y"

    def test_silent_short_read(self) -> None:
        rig = Rig(Fault(verb="open", action=Action.SILENT_SHORT_READ, at=7))
        assert read_all(rig.faulty.open(Key("there"))) == DATA[:7]

    def test_unfired_is_noticed(self) -> None:
        with pytest.raises(AssertionError, match="never fired"):
            Rig(Fault(verb="stat")).faulty.assert_all_fired()


class TestBudget:
    def test_an_outage_does_not_multiply_traffic(self) -> None:
        """A hundred requests to a store that is down are a hundred and the budget, not six hundred."""
        rig = Rig(Fault(verb="stat", times=10_000), policy=RetryPolicy(attempts=6, budget=10))
        for _ in range(100):
            with pytest.raises(TierUnavailable):
                rig.tier.stat(Key("there"))
        assert len(rig.faulty.fired) == 100 + 10

    def test_what_works_again_fills_it(self) -> None:
        rig = Rig(Fault(verb="stat", times=3), Fault(verb="stat", nth=7, times=2), policy=RetryPolicy(budget=2))
        with pytest.raises(TierUnavailable):
            rig.tier.stat(Key("there"))  # three attempts, and the budget is gone
        for _ in range(3):
            rig.tier.stat(Key("there"))
        rig.tier.stat(Key("there"))  # its two failures are forgiven again
        assert len(rig.faulty.fired) == 5

    def test_half_of_all_may_fail_for_ever(self) -> None:
        """A store that refuses every other request gets through; the budget is for worse."""
        faults = [Fault(verb="stat", nth=n) for n in range(1, 401, 2)]
        rig = Rig(*faults, policy=RetryPolicy(budget=2))
        for _ in range(200):
            rig.tier.stat(Key("there"))
        rig.faulty.assert_all_fired()

    def test_it_is_shared_by_threads_and_never_overdrawn(self) -> None:
        budget = RetryBudget(50)
        taken: list[bool] = []
        threads = [threading.Thread(target=lambda: taken.extend(budget.take() for _ in range(20))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert (taken.count(True), taken.count(False), budget.left) == (50, 110, 0)
        for _ in range(60):
            budget.earn()
        assert budget.left == 50

    def test_no_budget_means_one_attempt(self) -> None:
        rig = Rig(Fault(verb="stat", times=9), policy=RetryPolicy(budget=0))
        with pytest.raises(TierUnavailable):
            rig.tier.stat(Key("there"))
        assert (len(rig.faulty.fired), rig.clock.waits) == (1, [])
