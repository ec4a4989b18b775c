"""Requests that make no progress end, in words that say where; those that are only slow, or ours, do not."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from support.misers import (
    Behave,
    chattering_at_100,
    deaf,
    dribbling_body,
    dribbling_head,
    generous,
    leaving_at_100,
    miser,
    silent,
    sipping,
)

from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import TierUnavailable
from tiers.opening import TierSpec
from tiers.profiles import PROFILES
from tiers.protocol import Key, Tier
from tiers.s3 import open_s3
from tiers.s3_calling import limits_for
from tiers.s3_watchdog import LEAST_RATE, STEP, Limits, Phase, Transfer, Watchdog
from tiers.testing import ManualClock, content, read_all
from tiers.testing.s3_emulator import BUCKET, DEFAULT_CREDENTIALS, Action, Fault, S3Emulator, When

MIB = 1 << 20
TIMEOUT = 0.4
PATIENCE = 10.0
"""Seconds within which a stall has to be over; without the watchdog it lasts for minutes or for ever."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", DEFAULT_CREDENTIALS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", DEFAULT_CREDENTIALS.secret_key)


@contextmanager
def opened(endpoint_url: str, **fields: object) -> Iterator[Tier]:
    settings = {"timeout_seconds": TIMEOUT, "profile": "aws", "region": "us-east-1", **fields}
    spec = TierSpec(name="store", url=f"s3://{BUCKET}/p", endpoint_url=endpoint_url, **settings)  # type: ignore[arg-type]
    with closing(open_s3(spec)) as tier:
        yield tier


def refusal(act: Callable[[], object]) -> TierUnavailable:
    """Return what is raised, and check that it took as long as it may."""
    clock = SystemClock()
    began = clock.monotonic()
    with pytest.raises(TierUnavailable) as caught:
        act()
    assert clock.monotonic() - began < PATIENCE
    return caught.value


BIG = 24 * MIB
"""More than the buffers of both sides hold."""


def put(tier: Tier, size: int = BIG) -> object:
    return tier.put(Key("a"), BytesBody(content(size)))


CASES: list[tuple[Behave, Callable[[Tier], object], str]] = [
    (silent, lambda tier: tier.stat(Key("a")), "while the store owed its answer"),
    (silent, lambda tier: tier.list_objects(""), "while the store owed its answer"),
    (silent, lambda tier: put(tier, 1_000), "while the store owed its answer; 1000 of 1000 bytes"),
    (dribbling_head, lambda tier: tier.stat(Key("a")), "while the store owed its answer"),
    (dribbling_head, lambda tier: put(tier, 0), "while the store owed its answer"),
    (dribbling_body, lambda tier: read_all(tier.open(Key("a"))), "while the store sent the object"),
    (sipping, put, "while the store took the body"),
    (deaf, put, "while the store took the body"),
]


@pytest.mark.parametrize(("behave", "act", "words"), CASES)
def test_a_miser_is_left(behave: Behave, act: Callable[[Tier], object], words: str) -> None:
    with miser(behave) as server, opened(server.endpoint_url) as tier:
        found = refusal(lambda: act(tier))
        assert server.served == 1
    assert words in found.message
    assert "no progress for 0." in found.message
    assert f"of {BIG}" in found.message or act is not put


@pytest.mark.parametrize("behave", [leaving_at_100, chattering_at_100])
def test_a_connection_that_ends_within_100_continue(behave: Behave) -> None:
    """The SDK reads it for ever, at full speed."""
    with miser(behave) as server, opened(server.endpoint_url) as tier:
        refusal(lambda: put(tier))


@pytest.mark.parametrize("way", ["auto", "sdk"])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("operation", "when", "act", "words"),
    [
        ("PutObject", When.MID_BODY, put, "while the store took the body"),
        ("PutObject", When.AFTER, put, "while the store owed its answer"),
        ("GetObject", When.BEFORE, lambda tier: tier.open(Key("there")), "while the store owed its answer"),
        ("GetObject", When.MID_BODY, lambda tier: read_all(tier.open(Key("there"))), "while the store sent the object"),
    ],
)
def test_a_real_exchange_that_stops(
    way: str, tls: bool, operation: str, when: When, act: Callable[[Tier], object], words: str
) -> None:
    """Also under TLS, where the socket that is blocked in is not the one that was connected."""
    with S3Emulator(tls=tls) as emulator:
        emulator.put("p/there", content(BIG))
        emulator.inject(Fault(operation=operation, action=Action.STALL, when=when))
        bundle = str(emulator.ca_bundle) if tls else None
        with opened(emulator.endpoint_url, ca_bundle=bundle, data_path=way) as tier:
            found = refusal(lambda: act(tier))
            assert words in found.message
            assert len(emulator.fired) == 1
            assert tier.put(Key("next"), BytesBody(b"x")).size == 1, "the tier is usable afterwards"


