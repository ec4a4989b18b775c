"""Clients of the S3 emulator: boto3's, and requests that boto3 would not send."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection, HTTPSConnection
from ssl import create_default_context
from typing import TYPE_CHECKING, Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SdkCredentials

from tiers.clock import SystemClock
from tiers.s3_sdk import ClientError, Config, Session, new_session
from tiers.testing.s3_emulator import AWS, BUCKET, Behaviour, ChecksumRule, Request, S3Emulator

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_RESOLVE = socket.getaddrinfo


@cache
def _session() -> Session:
    """One for all: the first client of a session takes 30 times as long as the others."""
    return new_session()


@contextmanager
def s3_client(
    emulator: S3Emulator,
    *,
    region: str = "us-east-1",
    secret_key: str | None = None,
    access_key: str | None = None,
    session_token: str | None = None,
    endpoint_url: str | None = None,
    **config: Any,
) -> "Iterator[S3Client]":
    """Open a client of one attempt, with the emulator's first credentials unless others are given."""
    known = emulator.credentials[0]
    client = _session().client(
        "s3",
        endpoint_url=endpoint_url or emulator.endpoint_url,
        region_name=region,
        aws_access_key_id=access_key or known.access_key,
        aws_secret_access_key=secret_key or known.secret_key,
        aws_session_token=session_token,
        verify=str(emulator.ca_bundle) if emulator.ca_bundle is not None else None,
        config=Config(retries={"total_max_attempts": 1}, **{"s3": {"addressing_style": "path"}, **config}),
    )
    client.meta.events.register("before-parameter-build.s3", _stay)
    try:
        yield client
    finally:
        client.close()


Open = Callable[..., "tuple[S3Emulator, S3Client]"]


@contextmanager
def workbench() -> Iterator[Open]:
    """Start emulators and clients that speak to them as each store wants it; all end together."""
    with ExitStack() as stack:

        def start(behaviour: Behaviour = AWS, **fields: Any) -> "tuple[S3Emulator, S3Client]":
            emulator = stack.enter_context(S3Emulator(behaviour, **fields))
            region = behaviour.location if behaviour.regions is not None else "us-east-1"
            sdk: dict[str, Any] = {}
            if behaviour.checksums is ChecksumRule.REFUSED:
                sdk["request_checksum_calculation"] = "when_required"
            return emulator, stack.enter_context(s3_client(emulator, region=region, **sdk))

        yield start


def _stay(context: dict[str, Any], **_: object) -> None:
    context.setdefault("s3_redirect", {})["redirected"] = True  # a redirect is an answer, not an errand


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A raw answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error document; empty where there is none."""
        return self.body.decode("utf-8", "replace").partition("<Code>")[2].partition("</Code>")[0]


def signed_headers(
    emulator: S3Emulator,
    method: str,
    target: str,
    headers: Mapping[str, str],
    payload_hash: str = "UNSIGNED-PAYLOAD",
    region: str = "us-east-1",
) -> dict[str, str]:
    """Return headers, names in lower case, that the SDK's signer has signed."""
    known = emulator.credentials[0]
    request = AWSRequest(method, emulator.endpoint_url + target, headers=dict(headers))
    request.headers["x-amz-content-sha256"] = payload_hash
    request.context["payload_signing_enabled"] = True
    _FixedPayload(payload_hash, SdkCredentials(known.access_key, known.secret_key), "s3", region).add_auth(request)
    return {"host": f"127.0.0.1:{emulator.port}", **{name.lower(): value for name, value in request.headers.items()}}


class _FixedPayload(S3SigV4Auth):
    """The SDK's signer, told what the payload's hash is."""

    def __init__(self, payload_hash: str, *args: Any) -> None:
        super().__init__(*args)
        self._payload_hash = payload_hash

    def payload(self, request: AWSRequest) -> str:
        return self._payload_hash


@contextmanager
def connection(emulator: S3Emulator) -> Iterator[HTTPConnection]:
    """Open a bare connection."""
    if emulator.ca_bundle is None:
        opened = HTTPConnection("127.0.0.1", emulator.port, timeout=10)
    else:
        context = create_default_context(cafile=str(emulator.ca_bundle))
        opened = HTTPSConnection("127.0.0.1", emulator.port, timeout=10, context=context)
    try:
        yield opened
    finally:
        opened.close()


def send(
    emulator: S3Emulator, method: str, target: str, headers: Mapping[str, str], body: bytes | Iterator[bytes] = b""
) -> Reply:
    """Send a request as it is; the headers have to be complete."""
    with connection(emulator) as opened:
        opened.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            opened.putheader(name, value)
        if isinstance(body, bytes) and not {"transfer-encoding", "content-length"} & headers.keys():
            opened.putheader("Content-Length", str(len(body)))
        opened.endheaders()
        for piece in [body] if isinstance(body, bytes) else body:
            opened.send(piece)
        answer = opened.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(status=answer.status, headers=found, body=answer.read())


def put_raw(
    emulator: S3Emulator,
    key: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    payload_hash: str = "UNSIGNED-PAYLOAD",
) -> Reply:
    """PUT an object with any headers, rightly signed."""
    target = f"/{BUCKET}/{key}"
    return send(emulator, "PUT", target, signed_headers(emulator, "PUT", target, headers or {}, payload_hash), body)


def settled(emulator: S3Emulator, count: int) -> list[Request]:
    """Wait until the emulator has noted ``count`` requests; a client that hung up is not told when."""
    clock = SystemClock()
    deadline = clock.monotonic() + 10
    while len(emulator.requests) < count and clock.monotonic() < deadline:
        clock.wait(0.01)
    return emulator.requests


def resolve_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every name under ``.localhost`` lead to 127.0.0.1, as most systems do by themselves."""

    def resolve(host: Any, *args: Any, **fields: Any) -> Any:
        return _RESOLVE("127.0.0.1" if str(host).endswith(".localhost") else host, *args, **fields)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def code_of(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    """Return status and code of a refusal."""
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


@contextmanager
def refused(status: int, code: str, emulator: S3Emulator) -> Iterator[pytest.ExceptionInfo[ClientError]]:
    """Expect a refusal that changed nothing."""
    before = (dict(emulator.objects()), emulator.uploads(), emulator.footprint())
    with pytest.raises(ClientError) as caught:
        yield caught
    assert code_of(caught) == (status, code)
    assert (dict(emulator.objects()), emulator.uploads(), emulator.footprint()) == before
