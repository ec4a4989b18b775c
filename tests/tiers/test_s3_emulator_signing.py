"""The emulator verifies signatures as S3 does: against published examples, the SDK's signer and what tampers."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from support.emulated import put_raw, refused, resolve_localhost, s3_client, send, signed_headers

from tiers.clock import SystemClock
from tiers.s3_sdk import exceptions
from tiers.testing import ManualClock
from tiers.testing.s3_emulator import (
    AWS,
    BUCKET,
    EVERYTHING,
    GENERIC,
    Credentials,
    Operation,
    S3Emulator,
    WrongRegion,
)
from tiers.testing.s3_emulator.answers import Refusal
from tiers.testing.s3_emulator.signing import (
    Authorization,
    ChunkSignatures,
    authorization,
    canonical_request,
    check_signature,
    request_signature,
    signing_key,
)

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

EXAMPLE_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TARGET = f"/{BUCKET}/k"


@pytest.fixture
def emulator() -> Iterator[S3Emulator]:
    with S3Emulator() as running:
        yield running


def example(signature: str, headers: tuple[str, ...], payload_hash: str) -> Authorization:
    return Authorization(
        access_key="AKIAIOSFODNN7EXAMPLE",
        day="20130524",
        region="us-east-1",
        signed_headers=headers,
        signature=signature,
        stamp="20130524T000000Z",
        payload_hash=payload_hash,
    )


def test_the_published_example_of_a_request() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    headers = {
        "host": "examplebucket.s3.amazonaws.com",
        "range": "bytes=0-9",
        "x-amz-content-sha256": empty,
        "x-amz-date": "20130524T000000Z",
    }
    signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    auth = example(signature, tuple(headers), empty)
    key = signing_key(EXAMPLE_SECRET, auth.scope)
    check_signature(key, auth, "GET", "/test.txt", headers)
    with pytest.raises(Refusal, match="SignatureDoesNotMatch"):
        check_signature(key, auth, "GET", "/test.txt", {**headers, "range": "bytes=0-10"})


def test_the_published_example_of_signed_chunks() -> None:
    seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    auth = example(seed, ("host",), "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    chunks = ChunkSignatures(signing_key(EXAMPLE_SECRET, auth.scope), auth)
    for chunk, signature in (
        (b"a" * 65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (b"a" * 1_024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (b"", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ):
        chunks.check_chunk(sha256(chunk).hexdigest(), signature)
    with pytest.raises(Refusal, match="SignatureDoesNotMatch"):
        chunks.check_chunk(sha256(b"b").hexdigest(), "0" * 64)


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("style", ["path", "virtual"])
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned-payload", "signed-payload"])
def test_it_takes_what_the_sdk_signs(monkeypatch: pytest.MonkeyPatch, tls: bool, style: str, signed: bool) -> None:
    resolve_localhost(monkeypatch)
    key, data = "odd keys/ü+%20 &=?#~'()*", b"bytes"
    with S3Emulator(tls=tls) as emulator:
        url = emulator.endpoint_url if style == "path" else emulator.virtual_endpoint_url
        settings = {"addressing_style": style, "payload_signing_enabled": signed}
        with s3_client(emulator, endpoint_url=url, s3=settings) as s3:
            s3.put_object(Bucket=BUCKET, Key=key, Body=data, Metadata={"a": "two  spaces "})
            assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == data
            assert [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET, Prefix="odd keys/ü")["Contents"]] == [key]
        assert emulator.objects() == {key: data}
        host = emulator.requests[0].headers["host"]
        assert host.startswith(BUCKET) is (style == "virtual")


def test_a_client_that_does_not_know_the_authority() -> None:
    with S3Emulator(tls=True) as emulator:
        bundle, emulator.ca_bundle = emulator.ca_bundle, None
        with s3_client(emulator) as s3, pytest.raises(exceptions.SSLError):
            s3.list_objects_v2(Bucket=BUCKET)
        emulator.ca_bundle = bundle
        with s3_client(emulator) as s3:
            s3.list_objects_v2(Bucket=BUCKET)
        assert emulator.counts == {"ListObjectsV2": 1}


def test_the_wrong_secret(emulator: S3Emulator) -> None:
    with s3_client(emulator, secret_key="not-the-secret") as s3, refused(403, "SignatureDoesNotMatch", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")


def test_an_unknown_key(emulator: S3Emulator) -> None:
    with s3_client(emulator, access_key="nobody") as s3, refused(403, "InvalidAccessKeyId", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")


@pytest.mark.parametrize(
    ("target", "method", "change"),
    [
        (f"/{BUCKET}/other", "PUT", {}),
        (f"{TARGET}?x=1", "PUT", {}),
        (TARGET, "DELETE", {}),
        (TARGET, "PUT", {"x-amz-storage-class": "GLACIER"}),
        (TARGET, "PUT", {"x-amz-content-sha256": "0" * 64}),
        (TARGET, "PUT", {"host": "elsewhere.example"}),
    ],
    ids=["key", "query", "method", "header", "payload", "host"],
)
def test_a_tampered_request(emulator: S3Emulator, target: str, method: str, change: dict[str, str]) -> None:
    emulator.put("k", b"old")
    given = {"x-amz-storage-class": "STANDARD"}
    headers = signed_headers(emulator, "PUT", TARGET, given) | change
    reply = send(emulator, method, target, headers, b"new")
    assert (reply.status, reply.code) == (403, "SignatureDoesNotMatch")
    assert emulator.objects() == {"k": b"old"}
    assert put_raw(emulator, "k", b"new").status == 200
    assert emulator.objects() == {"k": b"new"}


SIGNATURE = "0" * 64
SHAPES: dict[str, tuple[dict[str, str | None], str]] = {
    "anonymous": ({"authorization": None}, "AccessDenied"),
    "version 2": ({"authorization": "AWS key:c2ln"}, "AuthorizationHeaderMalformed"),
    "no date": ({"x-amz-date": None}, "AccessDenied"),
    "no payload hash": ({"x-amz-content-sha256": None}, "InvalidRequest"),
    "bad payload hash": ({"x-amz-content-sha256": "SIGNED"}, "InvalidArgument"),
    "header added": ({"x-amz-acl": "public-read"}, "AccessDenied"),
}


@pytest.mark.parametrize(("change", "code"), SHAPES.values(), ids=SHAPES)
def test_the_shape_of_a_signature(emulator: S3Emulator, change: dict[str, str | None], code: str) -> None:
    headers = signed_headers(emulator, "PUT", TARGET, {})
    changed = {name: value for name, value in (headers | change).items() if value is not None}
    reply = send(emulator, "PUT", TARGET, changed, b"x")
    assert reply.code == code
    assert emulator.objects() == {}


REWRITES: dict[str, tuple[str, str, str]] = {
    "service": ("/s3/aws4_request", "/ec2/aws4_request", "AuthorizationHeaderMalformed"),
    "terminator": ("/aws4_request", "/aws5_request", "AuthorizationHeaderMalformed"),
    "day": (r"/\d{8}/", "/20200101/", "AuthorizationHeaderMalformed"),
    "region": ("/us-east-1/", "/eu-west-1/", "AuthorizationHeaderMalformed"),
    "host not signed": ("SignedHeaders=host;", "SignedHeaders=", "AccessDenied"),
    "date not signed": (";x-amz-date", "", "AccessDenied"),
    "order": ("host;x-amz-content-sha256", "x-amz-content-sha256;host", "AuthorizationHeaderMalformed"),
    "short signature": (r"Signature=..", "Signature=", "AuthorizationHeaderMalformed"),
    "wrong signature": (r"Signature=[0-9a-f]{64}", f"Signature={SIGNATURE}", "SignatureDoesNotMatch"),
}


@pytest.mark.parametrize(("pattern", "instead", "code"), REWRITES.values(), ids=REWRITES)
def test_the_authorization_header(emulator: S3Emulator, pattern: str, instead: str, code: str) -> None:
    headers = signed_headers(emulator, "PUT", TARGET, {})
    headers["authorization"], count = re.subn(pattern, instead, headers["authorization"])
    assert count == 1
    assert send(emulator, "PUT", TARGET, headers, b"x").code == code
    assert emulator.objects() == {}


def test_what_the_sdk_signs_is_what_is_computed(emulator: S3Emulator) -> None:
    """The SDK's own canonicalisation is the judge, header by header and query by query."""
    target = f"/{BUCKET}/a%20b/%C3%BC~%2B?uploads=&prefix=x%2Fy&a=1&A=2"
    headers = signed_headers(emulator, "POST", target, {"x-amz-meta-b": "  two   spaces ", "Range": "bytes=0-1"})
    auth = authorization(headers)
    canonical = canonical_request("POST", target, headers, auth.signed_headers, auth.payload_hash)
    key = signing_key(emulator.credentials[0].secret_key, auth.scope)
    assert request_signature(key, auth, canonical) == auth.signature


