"""Provider profiles: found by host, named by the user, conservative where nothing is known."""

from datetime import date

import pytest

from tiers.profiles import GENERIC, MIB, PROFILES, choose_profile, is_loopback
from tiers.protocol import Fencing, Verification


@pytest.mark.parametrize(
    ("endpoint_url", "profile", "region"),
    [
        (None, "aws", None),
        ("https://s3.amazonaws.com", "aws", None),
        ("https://s3.eu-central-1.amazonaws.com", "aws", "eu-central-1"),
        ("https://s3.dualstack.us-west-2.amazonaws.com", "aws", "us-west-2"),
        ("https://s3.cn-north-1.amazonaws.com.cn", "aws", "cn-north-1"),
        ("https://0123abcd.r2.cloudflarestorage.com", "r2", "auto"),
        ("https://0123abcd.eu.r2.cloudflarestorage.com", "r2", "auto"),
        ("https://storage.googleapis.com", "gcs", "auto"),
        ("https://s3.us-west-004.backblazeb2.com", "b2", "us-west-004"),
        ("https://s3api-eu-ro-1.runpod.io", "runpod", "eu-ro-1"),
        ("https://objects.example.org", "generic-s3", None),
        ("https://s3.amazonaws.com.evil.example", "generic-s3", None),
        ("http://127.0.0.1:9000", "generic-s3", None),
        ("http://localhost:8333", "generic-s3", None),
    ],
)
def test_detection(endpoint_url: str | None, profile: str, region: str | None) -> None:
    found = choose_profile(None, endpoint_url)
    assert (found.name, found.region) == (profile, region)


def test_a_name_overrides_the_host() -> None:
    assert choose_profile("seaweedfs", "http://127.0.0.1:8333").name == "seaweedfs"
    assert choose_profile("r2", "https://s3.eu-central-1.amazonaws.com").region == "auto"


def test_a_named_profile_still_learns_its_region_from_the_host() -> None:
    assert choose_profile("b2", "https://s3.eu-central-003.backblazeb2.com").region == "eu-central-003"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown profile 'r3'; known: aws, b2, .*seaweedfs"):
        choose_profile("r3", None)


def test_what_is_unknown_is_not_trusted() -> None:
    assert GENERIC.capabilities.fencing is Fencing.ADVISORY
    assert GENERIC.capabilities.verification is Verification.READ_BACK
    assert not GENERIC.checks_sha256
    assert not GENERIC.capabilities.copy_part


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_consistent(name: str) -> None:
    known = PROFILES[name]
    assert known.name == name
    assert known.evidence
    assert date.fromisoformat(known.as_of)
    assert 5 * MIB <= known.min_part <= known.max_part <= known.max_object
    assert (known.verification is Verification.STORE_SHA256) == known.checks_sha256
    assert known.checks_sha256 or not known.copy_part, "a copy is proved by the SHA-256 that the store returns"
    assert known.conditional_put or known.fencing is Fencing.ADVISORY


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "s3.localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "10.0.0.1", "0.0.0.0", "example.org", "127.0.0.1.example.org", "localhost.example"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
