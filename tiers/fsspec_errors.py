"""The one table that says what a failure below fsspec means to a caller.

Each implementation raises what its vendor raises: Python's own OSErrors, those of HTTP
libraries, of SSH, of clouds.  None of them can be imported here, since none has to be
installed, so classes are known by the package that they come from and their name.

What decides, in this order: a certificate, a vendor's code or an HTTP status anywhere in
the chain of causes (implementations wrap them in errnos that say less); then, from the
outside in, the first error with a class in the table, an errno, or a built-in class.

What nobody knows is a plain TierError: to repeat what is not understood could repeat it
for ever, and to call it an answer could lose data.  An OSError that says nothing is
TierUnavailable: something in between broke, and every repeated verb is safe to repeat.

Messages are made of class names, codes, statuses and errnos only, because a vendor's text
may quote what was sent; for the same reason the vendor's error must not be chained.
"""

import errno
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from inspect import getattr_static
from types import MappingProxyType
from typing import Any

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
from tiers.fsspec_vendors import CLASSES, S3_CODES, Verdict
from tiers.volume_errnos import ERRNO_TABLE

_MAX_CAUSES = 8
_NETWORK = "the store could not be reached: check the network and the URL of this tier"
_TLS = "the certificate was not accepted: check the URL, the CA bundle and this machine's clock"
_ROOM = "make room on the store or prune"
_URL = "the answer is not that of this kind of store: check the URL of this tier"
_BUSY = "the store asks to slow down"
_SILENT = "the store did not say why; is its disk full, or a quota reached?"
_NAMES = "a key cannot also be the folder of another key on this store"
_TAKEN = "read the key to learn who created it"
_CHANGED = "the object is not the one that was asked for, or shorter than recorded"
_DENIED = "check the credentials that the implementation finds, and what they may do"
_UNKNOWN = Verdict(TierError, "an error that is not known here: please report its name")

STATUSES: Mapping[int, Verdict] = MappingProxyType(
    {
        **dict.fromkeys((301, 302, 307, 308), Verdict(AccessDenied, _URL)),
        400: Verdict(AccessDenied, f"the request was refused; {_DENIED}"),
        401: Verdict(AccessDenied, _DENIED),
        402: Verdict(AccessDenied, "the provider has a problem with this account"),
        403: Verdict(AccessDenied, _DENIED),
        404: Verdict(ObjectNotFound),
        405: Verdict(Unsupported, _URL),
        407: Verdict(AccessDenied, "the HTTP proxy wants credentials"),
        408: Verdict(TierUnavailable),
        409: Verdict(TierUnavailable, "another request was under way on this key or folder"),
        410: Verdict(ObjectNotFound),
        411: Verdict(Unsupported, _URL),
        412: Verdict(IntegrityError, _CHANGED),
        413: Verdict(CapacityExceeded, "the object is larger than this store takes"),
        416: Verdict(IntegrityError, _CHANGED),
        423: Verdict(TierUnavailable, "the key is locked"),
        425: Verdict(TierUnavailable),
        429: Verdict(TierUnavailable, _BUSY),
        501: Verdict(Unsupported, _URL),
        503: Verdict(TierUnavailable, _BUSY),
        507: Verdict(CapacityExceeded, _ROOM),
        509: Verdict(TierUnavailable, "the bandwidth of this account is used up"),
    }
)

_BUILT_IN: tuple[tuple[type[BaseException], Verdict], ...] = (
    (FileNotFoundError, Verdict(ObjectNotFound)),
    (FileExistsError, Verdict(ObjectExists, _TAKEN)),
    (PermissionError, Verdict(AccessDenied, _DENIED)),
    (IsADirectoryError, Verdict(Unsupported, _NAMES)),
    (NotADirectoryError, Verdict(Unsupported, _NAMES)),
    (TimeoutError, Verdict(TierUnavailable, _NETWORK)),
    (ConnectionError, Verdict(TierUnavailable, _NETWORK)),
    (EOFError, Verdict(TierUnavailable, "the connection ended")),
    (MemoryError, Verdict(TierUnavailable, "this machine has no memory left")),
    (NotImplementedError, Verdict(Unsupported, "this filesystem cannot do it: take another kind of tier")),
    (ImportError, Verdict(Unsupported, "something that this filesystem needs is not installed")),
    (OSError, Verdict(TierUnavailable, _SILENT)),
)
"""Built-in classes, the special ones first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an error means, and in which words that leak nothing."""

    verdict: Verdict
    message: str
    retry_after: float | None = None


def judge(error: BaseException, *, operation: str) -> Finding:
    """Return what a failure means for a verb."""
    chain = (error, *_causes(error))
    headers = next((found for each in chain if (found := _headers(each))), {})
    verdict = _verdict(chain)
    if operation == "create" and any(_is_precondition(each) for each in chain):
        verdict = Verdict(ObjectExists, _TAKEN)
    elif operation != "create" and verdict.error is ObjectExists:
        verdict = Verdict(Unsupported, _NAMES)  # an object stands where a folder would have to
    return Finding(verdict, _describe(chain), retry_after(headers))


