"""No exception of the SDK or of its HTTP library comes out of any verb, wherever below it is raised."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import urllib3.exceptions
from botocore.awsrequest import AWSResponse
from botocore.parsers import ResponseParserError

from tiers.bodies import BytesBody
from tiers.errors import TierError
from tiers.profiles import PROFILES
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload, UploadId
from tiers.s3 import S3Tier
from tiers.s3_client import build_client
from tiers.s3_sdk import exceptions as sdk
from tiers.testing import read_all

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

KEY = Key("a/b")
UPLOAD = Upload(key=KEY, upload_id=UploadId("u"), size=3, part_size=5)
SOURCE = ObjectInfo(key=Key("source"), size=3, etag="e")
COPYING = replace(PROFILES["aws"], copy=True)
PART = Part(number=1, size=3, etag="e", sha256="0" * 64)
VERBS: dict[str, Callable[[Tier], object]] = {
    "put": lambda tier: tier.put(KEY, BytesBody(b"x")),
    "create": lambda tier: tier.create(KEY, b"x"),
    "open": lambda tier: read_all(tier.open(KEY)),
    "open range": lambda tier: read_all(tier.open(KEY, 0, 1)),
    "open nothing": lambda tier: tier.open(KEY, 0, 0),
    "stat": lambda tier: tier.stat(KEY),
    "list_objects": lambda tier: tier.list_objects(""),
    "delete": lambda tier: tier.delete(KEY),
    "begin_upload": lambda tier: tier.begin_upload(KEY, size=3, part_size=5),
    "put_part": lambda tier: tier.put_part(UPLOAD, 1, BytesBody(b"abc")),
    "list_parts": lambda tier: tier.list_parts(UPLOAD),
    "copy": lambda tier: tier.copy(KEY, SOURCE),
    "copy_part": lambda tier: tier.copy_part(UPLOAD, 1, SOURCE, 0, 3),
    "complete": lambda tier: tier.complete(UPLOAD, [PART]),
    "abort": lambda tier: tier.abort(UPLOAD),
}


def classes(module: Any) -> list[type[Exception]]:
    found = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if issubclass(cls, Exception)]
    return [cls for cls in found if not issubclass(cls, Warning) and cls.__module__ == module.__name__]


# A ClientError is what the SDK makes of an answer: it is made with one, and below there is none yet.
BELOW = [cls for cls in (*classes(sdk), *classes(urllib3.exceptions)) if not issubclass(cls, sdk.ClientError)]
READING = [cls for cls in classes(urllib3.exceptions) if issubclass(cls, urllib3.exceptions.HTTPError)]


def uninitialised(cls: type[Exception]) -> Exception:
    return cls.__new__(cls)


class BrokenBody:
    """A body that fails while it is read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def stream(self, amt: int = 0, decode_content: bool | None = None) -> Iterator[bytes]:
        raise self.error

    def read(self, amt: int | None = None) -> bytes:
        raise self.error

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def client() -> "Iterator[S3Client]":
    made = build_client(PROFILES["aws"], "http://127.0.0.1:1", "us-east-1", 1)
    yield made
    made.close()


@pytest.fixture
def tier(client: "S3Client") -> S3Tier:
    return S3Tier("store", bucket="bucket", prefix="p", profile=COPYING, connect=lambda: client)


