"""The one table that says what each failure of an S3 store means to a caller.

Keys are an operation with a code, a code, an HTTP status, or an exception class;
the first that fits, in that order, decides.  Messages are made of the code, the
status and the request id only: a vendor's free text may quote what was sent.  For the
same reason the SDK's exception must not be chained to the translated one.
"""

import os
import ssl
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3.exceptions

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
from tiers.s3_sdk import BotoCoreError, ClientError, ResponseParserError
from tiers.s3_sdk import exceptions as sdk


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which error a failure becomes, and one line for the operator."""

    error: type[TierError]
    hint: str = ""


class DubiousAnswer(Exception):
    """An answer that no S3 store gives to this request; nothing is concluded from it but ``verdict``."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict


TableKey = tuple[str, str] | str | int | type[BaseException]

_CREDENTIALS = "check the access key, secret and session token that the SDK's chain finds, and the policy"
_BUCKET = "the bucket does not exist at this endpoint: check its name, endpoint_url and region"
_REGION = "the bucket lies in another region: set region (and endpoint_url) of this tier"
_CLOCK = "this machine's clock is off: synchronise it (a request must arrive within 15 minutes of being signed)"
_POLICY = "the policy needs GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload on this prefix"
_NOT_S3 = "the answer is not that of an S3 store: check endpoint_url"
_CONFIG = "the SDK could not be set up: check AWS_* variables and ~/.aws/config"
_BUG = "the request was refused before it was sent: please report this"
_SENT_BYTES = "what arrived is not what was sealed; the object was not stored and is sent again"
_NETWORK = "the store could not be reached: check the network and endpoint_url"
_TLS = (
    "the certificate was not accepted: set ca_bundle of this tier (or AWS_CA_BUNDLE) to the authority of the store or"
    " proxy; check endpoint_url and this machine's clock"
)
_CONDITION = "the store demands a condition that this request does not need: check the bucket's policy and locks"
_BUSY = "the store asks to slow down"
_SETTINGS = "check region and profile of this tier"

_DENIED_CODES = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "InvalidToken"),
    *("TokenRefreshRequired", "InvalidSecurity", "Unauthorized", "InvalidClientTokenId", "UnrecognizedClientException"),
)
_BUSY_CODES = (
    *("SlowDown", "ServiceUnavailable", "TooManyRequests", "Throttling", "ThrottlingException", "RequestLimitExceeded"),
    *("BandwidthLimitExceeded", "Busy", "TooMuchConcurrency"),
)
_PASSING_CODES = (
    *("InternalError", "InternalFailure", "RequestTimeout", "RequestCanceled", "IncompleteBody", "OperationAborted"),
    *("ConditionalRequestConflict", "ConcurrentModification", "BadGateway", "GatewayTimeout", "ServiceFailure"),
)
_BYTES_CODES = ("BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch")

