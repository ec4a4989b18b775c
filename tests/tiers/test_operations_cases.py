"""Bad days of stores as others have had them, through the whole of replication (C28, C48, C56, C60, C61)."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from daemon.stage import CLOCK, REMOTE, Machine, inside, live, publish, until
from support.misers import miser, silent

from replicate import RunStore
from replicate.commit import Events
from replicate.digests import HASHED
from replicate.engine import Replicator
from replicate.errors import ExitCode, Unreachable
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.opening import Opener
from replicate.session import Session
from tiers.clock import Clock
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Tier
from tiers.retrying import RetryPolicy
from tiers.s3 import open_s3
from tiers.testing.s3_emulator import (
    AWS,
    BUCKET,
    DEFAULT_CREDENTIALS,
    EVERYTHING,
    R2,
    Action,
    Behaviour,
    Fault,
    Operation,
    S3Emulator,
    When,
)

MIB = 1 << 20
PART = 5 * MIB
BIG = 11 * MIB
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", DEFAULT_CREDENTIALS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", DEFAULT_CREDENTIALS.secret_key)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def tier_of(endpoint_url: str, **more: object) -> dict[str, object]:
    settings = {"name": "s3", "url": f"s3://{BUCKET}/p", "endpoint_url": endpoint_url, "region": "us-east-1"}
    return {**settings, "profile": "aws", "part_size": PART, "connections": 2, **more}


def opener(**changes: object) -> Opener:
    """Return an opener that changes what was configured, in ways that a configuration cannot."""
    quick = {"retry": RetryPolicy(base=0.001, cap=0.01), **changes}

    def open_it(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        return open_tier(replace(spec, **quick), clock=clock, meter=meter, stop=stop)  # type: ignore[arg-type]

    return open_it


def view(machine: Machine) -> LogView:
    """Read the log without any patience."""
    settings = machine.config.tier[0]
    tier = open_s3(
        TierSpec(
            name="reader",
            url=settings.url,
            endpoint_url=settings.endpoint_url,
            profile=settings.profile,
            region=settings.region,
        )
    )
    try:
        return Logbook(tier, REMOTE).read()
    finally:
        tier.close()


@contextmanager
def session(machine: Machine, open_it: Opener, events: Events | None = None) -> Iterator[Session]:
    with Session(machine.config, clock=CLOCK, stop=threading.Event(), opener=open_it, events=events) as opened:
        yield opened


def publish_files(root: Path, count: int, size: int) -> str:
    store = RunStore(root, hash_workers=1)
    with store.publish(next_update=1) as directory:
        for number in range(count):
            (directory / f"rank{number}.bin").write_bytes(bytes([number]) * size)
    newest = store.latest()
    assert newest is not None
    return str(newest.id)


class TestC28NobodyIsToldSuccess:
    """An uploader that fails, or that hangs, must not be taken for one that is done."""

    def test_every_write_is_forbidden(self, machine: Machine) -> None:
        may = EVERYTHING - {Operation.PUT_OBJECT, Operation.CREATE_UPLOAD, Operation.UPLOAD_PART}
        with S3Emulator(credentials=[replace(DEFAULT_CREDENTIALS, may=may)]) as emulator:
            machine.configure(tier_of(emulator.endpoint_url))
            identity = publish(machine.root, 1)
            report = Replicator(machine.config, opener=opener()).replicate_once()
            assert report.exit_code is ExitCode.DENIED
            shown = machine.tier("s3")
            assert shown is not None
            assert shown.failure is not None
            assert (shown.failure.exit_code, shown.newest, shown.held) == (ExitCode.DENIED, None, ())
            assert "AccessDenied (HTTP 403)" in shown.failure.message
            assert shown.failure.since <= shown.failure.at
            waited = machine.command("wait", "--timeout", "0.1")
            assert waited.returncode != 0
            assert identity in waited.stderr
            assert view(machine).live == ()

    def test_a_server_accepts_and_never_answers(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("replicate.daemon.FIRST_PAUSE", 0.05)
        with miser(silent) as server:
            machine.configure(tier_of(server.endpoint_url), poll_seconds=3600)
            identity = publish(machine.root, 1)
            hasty = opener(timeout_seconds=0.2, retry=RetryPolicy(attempts=2, base=0.0))
            with inside(machine, opener=hasty) as running:
                with pytest.raises(Unreachable, match=f"{identity} is not on s3"):
                    Replicator(machine.config).wait(tier=None, generation=None, timeout=0.5)
                until(lambda: (one := machine.tier("s3")) and one.failure, "the failure is shown")
                shown = machine.tier("s3")
                assert shown is not None
                assert shown.failure is not None
                assert "no progress for 0.2" in shown.failure.message
                assert running.drained() is ExitCode.UNREACHABLE


class TestC48CompleteThatTakesTooLong:
    """It has a time of its own; after that the object is looked for, and nothing is aborted."""

    @pytest.mark.parametrize("when", [When.AFTER, When.BEFORE])
    def test_the_object_tells(self, machine: Machine, monkeypatch: pytest.MonkeyPatch, when: When) -> None:
        monkeypatch.setattr("tiers.s3_calling.LONG_ANSWERS", frozenset())
        with S3Emulator() as emulator:
            machine.configure(tier_of(emulator.endpoint_url))
            identity = publish(machine.root, 1, BIG)
            emulator.inject(Fault(operation="CompleteMultipartUpload", action=Action.STALL, when=when))
            hasty = opener(timeout_seconds=2.0, retry=RetryPolicy(attempts=1))
            codes = [Replicator(machine.config, opener=hasty).replicate_once().exit_code for _ in range(2)]
            assert emulator.fired
            assert codes == [ExitCode.OK if when is When.AFTER else ExitCode.UNREACHABLE, ExitCode.OK]
            asked = emulator.counts  # without the Complete that is held
            assert asked["HeadObject"] >= 1
            assert asked["AbortMultipartUpload"] == 0
            assert asked["UploadPart"] == 3, "no part is sent again"
            assert asked["CompleteMultipartUpload"] == (0 if when is When.AFTER else 1)
            assert live(view(machine)) == [identity]


class TestC56SlowDownOnControlCalls:
    """Three of ten control calls are refused while eight uploads go on: slower, and done."""

    CONTROL = ("CreateMultipartUpload", "CompleteMultipartUpload", "ListObjectsV2", "ListParts", "PutObject")

    def test_it_arrives(self, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "tiers.gate")
        with S3Emulator() as emulator:
            machine.configure(tier_of(emulator.endpoint_url, connections=8))
            identity = publish_files(machine.root, 16, PART + 1)
            emulator.inject(
                *(
                    Fault(operation=operation, nth=10 * ten + n, action=Action.STATUS, status=503, body=SLOW_DOWN)
                    for operation in self.CONTROL
                    for ten in range(20)
                    for n in (2, 5, 9)
                )
            )
            report = Replicator(machine.config, opener=opener()).replicate_once()
            assert report.exit_code is ExitCode.OK
            assert live(view(machine)) == [identity]
            assert {fired.operation for fired in emulator.fired} >= {"CreateMultipartUpload", "CompleteMultipartUpload"}
            assert len(emulator.fired) >= 0.25 * (emulator.counts["CreateMultipartUpload"] * 2)
            assert emulator.counts["CreateBucket"] == 0
            assert sum(r.received for r in emulator.requests if r.operation == "UploadPart") == 16 * (PART + 1)
        assert "asks to slow down: 2 of 8 requests at once" in caplog.text

    def test_one_that_cannot_go_on_stops_the_others_quickly(self, machine: Machine) -> None:
        """A generation without one of its files is none; what the others would send is not wanted."""
        with S3Emulator() as emulator:
            machine.configure(tier_of(emulator.endpoint_url, connections=2))
            publish_files(machine.root, 8, PART + 1)
            emulator.inject(Fault(operation="CreateMultipartUpload", action=Action.STATUS, status=403))
            report = Replicator(machine.config, opener=opener()).replicate_once()
            assert report.exit_code is ExitCode.DENIED
            assert emulator.fired
            assert emulator.counts["CreateMultipartUpload"] <= 3
            assert view(machine).live == ()


class TestC60OneWriteASecond:
    """head.json is the one key that is written again and again; R2 and GCS refuse that within a second."""

    def many(self, machine: Machine, count: int) -> list[str]:
        return [publish(machine.root, update, 64) for update in range(1, count + 1)]

    def test_it_is_spaced(self, machine: Machine) -> None:
        with S3Emulator(R2) as emulator:
            machine.configure(tier_of(emulator.endpoint_url, profile="r2"), backlog=64)
            wanted = self.many(machine, 20)
            assert Replicator(machine.config, opener=opener()).replicate_once().exit_code is ExitCode.OK
            assert sorted(live(view(machine))) == sorted(wanted)
            heads = [request.status for request in emulator.requests if request.key.endswith("/head.json")]
            assert heads.count(200) >= 2
            assert 429 not in heads

    def test_a_refusal_never_fails_a_committed_generation(self, machine: Machine) -> None:
        notes: list[str] = []
        with S3Emulator(AWS) as emulator:
            machine.configure(tier_of(emulator.endpoint_url), backlog=64)
            wanted = self.many(machine, 20)
            emulator.inject(
                *(
                    Fault(operation="PutObject", key="*/head.json", nth=n, action=Action.STATUS, status=429)
                    for n in range(1, 100)
                )
            )
            events = Events(on_note=lambda _tier, text: notes.append(text))
            with session(machine, opener(), events) as opened:
                opened.unbounded_backlog()
                result = opened.run_tier("s3", opened.prepare())
            assert result.failure is None
            assert sorted(live(view(machine))) == sorted(wanted)
            assert 6 <= len(emulator.fired) <= 12, "each writing is tried a few times, and not at each commit"
            assert any("head.json was not rewritten" in note for note in notes)


PERMANENT: list[tuple[int, bytes, ExitCode]] = [
    (403, b"<Error><Code>AccessDenied</Code></Error>", ExitCode.DENIED),
    (403, b"<Error><Code>QuotaExceeded</Code></Error>", ExitCode.PARTIAL),
    (401, b"", ExitCode.DENIED),
    (404, b"<Error><Code>NoSuchBucket</Code></Error>", ExitCode.DENIED),
    (409, b"", ExitCode.DENIED),
    (412, b"", ExitCode.DENIED),
    (412, b"<Error><Code>PreconditionFailed</Code></Error>", ExitCode.DENIED),
    (413, b"", ExitCode.PARTIAL),
]


class TestC61PermanentErrors:
    """They are told after at most two tries, and no byte is hashed for another."""

    @pytest.mark.parametrize(("status", "body", "code"), PERMANENT)
    @pytest.mark.parametrize("size", [1_000, BIG])
    def test_one_pass(self, machine: Machine, status: int, body: bytes, code: ExitCode, size: int) -> None:
        with S3Emulator() as emulator:
            machine.configure(tier_of(emulator.endpoint_url))
            publish(machine.root, 1, size)
            for operation in ("PutObject", "UploadPart"):
                emulator.inject(
                    *(
                        Fault(
                            operation=operation, key="*/files/*", nth=n, action=Action.STATUS, status=status, body=body
                        )
                        for n in range(1, 50)
                    )
                )
            with session(machine, opener()) as opened:
                prepared = opened.prepare()
                hashed = 0
                for tries in (1, 2, 3):
                    result = opened.run_tier("s3", prepared)
                    assert result.failure is not None
                    assert result.failure.exit_code is code, result.failure
                    assert str(status) in result.failure.message
                    assert result.failure.hint
                    assert tries <= len(emulator.fired) <= 2 * tries
                    hashed = HASHED.value if tries == 1 else hashed
                    assert HASHED.value == hashed, "parts that are no leaves are hashed once, and not for each pass"

    def test_the_daemon_lives_on_is_red_and_slow_and_recovers(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("replicate.daemon.FIRST_PAUSE", 0.02)
        behaviour: Behaviour = AWS
        with S3Emulator(behaviour) as emulator:
            machine.configure(tier_of(emulator.endpoint_url), poll_seconds=3600)
            emulator.inject(
                *(
                    Fault(operation="PutObject", key="*/files/*", nth=n, action=Action.STATUS, status=403)
                    for n in range(1, 4)
                )
            )
            with inside(machine, opener=opener()) as running:
                identity = publish(machine.root, 1)
                until(lambda: (one := machine.tier("s3")) and one.failure and one.failure.count >= 2, "it is red")
                until(lambda: machine.holds("s3", identity), "it recovers")
                until(lambda: (one := machine.tier("s3")) and not one.failure, "it is no longer red")
                assert running.drained() is ExitCode.OK
            assert len(emulator.fired) == 3
            data = [request for request in emulator.requests if "/files/" in request.key]
            assert [request.status for request in data if request.operation == "PutObject"] == [403, 403, 403, 200]
