"""What goes the direct way and what does not, and what it costs in reading and memory."""

import hashlib
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import pytest
from support.misers import miser, read_head
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY

from tiers.bodies import BytesBody, FileSlice
from tiers.clock import SystemClock
from tiers.errors import AccessDenied, IntegrityError, TierError
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.profiles import PROFILES
from tiers.protocol import Key, Tier, Upload, UploadId
from tiers.s3 import S3Tier, open_s3
from tiers.s3_client import build_client
from tiers.s3_direct import DirectClient, direct
from tiers.s3_direct.rehearsal import rehearse
from tiers.testing import content, read_all
from tiers.testing.s3_emulator import AWS, B2, CEPH_RGW, Behaviour, Credentials, S3Emulator

MIB = 1 << 20
KNOWN = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
WAYS = ("auto", "sdk")
RIGHT, WRONG = content(5_000), content(5_001)[1:]
OF_RIGHT = hashlib.sha256(RIGHT).hexdigest()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@contextmanager
def emulated(behaviour: Behaviour = AWS) -> Iterator[S3Emulator]:
    with S3Emulator(behaviour, buckets=(BUCKET,), credentials=[KNOWN]) as emulator:
        yield emulator


def spec_for(emulator: S3Emulator, profile: str = "aws", **fields: Any) -> TierSpec:
    region = emulator.behaviour.location if emulator.behaviour.regions is not None else "us-east-1"
    settings = {"url": f"s3://{BUCKET}/p", "endpoint_url": emulator.endpoint_url, "region": region, **fields}
    return TierSpec(name="store", profile=profile, **settings)


def by_hand(headers: dict[str, str]) -> bool:
    """Whether a request came the direct way: the SDK numbers its requests."""
    return "amz-sdk-request" not in headers


def act_on_everything(tier: Tier) -> None:
    tier.put(Key("a"), BytesBody(RIGHT))
    tier.create(Key("b"), RIGHT)
    upload = tier.begin_upload(Key("c"), size=len(RIGHT), part_size=5 * MIB)
    tier.complete(upload, [tier.put_part(upload, 1, BytesBody(RIGHT))])
    assert read_all(tier.open(Key("a"))) == RIGHT
    assert read_all(tier.open(Key("c"), 10, 20)) == RIGHT[10:30]
    tier.stat(Key("a"))
    tier.list_objects("")
    tier.delete(Key("a"))


@pytest.mark.parametrize("way", WAYS)
def test_bodies_go_the_direct_way_and_all_else_is_the_sdks(way: str) -> None:
    with emulated() as emulator, closing(open_s3(spec_for(emulator, data_path=way))) as tier:
        act_on_everything(tier)
        direct_ones = {request.operation for request in emulator.requests if by_hand(dict(request.headers))}
        assert not [request for request in emulator.requests if request.key == "ckptier-rehearsal"]
    assert direct_ones == ({"PutObject", "UploadPart", "GetObject"} if way == "auto" else set())


