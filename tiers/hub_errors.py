"""The one table that says what each failure of the Hub, or of reaching it, means to a caller.

Keys are a surface with a status, one of the Hub's error codes, an HTTP status, or an exception
class; the first that fits, in that order, decides.  Messages are made of codes, statuses and
request ids only: the Hub quotes what it was sent, tokens included, and an exception of the
library holds the request with its token.  For the same reason none of them is chained.
"""

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    IntegrityError,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)
from tiers.failures import Where
from tiers.hub_sdk import errors as hub
from tiers.hub_sdk import httpx2

MAX_RETRY_AFTER = 3600.0
"""Seconds: commits are counted by the hour, so a longer wait is a mistake of somebody's."""


class Surface(StrEnum):
    """Who answers: the Hub, or the storage that it sends its clients to with signed URLs."""

    HUB = "hub"
    STORAGE = "storage"


class Outcome(StrEnum):
    """Whether a request that failed may nevertheless have been done."""

    NOT_DONE = "not-done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which error a failure becomes, and one line for the operator; ``{repo}`` in it is filled in."""

    error: type[TierError]
    hint: str = ""


TableKey = tuple[Surface, int] | str | int | type[BaseException]

_TOKEN = "check the token: HF_TOKEN, or the file that `hf auth login` writes; it needs write access to {repo}"  # noqa: S105
CREATE = "hf repos create {repo} --repo-type dataset --private"
MAKE_PRIVATE = "hf repos settings {repo} --repo-type dataset --private"
_ABSENT = f"check name and token; to create it: {CREATE}"
_RENAMED = "the repo was renamed or moved, or this is not the Hub: check url and endpoint_url"
_NOT_HUB = "the answer is not that of the Hub: check endpoint_url and any proxy in between"
_BUSY = "the Hub limits commits an hour and requests in five minutes: replicate less often, or raise the plan"
_NETWORK = "the Hub could not be reached: check the network, HTTPS_PROXY and endpoint_url"
_TLS = "the certificate was not accepted: check ca_bundle, SSL_CERT_FILE, endpoint_url and this machine's clock"
_ROOM = "raise the plan, prune, or squash the history of {repo}: what was deleted counts until then"
_REFUSED_COMMIT = "the Hub refuses this: a name or a folder of over 10,000 entries that git or the Hub does not take?"
_SENT = "what arrived is not what was sealed; it was not stored and is sent again"
_SIGNED = "the signed URL was not taken: check this machine's clock; or the object was permanently deleted"
_SETTINGS = "the client could not be set up: check HTTPS_PROXY, ca_bundle and endpoint_url"
_LIBRARY = "huggingface_hub failed in a way that no request of this tier should bring about: please report it"
_DISABLED = "the Hub disabled {repo}: ask its support"
_LATER = "the Hub did not answer as it should"

STORAGE_FULL = "StorageLimit"
"""Our word for a 403 that is about room: the Hub has no code for it."""
DISABLED = "Disabled"
"""Our word for the refusal of a disabled repo, which has no code either."""

