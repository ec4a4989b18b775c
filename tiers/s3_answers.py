"""What an S3 answer must look like before anything is concluded from it.

A captive portal, a proxy or a broken store answers 200 to everything.  The SDK makes an
empty listing of a web page, reads a document to its end however long it is, and hands
out compressed bytes as an object's.  :func:`guard` puts a check between the connection
and the SDK's parser, for every request of a client.
"""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from tiers.s3_errors import COMPRESSED, NOT_S3, DubiousAnswer
from tiers.s3_sdk import ResponseParserError

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

MAX_DOCUMENT = 8 << 20
"""Bytes of the longest document that is read: a page of 1,000 keys of 1,024 encoded bytes has half of it."""

_CHUNK = 1 << 16
_DOCUMENTS = {
    "ListObjectsV2": "ListBucket",
    "ListParts": "ListParts",
    "ListMultipartUploads": "ListMultipartUploads",
    "CreateMultipartUpload": "InitiateMultipartUpload",
    "UploadPartCopy": "CopyPart",
    "CompleteMultipartUpload": "CompleteMultipartUpload",
}
"""How the outermost element begins: S3 says ListPartsResult, moto ListPartsResponse."""
_OBJECTS = frozenset({"GetObject", "HeadObject"})
_WRITES = frozenset({"PutObject", "UploadPart"})
_REMOVALS = frozenset({"DeleteObject", "AbortMultipartUpload"})
_PLAIN = frozenset({"", "identity", "aws-chunked"})
"""Content-Encoding of bytes that are what was stored; some stores keep the second from other clients' uploads."""
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s+|<\?.*?\?>|<!--.*?-->)*<(?:[\w.-]+:)?([\w.-]+)", re.DOTALL)


def guard(client: "S3Client") -> None:
    """Check every answer of a client, from before its first request; safe to repeat.

    Hazard: the SDK has no public place for either check.  A version that moves them makes
    this raise AttributeError, or fails the tests of hostile answers, and is not silent.
    """
    endpoint: Any = client._endpoint  # type: ignore[attr-defined]  # noqa: SLF001 - see the docstring
    if isinstance(endpoint.http_session, _BoundedSession):
        return
    endpoint.http_session = _BoundedSession(endpoint.http_session)
    endpoint._response_parser_factory = _CarefulParsers(endpoint._response_parser_factory)  # noqa: SLF001 - as above


class _Raw(Protocol):
    def stream(self, amt: int) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class _BoundedBody:
    """A document on its way in; one that does not end is given up with its connection."""

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw

    def stream(self) -> Iterator[bytes]:
        received = 0
        for piece in self._raw.stream(_CHUNK):
            received += len(piece)
            if received > MAX_DOCUMENT:
                self._raw.close()
                raise DubiousAnswer(f"the answer has more than the {MAX_DOCUMENT} bytes that one may have", NOT_S3)
            yield piece


class _BoundedSession:
    """The SDK's HTTP session; reads documents itself, where the SDK would read without end."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def send(self, request: Any) -> Any:
        is_object = request.stream_output
        request.stream_output = True  # or the session would read all of it
        answer = self.inner.send(request)
        if not is_object or answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
            answer.raw = _BoundedBody(answer.raw)
            _ = answer.content
        return answer

    def close(self) -> None:
        self.inner.close()


class _CarefulParsers:
    """The SDK's factory of parsers, which makes careful ones."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_parser(self, protocol: str) -> "_CarefulParser":
        return _CarefulParser(self._inner.create_parser(protocol))


class _CarefulParser:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def parse(self, response: Mapping[str, Any], shape: Any) -> Any:
        if response["status_code"] < HTTPStatus.MULTIPLE_CHOICES:
            doubt = why_doubtful(response["context"]["operation_name"], response)
            if doubt is not None:
                if hasattr(response["body"], "close"):
                    response["body"].close()
                raise doubt
        try:
            return self._inner.parse(response, shape)
        except ResponseParserError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Numbers that are none, times that are none: the SDK lets its own exceptions out.
            raise DubiousAnswer(f"the answer cannot be read ({type(error).__name__})", NOT_S3) from None


def why_doubtful(operation: str, response: Mapping[str, Any]) -> DubiousAnswer | None:
    """Return why a success is not believed; None where it looks like what a store says.

    ``operation`` is the SDK's name of it; ``response`` has ``status_code``, ``headers`` and ``body``.
    """
    headers: Mapping[str, str] = response["headers"]
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN and operation in _OBJECTS:
        return DubiousAnswer(f"the object came with Content-Encoding {encoding}, which nobody asked for", COMPRESSED)
    if operation in _DOCUMENTS:
        found = root_element(response["body"])
        if not (found or "").startswith(_DOCUMENTS[operation]):
            message = f"the answer is {found or 'no document'}, expected was {_DOCUMENTS[operation]}"
            return DubiousAnswer(message, NOT_S3)
    if operation in _REMOVALS and response["body"]:
        return DubiousAnswer("the answer says something, expected was nothing", NOT_S3)
    if operation in _OBJECTS | _WRITES and not headers.get("etag"):
        return DubiousAnswer("the answer has no ETag", NOT_S3)
    if operation in _OBJECTS and not headers.get("content-length", "").isdecimal():
        return DubiousAnswer("the answer has no Content-Length", NOT_S3)
    return None


def root_element(document: bytes) -> str | None:
    """Return the name of an XML document's outermost element, without its namespace; None where it is no XML."""
    found = _ROOT.match(document[:4096])
    return found[1].decode() if found else None
