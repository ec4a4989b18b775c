"""Keys that expire in the middle of an upload, clocks that are off, and what a refusal says about either (C54, C55)."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import botocore.auth
import pytest

from tiers.bodies import Body, BytesBody
from tiers.clock import SystemClock
from tiers.errors import AccessDenied, TierUnavailable
from tiers.failures import Where
from tiers.opening import TierSpec, open_tier
from tiers.profiles import PROFILES, Profile
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload
from tiers.retrying import RetryPolicy
from tiers.s3 import S3Tier, open_s3
from tiers.s3_calling import PERHAPS_EVERY, Caller
from tiers.s3_client import build_client, identity_of
from tiers.testing import ManualClock, PassThroughTier, content
from tiers.testing.s3_emulator import AWS, BUCKET, Action, Credentials, Fault, S3Emulator

MIB = 1 << 20
PART = 5 * MIB
PARTS = 6
OLD = Credentials(access_key="old-key", secret_key="old-secret", session_token="old-token")
NEW = Credentials(access_key="new-key", secret_key="new-secret", session_token="new-token")


class JumpingClock(SystemClock):
    """The machine's time, and more of it once somebody says so."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self.offset


@dataclass
class Rotation:
    """A store that knows two keys, of which the old one expires when ``expire`` is called; and the SDK's file."""

    emulator: S3Emulator
    clock: JumpingClock
    file: Path

    def write(self, known: Credentials) -> None:
        self.file.write_text(
            f"[default]\naws_access_key_id = {known.access_key}\naws_secret_access_key = {known.secret_key}\n"
            f"aws_session_token = {known.session_token}\n"
        )

    def expire(self) -> None:
        """Let ten minutes pass for the store, which is more than the old key has and less than a signature."""
        self.clock.offset = timedelta(minutes=10)


@pytest.fixture
def rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rotation]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    clock = JumpingClock()
    known = [replace(OLD, expires=clock.now() + timedelta(minutes=5)), NEW]
    with S3Emulator(credentials=known, clock=clock) as emulator:
        prepared = Rotation(emulator, clock, file)
        prepared.write(OLD)
        yield prepared


def spec(emulator: S3Emulator) -> TierSpec:
    return TierSpec(
        name="store",
        url=f"s3://{BUCKET}/p",
        endpoint_url=emulator.endpoint_url,
        profile="aws",
        region="us-east-1",
        retry=RetryPolicy(attempts=4, base=0.0),
    )


@dataclass
class Before(PassThroughTier):
    """Does something before the n-th part is sent."""

    inner: Tier
    number: int
    act: Callable[[], None]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        with self.lock:
            if number == self.number:
                self.act()
        return self.inner.put_part(upload, number, body)