def translate(error: BaseException, *, tier: str, operation: str, key: str) -> TierError:
    """Return what to raise for a failed request; to be raised ``from None``."""
    finding = judge(error, operation=operation)
    kind = finding.verdict.error
    where: dict[str, Any] = {"tier": tier, "operation": operation, "key": key, "hint": finding.verdict.hint}
    if issubclass(kind, TierUnavailable):
        return kind(finding.message, **where, retry_after=finding.retry_after, throttled=finding.verdict.hint == _BUSY)
    return kind(finding.message, **where)


def _verdict(chain: tuple[BaseException, ...]) -> Verdict:
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
        return Verdict(AccessDenied, _TLS)
    for each in chain:
        code = _s3_code(each)
        if code in S3_CODES:
            return S3_CODES[code]
    statuses = [status for each in chain if (status := status_of(each)) is not None]
    if statuses and statuses[0] in STATUSES:
        return STATUSES[statuses[0]]
    if statuses and statuses[0] >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Verdict(TierUnavailable)
    return next((found for each in chain if (found := _verdict_of(each)) is not None), _UNKNOWN)


def _verdict_of(error: BaseException) -> Verdict | None:
    for cls in type(error).__mro__:
        if class_name(cls) in CLASSES:
            return CLASSES[class_name(cls)]
    if isinstance(error, OSError):
        return _verdict_of_os_error(error)
    return next((verdict for cls, verdict in _BUILT_IN if isinstance(error, cls)), None)


def _verdict_of_os_error(error: OSError) -> Verdict | None:
    if error.errno is not None and error.errno in ERRNO_TABLE:
        return Verdict(*ERRNO_TABLE[error.errno])
    text = str(error)
    # Two implementations say in words what others say in a number; the words are looked at, never repeated.
    if text.startswith("Forbidden"):
        return Verdict(AccessDenied, _DENIED)
    if "unsupported" in text.lower():
        return Verdict(Unsupported, "this server lacks what this kind of tier needs: see profile of this tier")
    if error.errno is None and error.__cause__ is not None and type(error) is OSError:
        return None  # a wrapper that says less than what it wraps
    return next(verdict for cls, verdict in _BUILT_IN if isinstance(error, cls))


def class_name(cls: type) -> str:
    """Name a class by the package that it comes from: ``paramiko.SSHException``."""
    return f"{cls.__module__.partition('.')[0]}.{cls.__name__}"


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error carries, under whichever name."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        candidates = [getattr(error, "status_code", None), getattr(error, "status", None)]
        candidates.append(getattr(response, "status_code", None))
        candidates.append(getattr_static(error, "code", None))  # statically: aiohttp's warns when it is asked
        found = next((each for each in candidates if isinstance(each, (int, str))), None)
    text = str(found)
    return int(text) if text.isdecimal() and len(text) == len("404") else None


def _s3_code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, Mapping) else ""


def _is_precondition(error: BaseException) -> bool:
    # a 409 of a create says that another one is under way: who won is not known yet
    return _s3_code(error) == "PreconditionFailed" or status_of(error) == HTTPStatus.PRECONDITION_FAILED


def _headers(error: BaseException) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        found = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    else:
        found = getattr(response, "headers", None) or getattr(error, "headers", None)
    return {str(name).lower(): str(value) for name, value in found.items()} if hasattr(found, "items") else {}


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what an implementation wrapped, from the outside in."""
    current = error
    for _ in range(_MAX_CAUSES):
        # __context__ is not followed: it leads on to whatever the caller was handling
        inner = (current.__cause__, *current.args, getattr(current, "os_error", None))
        cause = next((each for each in inner if isinstance(each, BaseException)), None)
        if cause is None:
            return
        current = cause
        yield current


def _describe(chain: tuple[BaseException, ...]) -> str:
    parts = [type(chain[0]).__name__]
    inner = type(chain[-1]).__name__
    if inner != parts[0]:
        parts.append(f"({inner})")
    codes = [code for each in chain if (code := _s3_code(each))]
    statuses = [status for each in chain if (status := status_of(each))]
    numbers = [n for each in chain if isinstance(each, OSError) and (n := each.errno or 0) in errno.errorcode]
    if codes and not codes[0].isdecimal():
        parts.append(codes[0] if codes[0].isalnum() else "(an odd code)")
    if statuses:
        parts.append(f"HTTP {statuses[0]}")
    elif numbers:
        parts.append(f"[{errno.errorcode[numbers[-1]]}] {os.strerror(numbers[-1])}")
    return " ".join(parts) if parts != ["OSError"] else "the store reported a failure, and not which"
