"""From the answers of the direct way to what the SDK would return or raise for them.

Errors go through the SDK's own parser, so that one table says what each means; a success
passes the same doubts as one of the SDK's.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from tiers.s3_answers import root_element, why_doubtful
from tiers.s3_direct.heads import Head
from tiers.s3_direct.wire import Exchange
from tiers.s3_errors import NOT_S3, DubiousAnswer
from tiers.s3_sdk import ClientError, error_parser

Answered = dict[str, Any]

_FIELDS: Mapping[str, str] = {
    "ETag": "etag",
    "ChecksumSHA256": "x-amz-checksum-sha256",
    "ContentRange": "content-range",
}
"""The header of each field that is returned."""


class ObjectBody:
    """The bytes of an object on their way in; part of :class:`tiers.s3_streams.Answer`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` as far as the object goes."""
        return self._exchange.read_into(view)

    def read(self, amt: int | None = None) -> bytes:
        """Read ``amt`` bytes, fewer only at the end, be it early; all that is left where it is None."""
        size = self._exchange.left if amt is None else min(amt, self._exchange.left)
        view = memoryview(bytearray(size))
        return bytes(view[: self._exchange.read_into(view)])

    def close(self) -> None:
        """Close the connection if it is not drained."""
        self._exchange.drop()


def written(exchange: Exchange, head: Head, operation: str) -> Answered:
    """Return the answer to a write.  ClientError for a refusal, DubiousAnswer for what no store says."""
    status, body = head.status, exchange.document(head)
    if root_element(body) == "Error" and status < HTTPStatus.MULTIPLE_CHOICES:
        status = HTTPStatus.INTERNAL_SERVER_ERROR  # an error that came up after the head was sent, as the SDK takes it
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        raise refusal(status, head, body, operation)
    if exchange.unsent:
        raise DubiousAnswer("the store said that it was done before it had the body", NOT_S3)
    doubt = _doubt(operation, head, body)
    if doubt is not None:
        raise doubt
    return _fields(head)


def opened(exchange: Exchange, head: Head) -> Answered:
    """Return an object that begins to come in.  ClientError and DubiousAnswer as above."""
    if head.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise refusal(head.status, head, exchange.document(head), "GetObject")
    doubt = _doubt("GetObject", head, b"")
    if doubt is not None:
        exchange.drop()
        raise doubt
    exchange.expect(head)
    return {**_fields(head), "ContentLength": head.length, "Body": ObjectBody(exchange)}


def refusal(status: int, head: Head, body: bytes, operation: str) -> ClientError:
    """Return the SDK's exception for an answer that is an error."""
    said = {"status_code": status, "headers": head.headers, "body": body, "context": {"operation_name": operation}}
    try:
        return ClientError(error_parser().parse(said, None), operation)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DubiousAnswer(f"the answer cannot be read ({type(error).__name__})", NOT_S3) from None


def _doubt(operation: str, head: Head, body: bytes) -> DubiousAnswer | None:
    return why_doubtful(operation, {"status_code": head.status, "headers": head.headers, "body": body})


def _fields(head: Head) -> Answered:
    found: Answered = {field: head.headers[name] for field, name in _FIELDS.items() if name in head.headers}
    found["ResponseMetadata"] = {"HTTPStatusCode": head.status, "HTTPHeaders": head.headers}
    return found
