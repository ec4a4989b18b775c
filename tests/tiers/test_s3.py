"""What the S3 tier does when things go wrong, on a real server behind a proxy that breaks them."""

import base64
import hashlib
import io
import logging
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest
from support.proxy import Action, Fault, FaultProxy, When
from support.s3_tiers import RawS3, s3_tier
from support.seaweed import SeaweedServer

from tiers.bodies import BytesBody, FileSlice
from tiers.errors import AccessDenied, IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Key, Part, Tier, Upload, UploadId, all_parts
from tiers.s3 import S3Tier
from tiers.testing import content, read_all

PART = 5 << 20
KEY = Key("a/b")
GONE = Upload(key=KEY, upload_id=UploadId("gone"), size=PART, part_size=PART)
VERBS: dict[str, Callable[[Tier], object]] = {
    "put": lambda tier: tier.put(KEY, BytesBody(b"x")),
    "create": lambda tier: tier.create(KEY, b"x"),
    "open": lambda tier: tier.open(KEY),
    "open range": lambda tier: tier.open(KEY, 0, 1),
    "open nothing": lambda tier: tier.open(KEY, 0, 0),
    "stat": lambda tier: tier.stat(KEY),
    "list_objects": lambda tier: tier.list_objects(""),
    "delete": lambda tier: tier.delete(KEY),
    "begin_upload": lambda tier: tier.begin_upload(KEY, size=PART, part_size=PART),
    "put_part": lambda tier: tier.put_part(GONE, 1, BytesBody(bytes(PART))),
    "list_parts": lambda tier: tier.list_parts(GONE),
    "complete": lambda tier: tier.complete(GONE, [Part(number=1, size=PART, etag="e", sha256="0" * 64)]),
    "abort": lambda tier: tier.abort(GONE),
}
verbs = pytest.mark.parametrize("act", VERBS.values(), ids=VERBS)