@pytest.mark.parametrize("minutes", [16, -16])
def test_a_clock_that_is_off(minutes: int) -> None:
    skewed = replace(AWS, clock_skew=timedelta(minutes=minutes))
    with (
        S3Emulator(skewed) as emulator,
        s3_client(emulator) as s3,
        refused(403, "RequestTimeTooSkewed", emulator) as caught,
    ):
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
    said = parsedate_to_datetime(caught.value.response["ResponseMetadata"]["HTTPHeaders"]["date"])
    assert abs(said - SystemClock().now() - timedelta(minutes=minutes)) < timedelta(minutes=1)


def test_a_clock_that_is_nearly_right() -> None:
    with S3Emulator(replace(AWS, clock_skew=timedelta(minutes=14))) as emulator, s3_client(emulator) as s3:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
        assert emulator.objects() == {"k": b"x"}


def test_tokens_expire() -> None:
    clock = ManualClock(SystemClock().now())
    soon = clock.now() + timedelta(minutes=5)
    temporary = Credentials(access_key="temporary", secret_key="s", session_token="token", expires=soon)
    with S3Emulator(credentials=[temporary], clock=clock) as emulator:
        with s3_client(emulator) as s3, refused(400, "InvalidToken", emulator):
            s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
        with s3_client(emulator, session_token="token") as s3:
            s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
            clock.advance(300)
            with refused(400, "ExpiredToken", emulator):
                s3.put_object(Bucket=BUCKET, Key="k", Body=b"y")
        assert "x-amz-security-token" not in emulator.requests[-1].headers
    assert "token" not in repr(temporary).replace("session_token", "")


