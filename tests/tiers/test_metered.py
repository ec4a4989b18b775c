"""The meter: every attempt counts once, with its outcome, its class and its bytes."""

import pytest

from tiers import effects
from tiers.bodies import BytesBody
from tiers.effects import Effect, Moment
from tiers.errors import ObjectExists, ObjectNotFound, TierUnavailable
from tiers.memory import MemoryStore, MemoryTier
from tiers.metered import BILLING_CLASSES, BillingClass, Meter, MeteredTier
from tiers.protocol import Key, Tier, UploadId
from tiers.retrying import RetryingTier, RetryPolicy
from tiers.testing import (
    Fault,
    FaultyTier,
    ManualClock,
    TierConformance,
    TierFactory,
    content,
    read_all,
    upload_all,
)
from tiers.testing.base import race


class TestMeteredMemory(TierConformance):
    """A wrapper is a tier."""

    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        store = MemoryStore()
        return lambda: MeteredTier(MemoryTier("memory", store, page_size=3), Meter())


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def tier(meter: Meter) -> Tier:
    return MeteredTier(MemoryTier("memory"), meter)


def use_every_verb(tier: Tier) -> None:
    """Make each request once, except for two puts of a part."""
    tier.put(Key("a"), BytesBody(bytes(100)))
    tier.create(Key("b"), bytes(10))
    read_all(tier.open(Key("a"), 10, 50))
    source = tier.stat(Key("a"))
    tier.list_objects("")
    upload = tier.begin_upload(Key("c"), size=5, part_size=2)
    parts = [tier.put_part(upload, 1, BytesBody(b"ab")), tier.put_part(upload, 3, BytesBody(b"c"))]
    parts.insert(1, tier.copy_part(upload, 2, source, 0, 2))
    tier.list_parts(upload)
    tier.complete(upload, parts)
    tier.abort(upload)
    tier.copy(Key("d"), source)
    tier.delete(Key("a"))
    tier.close()


def test_every_verb_has_a_class() -> None:
    """A verb of the protocol that is not billed would be found here."""
    verbs = {name for name, value in vars(Tier).items() if callable(value) and not name.startswith("_")}
    assert set(BILLING_CLASSES) == verbs - {"close"}


def test_counts(tier: Tier, meter: Meter) -> None:
    use_every_verb(tier)
    usage = meter.snapshot()
    for verb in BILLING_CLASSES:
        assert usage.count(verb) == usage.count(verb, "ok") == (2 if verb == "put_part" else 1), verb
    assert usage.by_class() == {BillingClass.A: 10, BillingClass.B: 2, BillingClass.FREE: 2}
    assert (usage.sent(), usage.sent("put"), usage.sent("create"), usage.sent("put_part")) == (113, 100, 10, 3)
    assert usage.bytes_down == 50


def test_failures_count_with_their_names(tier: Tier, meter: Meter) -> None:
    """Stores bill requests that fail."""
    tier.create(Key("k"), b"first")
    with pytest.raises(ObjectExists):
        tier.create(Key("k"), b"second")
    with pytest.raises(ObjectNotFound):
        tier.stat(Key("absent"))
    usage = meter.snapshot()
    assert dict(usage.requests) == {("create", "ok"): 1, ("create", "ObjectExists"): 1, ("stat", "ObjectNotFound"): 1}
    assert (usage.sent("create", "ok"), usage.sent("create", "ObjectExists")) == (5, 6)
    assert usage.by_class()[BillingClass.B] == 1


def test_below_the_retry(meter: Meter) -> None:
    """Each attempt is a request."""
    faulty = FaultyTier(MemoryTier("memory"), [Fault(verb="put", times=2)])
    tier = RetryingTier(MeteredTier(faulty, meter), ManualClock(), RetryPolicy())
    tier.put(Key("k"), BytesBody(b"x"))
    assert (meter.snapshot().count("put", "TierUnavailable"), meter.snapshot().count("put", "ok")) == (2, 1)


def test_subtraction(tier: Tier, meter: Meter) -> None:
    """What one generation cost is a difference of two snapshots."""
    tier.put(Key("a"), BytesBody(b"123"))
    before = meter.snapshot()
    upload_all(tier, Key("b"), content(10), 5)
    read_all(tier.open(Key("b")))
    used = meter.snapshot() - before
    assert (used.count(), used.count("put"), used.sent(), used.bytes_down) == (5, 0, 10, 10)
    assert before.count() == 1, "a snapshot does not move"
    assert (meter.snapshot() - meter.snapshot()).requests == {}


def test_bytes_are_counted_as_they_are_read(tier: Tier, meter: Meter) -> None:
    """A stream that is closed early cost what was read of it."""
    tier.put(Key("a"), BytesBody(bytes(100)))
    with tier.open(Key("a")) as stream:
        stream.read(30)
        assert stream.readinto(bytearray(5)) == 5  # type: ignore[attr-defined]
    assert meter.snapshot().bytes_down == 35


def test_threads(tier: Tier, meter: Meter) -> None:
    def act(number: int) -> None:
        for _ in range(200):
            tier.put(Key(f"k{number}"), BytesBody(b"xy"))

    race(4, act)
    assert (meter.snapshot().count("put"), meter.snapshot().sent()) == (800, 1_600)


def test_every_request_is_announced(tier: Tier) -> None:
    """Crash tests kill the process before and after each of these."""
    seen: list[tuple[str, Moment]] = []

    def note(effect: Effect, what: str, moment: Moment) -> None:
        assert effect is Effect.REMOTE
        seen.append((what, moment))

    with effects.observing(note):
        use_every_verb(tier)
        with pytest.raises(ObjectNotFound):
            tier.stat(Key("absent"))
    before = [what for what, moment in seen if moment is Moment.BEFORE]
    after = [what for what, moment in seen if moment is Moment.AFTER]
    assert before == [*after, "memory stat absent"]
    assert {what.split()[1] for what in before} == set(BILLING_CLASSES)
    assert before[0] == "memory put a"


def test_an_observer_that_raises_is_counted_and_passes(tier: Tier, meter: Meter) -> None:
    def refuse(_effect: Effect, _what: str, _moment: Moment) -> None:
        raise TierUnavailable("no", tier="memory", operation="abort")

    upload = tier.begin_upload(Key("k"), size=1, part_size=1)
    assert upload.upload_id != UploadId("")
    with effects.observing(refuse), pytest.raises(TierUnavailable):
        tier.abort(upload)
    assert meter.snapshot().count("abort", "TierUnavailable") == 1
