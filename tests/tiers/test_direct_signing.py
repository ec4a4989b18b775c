"""Requests of the direct way, against those that the SDK makes ready and signs for the same fields."""

import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from tiers.profiles import PROFILES
from tiers.s3_client import build_client
from tiers.s3_direct import rehearsal
from tiers.s3_direct.rehearsal import Address, address_of, listen, rehearse
from tiers.s3_direct.requests import HEADERS, QUERY, Line, head_of
from tiers.s3_direct.signing import EMPTY, UNSIGNED, Signable, Signer, amz_date
from tiers.s3_wire import rehearsing

MOMENT = "20261130T081500Z"
HELD = SimpleNamespace(access_key="AK", secret_key="geheim", token=None)
WITH_TOKEN = SimpleNamespace(access_key="AK", secret_key="geheim", token="token/+=")

names = st.text(string.ascii_lowercase + string.digits + "-", min_size=1).filter(
    # those that the SDK takes out, or makes anew, before it signs
    lambda name: name not in {"host", "expect", "user-agent", "transfer-encoding", "connection", "date", "x-amz-date"}
)
values = st.text(string.ascii_letters + string.digits + string.punctuation + " ", max_size=40)
keys = st.text(string.ascii_letters + string.digits + "._%~-/", min_size=1, max_size=60).filter(
    lambda key: all(part not in {"", ".", ".."} for part in key.split("/"))
)


class Frozen(S3SigV4Auth):
    """The SDK's signer at a moment of ours, for a body whose hash is known."""

    def __init__(self, payload: str, *args: Any) -> None:
        super().__init__(*args)
        self._payload = payload

    def payload(self, request: AWSRequest) -> str:
        return self._payload

    def sign(self, request: AWSRequest) -> str:
        request.context["timestamp"] = MOMENT
        self._modify_request_before_signing(request)  # type: ignore[attr-defined]
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))  # type: ignore[attr-defined]
        return str(request.headers["Authorization"])


@given(
    method=st.sampled_from(["GET", "PUT", "DELETE"]),
    key=keys,
    query=st.dictionaries(names, st.text(string.ascii_letters + string.digits + "-_.~%", max_size=20), max_size=3),
    headers=st.dictionaries(names, values, max_size=6),
    payload=st.sampled_from([EMPTY, UNSIGNED, "ab" * 32]),
    token=st.sampled_from(["", "token/+="]),
    region=st.sampled_from(["us-east-1", "auto", "eu-west-3"]),
)
def test_signatures_are_those_of_the_sdk(
    method: str, key: str, query: dict[str, str], headers: dict[str, str], payload: str, token: str, region: str
) -> None:
    text = "&".join(f"{name}={value}" for name, value in sorted(query.items()))
    url = f"https://bucket.example:9000/pre/{key}" + (f"?{text}" if text else "")
    theirs = AWSRequest(method, url, headers=dict(headers))
    expected = Frozen(payload, Credentials("AK", "geheim", token or None), "s3", region).sign(theirs)
    ours = {name: str(value) for name, value in theirs.headers.items()}
    ours = {name.lower(): value for name, value in ours.items() if name != "Authorization"}
    ours["host"] = "bucket.example:9000"
    held = SimpleNamespace(access_key="AK", secret_key="geheim", token=token or None)
    assert Signer(region).authorization(Signable(method, urlsplit(url).path, text, ours), held, MOMENT) == expected


def test_the_key_that_is_kept_is_that_of_the_day_and_the_secret() -> None:
    """One signer, and another for each request, say the same."""
    kept = Signer("us-east-1")
    request = Signable("GET", "/b/k", "", {"host": "h", "x-amz-content-sha256": EMPTY})
    other = SimpleNamespace(access_key="AK", secret_key="anders", token=None)
    for moment in ("20261130T235959Z", "20261201T000000Z", "20261130T235959Z"):
        for held in (HELD, other, HELD):
            fresh = Signer("us-east-1").authorization(request, held, moment)
            assert kept.authorization(request, held, moment) == fresh


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001 - made aware below
def test_moments_are_written_as_signatures_want_them(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC)
    assert amz_date(aware) == f"{aware.year:04d}{aware.strftime('%m%dT%H%M%SZ')}"


def _client(monkeypatch: pytest.MonkeyPatch, profile: str, endpoint_url: str | None, token: str | None = None) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    monkeypatch.setenv("AWS_SESSION_TOKEN", token or "")
    client = build_client(PROFILES[profile], endpoint_url, "eu-west-3" if endpoint_url is None else None, 1)
    listen(client)
    return client


STORES = [
    ("aws", None, "https://bucket.s3.eu-west-3.amazonaws.com/", "bucket.s3.eu-west-3.amazonaws.com", "/"),
    ("seaweedfs", "http://127.0.0.1:9", "http://127.0.0.1:9/", "127.0.0.1:9", "/bucket/"),
    ("seaweedfs", "http://[::1]:9", "http://[::1]:9/", "[::1]:9", "/bucket/"),
    ("generic-s3", "https://store.example", "https://store.example/", "store.example", "/bucket/"),
    ("tigris", "https://t3.storage.dev", "https://bucket.t3.storage.dev/", "bucket.t3.storage.dev", "/"),
    ("hf-s3", "https://s3.hf.co/name", "https://s3.hf.co/", "s3.hf.co", "/name/bucket/"),
]