@pytest.mark.parametrize(
    ("rule", "status", "code"),
    [
        (WrongRegion.MALFORMED, 400, "AuthorizationHeaderMalformed"),
        (WrongRegion.PERMANENT_REDIRECT, 301, "PermanentRedirect"),
        (WrongRegion.TEMPORARY_REDIRECT, 307, "TemporaryRedirect"),
    ],
)
def test_a_bucket_in_another_region(rule: WrongRegion, status: int, code: str) -> None:
    behaviour = replace(AWS, wrong_region=rule, location="eu-west-1", regions=frozenset({"eu-west-1"}))
    with S3Emulator(behaviour) as emulator:
        with s3_client(emulator) as s3, refused(status, code, emulator) as caught:
            s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
        headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
        assert headers["x-amz-bucket-region"] == "eu-west-1"
        with s3_client(emulator, region="eu-west-1") as s3:
            s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
            assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == "eu-west-1"


def test_any_region_where_the_store_does_not_care() -> None:
    with S3Emulator(GENERIC) as emulator, s3_client(emulator, region="nowhere-9") as s3:
        assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)


DENIED: dict[Operation, Callable[["S3Client"], object]] = {
    Operation.PUT_OBJECT: lambda s3: s3.put_object(Bucket=BUCKET, Key="new", Body=b"x"),
    Operation.DELETE_OBJECT: lambda s3: s3.delete_object(Bucket=BUCKET, Key="k"),
    Operation.GET_OBJECT: lambda s3: s3.get_object(Bucket=BUCKET, Key="k"),
    Operation.LIST_OBJECTS_V2: lambda s3: s3.list_objects_v2(Bucket=BUCKET),
    Operation.CREATE_UPLOAD: lambda s3: s3.create_multipart_upload(Bucket=BUCKET, Key="k"),
    Operation.GET_BUCKET_LIFECYCLE: lambda s3: s3.get_bucket_lifecycle_configuration(Bucket=BUCKET),
}


@pytest.mark.parametrize(("operation", "act"), DENIED.items(), ids=DENIED)
@pytest.mark.parametrize("by_key", [False, True], ids=["bucket", "key"])
def test_what_may_not_be_done(operation: Operation, act: Callable[["S3Client"], object], by_key: bool) -> None:
    others = EVERYTHING - {operation}
    known = Credentials(access_key="k", secret_key="s", may=others if by_key else None)
    behaviour = AWS if by_key else replace(AWS, may=others)
    with S3Emulator(behaviour, credentials=[known]) as emulator:
        emulator.put("k", b"x")
        with s3_client(emulator) as s3, refused(403, "AccessDenied", emulator):
            act(s3)


def test_who_may_not_list_does_not_learn_what_is_missing() -> None:
    may = EVERYTHING - {Operation.LIST_OBJECTS_V2}
    with S3Emulator(replace(AWS, may=may)) as emulator, s3_client(emulator) as s3:
        emulator.put("k", b"x")
        assert s3.head_object(Bucket=BUCKET, Key="k")["ContentLength"] == 1
        with refused(403, "403", emulator):
            s3.head_object(Bucket=BUCKET, Key="absent")
        with refused(403, "AccessDenied", emulator):
            s3.get_object(Bucket=BUCKET, Key="absent")
