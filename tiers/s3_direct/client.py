"""The SDK's client, with three of its operations done without it."""

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import urllib3.exceptions

from tiers.clock import Clock, SystemClock
from tiers.s3_client import credentials_of
from tiers.s3_direct.answers import Answered, opened, written
from tiers.s3_direct.rehearsal import Address, listen, rehearse
from tiers.s3_direct.requests import KNOWN, Line, head_of
from tiers.s3_direct.signing import EMPTY, UNSIGNED, Signer, amz_date
from tiers.s3_direct.wire import Exchange
from tiers.s3_sdk import exceptions as sdk
from tiers.s3_wire import pool_for

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_HASH_PIECE = 1 << 20


@dataclass(slots=True)
class _Way:
    """How a bucket is reached: an address, the signer for its region, and connections to it."""

    address: Address
    signer: Signer
    pool: Any


class DirectClient:
    """What :class:`tiers.s3.S3Tier` speaks to in place of the SDK's client; all but three operations are the SDK's.

    May be shared by threads.  What it returns and raises is what the SDK's client would,
    as far as the tier looks at it.
    """

    def __init__(self, client: "S3Client", clock: Clock) -> None:
        self._sdk: Any = client
        self._clock = clock
        self._ways: dict[str, _Way | None] = {}
        self._learning = threading.Lock()
        listen(client)

    def __getattr__(self, name: str) -> Any:
        """Return what the SDK's client has."""
        return getattr(self._sdk, name)

    def put_object(self, **fields: Any) -> Answered:
        """Store an object."""
        way = self._way(fields) if _is_stream(fields) else None
        return self._sdk.put_object(**fields) if way is None else self._write(way, "PutObject", fields)

    def upload_part(self, **fields: Any) -> Answered:
        """Store a part."""
        way = self._way(fields) if _is_stream(fields) else None
        return self._sdk.upload_part(**fields) if way is None else self._write(way, "UploadPart", fields)

    def get_object(self, **fields: Any) -> Answered:
        """Begin to receive an object; its Body has ``readinto`` beside ``read``."""
        way = self._way(fields)
        if way is None:
            return cast("Answered", self._sdk.get_object(**fields))
        head = self._head(way, "GET", fields, EMPTY)
        try:
            exchange = self._begun(way)
            return opened(exchange, exchange.ask(head, None, 0))
        except (OSError, urllib3.exceptions.HTTPError) as error:
            raise as_the_sdk_says(error, way.address.url) from error

    def _write(self, way: _Way, operation: str, fields: Mapping[str, Any]) -> Answered:
        body, size = fields["Body"], fields["ContentLength"]
        payload = body.sha256
        if payload is None:
            payload = _digest(body) if way.address.signs_payload else UNSIGNED
        head = self._head(way, "PUT", fields, payload)
        try:
            exchange = self._begun(way)
            return written(exchange, exchange.ask(head, body, size), operation)
        except (OSError, urllib3.exceptions.HTTPError) as error:
            raise as_the_sdk_says(error, way.address.url) from error

    def _head(self, way: _Way, method: str, fields: Mapping[str, Any], payload: str) -> bytes:
        credentials = credentials_of(self._sdk)
        if credentials is None:  # they were there when the way was learnt
            raise sdk.NoCredentialsError
        return head_of(Line(method, fields, payload), way.address, way.signer, credentials, amz_date(self._clock.now()))

    def _begun(self, way: _Way) -> Exchange:
        try:
            return Exchange(way.pool)
        except urllib3.exceptions.ClosedPoolError:  # the client was closed; it opens another pool, as it does itself
            way.pool = pool_for(self._sdk, way.address.url)
            return Exchange(way.pool)

    def _way(self, fields: Mapping[str, Any]) -> _Way | None:
        """Return the way of a request; None where it is the SDK's."""
        if not KNOWN.issuperset(fields):
            return None
        bucket = fields["Bucket"]
        if bucket not in self._ways:
            with self._learning:
                if bucket not in self._ways:
                    self._ways[bucket] = self._learnt(bucket)
        return self._ways[bucket]

    def _learnt(self, bucket: str) -> _Way | None:
        address = rehearse(self._sdk, bucket) if credentials_of(self._sdk) is not None else None
        pool = pool_for(self._sdk, address.url) if address is not None else None
        if address is None or pool is None:
            return None
        return _Way(address, Signer(address.region), pool)


def direct(client: "S3Client", clock: Clock | None = None) -> "S3Client":
    """Return a client that sends and receives bodies by itself, where it can; no request is made."""
    return cast("S3Client", DirectClient(client, clock if clock is not None else SystemClock()))


def _is_stream(fields: Mapping[str, Any]) -> bool:
    return "ContentLength" in fields and hasattr(fields.get("Body"), "sha256")


def _digest(body: Any) -> str:
    """Read a body once more, for its signature."""
    found = sha256()
    for piece in iter(lambda: body.read(_HASH_PIECE), b""):
        found.update(piece)
    body.seek(0)
    return found.hexdigest()


def as_the_sdk_says(error: Exception, url: str) -> Exception:
    """Return what the SDK's session would raise, so that one table has a word for each failure of a connection."""
    theirs = next((theirs for kind, theirs in _FAILURES if isinstance(error, kind)), sdk.HTTPClientError)
    return theirs(endpoint_url=url, error=error)


_FAILURES: tuple[tuple[type[Exception], Callable[..., Exception]], ...] = (
    (ssl.SSLError, sdk.SSLError),
    (urllib3.exceptions.SSLError, sdk.SSLError),
    (urllib3.exceptions.NewConnectionError, sdk.EndpointConnectionError),
    (urllib3.exceptions.ConnectTimeoutError, sdk.ConnectTimeoutError),
    (TimeoutError, sdk.ReadTimeoutError),
    (OSError, sdk.ConnectionClosedError),
)