@dataclass(frozen=True, slots=True)
class BrokenBody:
    """A local file whose disk fails."""

    size: int = 1 << 20
    sha256: str | None = None

    def open(self) -> BinaryIO:
        class Reader(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                raise OSError(5, "Input/output error")

            def readinto(self, buffer: object) -> int:
                raise OSError(5, "Input/output error")

        return Reader()


@verbs
def test_a_missing_bucket_is_never_an_empty_store(
    seaweed: SeaweedServer, prefix: str, act: Callable[[Tier], object]
) -> None:
    tier = s3_tier(seaweed.endpoint_url, prefix, bucket="no-such-bucket")
    with pytest.raises(AccessDenied) as caught:
        act(tier)
    tier.close()
    assert "bucket does not exist" in caught.value.hint


@verbs
def test_wrong_secret(
    seaweed: SeaweedServer, prefix: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[Tier], object]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    tier = s3_tier(seaweed.endpoint_url, prefix)
    with pytest.raises(AccessDenied) as caught:
        act(tier)
    tier.close()
    assert caught.value.hint


def test_unknown_access_key(seaweed: SeaweedServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    tier = s3_tier(seaweed.endpoint_url, prefix)
    with pytest.raises(AccessDenied, match="InvalidAccessKeyId"):
        tier.list_objects("")
    tier.close()


def test_no_credentials(seaweed: SeaweedServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    tier = s3_tier(seaweed.endpoint_url, prefix)
    with pytest.raises(AccessDenied) as caught:
        tier.stat(KEY)
    tier.close()
    assert "no credentials were found" in caught.value.hint


@verbs
def test_endpoint_down(prefix: str, act: Callable[[Tier], object]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        tier = s3_tier(f"http://127.0.0.1:{taken.getsockname()[1]}", prefix)
        with pytest.raises(TierUnavailable, match="Connection refused"):
            act(tier)
        tier.close()


@verbs
def test_every_verb_is_one_attempt(s3: S3Tier, proxy: FaultProxy, act: Callable[[Tier], object]) -> None:
    """A retry below the one retry would hide a lost create, and multiply waiting."""
    proxy.inject(*(Fault(operation="*", nth=n, action=Action.STATUS, headers={"Retry-After": "7"}) for n in (1, 2)))
    with pytest.raises(TierUnavailable) as caught:
        act(s3)
    assert caught.value.retry_after == 7
    assert len(proxy.requests) == 1


def test_a_redirect_is_not_followed(s3: S3Tier, proxy: FaultProxy) -> None:
    """The SDK would look for the region and send the body again, whatever its retries are set to."""
    body = b"<Error><Code>PermanentRedirect</Code><Endpoint>elsewhere.example</Endpoint></Error>"
    proxy.inject(Fault(operation="PutObject", action=Action.STATUS, status=301, body=body))
    with pytest.raises(AccessDenied, match="PermanentRedirect") as caught:
        s3.put(KEY, BytesBody(b"x"))
    assert "region" in caught.value.hint
    assert len(proxy.requests) == 1


def test_what_is_sent(s3: S3Tier, proxy: FaultProxy) -> None:
    """The sealed digest, as what is signed and as what is to be checked; no trailer, and the client's name."""
    data = content(PART)
    s3.put(KEY, BytesBody(data))
    upload = s3.begin_upload(Key("m"), size=PART, part_size=PART)
    s3.put_part(upload, 1, BytesBody(data))
    for sent in (request.headers for request in proxy.requests if request.received):
        assert sent["x-amz-content-sha256"] == hashlib.sha256(data).hexdigest()
        assert sent["x-amz-checksum-sha256"] == base64.b64encode(hashlib.sha256(data).digest()).decode()
        assert "ckptier/" in sent["user-agent"]
        assert not {"x-amz-trailer", "content-encoding", "transfer-encoding"} & set(sent)
        assert not [name for name in sent if name.startswith("x-amz-checksum-crc") or name == "content-md5"]


def test_corruption_on_the_way_is_refused_by_the_store(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3) -> None:
    upload = s3.begin_upload(KEY, size=PART, part_size=PART)
    proxy.inject(
        *(Fault(operation=op, when=When.MID_BODY, action=Action.CORRUPT) for op in ("PutObject", "UploadPart"))
    )
    with pytest.raises(IntegrityError):
        s3.put(KEY, BytesBody(content(PART)))
    with pytest.raises(IntegrityError):
        s3.put_part(upload, 1, BytesBody(content(PART)))
    assert len(proxy.fired) == 2
    assert raw_s3.get(KEY) is None
    assert list(all_parts(s3, upload)) == []


@pytest.mark.parametrize("echo", ["A" * 43 + "=", "A" * 43 + "=-1"])
def test_an_echo_of_other_bytes_is_refused(s3: S3Tier, proxy: FaultProxy, echo: str) -> None:
    """The store says 200 and names bytes that were not sent."""
    headers = {"x-amz-checksum-sha256": echo, "ETag": '"e"'}
    proxy.inject(Fault(operation="PutObject", when=When.AFTER, action=Action.STATUS, status=200, headers=headers))
    with pytest.raises(IntegrityError, match="the store found SHA-256 0000"):
        s3.put(KEY, BytesBody(b"x"))


def test_a_create_whose_reply_is_lost_is_ambiguous(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3) -> None:
    """The caller reads the key; a retry here would report our own write as somebody else's."""
    proxy.inject(Fault(operation="PutObject", when=When.AFTER, action=Action.DROP))
    with pytest.raises(TierUnavailable):
        s3.create(KEY, b"nonce")
    assert proxy.counts == {"PutObject": 1}
    assert len(proxy.fired) == 1
    assert raw_s3.get(KEY) == b"nonce"
    with pytest.raises(ObjectExists):
        s3.create(KEY, b"other")


def test_a_conflict_is_ambiguous(s3: S3Tier, proxy: FaultProxy) -> None:
    """Another create is in flight and may yet fail: nobody knows whether the key will be taken."""
    body = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
    proxy.inject(Fault(operation="PutObject", action=Action.STATUS, status=409, body=body))
    with pytest.raises(TierUnavailable, match="ConditionalRequestConflict"):
        s3.create(KEY, b"x")


def test_advisory_create_looks_first(proxy: FaultProxy, prefix: str) -> None:
    """Where If-None-Match may be ignored, a single writer must still not overwrite."""
    tier = s3_tier(proxy.endpoint_url, prefix, profile="gcs")
    tier.create(KEY, b"first")
    with pytest.raises(ObjectExists):
        tier.create(KEY, b"second")
    assert read_all(tier.open(KEY)) == b"first"
    assert proxy.counts["PutObject"] == 1
    assert "if-none-match" not in next(r for r in proxy.requests if r.operation == "PutObject").headers
    tier.close()


def test_a_missing_key_is_asked_for_twice(s3: S3Tier, proxy: FaultProxy) -> None:
    with pytest.raises(ObjectNotFound):
        s3.stat(KEY)
    assert proxy.counts == {"HeadObject": 1, "GetObject": 1}


def test_a_404_of_something_else_is_not_a_missing_key(s3: S3Tier, proxy: FaultProxy) -> None:
    page = b"<html>no such page</html>"
    proxy.inject(Fault(operation="GetObject", action=Action.STATUS, status=404, body=page))
    with pytest.raises(TierError) as caught:
        s3.open(KEY)
    assert not isinstance(caught.value, ObjectNotFound)


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
@pytest.mark.parametrize("length", [None, 900_000])
def test_a_cut_download_is_no_end_of_file(
    s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3, action: Action, length: int | None
) -> None:
    raw_s3.put(KEY, content(1_000_000))
    proxy.inject(Fault(operation="GetObject", when=When.MID_BODY, action=action))
    with pytest.raises(TierUnavailable):
        read_all(s3.open(KEY, 0, length))
    assert len(proxy.fired) == 1


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, content(1_000), 200),  # ignores ranges
        ({"Content-Range": "bytes 100-299/1000"}, content(1_000)[100:300], 200),  # rclone
        ({"Content-Range": "bytes 100-299/1000"}, content(1_000)[100:300], 206),
        ({"Content-Range": "bytes 100-299/*"}, content(1_000)[100:300], 206),
        ({"Content-Range": "bytes 0-999/1000"}, content(1_000), 206),  # more than was asked for
    ],
)
def test_a_range_is_what_was_asked_for(
    s3: S3Tier, proxy: FaultProxy, headers: dict[str, str], body: bytes, status: int
) -> None:
    headers = {"ETag": '"e"', **headers}
    proxy.inject(Fault(operation="GetObject", action=Action.STATUS, status=status, headers=headers, body=body))
    assert read_all(s3.open(KEY, 100, 200)) == content(1_000)[100:300]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, content(299), 200),
        ({}, content(50), 200),
        ({"Content-Range": "bytes 100-298/299"}, content(299)[100:], 206),
        ({"Content-Range": "bytes 101-300/1000"}, content(1_000)[101:301], 206),
    ],
)
def test_less_than_was_asked_for_is_refused_before_any_byte(
    s3: S3Tier, proxy: FaultProxy, headers: dict[str, str], body: bytes, status: int
) -> None:
    headers = {"ETag": '"e"', **headers}
    proxy.inject(Fault(operation="GetObject", action=Action.STATUS, status=status, headers=headers, body=body))
    with pytest.raises(IntegrityError):
        s3.open(KEY, 100, 200)