TABLE: Mapping[TableKey, Verdict] = {
    # a precondition means what the operation asked for
    ("create", "PreconditionFailed"): Verdict(ObjectExists, "read the key to learn who created it"),
    ("create", "412"): Verdict(ObjectExists, "read the key to learn who created it"),
    ("copy", "PreconditionFailed"): Verdict(IntegrityError, "the source was replaced: send the object instead"),
    ("copy", "412"): Verdict(IntegrityError, "the source was replaced: send the object instead"),
    ("copy_part", "PreconditionFailed"): Verdict(IntegrityError, "the source was replaced: send the part instead"),
    ("copy_part", "412"): Verdict(IntegrityError, "the source was replaced: send the part instead"),
    # of racing creates, only reading the key tells who won; elsewhere a conflict without an S3 code is a person's
    ("create", "409"): Verdict(TierUnavailable, "another create was under way on this key"),
    ("copy_part", "InvalidRange"): Verdict(IntegrityError, "the source is shorter than recorded: send the part"),
    # what is not there
    "NoSuchKey": Verdict(ObjectNotFound),
    "NoSuchUpload": Verdict(ObjectNotFound, "the upload was completed, aborted or expired"),
    "NoSuchVersion": Verdict(ObjectNotFound),
    "NoSuchBucket": Verdict(AccessDenied, _BUCKET),
    # a person is needed
    "AccessDenied": Verdict(AccessDenied, _POLICY),
    "AllAccessDisabled": Verdict(AccessDenied, _POLICY),
    "AccountProblem": Verdict(AccessDenied, "the provider has a problem with this account"),
    "InvalidObjectState": Verdict(AccessDenied, "the object is archived and must be thawed first"),
    "ObjectLocked": Verdict(AccessDenied, "a lock on this prefix forbids it until it expires"),
    "EncryptionTypeMismatch": Verdict(AccessDenied, "the bucket demands another kind of encryption"),
    "InvalidBucketName": Verdict(AccessDenied, _BUCKET),
    "PermanentRedirect": Verdict(AccessDenied, _REGION),
    "TemporaryRedirect": Verdict(AccessDenied, _REGION),
    "AuthorizationHeaderMalformed": Verdict(AccessDenied, _REGION),
    "IllegalLocationConstraintException": Verdict(AccessDenied, _REGION),
    "RequestTimeTooSkewed": Verdict(AccessDenied, _CLOCK),
    **{code: Verdict(AccessDenied, _CREDENTIALS) for code in _DENIED_CODES},
    # bytes
    **{code: Verdict(IntegrityError, _SENT_BYTES) for code in _BYTES_CODES},
    "InvalidRange": Verdict(IntegrityError, "the object is shorter than recorded"),
    "InvalidPart": Verdict(IntegrityError, "the store has other parts than were sent: abort and upload again"),
    "InvalidPartOrder": Verdict(IntegrityError, "the parts were not in order"),
    # no other request states a condition, so to send it again cannot help
    "PreconditionFailed": Verdict(AccessDenied, _CONDITION),
    # room
    "EntityTooLarge": Verdict(CapacityExceeded, "the object or part is larger than this store takes"),
    "EntityTooSmall": Verdict(Unsupported, "a part is smaller than this store takes: set profile of this tier"),
    "QuotaExceeded": Verdict(CapacityExceeded, "raise the quota or prune"),
    "InsufficientStorage": Verdict(CapacityExceeded, "make room on the store or prune"),
    "StorageFull": Verdict(CapacityExceeded, "make room on the store or prune"),
    "XMinioStorageFull": Verdict(CapacityExceeded, "make room on the store or prune"),
    # another way is needed
    "TooManyParts": Verdict(Unsupported, "more parts than this store takes: choose a larger part size"),
    "KeyTooLongError": Verdict(Unsupported, "shorten the prefix of this tier"),
    "MalformedXML": Verdict(Unsupported, _SETTINGS),
    "MissingContentLength": Verdict(Unsupported, _SETTINGS),
    "InvalidWriteOffset": Verdict(Unsupported, _SETTINGS),
    "InvalidRequest": Verdict(Unsupported, _SETTINGS),
    "InvalidArgument": Verdict(Unsupported, _SETTINGS),
    "NotImplemented": Verdict(Unsupported, _SETTINGS),
    "MethodNotAllowed": Verdict(Unsupported, _SETTINGS),
    # later
    **{code: Verdict(TierUnavailable, _BUSY) for code in _BUSY_CODES},
    **{code: Verdict(TierUnavailable) for code in _PASSING_CODES},
    # a HEAD has no body to say more
    "400": Verdict(AccessDenied, f"{_REGION}; or {_CREDENTIALS}"),
    # statuses, where the code says nothing
    301: Verdict(AccessDenied, _REGION),
    302: Verdict(AccessDenied, _NOT_S3),
    307: Verdict(AccessDenied, _REGION),
    401: Verdict(AccessDenied, _CREDENTIALS),
    403: Verdict(AccessDenied, f"{_CREDENTIALS}; without ListBucket a missing key looks like this too"),
    # a 404 without an S3 code says nothing about a key: a proxy or a web site may have answered
    404: Verdict(AccessDenied, _NOT_S3),
    405: Verdict(Unsupported, _SETTINGS),
    408: Verdict(TierUnavailable),
    409: Verdict(AccessDenied, "the bucket's state forbids it (versioning, retention, another owner): ask its owner"),
    412: Verdict(AccessDenied, _CONDITION),
    413: Verdict(CapacityExceeded, "the object or part is larger than this store takes"),
    416: Verdict(IntegrityError, "the object is shorter than recorded"),
    425: Verdict(TierUnavailable),
    429: Verdict(TierUnavailable, _BUSY),
    500: Verdict(TierUnavailable),
    501: Verdict(Unsupported, _SETTINGS),
    502: Verdict(TierUnavailable),
    503: Verdict(TierUnavailable, _BUSY),
    504: Verdict(TierUnavailable),
    507: Verdict(CapacityExceeded, "make room on the store or prune"),
    # no answer, or none that could be read
    ValueError: Verdict(AccessDenied, f"a character that no header or host name takes (a line break?): {_CREDENTIALS}"),
    ssl.SSLCertVerificationError: Verdict(AccessDenied, _TLS),
    sdk.SSLError: Verdict(TierUnavailable, _TLS),
    sdk.ProxyConnectionError: Verdict(TierUnavailable, "the HTTP proxy did not answer: check HTTPS_PROXY and NO_PROXY"),
    sdk.ConnectionError: Verdict(TierUnavailable, _NETWORK),
    sdk.HTTPClientError: Verdict(TierUnavailable, _NETWORK),
    sdk.IncompleteReadError: Verdict(TierUnavailable),
    urllib3.exceptions.HTTPError: Verdict(TierUnavailable, _NETWORK),
    OSError: Verdict(TierUnavailable, _NETWORK),
    ResponseParserError: Verdict(TierUnavailable, _NOT_S3),
    sdk.ChecksumError: Verdict(IntegrityError),
    sdk.FlexibleChecksumError: Verdict(IntegrityError),
    # credentials
    sdk.NoCredentialsError: Verdict(AccessDenied, f"no credentials were found: {_CREDENTIALS}"),
    sdk.PartialCredentialsError: Verdict(AccessDenied, f"half of the credentials is missing: {_CREDENTIALS}"),
    sdk.CredentialRetrievalError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.UnknownCredentialError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.MetadataRetrievalError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.RefreshWithMFAUnsupportedError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.NoAuthTokenError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.TokenRetrievalError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.SSOError: Verdict(AccessDenied, _CREDENTIALS),
    sdk.LoginError: Verdict(AccessDenied, _CREDENTIALS),
    # configuration
    sdk.ProfileNotFound: Verdict(AccessDenied, "AWS_PROFILE names a profile that does not exist"),
    sdk.ConfigNotFound: Verdict(AccessDenied, _CONFIG),
    sdk.ConfigParseError: Verdict(AccessDenied, _CONFIG),
    sdk.InvalidConfigError: Verdict(AccessDenied, _CONFIG),
    sdk.BaseEndpointResolverError: Verdict(AccessDenied, _SETTINGS),
    sdk.EndpointProviderError: Verdict(AccessDenied, _SETTINGS),
    sdk.InvalidRegionError: Verdict(AccessDenied, _SETTINGS),
    sdk.ParamValidationError: Verdict(Unsupported, _BUG),
    sdk.UndefinedModelAttributeError: Verdict(Unsupported, _BUG),
    sdk.BotoCoreError: Verdict(TierError, _CONFIG),
}

