"""Conditions, ranges, listings, versions and the small print of the emulated store, each by boto3."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from support.emulated import Open, connection, refused, s3_client, signed_headers, workbench

from tiers.clock import SystemClock
from tiers.metered import BillingClass
from tiers.s3_sdk import ClientError
from tiers.testing import ManualClock, content
from tiers.testing.base import race
from tiers.testing.s3_emulator import (
    AWS,
    B2,
    BUCKET,
    CEPH_RGW,
    GCS_INTEROP,
    GENERIC,
    IGNORES_PUT_IF_ABSENT,
    R2,
    RUNPOD,
    SEAWEED,
    Behaviour,
    ConditionRule,
    Encryption,
    EtagRule,
    Operation,
    billing_class,
)

MD5_OF_X = "9dd4e461268c8034f5c8564e155c67a6"


@pytest.fixture
def run() -> Iterator[Open]:
    with workbench() as start:
        yield start


# put-if-absent


@pytest.mark.parametrize("behaviour", [AWS, R2, CEPH_RGW, SEAWEED], ids=lambda b: b.name)
def test_put_if_absent_is_checked(run: Open, behaviour: Behaviour) -> None:
    emulator, s3 = run(replace(behaviour, write_interval=None))
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"first", IfNoneMatch="*")
    with refused(412, "PreconditionFailed", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"second", IfNoneMatch="*")


@pytest.mark.parametrize("behaviour", [IGNORES_PUT_IF_ABSENT, GCS_INTEROP, RUNPOD, GENERIC], ids=lambda b: b.name)
def test_put_if_absent_that_overwrites(run: Open, behaviour: Behaviour) -> None:
    emulator, s3 = run(behaviour)
    for body in (b"first", b"second"):
        s3.put_object(Bucket=BUCKET, Key="k", Body=body, IfNoneMatch="*")
    assert emulator.objects() == {"k": b"second"}


def test_put_if_absent_that_is_refused(run: Open) -> None:
    emulator, s3 = run(replace(AWS, put_if_absent=ConditionRule.REFUSED))
    with refused(501, "NotImplemented", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", IfNoneMatch="*")
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")


def test_only_any_object_can_be_excluded(run: Open) -> None:
    emulator, s3 = run()
    with refused(501, "NotImplemented", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", IfNoneMatch='"etag"')


@pytest.mark.parametrize("behaviour", [AWS, SEAWEED], ids=["conflicts", "waits"])
def test_racing_creators_have_one_winner(run: Open, behaviour: Behaviour) -> None:
    emulator, s3 = run(behaviour)
    for number in range(5):
        bodies = [content(5_000, seed=n) for n in range(8)]
        key = f"race/{number}"

        def create(n: int, key: str = key, bodies: list[bytes] = bodies) -> int:
            s3.put_object(Bucket=BUCKET, Key=key, Body=bodies[n], IfNoneMatch="*")
            return n

        results = race(8, create)
        winners = [result for result in results if isinstance(result, int)]
        losers = {r.response["Error"]["Code"] for r in results if isinstance(r, ClientError)}
        assert len(winners) == 1, results
        assert losers <= {"PreconditionFailed", "ConditionalRequestConflict"}
        assert emulator.objects()[key] == bodies[winners[0]]


def test_racing_creators_all_win_where_the_condition_is_ignored(run: Open) -> None:
    emulator, s3 = run(IGNORES_PUT_IF_ABSENT)
    results = race(4, lambda n: s3.put_object(Bucket=BUCKET, Key="k", Body=content(100, seed=n), IfNoneMatch="*"))
    assert not [result for result in results if isinstance(result, Exception)]
    assert emulator.counts == {"PutObject": 4}


def test_a_create_conflicts_with_one_in_flight(run: Open) -> None:
    """The first has sent half of its body when the second comes; only the second is refused."""
    emulator, s3 = run()
    headers = signed_headers(emulator, "PUT", f"/{BUCKET}/k", {"if-none-match": "*"})
    with connection(emulator) as slow:
        slow.putrequest("PUT", f"/{BUCKET}/k", skip_host=True, skip_accept_encoding=True)
        for name, value in (headers | {"expect": "100-continue", "content-length": "10"}).items():
            slow.putheader(name, value)
        slow.endheaders(b"")
        go_on = slow.sock.recv(25)  # it reads the body now: the create is in flight
        assert b"100 Continue" in go_on
        with refused(409, "ConditionalRequestConflict", emulator):
            s3.put_object(Bucket=BUCKET, Key="k", Body=b"second", IfNoneMatch="*")
        slow.send(b"first body")
        assert slow.getresponse().status == 200
    with refused(412, "PreconditionFailed", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"third", IfNoneMatch="*")
    assert emulator.objects() == {"k": b"first body"}


def test_if_match(run: Open) -> None:
    emulator, s3 = run()
    with refused(404, "NoSuchKey", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", IfMatch='"e"')
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")["ETag"]
    assert etag == f'"{MD5_OF_X}"'
    with refused(412, "PreconditionFailed", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"y", IfMatch='"e"')
    with refused(412, "PreconditionFailed", emulator):
        s3.delete_object(Bucket=BUCKET, Key="k", IfMatch='"e"')
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"y", IfMatch=etag)
    assert emulator.objects() == {"k": b"y"}


@pytest.mark.parametrize(
    ("behaviour", "status", "code"), [(R2, 412, "PreconditionFailed"), (B2, 501, "NotImplemented")], ids=["r2", "b2"]
)
def test_if_match_elsewhere(run: Open, behaviour: Behaviour, status: int, code: str) -> None:
    emulator, s3 = run(behaviour)
    with refused(status, code, emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", IfMatch='"e"')


def test_a_store_that_refuses_what_the_sdk_does_by_itself(run: Open) -> None:
    emulator, _ = run(B2)
    with s3_client(emulator, region="us-west-004") as s3, refused(400, "InvalidArgument", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")


def test_delete_if_match_that_deletes(run: Open) -> None:
    emulator, s3 = run(CEPH_RGW)
    emulator.put("k", b"x")
    s3.delete_object(Bucket=BUCKET, Key="k", IfMatch='"e"')
    assert emulator.objects() == {}


# reading


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [("bytes=0-0", 0, 1), ("bytes=5-", 5, 10), ("bytes=-3", 7, 10), ("bytes=2-100", 2, 10), ("bytes=-99", 0, 10)],
)
def test_ranges(run: Open, wanted: str, start: int, end: int) -> None:
    emulator, s3 = run()
    data = b"0123456789"
    emulator.put("k", data)
    answer = s3.get_object(Bucket=BUCKET, Key="k", Range=wanted)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/10"
    assert answer["Body"].read() == data[start:end]
    assert s3.head_object(Bucket=BUCKET, Key="k", Range=wanted)["ContentLength"] == end - start


def test_ranges_outside(run: Open) -> None:
    emulator, s3 = run()
    emulator.put("k", b"0123456789")
    emulator.put("empty", b"")
    for key, wanted in (("k", "bytes=10-"), ("k", "bytes=11-12"), ("k", "bytes=-0"), ("empty", "bytes=0-")):
        with refused(416, "InvalidRange", emulator):
            s3.get_object(Bucket=BUCKET, Key=key, Range=wanted)
    for wanted in ("bytes=5-2", "lines=1-2", "bytes=-"):
        assert s3.get_object(Bucket=BUCKET, Key="k", Range=wanted)["Body"].read() == b"0123456789"


def test_conditional_reads(run: Open) -> None:
    emulator, s3 = run()
    etag = s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")["ETag"]
    modified = s3.head_object(Bucket=BUCKET, Key="k")["LastModified"]
    assert s3.get_object(Bucket=BUCKET, Key="k", IfMatch=etag)["Body"].read() == b"x"
    for fields in ({"IfMatch": '"e"'}, {"IfUnmodifiedSince": modified - timedelta(seconds=1)}):
        with refused(412, "PreconditionFailed", emulator):
            s3.get_object(Bucket=BUCKET, Key="k", **fields)
    for unchanged in ({"IfNoneMatch": etag}, {"IfModifiedSince": modified}):
        with refused(304, "304", emulator):
            s3.head_object(Bucket=BUCKET, Key="k", **unchanged)
    assert s3.get_object(Bucket=BUCKET, Key="k", IfUnmodifiedSince=modified)["Body"].read() == b"x"


def test_what_is_missing(run: Open) -> None:
    emulator, s3 = run()
    with refused(404, "NoSuchKey", emulator):
        s3.get_object(Bucket=BUCKET, Key="absent")
    with refused(404, "404", emulator):
        s3.head_object(Bucket=BUCKET, Key="absent")
    with refused(404, "NoSuchBucket", emulator):
        s3.put_object(Bucket="absent-bucket", Key="k", Body=b"x")
    s3.delete_object(Bucket=BUCKET, Key="absent")
    assert emulator.counts == {"GetObject": 1, "HeadObject": 1, "PutObject": 1, "DeleteObject": 1}
    assert emulator.by_class == {BillingClass.A: 1, BillingClass.B: 2, BillingClass.FREE: 1}


def test_metadata(run: Open) -> None:
    _, s3 = run()
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", Metadata={"a": "1"}, ContentType="text/x", ContentEncoding="zstd")
    told = s3.head_object(Bucket=BUCKET, Key="k")
    assert (told["Metadata"], told["ContentType"], told["ContentEncoding"]) == ({"a": "1"}, "text/x", "zstd")
    _, forgetful = run(RUNPOD)
    forgetful.put_object(Bucket=BUCKET, Key="k", Body=b"x", Metadata={"a": "1"})
    assert forgetful.head_object(Bucket=BUCKET, Key="k")["Metadata"] == {}


# limits


def test_the_largest_put(run: Open) -> None:
    emulator, s3 = run(replace(AWS, max_put=100))
    s3.put_object(Bucket=BUCKET, Key="k", Body=bytes(100))
    with refused(400, "EntityTooLarge", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=bytes(101))


def test_the_longest_key(run: Open) -> None:
    emulator, s3 = run()
    s3.put_object(Bucket=BUCKET, Key="k" * 1_024, Body=b"x")
    with refused(400, "KeyTooLongError", emulator):
        s3.put_object(Bucket=BUCKET, Key="k" * 1_025, Body=b"x")


@pytest.mark.parametrize("too_fast", [(429, "TooManyRequests"), (503, "SlowDown")])
def test_a_write_a_second_and_key(run: Open, too_fast: tuple[int, str]) -> None:
    clock = ManualClock(SystemClock().now())
    emulator, s3 = run(replace(R2, too_fast=too_fast), clock=clock)
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    s3.put_object(Bucket=BUCKET, Key="other", Body=b"1")
    clock.advance(0.9)
    with refused(*too_fast, emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"2")
    clock.advance(0.1)
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"3")
    assert emulator.objects() == {"k": b"3", "other": b"1"}


def test_storage_classes(run: Open) -> None:
    emulator, s3 = run()
    s3.put_object(Bucket=BUCKET, Key="cold", Body=b"x", StorageClass="GLACIER")
    assert s3.head_object(Bucket=BUCKET, Key="cold")["StorageClass"] == "GLACIER"
    with refused(403, "InvalidObjectState", emulator):
        s3.get_object(Bucket=BUCKET, Key="cold")
    other, r2 = run(R2)
    with refused(400, "InvalidStorageClass", other):
        r2.put_object(Bucket=BUCKET, Key="k", Body=b"x", StorageClass="GLACIER")
    with refused(400, "InvalidStorageClass", other):
        r2.create_multipart_upload(Bucket=BUCKET, Key="k", StorageClass="GLACIER")


@pytest.mark.parametrize(
    ("behaviour", "encryption", "is_md5"),
    [
        (AWS, None, True),
        (replace(AWS, encryption=Encryption.AES256), "AES256", True),
        (replace(AWS, encryption=Encryption.KMS), "aws:kms", False),
        (replace(AWS, etags=EtagRule.OPAQUE), None, False),
        (GENERIC, None, False),
    ],
    ids=["plain", "AES256", "kms", "opaque", "generic"],
)
def test_etags_and_encryption(run: Open, behaviour: Behaviour, encryption: str | None, is_md5: bool) -> None:
    _, s3 = run(behaviour)
    put = s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
    assert put.get("ServerSideEncryption") == encryption
    assert s3.head_object(Bucket=BUCKET, Key="k").get("ServerSideEncryption") == encryption
    assert (put["ETag"] == f'"{MD5_OF_X}"') is is_md5
    again = s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
    assert (again["ETag"] == put["ETag"]) is is_md5


def test_encryption_that_is_asked_for(run: Open) -> None:
    _, s3 = run()
    put = s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", ServerSideEncryption="aws:kms")
    assert put["ServerSideEncryption"] == "aws:kms"
    assert put["ETag"] != f'"{MD5_OF_X}"'


def test_every_operation_has_a_billing_class() -> None:
    classes = {operation: billing_class(operation) for operation in Operation}
    assert [op for op, kind in classes.items() if kind is BillingClass.FREE] == [
        Operation.DELETE_BUCKET,
        Operation.DELETE_OBJECTS,
        Operation.DELETE_OBJECT,
        Operation.ABORT_UPLOAD,
    ]
    assert classes[Operation.LIST_PARTS] is classes[Operation.UPLOAD_PART_COPY] is BillingClass.A
    assert classes[Operation.HEAD_OBJECT] is BillingClass.B