def test_the_lists_are_not_empty() -> None:
    assert len(BELOW) > 100
    assert len(READING) > 25


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_the_http_layer_raises(tier: S3Tier, client: "S3Client", verb: str) -> None:
    pending: list[Exception] = []

    def fail(**_: object) -> None:
        raise pending.pop()

    client.meta.events.register("before-send.s3", fail)
    for cls in [*BELOW, OSError, ConnectionResetError, TimeoutError, ResponseParserError]:
        pending[:] = [uninitialised(cls)]
        with pytest.raises(TierError) as caught:
            VERBS[verb](tier)
        assert not pending, f"{cls} was not raised"
        assert caught.value.__cause__ is None, "its text may quote secrets"


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_reading_an_answer_raises(tier: S3Tier, client: "S3Client", verb: str) -> None:
    made: list[BrokenBody] = []

    class Session:
        def send(self, request: Any) -> AWSResponse:
            body = BrokenBody(pending.pop())
            made.append(body)
            headers: Any = {"ETag": '"e"', "Content-Length": "3"}
            return AWSResponse(request.url, 200, headers, body)

        def close(self) -> None:
            """Nothing to close."""

    pending: list[Exception] = []
    client._endpoint.http_session = Session()  # type: ignore[attr-defined]
    for cls in [*READING, ConnectionResetError, TimeoutError]:
        pending[:] = [uninitialised(cls)]
        with pytest.raises(TierError):
            VERBS[verb](tier)
    assert len(made) == len(READING) + 2


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("list_objects", b"<ListBucketResult/>"),
        ("list_objects", _entry := b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents/></ListBucketResult>"),
        ("list_objects", _entry.replace(b"<Contents/>", b"<Contents><Key>p/a</Key></Contents>")),
        ("list_objects", _entry.replace(b"<Contents/>", b"<Contents><Key>p/a</Key><Size>1e9</Size></Contents>")),
        (
            "list_objects",
            _entry.replace(b"<Contents/>", b"<Contents><LastModified>yesterday</LastModified></Contents>"),
        ),
        ("list_parts", b"<ListPartsResult><Part><PartNumber>one</PartNumber></Part></ListPartsResult>"),
        ("list_parts", b"<ListPartsResult/>"),
        ("list_parts", b"<ListPartsResult><IsTruncated>false</IsTruncated><Part/></ListPartsResult>"),
        ("begin_upload", b"<InitiateMultipartUploadResult/>"),
        ("copy", b"<CopyObjectResult/>"),
        ("copy", b"<CopyObjectResult><LastModified>yesterday</LastModified></CopyObjectResult>"),
        ("copy_part", b"<CopyPartResult/>"),
        ("copy_part", b"<CopyPartResult><LastModified>yesterday</LastModified></CopyPartResult>"),
        ("complete", b"<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>"),
    ],
)
def test_documents_that_lack_what_they_must_say(tier: S3Tier, client: "S3Client", operation: str, body: bytes) -> None:
    answer = _Fixed(200, {}, body)
    client.meta.events.register("before-send.s3", answer.send)
    with pytest.raises(TierError):
        VERBS[operation](tier)
    assert answer.asked == 1


@pytest.mark.parametrize("verb", ["open", "stat"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "3"},
        {"ETag": '"e"'},
        {"ETag": '"e"', "Content-Length": "three"},
        {"ETag": '"e"', "Content-Length": "-3"},
        {"ETag": '"e"', "Content-Length": "3", "Last-Modified": "yesterday"},
        {"ETag": '"e"', "Content-Length": "3", "Content-Encoding": "br"},
    ],
)
def test_headers_that_lack_what_they_must_say(
    tier: S3Tier, client: "S3Client", verb: str, headers: dict[str, str]
) -> None:
    answer = _Fixed(200, headers, b"abc")
    client.meta.events.register("before-send.s3", answer.send)
    with pytest.raises(TierError):
        VERBS[verb](tier)
    assert answer.asked == 1


class _Fixed:
    """A handler that answers in place of the network."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.body = status, body
        self.headers: Any = headers
        self.asked = 0

    def send(self, request: Any, **_: object) -> Any:
        self.asked += 1
        return AWSResponse(request.url, self.status, self.headers, _Body(self.body))


class _Body:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def stream(self, amt: int = 0) -> Iterator[bytes]:
        yield self.data

    def read(self, amt: int | None = None) -> bytes:
        data, self.data = self.data, b""
        return data

    def close(self) -> None:
        """Nothing to close."""