TABLE: Mapping[TableKey, Verdict] = {
    # the storage's own statuses: it is asked with URLs that were signed a moment ago
    (Surface.STORAGE, 400): Verdict(IntegrityError, _SENT),
    (Surface.STORAGE, 403): Verdict(TierUnavailable, _SIGNED),
    (Surface.STORAGE, 404): Verdict(TierUnavailable, _SIGNED),
    # codes of the Hub
    "RepoNotFound": Verdict(AccessDenied, _ABSENT),
    "GatedRepo": Verdict(AccessDenied, "use a token of the repo's owners: {repo} is gated"),
    "RevisionNotFound": Verdict(AccessDenied, "{repo} has no branch main: give it a first commit on the Hub's page"),
    "EntryNotFound": Verdict(ObjectNotFound),
    STORAGE_FULL: Verdict(CapacityExceeded, _ROOM),
    DISABLED: Verdict(AccessDenied, _DISABLED),
    # statuses
    301: Verdict(AccessDenied, _RENAMED),
    302: Verdict(AccessDenied, _RENAMED),
    303: Verdict(AccessDenied, _NOT_HUB),
    307: Verdict(AccessDenied, _RENAMED),
    308: Verdict(AccessDenied, _RENAMED),
    400: Verdict(Unsupported, _REFUSED_COMMIT),
    401: Verdict(AccessDenied, _TOKEN),
    402: Verdict(AccessDenied, "the account's plan does not allow it: look at its billing page"),
    403: Verdict(AccessDenied, _TOKEN),
    # without the Hub's code a 404 says nothing about a key: a proxy or a web site may have answered
    404: Verdict(AccessDenied, _NOT_HUB),
    405: Verdict(Unsupported, _NOT_HUB),
    407: Verdict(AccessDenied, "the HTTP proxy wants credentials: check HTTPS_PROXY"),
    408: Verdict(TierUnavailable, _LATER),
    409: Verdict(TierUnavailable, "the Hub is busy with this repo"),
    412: Verdict(TierUnavailable, "somebody else commits to {repo} at the same time"),
    413: Verdict(CapacityExceeded, "the object is larger than the Hub takes: save the checkpoint in smaller files"),
    416: Verdict(IntegrityError, "the object is shorter than recorded: verify this tier"),
    422: Verdict(Unsupported, _REFUSED_COMMIT),
    423: Verdict(TierUnavailable, "the Hub has locked {repo} for a while"),
    425: Verdict(TierUnavailable, _LATER),
    429: Verdict(TierUnavailable, _BUSY),
    451: Verdict(AccessDenied, _DISABLED),
    500: Verdict(TierUnavailable, _LATER),
    501: Verdict(Unsupported, _NOT_HUB),
    502: Verdict(TierUnavailable, _LATER),
    503: Verdict(TierUnavailable, _LATER),
    504: Verdict(TierUnavailable, _LATER),
    507: Verdict(CapacityExceeded, _ROOM),
    # no answer, or none that could be read
    ssl.SSLCertVerificationError: Verdict(AccessDenied, _TLS),
    httpx2.InvalidURL: Verdict(AccessDenied, _SETTINGS),
    httpx2.UnsupportedProtocol: Verdict(AccessDenied, _SETTINGS),
    httpx2.LocalProtocolError: Verdict(AccessDenied, f"a character that no header takes? {_TOKEN}"),
    httpx2.ProxyError: Verdict(TierUnavailable, "the HTTP proxy did not answer: check HTTPS_PROXY and NO_PROXY"),
    httpx2.TooManyRedirects: Verdict(AccessDenied, _RENAMED),
    httpx2.TransportError: Verdict(TierUnavailable, _NETWORK),
    httpx2.HTTPError: Verdict(TierUnavailable, _NETWORK),
    httpx2.StreamError: Verdict(TierUnavailable, _NETWORK),
    httpx2.CookieConflict: Verdict(TierUnavailable, _NOT_HUB),
    UnicodeError: Verdict(AccessDenied, f"a character that no header takes? {_TOKEN}"),
    OSError: Verdict(TierUnavailable, _NETWORK),
    # the library, where no status says more
    hub.OfflineModeIsEnabled: Verdict(AccessDenied, "HF_HUB_OFFLINE is set: unset it"),
    hub.LocalTokenNotFoundError: Verdict(AccessDenied, _TOKEN),
    hub.OIDCError: Verdict(AccessDenied, f"HF_OIDC_RESOURCE is set, and no token could be had for it. {_TOKEN}"),
    hub.DeviceCodeError: Verdict(AccessDenied, f"the login ran out: `hf auth login`. {_TOKEN}"),
    hub.HFValidationError: Verdict(AccessDenied, _RENAMED),
    hub.HfUriError: Verdict(AccessDenied, _RENAMED),
    hub.BucketNotFoundError: Verdict(AccessDenied, _ABSENT),
    hub.RepositoryNotFoundError: Verdict(AccessDenied, _ABSENT),
    hub.GatedRepoError: Verdict(AccessDenied, "use a token of the repo's owners: {repo} is gated"),
    hub.DisabledRepoError: Verdict(AccessDenied, _DISABLED),
    hub.RemoteEntryNotFoundError: Verdict(ObjectNotFound),
    # what the library says about its own cache and its other products says nothing about a store
    hub.EntryNotFoundError: Verdict(TierUnavailable, _LIBRARY),
    hub.LocalEntryNotFoundError: Verdict(TierUnavailable, _LIBRARY),
    hub.RevisionResolutionError: Verdict(TierUnavailable, _NETWORK),
    Exception: Verdict(TierError, _LIBRARY),
}

SERVER_FAULT = Verdict(TierUnavailable, _LATER)
REFUSED = Verdict(TierError, "the Hub refused this for a reason that is not known here: please report the status")
_REQUEST_ID = re.compile(r"[A-Za-z0-9=;_-]{1,80}")
_TOKENS = re.compile(r"hf_|api_org_|bearer", re.IGNORECASE)
_LIMIT = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})")
_ROOM_WORDS = re.compile(r"storage (?:limit|quota|space)|quota", re.IGNORECASE)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.InvalidURL)
_NEVER_SENT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, UnicodeError, hub.OfflineModeIsEnabled)


