"""Signature Version 4 from the store's side: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote_to_bytes

from tiers.testing.s3_emulator.answers import Refusal
from tiers.testing.s3_emulator.operations import Operation

ALLOWED_SKEW = timedelta(minutes=15)
UNSIGNED = "UNSIGNED-PAYLOAD"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING = frozenset({UNSIGNED_TRAILER, SIGNED_CHUNKS, SIGNED_TRAILER})
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 +"
    r"Credential=(?P<key>[^/,\s]+)/(?P<day>\d{8})/(?P<region>[^/,\s]*)/(?P<service>[^/,\s]+)/aws4_request"
    r", *SignedHeaders=(?P<headers>[a-z0-9_;.-]+), *Signature=(?P<signature>[0-9a-f]{64})"
)
_PAYLOAD_HASH = re.compile(r"[0-9a-f]{64}")
_STAMP = re.compile(r"\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who may ask; ``expires`` is for temporary ones, ``may`` narrows what this key is allowed (None: no further)."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires: datetime | None = None
    may: frozenset[Operation] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """The Authorization header, taken apart, and what goes with it."""

    access_key: str
    day: str
    region: str
    signed_headers: tuple[str, ...]
    signature: str
    stamp: str
    payload_hash: str

    @property
    def scope(self) -> str:
        """The credential's scope."""
        return f"{self.day}/{self.region}/s3/aws4_request"

    @property
    def moment(self) -> datetime:
        """When the request says it was signed."""
        return datetime.strptime(self.stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def malformed(message: str) -> Refusal:
    """Return what is said of a header that is no signature."""
    return Refusal(400, "AuthorizationHeaderMalformed", f"The authorization header is malformed; {message}")


def authorization(headers: Mapping[str, str]) -> Authorization:
    """Take the signature's headers apart; Refusal where they have not the shape that S3 demands."""
    header = headers.get("authorization")
    if header is None:
        raise Refusal(403, "AccessDenied", "Anonymous access is forbidden")
    found = _AUTHORIZATION.fullmatch(header)
    if found is None:
        raise malformed("it is not AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…")
    stamp, payload_hash = headers.get("x-amz-date", ""), headers.get("x-amz-content-sha256")
    if not _STAMP.fullmatch(stamp):
        raise Refusal(403, "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
    if payload_hash is None:
        raise Refusal(400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
    if payload_hash not in {UNSIGNED, *STREAMING} and not _PAYLOAD_HASH.fullmatch(payload_hash):
        raise Refusal(
            400, "InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, … or a valid sha256 value"
        )
    if found["service"] != "s3":
        raise malformed(f"incorrect service {found['service']!r}. This endpoint belongs to 's3'.")
    if found["day"] != stamp[:8]:
        raise malformed(f"Invalid credential date {found['day']!r}: it is not that of x-amz-date")
    signed = tuple(found["headers"].split(";"))
    _check_coverage(signed, headers)
    return Authorization(
        access_key=found["key"],
        day=found["day"],
        region=found["region"],
        signed_headers=signed,
        signature=found["signature"],
        stamp=stamp,
        payload_hash=payload_hash,
    )


def _check_coverage(signed: tuple[str, ...], headers: Mapping[str, str]) -> None:
    if list(signed) != sorted(set(signed)):
        raise malformed("SignedHeaders are not in order, each once")
    needed = {"host", *(name for name in headers if name.startswith("x-amz-"))}
    if missing := sorted(needed - set(signed)):
        raise Refusal(
            403,
            "AccessDenied",
            "There were headers present in the request which were not signed",
            details=(("HeadersNotSigned", ", ".join(missing)),),
        )


def canonical_request(method: str, target: str, headers: Mapping[str, str], signed: Iterable[str], payload: str) -> str:
    """Return the canonical request of a target as it came over the wire; ``headers`` have lower-case names."""
    path, _, query = target.partition("?")
    pairs = sorted(_canonical_pair(pair) for pair in query.split("&") if pair)
    names = list(signed)
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in names]
    return "\n".join(
        [method, _encode(path, safe="/"), "&".join(pairs), "".join(lines), ";".join(names), payload],
    )


def _canonical_pair(pair: str) -> str:
    name, _, value = pair.partition("=")
    return f"{_encode(name, safe='')}={_encode(value, safe='')}"


def _encode(text: str, *, safe: str) -> str:
    return quote(unquote_to_bytes(text), safe=f"{safe}-_.~")


def signing_key(secret: str, scope: str) -> bytes:
    """Return the key that is good for one day, region and service."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    return key


def request_signature(key: bytes, auth: Authorization, canonical: str) -> str:
    """Return what the signature should be, as hex."""
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return _hmac(key, f"AWS4-HMAC-SHA256\n{auth.stamp}\n{auth.scope}\n{digest}").hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def identify(auth: Authorization, known: Credentials | None, headers: Mapping[str, str], now: datetime) -> Credentials:
    """Return who asks; Refusal for keys and tokens that are not known or expired, and for clocks that are off."""
    if known is None:
        raise Refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
    if headers.get("x-amz-security-token") != known.session_token:
        raise Refusal(400, "InvalidToken", "The provided token is malformed or otherwise invalid.")
    if known.expires is not None and now >= known.expires:
        raise Refusal(400, "ExpiredToken", "The provided token has expired.")
    if abs(now - auth.moment) > ALLOWED_SKEW:
        raise Refusal(
            403,
            "RequestTimeTooSkewed",
            "The difference between the request time and the current time is too large.",
            details=(("RequestTime", auth.stamp), ("ServerTime", now.strftime("%Y-%m-%dT%H:%M:%SZ"))),
        )
    return known


def check_signature(key: bytes, auth: Authorization, method: str, target: str, headers: Mapping[str, str]) -> None:
    """Refuse a request that was not signed with this key, or was changed since."""
    canonical = canonical_request(method, target, headers, auth.signed_headers, auth.payload_hash)
    if not hmac.compare_digest(request_signature(key, auth, canonical), auth.signature):
        message = "The request signature we calculated does not match the signature you provided."
        raise Refusal(403, "SignatureDoesNotMatch", message, details=(("CanonicalRequest", canonical),))


class ChunkSignatures:
    """The chain of signatures over the chunks of a body, each over the one before."""

    def __init__(self, key: bytes, auth: Authorization) -> None:
        self._key = key
        self._auth = auth
        self._previous = auth.signature

    def check_chunk(self, digest: str, signature: str) -> None:
        """Refuse a chunk whose bytes have another hex SHA-256 than was signed."""
        self._check("AWS4-HMAC-SHA256-PAYLOAD", f"{EMPTY_SHA256}\n{digest}", signature)

    def check_trailer(self, lines: bytes, signature: str) -> None:
        """Refuse trailers other than those that were signed."""
        self._check("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(lines).hexdigest(), signature)

    def _check(self, kind: str, digests: str, signature: str) -> None:
        text = f"{kind}\n{self._auth.stamp}\n{self._auth.scope}\n{self._previous}\n{digests}"
        self._previous = _hmac(self._key, text).hex()
        if not hmac.compare_digest(self._previous, signature):
            raise Refusal(403, "SignatureDoesNotMatch", "A chunk's signature does not match its bytes.")