class Recorded:
    """A client of the SDK that notes what it is asked for."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in {"put_object", "get_object", "upload_part"}:
            self.asked.append(name)
        return getattr(self._client, name)


@contextmanager
def recorded(emulator: S3Emulator) -> Iterator[tuple[Recorded, DirectClient]]:
    client = Recorded(build_client(PROFILES["aws"], emulator.endpoint_url, "us-east-1", 1))
    ours: Any = direct(client)  # type: ignore[arg-type]
    with closing(ours):
        yield client, ours


@pytest.mark.parametrize(
    "fields",
    [
        {"Body": b"abc"},
        {"Body": b"abc", "ContentLength": 3},
        {"Body": b"abc", "Metadata": {"a": "b"}},
        {},
    ],
    ids=["bytes", "bytes and length", "another field", "nothing"],
)
def test_what_is_not_known_goes_by_the_sdk(fields: dict[str, Any]) -> None:
    with emulated() as emulator, recorded(emulator) as (client, ours):
        ours.put_object(Bucket=BUCKET, Key="k", **fields)
        assert "put_object" in client.asked
        assert emulator.objects() == {"k": fields.get("Body", b"")}
        client.asked.clear()
        ours.get_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")["Body"].close()
        assert client.asked == ["get_object"]


def test_a_rehearsal_is_never_sent() -> None:
    """Not even by an SDK that no longer asks before it sends; then all goes its way."""
    with emulated() as emulator, recorded(emulator) as (client, ours):
        client.meta.events.unregister("before-send.s3.PutObject", unique_id="ckptier-rehearsal")
        assert rehearse(client, BUCKET) is None
        assert emulator.requests == []
        tier = S3Tier("store", bucket=BUCKET, prefix="p", profile=PROFILES["aws"], connect=lambda: ours)  # type: ignore[arg-type, return-value]
        act_on_everything(tier)
        assert not [request for request in emulator.requests if by_hand(dict(request.headers))]


def test_a_proxy_is_the_sdks_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with emulated() as emulator, closing(open_s3(spec_for(emulator))) as tier, pytest.raises(TierError) as caught:
        tier.put(Key("k"), BytesBody(b"x"))
    assert "proxy" in caught.value.hint
    assert emulator.requests == []


@pytest.mark.parametrize("way", WAYS)
def test_without_credentials_both_say_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with emulated() as emulator, closing(open_s3(spec_for(emulator, data_path=way))) as tier:
        with pytest.raises(AccessDenied, match="NoCredentialsError"):
            tier.put(Key("k"), BytesBody(b"x"))
        with pytest.raises(AccessDenied, match="NoCredentialsError"):
            tier.open(Key("k"))


# bytes and digests


@pytest.mark.parametrize("act", ["put", "put_part"])
@pytest.mark.parametrize(("behaviour", "profile"), [(AWS, "aws"), (CEPH_RGW, "ceph-rgw")], ids=["checksum", "payload"])
def test_wrong_bytes_under_a_right_digest_are_refused(behaviour: Behaviour, profile: str, act: str) -> None:
    """By a store that compares the checksum, and by one that only compares what was signed: the digest is in both."""
    body = replace_digest(BytesBody(WRONG))
    with emulated(behaviour) as emulator, closing(open_s3(spec_for(emulator, profile))) as tier:
        upload = tier.begin_upload(Key("u"), size=len(WRONG), part_size=5 * MIB)
        with pytest.raises(IntegrityError):
            tier.put(Key("k"), body) if act == "put" else tier.put_part(upload, 1, body)
        assert emulator.objects() == {}
        tier.put(Key("k"), BytesBody(RIGHT))
        assert emulator.objects() == {"p/k": RIGHT}


def test_a_store_that_compares_nothing_is_not_believed() -> None:
    body = replace_digest(BytesBody(WRONG))
    blind = replace(B2, checks_payload_hash=False)
    with emulated(blind) as emulator, closing(open_s3(spec_for(emulator, "b2"))) as tier:
        info = tier.put(Key("k"), body)
        assert emulator.objects() == {"p/k": WRONG}
        assert info.sha256 is None, "so whoever asked reads it back"


@dataclass(frozen=True, slots=True)
class Stated:
    """Bytes under a digest that somebody stated, whose readers count what is read of them."""

    data: bytes
    sha256: str | None
    size: int
    read: list[int]

    def open(self) -> BinaryIO:
        return _Counting(self.data, self.read)  # type: ignore[return-value]


class _Counting:
    def __init__(self, data: bytes, read: list[int]) -> None:
        self._data, self._at, self._read = data, 0, read

    def read(self, size: int = -1) -> bytes:
        piece = self._data[self._at :] if size < 0 else self._data[self._at : self._at + size]
        self._at += len(piece)
        self._read.append(len(piece))
        return piece

    def seek(self, offset: int, _whence: int = 0) -> int:
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


def replace_digest(body: BytesBody) -> Stated:
    return Stated(body.data, OF_RIGHT, body.size, [])


@pytest.mark.parametrize(("digest", "times"), [(OF_RIGHT, 1), (None, 2)], ids=["known", "not known"])
def test_a_body_whose_digest_is_known_is_read_once(digest: str | None, times: int) -> None:
    """Also where the payload is signed: the digest is what is signed.  The SDK reads such a body twice."""
    body = Stated(RIGHT, digest, len(RIGHT), [])
    with emulated(CEPH_RGW) as emulator, closing(open_s3(spec_for(emulator, "ceph-rgw"))) as tier:
        tier.put(Key("k"), body)
        assert emulator.requests[-1].headers["x-amz-content-sha256"] == OF_RIGHT
        assert emulator.objects() == {"p/k": RIGHT}
    assert sum(body.read) == times * len(RIGHT)


@pytest.mark.parametrize("way", WAYS)
def test_a_body_that_ends_early_is_a_local_failure_and_stores_nothing(way: str) -> None:
    body = Stated(RIGHT[:3_000], OF_RIGHT, len(RIGHT), [])
    with emulated() as emulator, closing(open_s3(spec_for(emulator, data_path=way))) as tier:
        with pytest.raises(IntegrityError, match="ended after 3000 of 5000 bytes"):
            tier.put(Key("k"), body)
        tier.put(Key("next"), BytesBody(b"x"))
        assert emulator.objects() == {"p/next": b"x"}


def test_a_file_is_sent_as_far_as_it_was_said_to_go(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(RIGHT + b"more")
    with emulated() as emulator, closing(open_s3(spec_for(emulator))) as tier:
        tier.put(Key("k"), FileSlice(path=path, start=0, size=len(RIGHT), sha256=OF_RIGHT))
        tier.put(Key("empty"), FileSlice(path=path, start=7, size=0, sha256=None))
        assert emulator.objects() == {"p/k": RIGHT, "p/empty": b""}
        path.write_bytes(RIGHT[:100])
        with pytest.raises(OSError, match="shorter than it was"):
            tier.put(Key("k"), FileSlice(path=path, start=0, size=len(RIGHT), sha256=OF_RIGHT))
        assert emulator.objects()["p/k"] == RIGHT


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 3 * MIB + 7])
def test_bodies_of_any_size_arrive_whole(size: int) -> None:
    """Around the size of the buffer; in pieces that a bandwidth makes odd."""
    data = content(size)
    with emulated() as emulator:
        for bandwidth in (None, 300 * MIB + 13):
            with closing(open_tier(spec_for(emulator, bandwidth=bandwidth), clock=SystemClock())) as tier:
                tier.put(Key("k"), BytesBody(data))
                assert emulator.objects() == {"p/k": data}
                assert read_all(tier.open(Key("k"))) == data
                buffer = bytearray(size + 5)
                with tier.open(Key("k")) as stream:
                    assert read_whole(stream, memoryview(buffer)) == size
                assert buffer == data + bytes(5)


def read_whole(stream: Any, view: memoryview) -> int:
    done = 0
    while count := stream.readinto(view[done:]):
        done += count
    return done


PIECE = bytes(MIB)
PIECES = 16


def _endless(connection: Any, _stop: object) -> None:
    read_head(connection)
    connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: %d\r\n\r\n' % (PIECES * MIB))
    for _ in range(PIECES):
        connection.sendall(PIECE)


def test_a_restore_reads_into_its_own_buffer() -> None:
    """Through all that is wrapped around the tier, nothing of the size of a piece is allocated; the meter counts."""
    meter = Meter()
    with miser(_endless) as server:
        spec = TierSpec(name="store", url="s3://bucket", endpoint_url=server.endpoint_url, profile="aws")
        with closing(open_tier(spec, clock=SystemClock(), meter=meter)) as tier:
            stream: Any = tier.open(Key("k"))
            view = memoryview(bytearray(MIB))
            assert stream.readinto(view) == MIB
            tracemalloc.start()
            try:
                counts = [stream.readinto(view) for _ in range(PIECES)]
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            stream.close()
    assert counts == [MIB] * (PIECES - 1) + [0]
    assert meter.snapshot().bytes_down == PIECES * MIB
    assert peak < MIB // 4


Connect = Callable[[], Any]


def test_one_tier_after_another_on_one_client() -> None:
    """What was learnt is of a bucket; a key or a prefix has no part in it."""
    with emulated() as emulator:
        client = direct(build_client(PROFILES["aws"], emulator.endpoint_url, "us-east-1", 1))
        for prefix in ("a", "b/c"):
            tier = S3Tier("store", bucket=BUCKET, prefix=prefix, profile=PROFILES["aws"], connect=lambda: client)
            tier.put(Key("k%2F~x"), BytesBody(RIGHT))
            assert read_all(tier.open(Key("k%2F~x"))) == RIGHT
        client.close()
        assert sorted(emulator.objects()) == ["a/k%2F~x", "b/c/k%2F~x"]


def test_a_part_says_which_it_is() -> None:
    with emulated() as emulator, closing(open_s3(spec_for(emulator))) as tier:
        upload = tier.begin_upload(Key("u"), size=2 * 5 * MIB, part_size=5 * MIB)
        parts = [tier.put_part(upload, number, BytesBody(content(5 * MIB, number))) for number in (2, 1)]
        tier.complete(upload, sorted(parts, key=lambda part: part.number))
        assert emulator.objects()["p/u"] == content(5 * MIB, 1) + content(5 * MIB, 2)
        strange = Upload(key=Key("u"), upload_id=UploadId("a+b/c=&d"), size=1, part_size=1)
        with pytest.raises(TierError, match="NoSuchUpload"):
            tier.put_part(strange, 1, BytesBody(b"x"))