@pytest.mark.parametrize(("profile", "endpoint_url", "url", "host", "prefix"), STORES)
def test_an_address_is_learnt_from_the_sdk(
    monkeypatch: pytest.MonkeyPatch, profile: str, endpoint_url: str | None, url: str, host: str, prefix: str
) -> None:
    client = _client(monkeypatch, profile, endpoint_url)
    found = rehearse(client, "bucket")
    client.close()
    assert found is not None
    assert (found.url, found.host, found.prefix) == (url, host, prefix)
    assert found.region == ("eu-west-3" if endpoint_url is None else PROFILES[profile].region or "us-east-1")
    assert found.signs_payload is PROFILES[profile].sign_payload
    assert "ckptier/" in found.agent


@pytest.fixture(scope="module")
def ready() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        client = _client(patch, "aws", None, "token/+=")
        yield client
        client.close()


FIELDS: dict[str, Any] = {
    "ContentType": "application/octet-stream",
    "ChecksumSHA256": "q" * 43 + "=",
    "StorageClass": "STANDARD_IA",
    "ServerSideEncryption": "aws:kms",
    "SSEKMSKeyId": "arn:aws:kms:eu-west-3:1:key/a b",
    "IfNoneMatch": "*",
}


@pytest.fixture(scope="module")
def address(ready: Any) -> Address:
    found = rehearse(ready, "bucket")
    assert found is not None
    return found


@settings(max_examples=40)
@given(key=keys, chosen=st.sets(st.sampled_from(sorted(FIELDS))))
def test_what_is_sent_is_what_the_sdk_would_send(ready: Any, address: Address, key: str, chosen: set[str]) -> None:
    """For any key and any fields: the same target, and the same headers but for those of the SDK's own book-keeping."""
    fields = {name: FIELDS[name] for name in chosen} | {"Bucket": "bucket", "Key": key, "ContentLength": 3}
    request = _rehearsed(ready, fields)
    line = Line("PUT", fields, UNSIGNED)
    first, *lines = head_of(line, address, Signer(address.region), WITH_TOKEN, MOMENT).decode().split("\r\n")
    parts = urlsplit(request.url)
    assert first == f"PUT {parts.path} HTTP/1.1"
    theirs = {name.lower(): value for name, value in request.headers.items()}
    theirs = {name: value.decode() if isinstance(value, bytes) else value for name, value in theirs.items()}
    ours = dict(text.split(": ", 1) for text in lines if text)
    assert ours.pop("host") == parts.netloc
    assert ours.pop("accept-encoding") == "identity"
    for varying in ("x-amz-date", "authorization"):
        ours.pop(varying)
        theirs.pop(varying)
    for own in ("amz-sdk-invocation-id", "amz-sdk-request", "expect"):
        theirs.pop(own)
    for headers in (ours, theirs):  # the SDK counts its own features in there
        assert "ckptier/" in headers.pop("user-agent")
    assert ours == theirs


def _rehearsed(client: Any, fields: dict[str, Any]) -> Any:
    token = rehearsing.set(True)
    try:
        with pytest.raises(rehearsal._Ready) as caught:
            client.put_object(**fields, Body=b"abc")
    finally:
        rehearsing.reset(token)
    return caught.value.request


def test_the_table_of_fields_is_the_sdk_s(ready: Any) -> None:
    for operation in ("PutObject", "UploadPart", "GetObject"):
        members = ready.meta.service_model.operation_model(operation).input_shape.members
        for table, place in ((HEADERS, "header"), (QUERY, "querystring")):
            for field in table.keys() & members.keys():
                said = members[field].serialization
                assert (said["location"], said["name"].lower()) == (place, table[field].lower())


STANDING: dict[str, str] = {
    "authorization": "AWS4-HMAC-SHA256 Credential=AK/20261130/eu-west-3/s3/aws4_request, Signature=0",
    "x-amz-content-sha256": UNSIGNED,
}


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (
            f"https://h/{rehearsal.KEY}",
            STANDING | {"authorization": STANDING["authorization"].replace("/s3/", "/s3express/")},
        ),
        (f"https://h/{rehearsal.KEY}", STANDING | {"authorization": "AWS4-ECDSA-P256-SHA256 Credential=AK/1/s3/x"}),
        (f"https://h/{rehearsal.KEY}", {}),
        (f"https://h/{rehearsal.KEY}", STANDING | {"x-amz-s3session-token": "t"}),
        (f"https://h/{rehearsal.KEY}", STANDING | {"content-encoding": "aws-chunked"}),
        (f"https://h/{rehearsal.KEY}?x=y", STANDING),
        ("https://h/elsewhere", STANDING),
        (f"ftp://h/{rehearsal.KEY}", STANDING),
    ],
)
def test_ways_that_are_not_known_are_left_to_the_sdk(url: str, headers: dict[str, str]) -> None:
    assert address_of(f"https://h/{rehearsal.KEY}", STANDING) is not None
    assert address_of(url, headers) is None


@pytest.mark.parametrize("token", ["two\r\nlines", "a\nb", "a\0b", "snow\u2603"])
def test_what_no_header_takes_is_refused_before_it_is_sent(token: str) -> None:
    address = Address(url="https://h/", host="h", prefix="/b/", region="r", signs_payload=False, agent="", standing=())
    held = SimpleNamespace(access_key="AK", secret_key="geheim", token=token)
    line = Line("GET", {"Key": "k"}, EMPTY)
    with pytest.raises(ValueError, match=r"header takes|can't encode") as caught:
        head_of(line, address, Signer("r"), held, amz_date(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=1)))
    assert "geheim" not in str(caught.value)
