"""The fault proxy breaks what it says, passes on the rest, and says what it did."""

import threading

import pytest
from support.proxy import Action, Fault, FaultProxy, When
from support.s3_operations import classify
from support.s3_tiers import RawS3, s3_tier
from support.seaweed import SeaweedServer

from tiers.bodies import BytesBody
from tiers.errors import IntegrityError, TierUnavailable
from tiers.protocol import Key
from tiers.s3 import S3Tier
from tiers.testing import content, read_all

KEY = Key("a/b")
DATA = content(200_000)


@pytest.mark.parametrize(
    ("method", "target", "operation", "key"),
    [
        ("PUT", "/b/k/x", "PutObject", "k/x"),
        ("PUT", "/b/k?partNumber=1&uploadId=u", "UploadPart", "k"),
        ("GET", "/b/k?uploadId=u", "ListParts", "k"),
        ("GET", "/b/k%252F", "GetObject", "k%2F"),
        ("HEAD", "/b/k", "HeadObject", "k"),
        ("DELETE", "/b/k", "DeleteObject", "k"),
        ("DELETE", "/b/k?uploadId=u", "AbortMultipartUpload", "k"),
        ("POST", "/b/k?uploads", "CreateMultipartUpload", "k"),
        ("POST", "/b/k?uploadId=u", "CompleteMultipartUpload", "k"),
        ("GET", "/b?list-type=2&prefix=x", "ListObjectsV2", ""),
        ("PUT", "/b", "CreateBucket", ""),
    ],
)
def test_classify(method: str, target: str, operation: str, key: str) -> None:
    assert classify(method, target, {}) == (operation, key)


def test_copies_are_told_by_their_header() -> None:
    headers = {"x-amz-copy-source": "b/k"}
    assert classify("PUT", "/b/k?partNumber=1&uploadId=u", headers) == ("UploadPartCopy", "k")


def test_it_counts_requests_and_bytes(s3: S3Tier, proxy: FaultProxy, prefix: str) -> None:
    s3.put(KEY, BytesBody(DATA))
    assert read_all(s3.open(KEY, 10, 1_000)) == DATA[10:1_010]
    assert proxy.counts == {"PutObject": 1, "GetObject": 1}
    assert proxy.received["PutObject", f"{prefix}/a/b"] == len(DATA)
    put, get = proxy.by_key()[f"{prefix}/a/b"]
    assert (put.status, get.status, get.sent) == (200, 206, 1_000)
    assert proxy.fired == []


def test_secrets_are_not_kept(s3: S3Tier, proxy: FaultProxy) -> None:
    s3.put(KEY, BytesBody(b"x"))
    assert "authorization" not in proxy.requests[0].headers


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE, Action.STATUS])
def test_before_means_that_nothing_happened(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3, action: Action) -> None:
    proxy.inject(Fault(operation="PutObject", action=action))
    with pytest.raises(TierUnavailable):
        s3.put(KEY, BytesBody(DATA))
    assert [fired.fault.action for fired in proxy.fired] == [action]
    assert raw_s3.get(KEY) is None


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE, Action.STATUS])
def test_after_means_that_it_happened(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3, action: Action) -> None:
    proxy.inject(Fault(operation="PutObject", when=When.AFTER, action=action))
    with pytest.raises(TierUnavailable):
        s3.put(KEY, BytesBody(DATA))
    assert len(proxy.fired) == 1
    assert raw_s3.get(KEY) == DATA


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_a_request_can_break_in_its_body(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3, action: Action) -> None:
    proxy.inject(Fault(operation="PutObject", when=When.MID_BODY, action=action))
    with pytest.raises(TierUnavailable):
        s3.put(KEY, BytesBody(DATA))
    assert len(proxy.fired) == 1
    assert raw_s3.get(KEY) is None


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_an_answer_can_break_in_its_body(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3, action: Action) -> None:
    raw_s3.put(KEY, DATA)
    proxy.inject(Fault(operation="GetObject", when=When.MID_BODY, action=action))
    with pytest.raises(TierUnavailable):
        read_all(s3.open(KEY))
    assert len(proxy.fired) == 1


def test_a_request_body_can_be_corrupted(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3) -> None:
    proxy.inject(Fault(operation="PutObject", when=When.MID_BODY, action=Action.CORRUPT))
    with pytest.raises(IntegrityError):
        s3.put(KEY, BytesBody(DATA))
    assert raw_s3.get(KEY) is None


def test_an_answer_can_be_corrupted(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3) -> None:
    raw_s3.put(KEY, DATA)
    proxy.inject(Fault(operation="GetObject", when=When.MID_BODY, action=Action.CORRUPT))
    got = read_all(s3.open(KEY))
    assert len(proxy.fired) == 1
    assert [i for i, (a, b) in enumerate(zip(got, DATA, strict=True)) if a != b] == [len(DATA) // 2]


@pytest.mark.parametrize("when", list(When))
def test_a_delay_changes_nothing(s3: S3Tier, proxy: FaultProxy, raw_s3: RawS3, when: When) -> None:
    proxy.inject(Fault(operation="PutObject", when=when, action=Action.DELAY, seconds=0.05))
    s3.put(KEY, BytesBody(DATA))
    assert len(proxy.fired) == 1
    assert raw_s3.get(KEY) == DATA


@pytest.mark.parametrize("when", list(When))
def test_a_stall_ends_in_a_reset(s3: S3Tier, proxy: FaultProxy, when: When) -> None:
    proxy.inject(Fault(operation="PutObject", when=when, action=Action.STALL, seconds=0.05))
    with pytest.raises(TierUnavailable):
        s3.put(KEY, BytesBody(DATA))
    assert len(proxy.fired) == 1


def test_the_nth_request_of_a_key_is_chosen(s3: S3Tier, proxy: FaultProxy, prefix: str) -> None:
    proxy.inject(Fault(operation="Put*", key="*/chosen", nth=2, action=Action.STATUS, status=500))
    s3.put(Key("other"), BytesBody(b"1"))
    s3.put(Key("chosen"), BytesBody(b"1"))
    with pytest.raises(TierUnavailable):
        s3.put(Key("chosen"), BytesBody(b"1"))
    s3.put(Key("chosen"), BytesBody(b"1"))
    assert [(fired.operation, fired.key) for fired in proxy.fired] == [("PutObject", f"{prefix}/chosen")]


def test_stopping_releases_what_is_stalled(seaweed: SeaweedServer, prefix: str) -> None:
    """The stall asks for longer than this test may take."""
    with FaultProxy(seaweed.port) as proxy:
        proxy.inject(Fault(operation="PutObject", action=Action.STALL))
        tier = s3_tier(proxy.endpoint_url, prefix)
        failures: list[Exception] = []

        def put() -> None:
            try:
                tier.put(KEY, BytesBody(b"x"))
            except TierUnavailable as error:
                failures.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        while not proxy.fired:
            thread.join(0.01)
    thread.join(5)
    tier.close()
    assert not thread.is_alive()
    assert len(failures) == 1


def test_impossible_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="middle of a body"):
        Fault(operation="*", when=When.MID_BODY, action=Action.STATUS)
    with pytest.raises(ValueError, match="corrupted"):
        Fault(operation="*", when=When.AFTER, action=Action.CORRUPT)