class HubFailure(Exception):
    """A request to the Hub failed.  Becomes a TierError where the verb is known.

    ``outcome`` tells whether it may have been done all the same, ``status`` is 0 where
    nothing was answered.
    """

    def __init__(
        self,
        verdict: Verdict,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        outcome: Outcome = Outcome.NOT_DONE,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.status = status
        self.code = code
        self.outcome = outcome
        self.retry_after = retry_after

    def at(self, where: Where, repo: str) -> TierError:
        """Return the error that a caller of the tier sees."""
        hint = self.verdict.hint.replace("{repo}", repo)
        if issubclass(self.verdict.error, TierUnavailable):
            return self.verdict.error(self.message, **where.fields(), hint=hint, retry_after=self.retry_after)
        return self.verdict.error(self.message, **where.fields(), hint=hint)


@contextmanager
def mapped(where: Where, repo: str) -> Iterator[None]:
    """Turn a HubFailure of the block into the error that a caller sees; nothing of the request is chained to it."""
    failure: HubFailure
    try:
        yield
    except HubFailure as failed:
        failure = failed
    else:
        return
    raise failure.at(where, repo)


def of_answer(status: int, headers: Mapping[str, str], body: bytes, surface: Surface) -> HubFailure:
    """Judge an answer that is no success.  ``headers`` has to be blind to case."""
    code = _code(status, headers, body) if surface is Surface.HUB else ""
    keys: tuple[TableKey, ...] = ((surface, status), code, status)
    server_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    verdict = next((TABLE[key] for key in keys if key in TABLE), SERVER_FAULT if server_fault else REFUSED)
    message = f"HTTP {status}" + (f" ({code})" if code else "")
    message += " from the storage" if surface is Surface.STORAGE else ""
    request = headers.get("x-request-id") or headers.get("x-amzn-trace-id") or headers.get("x-amz-request-id") or ""
    if _REQUEST_ID.fullmatch(request) and not _TOKENS.search(request):
        message += f", request {request}"
    unknown = server_fault or status == HTTPStatus.REQUEST_TIMEOUT
    return HubFailure(
        verdict,
        message,
        status=status,
        code=code,
        outcome=Outcome.UNKNOWN if unknown else Outcome.NOT_DONE,
        retry_after=retry_after(headers) if issubclass(verdict.error, TierUnavailable) else None,
    )


def of_exception(error: BaseException) -> HubFailure:
    """Judge what was raised instead of an answer."""
    if isinstance(error, hub.HfHubHTTPError) and getattr(error, "response", None) is not None:
        response = error.response
        return of_answer(response.status_code, response.headers, b"", Surface.HUB)
    certificate = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))
    known = (ssl.SSLCertVerificationError, *type(error).__mro__) if certificate else type(error).__mro__
    verdict = next((TABLE[cls] for cls in known if cls in TABLE), REFUSED)
    not_sent = isinstance(error, (*_NOT_SENT, *_NEVER_SENT))
    outcome = Outcome.NOT_DONE if not_sent else Outcome.UNKNOWN
    return HubFailure(verdict, _describe(error), outcome=outcome)


def strange(what: str) -> HubFailure:
    """Judge a success whose content is not what the Hub would send."""
    return HubFailure(Verdict(TierUnavailable, _NOT_HUB), what, outcome=Outcome.UNKNOWN)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the Hub asks to wait, bounded; None where it names none."""
    limit = _LIMIT.search(headers.get("ratelimit", ""))
    if limit:
        return min(float(limit[1]) + 1.0, MAX_RETRY_AFTER)  # it counts whole seconds
    value = headers.get("retry-after", "").strip()
    return min(float(value), MAX_RETRY_AFTER) if value.isdecimal() and value.isascii() else None


def _code(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return the Hub's code, or ours where only its words say what it means; the words go no further."""
    code = headers.get("x-error-code", "")
    if code in TABLE:
        return code
    words = headers.get("x-error-message", "") + body[:4096].decode(errors="replace")
    if status == HTTPStatus.FORBIDDEN and _ROOM_WORDS.search(words):
        return STORAGE_FULL
    if "Access to this resource is disabled" in words:
        return DISABLED
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _describe(error: BaseException) -> str:
    codes = [cause.errno for cause in _causes(error) if isinstance(cause, OSError) and cause.errno]
    reason = f": {os.strerror(codes[-1])}" if codes else ""
    return f"{type(error).__name__}{reason}"
