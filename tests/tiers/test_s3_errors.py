"""The vendor error table is complete, and says what callers rely on."""

import inspect
import ssl
from typing import Any

import botocore.session
import pytest
import urllib3.exceptions
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    IntegrityError,
    ObjectExists,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)
from tiers.failures import retry_after
from tiers.s3_errors import REFUSED, TABLE, translate

OPERATIONS = (
    *("PutObject", "GetObject", "HeadObject", "ListObjectsV2", "DeleteObject"),
    *("CreateMultipartUpload", "UploadPart", "ListParts", "UploadPartCopy", "CompleteMultipartUpload"),
    "AbortMultipartUpload",
)
EXPECTED: dict[type[TierError], tuple[str, ...]] = {
    ObjectNotFound: ("NoSuchKey", "NoSuchUpload"),
    AccessDenied: (
        *("NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied"),
        *("RequestTimeTooSkewed", "PermanentRedirect", "AuthorizationHeaderMalformed", "Unauthorized"),
        "PreconditionFailed",
    ),
    IntegrityError: (
        *("BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "InvalidDigest", "InvalidRange"),
        "InvalidPart",
    ),
    CapacityExceeded: ("EntityTooLarge", "QuotaExceeded", "InsufficientStorage"),
    Unsupported: ("NotImplemented", "InvalidRequest"),
    TierUnavailable: (
        *("SlowDown", "InternalError", "ServiceUnavailable", "TooManyRequests", "RequestTimeout", "RequestCanceled"),
        *("ConditionalRequestConflict", "OperationAborted"),
    ),
}
STATUSES: dict[int, type[TierError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: AccessDenied,
    408: TierUnavailable,
    409: AccessDenied,
    412: AccessDenied,
    416: IntegrityError,
    429: TierUnavailable,
    500: TierUnavailable,
    501: Unsupported,
    502: TierUnavailable,
    503: TierUnavailable,
    504: TierUnavailable,
    507: CapacityExceeded,
    599: TierUnavailable,
}


def answer(code: str, status: int = 400, headers: dict[str, str] | None = None) -> sdk.ClientError:
    metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}, "RequestId": "R1"}
    return sdk.ClientError({"Error": {"Code": code, "Message": "secret words"}, "ResponseMetadata": metadata}, "Any")


def became(error: BaseException, operation: str = "put") -> TierError:
    return translate(error, tier="store", operation=operation, key="a/b")


def uninitialised(cls: type[BaseException]) -> BaseException:
    """Many of the SDK's classes cannot be made without the arguments of their messages."""
    return cls.__new__(cls)


@pytest.mark.parametrize(("error", "code"), [(error, code) for error, codes in EXPECTED.items() for code in codes])
def test_codes(error: type[TierError], code: str) -> None:
    assert type(became(answer(code))) is error


@pytest.mark.parametrize(("status", "error"), STATUSES.items())
def test_statuses_where_there_is_no_code(status: int, error: type[TierError]) -> None:
    assert type(became(answer(str(status), status))) is error
    assert type(became(answer("SomethingNew", status))) is error


@pytest.mark.parametrize("key", TABLE, ids=str)
def test_every_entry_is_reachable(key: Any) -> None:
    """An entry that another one hides would be a comment that lies."""
    match key:
        case (str() as operation, str() as code):
            found = became(answer(code, 412), operation)
        case str():
            found = became(answer(key))
        case int():
            found = became(answer(str(key), key))
        case _:
            found = became(uninitialised(key))
    assert type(found) is TABLE[key].error
    assert found.hint == TABLE[key].hint
    assert (found.tier, found.key) == ("store", "a/b")


def test_every_class_of_the_sdk_is_judged() -> None:
    classes = [cls for _, cls in inspect.getmembers(sdk, inspect.isclass) if issubclass(cls, sdk.BotoCoreError)]
    assert len(classes) > 80
    for cls in classes:
        assert became(uninitialised(cls)).hint != REFUSED.hint, cls