def test_a_deadline_for_the_whole_request() -> None:
    """A store that moves a step now and then is never late for one; the whole has its own time."""
    with miser(generous) as server, opened(server.endpoint_url, deadline_seconds=1.0, timeout_seconds=0.9) as tier:
        found = refusal(lambda: read_all(tier.open(Key("a"))))
    assert "not done within 1" in found.message


def test_complete_has_a_time_of_its_own() -> None:
    aws = PROFILES["aws"]
    assert limits_for("complete", aws, timeout_seconds=1, deadline_seconds=2).answer == aws.complete_timeout
    assert limits_for("complete", aws, timeout_seconds=1, deadline_seconds=2).deadline is None
    assert limits_for("put_part", aws, timeout_seconds=1, deadline_seconds=2) == Limits(stall=1, answer=1, deadline=2)
    assert limits_for("put", aws) == Limits(stall=aws.read_timeout, answer=aws.read_timeout)
    with S3Emulator() as emulator, opened(emulator.endpoint_url) as tier:
        emulator.inject(Fault(operation="CompleteMultipartUpload", action=Action.DELAY, seconds=4 * TIMEOUT))
        upload = tier.begin_upload(Key("a"), size=10, part_size=5 * MIB)
        part = tier.put_part(upload, 1, BytesBody(content(10)))
        assert tier.complete(upload, [part]).size == 10
        assert emulator.fired


LIMITS = Limits(stall=10.0, answer=30.0)


class TestTransfer:
    """What counts as progress, with a clock of the test."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def begun(self, clock: ManualClock, size: int = 0, limits: Limits = LIMITS) -> Transfer:
        transfer = Transfer(limits, clock, size)
        transfer.enter(Phase.SENDING)
        return transfer

    def test_bytes_are_progress_and_a_trickle_is_not(self, clock: ManualClock) -> None:
        transfer = self.begun(clock, size=100 * STEP)
        for _ in range(20):
            clock.advance(9)
            transfer.moved(STEP)
            assert not transfer.judge()
        for _ in range(10):
            assert not transfer.judge()
            clock.advance(1.1)
            transfer.moved(1)
        assert transfer.judge() == (
            f"no progress for 11 s while the store took the body; {20 * STEP + 10} of {100 * STEP} bytes had moved"
        )

    def test_many_small_pieces_add_up(self, clock: ManualClock) -> None:
        transfer = self.begun(clock, size=100 * STEP)
        for _ in range(100):
            clock.advance(0.5)
            transfer.moved(STEP // 16)
            assert not transfer.judge()

    def test_time_that_is_ours_does_not_count(self, clock: ManualClock) -> None:
        """A slow disk, or a bandwidth that is waited for, is no stall of the store."""
        transfer = self.begun(clock)
        clock.advance(8)
        with transfer.held():
            clock.advance(1_000)
            assert not transfer.judge()
        clock.advance(1.9)
        assert not transfer.judge()
        clock.advance(0.2)
        assert transfer.judge()

    def test_nothing_counts_before_it_is_sent_or_between_reads(self, clock: ManualClock) -> None:
        transfer = Transfer(LIMITS, clock, 0)
        clock.advance(1_000)
        assert not transfer.judge()
        transfer.enter(Phase.RECEIVING)
        transfer.rest()
        clock.advance(1_000)
        assert not transfer.judge()
        transfer.enter(Phase.RECEIVING)
        clock.advance(9)
        assert not transfer.judge()

    def test_the_answer_has_a_time_of_its_own(self, clock: ManualClock) -> None:
        transfer = self.begun(clock, size=5)
        transfer.moved(5)
        transfer.enter(Phase.WAITING)
        clock.advance(29)
        assert not transfer.judge()
        clock.advance(2)
        assert transfer.judge() == "no progress for 31 s while the store owed its answer; 5 of 5 bytes had moved"

    @pytest.mark.parametrize("size", [0, 1_000_000, 1 << 30])
    def test_without_a_deadline_the_whole_depends_on_its_size(self, clock: ManualClock, size: int) -> None:
        transfer = self.begun(clock, size=size)
        whole = 70 + size / LEAST_RATE
        while clock.monotonic() + 9 < whole:
            clock.advance(9)
            transfer.moved(STEP)
            assert not transfer.judge()
        clock.advance(9.5)
        assert "not done within" in transfer.judge()


def test_the_watchdog_looks_at_those_that_run_and_ends_with_them() -> None:
    clock = ManualClock()
    dog = Watchdog(clock)
    with dog.request(LIMITS) as first, dog.request(LIMITS) as second:
        for transfer in (first, second):
            transfer.enter(Phase.WAITING)
        clock.advance(20)
        second.enter(Phase.SENDING)
        clock.advance(9)
        dog.look()
        assert (first.verdict, second.verdict) == ("", "")
        clock.advance(2)
        dog.look()
        assert first.verdict.startswith("no progress for 31 s")
        assert second.verdict.startswith("no progress for 11 s")
    with dog.request(LIMITS) as third:
        assert third.verdict == ""
    assert dog._watched == {}