def test_streams_closed_early_leave_nothing_behind(s3: S3Tier, raw_s3: RawS3) -> None:
    raw_s3.put(KEY, content(1_000_000))
    for _ in range(12):  # more than the pool holds
        with s3.open(KEY) as stream:
            assert stream.read(10) == content(1_000_000)[:10]
    assert read_all(s3.open(KEY)) == content(1_000_000)


def test_a_failing_disk_is_not_a_failing_store(s3: S3Tier, raw_s3: RawS3) -> None:
    """Reported as a connection, it would be retried for ever."""
    with pytest.raises(OSError, match="Input/output error"):
        s3.put(KEY, BrokenBody())
    assert raw_s3.get(KEY) is None


def test_a_file_that_shrank_is_a_local_failure(s3: S3Tier, raw_s3: RawS3, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000))
    with pytest.raises(OSError, match="shorter than it was"):
        s3.put(KEY, FileSlice(path=path, start=0, size=200_000, sha256=None))
    assert raw_s3.get(KEY) is None


def test_a_list_that_does_not_advance_is_not_the_end(s3: S3Tier, proxy: FaultProxy) -> None:
    body = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    proxy.inject(Fault(operation="ListObjectsV2", action=Action.STATUS, status=200, body=body))
    with pytest.raises(TierUnavailable, match="does not advance"):
        s3.list_objects("")


def test_no_secret_in_errors_and_logs(
    s3: S3Tier, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    canaries = {name: f"canary-{name}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")}
    for name, value in canaries.items():
        monkeypatch.setenv(name, value)
    echo = f"<Error><Code>InvalidToken</Code><Message>{canaries['AWS_SESSION_TOKEN']}</Message></Error>".encode()
    proxy.inject(Fault(operation="PutObject", nth=2, action=Action.STATUS, status=400, body=echo))
    seen = ""
    with caplog.at_level(logging.DEBUG):
        for act in (*VERBS.values(), VERBS["put"]):
            with pytest.raises(TierError) as caught:
                act(s3)
            seen += f"{caught.value} {caught.value.hint} {caught.value!r}"
            seen += "".join(traceback.format_exception(caught.value))
    seen += caplog.text
    assert len(proxy.fired) == 1
    assert [value for value in canaries.values() if value in seen] == []


def test_a_line_break_in_a_token_is_a_persons_business(
    s3: S3Tier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens are read from files; the HTTP library quotes what it cannot send."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "canary-token\n")
    with pytest.raises(AccessDenied) as caught:
        s3.stat(KEY)
    assert "line break" in caught.value.hint
    assert "canary" not in caplog.text + "".join(traceback.format_exception(caught.value))