def send(tier: Tier, *, threads: int = 1) -> ObjectInfo:
    """Upload an object in parts; the first failure is raised."""
    upload = tier.begin_upload(Key("a"), size=PARTS * PART, part_size=PART)
    data = content(PARTS * PART)
    done: dict[int, Part] = {}
    failures: list[Exception] = []

    def work(numbers: range) -> None:
        try:
            for number in numbers:
                done[number] = tier.put_part(upload, number, BytesBody(data[(number - 1) * PART : number * PART]))
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)

    workers = [threading.Thread(target=work, args=(range(n, PARTS + 1, threads),)) for n in range(1, threads + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    if failures:
        raise failures[0]
    return tier.complete(upload, [done[number] for number in sorted(done)])


def statuses(emulator: S3Emulator, operation: str) -> list[int | None]:
    return [request.status for request in emulator.requests if request.operation == operation]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_key_that_expires_in_mid_upload_is_followed_by_the_next(rotation: Rotation, threads: int) -> None:
    """The file was rewritten meanwhile: the same upload goes on, and no accepted part is sent again."""

    def rotate() -> None:
        rotation.write(NEW)
        rotation.expire()

    with closing(
        open_tier(
            spec(rotation.emulator), clock=ManualClock(), below=lambda tier: Before(inner=tier, number=4, act=rotate)
        )
    ) as tier:
        assert send(tier, threads=threads).size == PARTS * PART
    counts = rotation.emulator.counts
    assert (counts["CreateMultipartUpload"], counts["CompleteMultipartUpload"]) == (1, 1)
    parts = statuses(rotation.emulator, "UploadPart")
    assert parts.count(200) == PARTS
    assert 1 <= parts.count(400) <= threads, "only what was in flight was refused"
    assert rotation.emulator.objects()["p/a"] == content(PARTS * PART)


def test_a_key_that_is_never_renewed_is_told_at_once_and_nothing_is_lost(rotation: Rotation) -> None:
    """No busy loop: one refusal, one look at the chain.  Later the same upload can go on."""
    with closing(
        open_tier(
            spec(rotation.emulator),
            clock=ManualClock(),
            below=lambda tier: Before(inner=tier, number=4, act=rotation.expire),
        )
    ) as tier:
        with pytest.raises(AccessDenied, match=r"ExpiredToken .* read again and are still the same") as caught:
            send(tier)
        assert "renew them where the SDK's chain finds them" in caught.value.hint
        assert statuses(rotation.emulator, "UploadPart") == [200, 200, 200, 400]
        ((upload_id, (key, numbers)),) = rotation.emulator.uploads().items()
        assert (key, numbers) == ("p/a", (1, 2, 3))

        rotation.write(NEW)
        upload = Upload(key=Key("a"), upload_id=upload_id, size=PARTS * PART, part_size=PART)  # type: ignore[arg-type]
        assert [part.number for part in tier.list_parts(upload).parts] == [1, 2, 3]


def test_a_file_that_is_half_written_is_read_again_later(rotation: Rotation) -> None:
    with closing(open_tier(spec(rotation.emulator), clock=ManualClock())) as tier:
        tier.put(Key("a"), BytesBody(b"x"))
        rotation.expire()
        rotation.file.write_text("[default\naws_access")
        with pytest.raises(AccessDenied, match="ExpiredToken"):
            tier.put(Key("b"), BytesBody(b"x"))
        rotation.write(NEW)
        assert tier.put(Key("b"), BytesBody(b"x")).size == 1


def test_a_create_is_not_repeated_for_it(rotation: Rotation) -> None:
    """Whether it may be is known to whoever reads the key; what is certain is that the next one works."""
    with closing(open_tier(spec(rotation.emulator), clock=ManualClock())) as tier:
        tier.put(Key("a"), BytesBody(b"x"))
        rotation.write(NEW)
        rotation.expire()
        with pytest.raises(TierUnavailable, match="have been replaced meanwhile"):
            tier.create(Key("log"), b"x")
        assert tier.create(Key("log"), b"x").size == 1


def test_a_look_at_an_object_notices_too(rotation: Rotation) -> None:
    """A HEAD has no body that could say ExpiredToken."""
    with closing(open_tier(spec(rotation.emulator), clock=ManualClock())) as tier:
        tier.put(Key("a"), BytesBody(b"x"))
        rotation.write(NEW)
        rotation.expire()
        assert tier.stat(Key("a")).size == 1


def test_refusals_without_a_reason_read_the_chain_now_and_then(rotation: Rotation) -> None:
    """Without ListBucket every missing key is a 403; a chain that asks somebody must not be asked each time."""
    clock = ManualClock(SystemClock().now())
    built: list[object] = []
    aws = PROFILES["aws"]

    def connect() -> object:
        client = build_client(aws, rotation.emulator.endpoint_url, "us-east-1", 1)
        built.append(client)
        return client

    caller = Caller(connect, aws, clock=clock)  # type: ignore[arg-type]
    where = Where(tier="store", operation="stat", key="a")
    for n in range(1, 8):
        rotation.emulator.inject(Fault(operation="HeadObject", nth=1, action=Action.STATUS, status=403))
        with pytest.raises(AccessDenied):
            caller.call(where, lambda s3: s3.head_object(Bucket=BUCKET, Key="a"))
        assert len(built) == 2 + (n > 5), n
        if n == 5:
            clock.advance(PERHAPS_EVERY)
    caller.close()


def test_what_a_client_signs_with_is_known(rotation: Rotation) -> None:
    """Where the SDK moves it, this fails, and not the rotation in silence."""
    client = build_client(PROFILES["aws"], rotation.emulator.endpoint_url, None, 1)
    assert identity_of(client) == (OLD.access_key, OLD.secret_key, OLD.session_token)
    client.close()
    rotation.file.write_text("")
    bare = build_client(PROFILES["aws"], rotation.emulator.endpoint_url, None, 1)
    assert identity_of(bare) is None
    bare.close()


@pytest.mark.parametrize(("ahead", "words"), [(20, "behind the store"), (-20, "ahead of the store")])
@pytest.mark.parametrize("verb", ["put", "stat"])
def test_a_clock_that_is_off_is_told_with_both_times(
    monkeypatch: pytest.MonkeyPatch, ahead: int, words: str, verb: str
) -> None:
    known = Credentials(access_key="k", secret_key="s")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", known.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", known.secret_key)
    skewed = replace(AWS, clock_skew=timedelta(minutes=ahead))
    with S3Emulator(skewed, credentials=[known]) as emulator, closing(open_s3(spec(emulator))) as tier:
        with pytest.raises(AccessDenied) as caught:
            tier.put(Key("a"), BytesBody(b"x")) if verb == "put" else tier.stat(Key("a"))
        assert emulator.requests[0].status == 403
    found = caught.value
    assert words in found.message
    assert "this machine says 20" in found.message
    assert "which says 20" in found.message
    assert "synchronise it" in found.hint


class OneTime(ManualClock):
    """A clock for the store, the signer and the bandwidth together."""

    def aware(self, *, remove_tzinfo: bool = True) -> datetime:
        return self.now().replace(tzinfo=None) if remove_tzinfo else self.now()


def test_parts_are_signed_when_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that takes an hour, of parts that were all asked for at its start: no signature is old."""
    known = Credentials(access_key="k", secret_key="s")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", known.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", known.secret_key)
    clock = OneTime()
    monkeypatch.setattr(botocore.auth, "get_current_datetime", clock.aware)
    behaviour = replace(AWS, min_part=1)
    small: Profile = replace(PROFILES["aws"], min_part=1)
    size, count = 4_000, 40
    with S3Emulator(behaviour, credentials=[known], clock=clock) as emulator:

        def slow(_tier: Tier) -> Tier:
            return S3Tier(
                "store", bucket=BUCKET, prefix="p", profile=small,
                connect=lambda: build_client(small, emulator.endpoint_url, "us-east-1", 2),
            )  # fmt: skip

        chosen = replace(spec(emulator), bandwidth=40, connections=2)
        with closing(open_tier(chosen, clock=clock, below=slow)) as tier:
            upload = tier.begin_upload(Key("a"), size=size * count, part_size=size)
            parts: dict[int, Part] = {}

            def work(first: int) -> None:
                for number in range(first, count + 1, 2):
                    parts[number] = tier.put_part(upload, number, BytesBody(bytes(size)))

            workers = [threading.Thread(target=work, args=(first,)) for first in (1, 2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(60)
            assert tier.complete(upload, [parts[number] for number in sorted(parts)]).size == size * count
        assert clock.monotonic() >= 3_600
        assert {request.status for request in emulator.requests} == {200}
        stamps = {r.headers["x-amz-date"] for r in emulator.requests if r.operation == "UploadPart"}
        assert len(stamps) > count / 4