NOT_S3 = Verdict(TierUnavailable, _NOT_S3)
COMPRESSED = Verdict(
    IntegrityError, "something on the way, or the bucket, compresses objects: turn that off (gzip transcoding, proxies)"
)
_BUSY_VERDICT = Verdict(TierUnavailable, _BUSY)
SERVER_FAULT = Verdict(TierUnavailable)
REFUSED = Verdict(TierError, "the store refused this for a reason that is not known here: please report the code")

SDK_FAILURES = (
    *(BotoCoreError, ClientError, ResponseParserError, DubiousAnswer),
    *(urllib3.exceptions.HTTPError, OSError, ValueError, sdk.UndefinedModelAttributeError),
)
"""All that comes out of a request, other than an answer: what :func:`translate` takes."""


def translate(
    error: BaseException, *, tier: str, operation: str, key: str, throttles: Container[str] = (), pause: float = 0.0
) -> TierError:
    """Return what to raise for a failed request.

    ``throttles`` are codes (statuses as text) by which this provider asks to slow down, beyond
    those of the table; ``pause`` is the least time in seconds between two writes of a key,
    waited where the store names none.
    """
    headers: Mapping[str, str] = {}
    if isinstance(error, sdk.ClientError):
        code, status, headers = _answer(error)
        busy = code in throttles or str(status) in throttles
        verdict, message = _BUSY_VERDICT if busy else _judge_answer(operation, code, status), f"{code} (HTTP {status})"
        request_id = error.response.get("ResponseMetadata", {}).get("RequestId")
        message += f", request {request_id}" if request_id else ""
    elif isinstance(error, DubiousAnswer):
        verdict, message = error.verdict, str(error)
    else:
        verdict, message = _judge_exception(error), _describe(error)
    where: dict[str, Any] = {"tier": tier, "operation": operation, "key": key, "hint": verdict.hint}
    if issubclass(verdict.error, TierUnavailable):
        throttled = verdict.hint == _BUSY
        asked = retry_after(headers)
        if asked is None and throttled and pause:
            asked = pause
        return verdict.error(message, **where, retry_after=asked, throttled=throttled)
    return verdict.error(message, **where)


def answer_code(error: sdk.ClientError) -> tuple[str, int]:
    """Return the S3 code (the status as text where there is none) and the HTTP status."""
    code, status, _headers = _answer(error)
    return code, status


def _answer(error: sdk.ClientError) -> tuple[str, int, Mapping[str, str]]:
    metadata = error.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    code = str(error.response.get("Error", {}).get("Code") or status)
    return code, status, metadata.get("HTTPHeaders", {})


def _judge_answer(operation: str, code: str, status: int) -> Verdict:
    keys: tuple[TableKey, ...] = ((operation, code), code, status)
    for key in keys:
        if key in TABLE:
            return TABLE[key]
    return SERVER_FAULT if status >= 500 else REFUSED  # noqa: PLR2004 - HTTP's server errors


def _judge_exception(error: BaseException) -> Verdict:
    # A refused certificate arrives as SSLError, a line break in a token as HTTPClientError; both need a person.
    for inner in (ssl.SSLCertVerificationError, ValueError):
        if any(isinstance(cause, inner) for cause in _causes(error)):
            return TABLE[inner]
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls]
    return REFUSED


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what the SDK wrapped, from the outside in.

    ``__context__`` is not followed: it leads on to whatever the caller was handling.
    """
    current: BaseException | None = error
    while current is not None:
        known = (getattr(current, "kwargs", {}).get("error"), current.__cause__, *current.args)
        current = next((cause for cause in known if isinstance(cause, BaseException)), None)
        if current is not None:
            yield current


def _describe(error: BaseException) -> str:
    codes = [cause.errno for cause in (error, *_causes(error)) if isinstance(cause, OSError) and cause.errno]
    reason = f": {os.strerror(codes[-1])}" if codes else ""
    return f"{type(error).__name__}{reason}"
