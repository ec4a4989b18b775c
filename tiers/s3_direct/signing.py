"""Signature Version 4 for requests to S3, with the day's signing key kept.  Pure, but for that.

The SDK's own signer derives the key and copies the headers anew for each request; over
thousands of small objects that is most of what a request costs.  It is the reference that
this one is tested against.
"""

import hmac
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple, Protocol

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = sha256(b"").hexdigest()
"""What stands for a request without a body."""


class Credentials(Protocol):
    """What the SDK hands out: a moment's view of its credentials."""

    @property
    def access_key(self) -> str:
        """Who signs."""
        ...

    @property
    def secret_key(self) -> str:
        """What it is signed with."""
        ...

    @property
    def token(self) -> str | None:
        """A session token, that goes with the request."""
        ...


class Signable(NamedTuple):
    """What a signature is made over.

    ``path`` and ``query`` are as they are sent, the query's pairs in order of their names.
    ``headers`` are those to sign, their names in lower case, their values printable;
    x-amz-content-sha256 is one of them.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


class Signer:
    """Signs for one region; may be shared by threads."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._kept: tuple[tuple[str, str], bytes] = ("", ""), b""

    def authorization(self, request: Signable, credentials: Credentials, moment: str) -> str:
        """Return the Authorization header; ``moment`` is that of :func:`amz_date`."""
        names = sorted(request.headers)
        signed = ";".join(names)
        lines = "\n".join([f"{name}:{request.headers[name]}" for name in names])
        if " " in lines:
            lines = "\n".join([f"{name}:{' '.join(request.headers[name].split())}" for name in names])
        payload = request.headers["x-amz-content-sha256"]
        canonical = f"{request.method}\n{request.path}\n{request.query}\n{lines}\n\n{signed}\n{payload}"
        scope = f"{moment[:8]}/{self._region}/s3/aws4_request"
        text = f"{ALGORITHM}\n{moment}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key(credentials.secret_key, moment[:8]), text.encode(), "sha256").hex()
        return f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"

    def _key(self, secret: str, day: str) -> bytes:
        held, key = self._kept
        if held != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._kept = (secret, day), key  # one assignment: another thread sees both or neither
        return key


def amz_date(moment: datetime) -> str:
    """Format a time in UTC as signatures want it."""
    text = moment.isoformat(timespec="seconds")  # three times as fast as strftime
    return f"{text[:4]}{text[5:7]}{text[8:13]}{text[14:16]}{text[17:19]}Z"
