"""Provider profiles: found by host, named by the user, conservative where nothing is known."""

import re
from dataclasses import fields
from datetime import date

import pytest

from tiers.probing.facts import ProbeFacts
from tiers.profiles import (
    ARCHIVE_CLASSES,
    GENERIC,
    MIB,
    PROFILES,
    Checksum,
    Create,
    Evidence,
    Profile,
    choose_profile,
    corrected,
    is_loopback,
)
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
        ("https://fly.storage.tigris.dev", "tigris", "auto"),
        ("https://t3.storage.dev", "tigris", "auto"),
        ("https://fsn1.your-objectstorage.com", "hetzner", "fsn1"),
        ("https://s3.fr-par.scw.cloud", "scaleway", "fr-par"),
        ("https://fra1.digitaloceanspaces.com", "digitalocean", "fra1"),
        ("https://s3.hf.co/some-namespace", "hf-s3", "us-east-1"),
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
    assert 5 * MIB <= known.min_part <= known.max_part <= known.max_object
    assert (known.verification is Verification.STORE_SHA256) == known.checks_sha256
    assert known.checks_sha256 or not known.copy_part, "a copy is proved by the SHA-256 that the store returns"
    assert (known.fencing is Fencing.CAS) == (known.create is Create.IF_NONE_MATCH)
    assert known.complete_timeout >= known.read_timeout
    assert not known.storage_classes & ARCHIVE_CLASSES


@pytest.mark.parametrize("name", PROFILES)
def test_every_value_that_is_not_the_conservative_one_has_its_evidence(name: str) -> None:
    known = PROFILES[name]
    exempt = {"name", "facts"}
    differs = {f.name for f in fields(Profile) if getattr(known, f.name) != getattr(GENERIC, f.name)} - exempt
    explained = [field for fact in known.facts for field in fact.fields]
    assert sorted(explained) == sorted(set(explained)), "one fact a field"
    assert set(explained) == differs
    for fact in known.facts:
        assert fact.source
        assert date.fromisoformat(fact.as_of)
        assert fact.kind is not Evidence.PROBED or re.match(r"\d+\.\d+", fact.source), "what was probed has a version"


def test_facts_are_found_by_field() -> None:
    fact = PROFILES["r2"].fact("write_interval")
    assert fact is not None
    assert (fact.kind, fact.as_of) == (Evidence.DOCUMENTED, "2026-11-29")
    assert PROFILES["r2"].fact("min_part") is None


def test_a_probe_that_found_nothing_changes_nothing() -> None:
    for known in PROFILES.values():
        assert corrected(known, None) == known
        assert corrected(known, ProbeFacts()) == known


def test_a_probe_makes_an_unknown_store_as_good_as_it_is() -> None:
    found = ProbeFacts(fencing=Fencing.CAS, checks_sha256=True, copy_part=True, sorted_listing=True)
    better = corrected(GENERIC, found)
    assert (better.fencing, better.verification) == (Fencing.CAS, Verification.STORE_SHA256)
    assert better.checks_sha256
    assert better.copy_part
    assert better.sorted_listing
    assert better.max_parts == GENERIC.max_parts


def test_a_probe_that_contradicts_a_profile_wins() -> None:
    found = ProbeFacts(fencing=Fencing.ADVISORY, checks_sha256=False, verification=Verification.MD5_ETAG)
    worse = corrected(PROFILES["aws"], found)
    assert (worse.fencing, worse.create) == (Fencing.ADVISORY, Create.BOTH)
    assert (worse.verification, worse.checksum) == (Verification.MD5_ETAG, Checksum.SIGNED_PAYLOAD)
    assert not worse.copy_part, "without a digest no copy is proved"
    assert corrected(PROFILES["aws"], ProbeFacts(checks_sha256=False)).verification is Verification.READ_BACK


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "s3.localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "10.0.0.1", "0.0.0.0", "example.org", "127.0.0.1.example.org", "localhost.example"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