@pytest.mark.parametrize(
    ("cls", "error"),
    [
        (sdk.EndpointConnectionError, TierUnavailable),
        (sdk.ConnectTimeoutError, TierUnavailable),
        (sdk.ConnectionClosedError, TierUnavailable),
        (sdk.ReadTimeoutError, TierUnavailable),
        (sdk.ResponseStreamingError, TierUnavailable),
        (sdk.ProxyConnectionError, TierUnavailable),
        (sdk.SSLError, TierUnavailable),
        (ResponseParserError, TierUnavailable),
        (sdk.NoCredentialsError, AccessDenied),
        (sdk.PartialCredentialsError, AccessDenied),
        (sdk.CredentialRetrievalError, AccessDenied),
        (sdk.TokenRetrievalError, AccessDenied),
        (sdk.ProfileNotFound, AccessDenied),
        (sdk.NoRegionError, AccessDenied),
        (sdk.EndpointResolutionError, AccessDenied),
        (sdk.ParamValidationError, Unsupported),
        (sdk.FlexibleChecksumError, IntegrityError),
    ],
)
def test_groups_of_sdk_classes(cls: type[BaseException], error: type[TierError]) -> None:
    assert type(became(uninitialised(cls))) is error


def test_a_refused_certificate_needs_a_person() -> None:
    """Other TLS failures pass by themselves; this one would be retried for ever."""
    inner = urllib3.exceptions.SSLError(ssl.SSLCertVerificationError(1, "self-signed"))
    assert type(became(sdk.SSLError(endpoint_url="https://store.example", error=inner))) is AccessDenied


def test_what_the_caller_was_handling_decides_nothing() -> None:
    error = sdk.EndpointConnectionError(endpoint_url="https://store.example", error=OSError(111, "refused"))
    error.__context__ = ssl.SSLCertVerificationError(1, "of another tier")
    assert type(became(error)) is TierUnavailable
    assert str(became(error)) == "store: put a/b: EndpointConnectionError: Connection refused"


def test_every_modelled_error_of_the_operations_is_listed() -> None:
    model = botocore.session.get_session().get_service_model("s3")
    for operation in OPERATIONS:
        for shape in model.operation_model(operation).error_shapes:
            assert (getattr(shape, "error_code", None) or shape.name) in TABLE, (operation, shape.name)


def test_the_default() -> None:
    assert type(became(answer("SomethingNew", 400))) is TierError
    assert type(became(answer("SomethingNew", 520))) is TierUnavailable


@pytest.mark.parametrize("code", ["PreconditionFailed", "412"])
def test_a_lost_create_is_told_from_other_preconditions(code: str) -> None:
    assert type(became(answer(code, 412), "create")) is ObjectExists
    assert type(became(answer(code, 412), "copy")) is IntegrityError
    assert type(became(answer(code, 412), "copy_part")) is IntegrityError
    assert type(became(answer(code, 412), "put")) is AccessDenied


def test_a_conflict_of_creates_is_settled_by_reading() -> None:
    assert type(became(answer("409", 409), "create")) is TierUnavailable
    assert type(became(answer("409", 409), "put")) is AccessDenied


@pytest.mark.parametrize(("code", "status"), [("SlowDown", 503), ("503", 503), ("429", 429), ("TooManyRequests", 429)])
def test_what_asks_for_fewer_requests_says_so(code: str, status: int) -> None:
    found = became(answer(code, status))
    assert isinstance(found, TierUnavailable)
    assert found.throttled
    other = became(answer("InternalError", 500))
    assert isinstance(other, TierUnavailable)
    assert not other.throttled


def test_messages_hold_codes_and_not_the_vendors_words() -> None:
    text = str(became(answer("SlowDown", 503)))
    assert text == "store: put a/b: SlowDown (HTTP 503), request R1"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 29 Nov 2026 22:00:30 GMT", "date": "Sun, 29 Nov 2026 22:00:00 GMT"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 21:00:00 GMT", "date": "Sun, 29 Nov 2026 22:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 29 Nov 2026 22:00:30 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    error = became(answer("SlowDown", 503, headers))
    assert isinstance(error, TierUnavailable)
    assert error.retry_after == seconds
