"""How the SDK's client is set up: one attempt, no hidden hashing, no secrets in its logs."""

import logging
import os
import re
import ssl
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tiers.checks import key_components
from tiers.profiles import Profile, is_loopback
from tiers.s3_sdk import Config, new_session
from tiers.s3_wire import watch

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,62}")
DEFAULT_REGION = "us-east-1"
CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to be made."""
SOCKET_SLACK = 2.0
"""Sockets wait this many times longer than the watchdog, which tells in words what it ends."""


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """Split ``s3://bucket/prefix``; ValueError where it is something else."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
        raise ValueError("the URL must be s3://bucket or s3://bucket/prefix")
    prefix = parts.path.strip("/")
    if prefix:
        key_components(prefix)
    return parts.netloc, prefix


def resolve_endpoint(endpoint_url: str | None, *, allow_insecure: bool) -> str | None:
    """Return the endpoint to use, or None for AWS; ValueError where it may not be used.

    The SDK's own variables are honoured, but by us, so that they pass the same checks.
    Plain http is refused beyond this machine: bodies and session tokens would be readable.
    """
    for source in (endpoint_url, os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")):
        if source:
            break
    else:
        return None
    parts = urlsplit(source)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("endpoint_url must be http(s)://host[:port]")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("endpoint_url must not carry credentials, a query or a fragment")
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname):
        raise ValueError(f"plain http to {parts.hostname} is refused: use https, or set allow_insecure")
    return source


def check_certificates(ca_bundle: str | None) -> None:
    """ValueError where the file of certificates, given or from the environment, cannot be used."""
    named = ca_bundle or os.environ.get("AWS_CA_BUNDLE")
    if not named:
        return
    source = "ca_bundle" if ca_bundle else "AWS_CA_BUNDLE"
    try:
        ssl.create_default_context(cafile=named)
    except FileNotFoundError:
        raise ValueError(f"{source} names {named}, which does not exist") from None
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"{source} names {named}, which holds no certificates in PEM: {error}") from None


def credentials_of(client: "S3Client") -> Any:
    """Return what a client signs with at this moment, refreshed where that is due; None for an anonymous one.

    Hazard: the SDK has no public place for this; a version that moves it raises AttributeError.
    """
    held: Any = client._request_signer._credentials  # type: ignore[attr-defined]  # noqa: SLF001 - see the docstring
    return held.get_frozen_credentials() if held is not None else None


def identity_of(client: "S3Client") -> tuple[str, str, str | None] | None:
    """Return the same, to be compared and never shown."""
    frozen = credentials_of(client)
    return (frozen.access_key, frozen.secret_key, frozen.token) if frozen is not None else None


def build_client(
    profile: Profile,
    endpoint_url: str | None,
    region: str | None,
    connections: int,
    *,
    ca_bundle: str | None = None,
    timeout_seconds: float | None = None,
) -> "S3Client":
    """Build a client; it may be shared by threads, the session that it comes from may not.

    ``ca_bundle`` is a file of certificates in place of the SDK's own.
    """
    _silence_the_sdk()
    stall = timeout_seconds or profile.read_timeout
    config = Config(
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",
        s3={"payload_signing_enabled": profile.sign_payload, "addressing_style": profile.addressing},
        max_pool_connections=connections,
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=SOCKET_SLACK * max(stall, profile.complete_timeout),
        tcp_keepalive=True,
        ignore_configured_endpoint_urls=True,  # type: ignore[call-arg]  # the stubs do not know it
        user_agent_extra=f"ckptier/{_version()}",
    )
    session = new_session()
    client = session.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=region or profile.region or session.region_name or DEFAULT_REGION,
        config=config,
        verify=ca_bundle,
    )
    watch(client, SOCKET_SLACK * stall)
    # Registered after the SDK's own handler, so that it has the last word.
    client.meta.events.register("before-parameter-build.s3", _one_attempt)
    return client


def _one_attempt(context: dict[str, Any], **_: object) -> None:
    # A redirect to another region would be followed and the body sent again, whatever `retries` says.
    # "Already redirected" turns that off, and the answer becomes an error that names the remedy.
    context.setdefault("s3_redirect", {})["redirected"] = True


def _silence_the_sdk() -> None:
    # At DEBUG botocore logs requests with their headers, and with them session tokens.  A level that
    # somebody set on purpose is left alone; a verbose root logger is not that.
    logger = logging.getLogger("botocore")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def _version() -> str:
    try:
        return metadata.version("ckptier")
    except metadata.PackageNotFoundError:
        return "unknown"
