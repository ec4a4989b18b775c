"""Listings, versions, deletes, copies and configuration of the emulated store."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.emulated import Open, put_raw, refused, s3_client, send, signed_headers, workbench

from tiers.testing.s3_emulator import (
    AWS,
    B2,
    BUCKET,
    EVERYTHING,
    GENERIC,
    R2,
    RUNPOD,
    SEAWEED,
    Behaviour,
    Footprint,
    LifecycleRule,
    ListOrder,
    Operation,
)

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

KEYS = ("a", "a!", "a-b", "a/b", "a/b/c", "a0", "b/ü +&", "c")
TREE = ("a", "a/b", "a/b/c", "a!", "a-b", "a0", "b/ü +&", "c")


@pytest.fixture
def run() -> Iterator[Open]:
    with workbench() as start:
        yield start


def paged(s3: "S3Client", operation: str, size: int, **fields: Any) -> list[str]:
    """Return all keys of a listing, page by page."""
    pages = s3.get_paginator(operation).paginate(Bucket=BUCKET, PaginationConfig={"PageSize": size}, **fields)  # type: ignore[call-overload]
    return [each["Key"] for page in pages for each in page.get("Contents", [])]


@pytest.mark.parametrize("operation", ["list_objects_v2", "list_objects"])
@pytest.mark.parametrize("order", list(ListOrder))
@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_a_listing_is_complete_over_pages(run: Open, operation: str, order: ListOrder, size: int) -> None:
    emulator, s3 = run(replace(AWS, list_order=order))
    for key in reversed(KEYS):
        emulator.put(key, key.encode())
    expected = KEYS if order is ListOrder.BYTES else TREE
    assert paged(s3, operation, size) == list(expected)
    assert paged(s3, operation, size, Prefix="a") == [key for key in expected if key.startswith("a")]
    assert paged(s3, operation, size, Prefix="none") == []


def test_the_store_decides_how_long_a_page_is(run: Open) -> None:
    emulator, s3 = run(replace(AWS, list_page=2))
    for key in KEYS:
        emulator.put(key, b"")
    page = s3.list_objects_v2(Bucket=BUCKET, MaxKeys=1_000)
    assert (page["KeyCount"], page["IsTruncated"]) == (2, True)
    assert paged(s3, "list_objects_v2", 1_000) == list(KEYS)


def test_a_listing_from_somewhere(run: Open) -> None:
    emulator, s3 = run()
    for key in KEYS:
        emulator.put(key, b"12")
    page = s3.list_objects_v2(Bucket=BUCKET, StartAfter="a/b")
    assert [each["Key"] for each in page["Contents"]] == list(KEYS[4:])
    assert {each["Size"] for each in page["Contents"]} == {2}
    with refused(400, "InvalidArgument", emulator):
        s3.list_objects_v2(Bucket=BUCKET, ContinuationToken="no-token")
    assert s3.list_objects_v2(Bucket=BUCKET, MaxKeys=0)["KeyCount"] == 0


@pytest.mark.parametrize("size", [1, 2, 1_000])
def test_a_listing_by_folder(run: Open, size: int) -> None:
    emulator, s3 = run()
    for key in ("x/1", "x/2", "x/y/3", "x-1", "y", "z/1", "z/2"):
        emulator.put(key, b"")
    keys, folders = [], []
    for page in s3.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Delimiter="/", PaginationConfig={"PageSize": size}
    ):
        keys += [each["Key"] for each in page.get("Contents", [])]
        folders += [each["Prefix"] for each in page.get("CommonPrefixes", [])]
    assert (keys, folders) == (["x-1", "y"], ["x/", "z/"])
    inside = s3.list_objects_v2(Bucket=BUCKET, Delimiter="/", Prefix="x/")
    assert [each["Key"] for each in inside["Contents"]] == ["x/1", "x/2"]
    assert [each["Prefix"] for each in inside["CommonPrefixes"]] == ["x/y/"]


LACKING: list[tuple[Behaviour, Callable[["S3Client"], object]]] = [
    (GENERIC, lambda s3: s3.list_objects(Bucket=BUCKET)),
    (RUNPOD, lambda s3: s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "k"}]})),
    (RUNPOD, lambda s3: s3.copy_object(Bucket=BUCKET, Key="new", CopySource={"Bucket": BUCKET, "Key": "k"})),
    (R2, lambda s3: s3.get_bucket_versioning(Bucket=BUCKET)),
    (AWS, lambda s3: s3.put_object_tagging(Bucket=BUCKET, Key="k", Tagging={"TagSet": []})),
    (AWS, lambda s3: s3.get_bucket_policy(Bucket=BUCKET)),
    (AWS, lambda s3: s3.delete_bucket_lifecycle(Bucket=BUCKET)),
]


@pytest.mark.parametrize(("behaviour", "act"), LACKING)
def test_what_a_store_cannot_do(run: Open, behaviour: Behaviour, act: Callable[["S3Client"], object]) -> None:
    emulator, s3 = run(behaviour)
    emulator.put("k", b"x")
    with refused(501, "NotImplemented", emulator):
        act(s3)


def test_deleting_many(run: Open) -> None:
    emulator, s3 = run()
    for key in KEYS:
        emulator.put(key, b"x")
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "a"}, {"Key": "b/ü +&"}, {"Key": "absent"}]})
    assert [each["Key"] for each in answer["Deleted"]] == ["a", "b/ü +&", "absent"]
    quiet = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "a0"}], "Quiet": True})
    assert set(quiet) == {"ResponseMetadata"}
    assert sorted(emulator.objects()) == ["a!", "a-b", "a/b", "a/b/c", "c"]
    with refused(400, "MalformedXML", emulator):
        s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": str(n)} for n in range(1_001)]})


def test_deleting_many_needs_a_digest(run: Open) -> None:
    emulator, _ = run()
    emulator.put("k", b"x")
    body, target = b"<Delete><Object><Key>k</Key></Object></Delete>", f"/{BUCKET}?delete="
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "InvalidRequest"),
        ({"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="}, "BadDigest"),
    ]
    for given, code in cases:
        reply = send(emulator, "POST", target, signed_headers(emulator, "POST", target, given), body)
        assert (reply.status, reply.code) == (400, code)
    assert emulator.objects() == {"k": b"x"}


def test_versions(run: Open) -> None:
    emulator, s3 = run(replace(AWS, versioned=True))
    assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    first = s3.put_object(Bucket=BUCKET, Key="k", Body=b"first")["VersionId"]
    second = s3.put_object(Bucket=BUCKET, Key="k", Body=b"second")["VersionId"]
    assert emulator.footprint() == Footprint(current=6, noncurrent=5, parts=0)
    marker = s3.delete_object(Bucket=BUCKET, Key="k")
    assert marker["DeleteMarker"] is True
    assert emulator.objects() == {}
    assert emulator.footprint() == Footprint(current=0, noncurrent=11, parts=0)
    with refused(404, "NoSuchKey", emulator):
        s3.get_object(Bucket=BUCKET, Key="k")
    assert s3.get_object(Bucket=BUCKET, Key="k", VersionId=first)["Body"].read() == b"first"
    with refused(404, "NoSuchVersion", emulator):
        s3.get_object(Bucket=BUCKET, Key="k", VersionId="none")
    s3.put_object(Bucket=BUCKET, Key="k2", Body=b"x", IfNoneMatch="*")
    for size in (1, 1_000):
        pages = list(
            s3.get_paginator("list_object_versions").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": size})
        )
        versions = [(v["Key"], v["VersionId"], v["IsLatest"]) for page in pages for v in page.get("Versions", [])]
        assert versions[:2] == [("k", second, False), ("k", first, False)]
        assert versions[2][0::2] == ("k2", True)
        assert [m["VersionId"] for page in pages for m in page.get("DeleteMarkers", [])] == [marker["VersionId"]]
    s3.delete_object(Bucket=BUCKET, Key="k", VersionId=marker["VersionId"])
    assert emulator.objects()["k"] == b"second"
    s3.delete_object(Bucket=BUCKET, Key="k", VersionId=second)
    s3.delete_object(Bucket=BUCKET, Key="k", VersionId=first)
    assert emulator.objects() == {"k2": b"x"}
    assert emulator.footprint() == Footprint(current=1, noncurrent=0, parts=0)


def test_versioning_can_be_turned_on_and_suspended(run: Open) -> None:
    emulator, s3 = run()
    assert "Status" not in s3.get_bucket_versioning(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"2")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"3")  # replaces the one that was there before versioning
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"4")
    versions = s3.list_object_versions(Bucket=BUCKET)["Versions"]
    assert [v["VersionId"] == "null" for v in versions] == [True, False]
    assert emulator.footprint() == Footprint(current=1, noncurrent=1, parts=0)


def test_some_buckets_always_keep_versions(run: Open) -> None:
    emulator, s3 = run(B2)
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"1234")
    s3.delete_object(Bucket=BUCKET, Key="k")
    assert emulator.objects() == {}
    assert emulator.footprint().noncurrent == 4


def test_copying_inside_the_store(run: Open) -> None:
    emulator, s3 = run()
    etag = s3.put_object(Bucket=BUCKET, Key="a b", Body=b"x", Metadata={"m": "1"})["ETag"]
    source: Any = {"Bucket": BUCKET, "Key": "a b"}
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=source, CopySourceIfMatch=etag)
    assert emulator.objects() == {"a b": b"x", "copy": b"x"}
    with refused(412, "PreconditionFailed", emulator):
        s3.copy_object(Bucket=BUCKET, Key="other", CopySource=source, CopySourceIfMatch='"e"')
    with refused(404, "NoSuchKey", emulator):
        s3.copy_object(Bucket=BUCKET, Key="other", CopySource={"Bucket": BUCKET, "Key": "absent"})
    assert put_raw(emulator, "copy", b"", {"x-amz-copy-source": f"/{BUCKET}/a%20b", "if-none-match": "*"}).status == 412


def test_buckets(run: Open) -> None:
    emulator, s3 = run()
    s3.create_bucket(Bucket="another-one")
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == [BUCKET, "another-one"]
    with refused(409, "BucketAlreadyOwnedByYou", emulator):
        s3.create_bucket(Bucket="another-one")
    s3.put_object(Bucket="another-one", Key="k", Body=b"x")
    assert emulator.objects("another-one") == {"k": b"x"}
    with refused(409, "BucketNotEmpty", emulator):
        s3.delete_bucket(Bucket="another-one")
    s3.delete_object(Bucket="another-one", Key="k")
    s3.delete_bucket(Bucket="another-one")
    with refused(404, "404", emulator):
        s3.head_bucket(Bucket="another-one")


def test_the_lifecycle(run: Open) -> None:
    emulator, s3 = run()
    with refused(404, "NoSuchLifecycleConfiguration", emulator):
        s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)
    rule = LifecycleRule(
        rule_id="r", prefix="p/", abort_incomplete_days=7, expire_days=30, noncurrent_days=3, transition=(5, "GLACIER")
    )
    _, configured = run(replace(AWS, lifecycle=(rule,)))
    assert configured.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"] == [
        {
            "ID": "r",
            "Filter": {"Prefix": "p/"},
            "Status": "Enabled",
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            "Expiration": {"Days": 30},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 3},
            "Transitions": [{"Days": 5, "StorageClass": "GLACIER"}],
        }
    ]
    _, r2 = run(R2)
    assert r2.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"][0]["Status"] == "Enabled"


@pytest.mark.parametrize(
    ("behaviour", "location"),
    [(AWS, None), (R2, "auto"), (RUNPOD, "eu-ro-1"), (SEAWEED, None)],
    ids=lambda b: str(b)[:20],
)
def test_the_location(run: Open, behaviour: Behaviour, location: str | None) -> None:
    _, s3 = run(behaviour)
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == location


def test_a_caller_that_may_not_look_at_the_configuration(run: Open) -> None:
    may = EVERYTHING - {Operation.GET_BUCKET_LOCATION, Operation.GET_BUCKET_VERSIONING}
    emulator, _ = run(replace(AWS, may=may))
    with s3_client(emulator) as s3:
        for ask in (s3.get_bucket_location, s3.get_bucket_versioning):
            with refused(403, "AccessDenied", emulator):
                ask(Bucket=BUCKET)
