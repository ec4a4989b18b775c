"""What the SDK would send, learnt by letting it, up to the point where it would be sent.

Endpoint rules, addressing styles, regions, plug-ins and the headers of a profile all meet
in the request that the SDK makes ready.  So one is made ready and looked at, instead of
following those rules a second time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tiers.s3_direct.signing import UNSIGNED
from tiers.s3_sdk import exceptions
from tiers.s3_wire import rehearsing

KEY = "ckptier-rehearsal"
"""The key of the request that is never sent."""

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/s3/aws4_request, .+")
_OWN = frozenset(
    {
        *("authorization", "host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"),
        *("amz-sdk-invocation-id", "amz-sdk-request", "user-agent", "content-length", "content-type", "expect"),
    }
)
"""Headers that are made anew for each request, or left out."""
_STRANGE = frozenset({"transfer-encoding", "content-encoding", "x-amz-s3session-token", "x-amz-trailer"})
"""Headers of ways to send or to sign that are not known here."""
_PORTS: Mapping[str, int] = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a bucket is and how one speaks to it.

    ``url`` is that of the connection; ``prefix`` is the path up to the key.  ``standing``
    headers go with every request and are signed, ``agent`` is the User-Agent, which is not.
    """

    url: str
    host: str
    prefix: str
    region: str
    signs_payload: bool
    agent: str
    standing: tuple[tuple[str, str], ...]


class _Ready(Exception):
    def __init__(self, request: Any) -> None:
        super().__init__("rehearsed")
        self.request = request


def listen(client: Any) -> None:
    """Prepare a client for :func:`rehearse`, before other threads use it; safe to repeat."""
    client.meta.events.register("before-send.s3.PutObject", _keep, unique_id="ckptier-rehearsal")


def rehearse(client: Any, bucket: str) -> Address | None:
    """Return how a client reaches a bucket; None where that is not a way that is known here.

    What the SDK raises before it would send (credentials, configuration) is raised.
    """
    token = rehearsing.set(True)
    try:
        client.put_object(Bucket=bucket, Key=KEY, Body=b"")
    except _Ready as ready:
        return address_of(ready.request.url, _texts(ready.request.headers))
    except exceptions.HTTPClientError:  # it came to a connection, which sends nothing for now
        return None
    finally:
        rehearsing.reset(token)
    return None


def address_of(url: str, headers: Mapping[str, str]) -> Address | None:
    """Read a PutObject of :data:`KEY` that is ready to be sent; names of headers in lower case."""
    parts = urlsplit(url)
    scope = _SCOPE.fullmatch(headers.get("authorization", ""))
    if scope is None or _STRANGE & headers.keys() or parts.scheme not in _PORTS or parts.query:
        return None
    agent = headers.get("user-agent", "")
    if not parts.path.endswith(f"/{KEY}") or parts.hostname is None or not agent.isprintable():
        return None
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Address(
        url=f"{parts.scheme}://{parts.netloc}/",
        host=name if parts.port in (None, _PORTS[parts.scheme]) else f"{name}:{parts.port}",
        prefix=parts.path.removesuffix(KEY),
        region=scope[1],
        signs_payload=headers.get("x-amz-content-sha256") != UNSIGNED,
        agent=agent,
        standing=tuple(
            (name, value)
            for name, value in headers.items()
            if name not in _OWN and not name.startswith(("x-amz-checksum-", "x-amz-sdk-checksum-"))
        ),
    )


def _keep(request: Any, **_: object) -> None:
    if rehearsing.get():
        raise _Ready(request)


def _texts(headers: Mapping[str, str | bytes]) -> dict[str, str]:
    return {
        name.lower(): value.decode("latin-1") if isinstance(value, bytes) else value for name, value in headers.items()
    }
