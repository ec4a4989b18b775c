"""How an S3 tier is opened: what is refused before any request, and how the SDK is set up."""

import http.server
import logging
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import botocore.compat
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.s3_tiers import s3_tier

from tiers.errors import AccessDenied
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import PROFILES, choose_profile
from tiers.protocol import Fencing, Key
from tiers.s3 import open_s3
from tiers.s3_client import build_client

URL = "s3://bucket/some/prefix"


@pytest.fixture
def self_signed(tmp_path: Path) -> Iterator[str]:
    """Run a TLS server whose certificate nobody vouches for; its URL."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    day = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"https://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def spec(url: str = URL, **fields: object) -> TierSpec:
    return TierSpec(name="r2", url=url, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3://ab", "s3:///prefix", "s3://user@bucket", "s3://bucket?x=1", "s3://bucket/a b", "s3://bucket/../x"],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(BadTierUrl, match="tier r2: "):
        open_s3(spec(url))


@pytest.mark.parametrize(
    "endpoint_url",
    ["store.example", "ftp://store.example", "http://store.example", "https://", "https://store.example?x=1"],
)
def test_bad_endpoints(endpoint_url: str) -> None:
    with pytest.raises(BadTierUrl):
        open_s3(spec(endpoint_url=endpoint_url))


def test_credentials_in_an_endpoint_are_refused_and_not_repeated() -> None:
    with pytest.raises(BadTierUrl) as caught:
        open_s3(spec(endpoint_url="https://canary-user:canary-password@store.example"))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_from_the_environment_passes_the_same_checks(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://store.example")
    with pytest.raises(BadTierUrl, match=r"plain http to store\.example is refused"):
        open_s3(spec())
    monkeypatch.setenv(variable, "https://0123abcd.r2.cloudflarestorage.com")
    assert open_s3(spec()).capabilities == PROFILES["r2"].capabilities


def test_plain_http_where_it_may_be() -> None:
    for fields in (
        {"endpoint_url": "http://127.0.0.1:1"},
        {"endpoint_url": "http://nas.example", "allow_insecure": True},
    ):
        assert open_s3(spec(**fields)).capabilities.fencing is Fencing.ADVISORY


def test_opening_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the store nor the credentials are looked at before the first request."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    tier = open_s3(spec(endpoint_url="https://127.0.0.1:1", profile="seaweedfs"))
    assert (tier.name, tier.capabilities) == ("r2", PROFILES["seaweedfs"].capabilities)
    tier.close()
    tier.close()


def test_an_unknown_profile() -> None:
    with pytest.raises(BadTierUrl, match="unknown profile 'r3'; known: aws"):
        open_s3(spec(profile="r3"))


def test_how_the_sdk_is_set_up() -> None:
    client = build_client(choose_profile("r2", None), "https://127.0.0.1:1", None, 5)
    config = client.meta.config
    assert config.retries["total_max_attempts"] == 1  # type: ignore[attr-defined]
    assert config.request_checksum_calculation == "when_required"  # type: ignore[attr-defined]
    assert config.response_checksum_validation == "when_required"  # type: ignore[attr-defined]
    assert (client.meta.region_name, config.max_pool_connections) == ("auto", 5)  # type: ignore[attr-defined]
    assert not botocore.compat.HAS_CRT, "awscrt signs in small callbacks; it must not be used by accident"
    client.close()


@pytest.mark.parametrize(
    ("endpoint_url", "given", "environment", "used"),
    [
        (None, None, None, "us-east-1"),
        (None, None, "eu-central-1", "eu-central-1"),
        (None, "eu-west-1", "eu-central-1", "eu-west-1"),
        ("https://0123abcd.r2.cloudflarestorage.com", None, "eu-central-1", "auto"),
        ("https://0123abcd.r2.cloudflarestorage.com", "weur", "eu-central-1", "weur"),
        ("https://s3api-eu-ro-1.runpod.io", None, "eu-central-1", "eu-ro-1"),
        ("https://store.example", None, "fsn1", "fsn1"),
    ],
)
def test_which_region_is_signed_for(
    monkeypatch: pytest.MonkeyPatch, endpoint_url: str | None, given: str | None, environment: str | None, used: str
) -> None:
    """A region that is set for AWS must not be sent to a store that has others."""
    if environment is not None:
        monkeypatch.setenv("AWS_DEFAULT_REGION", environment)
    client = build_client(choose_profile(None, endpoint_url), endpoint_url, given, 1)
    assert client.meta.region_name == used
    client.close()


def test_the_sdks_debug_log_is_off_unless_somebody_asked() -> None:
    logger = logging.getLogger("botocore")
    before = logger.level
    try:
        for level, after in ((logging.NOTSET, logging.INFO), (logging.DEBUG, logging.DEBUG)):
            logger.setLevel(level)
            build_client(PROFILES["r2"], "https://127.0.0.1:1", None, 1).close()
            assert logger.level == after
    finally:
        logger.setLevel(before)


def test_a_certificate_that_nobody_vouches_for(self_signed: str) -> None:
    tier = s3_tier(self_signed, "t")
    with pytest.raises(AccessDenied, match="SSLError") as caught:
        tier.stat(Key("a"))
    tier.close()
    assert "certificate" in caught.value.hint
