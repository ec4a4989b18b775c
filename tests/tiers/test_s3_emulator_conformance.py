"""The S3 tier is a tier on every dialect that the emulator speaks, in the clear and over TLS, by either way."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from support.provider_stores import Unhurried
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY

from tiers.profiles import PROFILES, Profile
from tiers.protocol import Key
from tiers.s3 import S3Tier
from tiers.s3_client import build_client
from tiers.s3_direct import direct
from tiers.testing import RawStore, TierConformance, TierFactory, content, upload_all
from tiers.testing.s3_emulator import (
    AWS,
    B2,
    CEPH_RGW,
    GCS_INTEROP,
    GENERIC,
    R2,
    RUNPOD,
    SEAWEED,
    Behaviour,
    Credentials,
    S3Emulator,
)

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

PAGE = 7
SMALL_PART = 64 << 10
"""Bytes of the smallest part, in place of 5 MiB: what is tested are rules, not memory."""

_prefixes = itertools.count(1)
CASES = [
    pytest.param(
        (behaviour, tls, by_sdk), id=f"{behaviour.name}-{'https' if tls else 'http'}{'-sdk' if by_sdk else ''}"
    )
    for behaviour in (AWS, R2, CEPH_RGW, GCS_INTEROP, B2, RUNPOD, SEAWEED, GENERIC)
    for tls in (False, True)
    for by_sdk in (False, True)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """An emulator, the profile that goes with it, and a client; clients are slow to make, so it is shared."""

    emulator: S3Emulator
    profile: Profile
    client: "S3Client"

    def tier(self, prefix: str) -> S3Tier:
        return S3Tier(
            "store",
            bucket=BUCKET,
            prefix=prefix,
            profile=self.profile,
            connect=lambda: self.client,
            page_size=PAGE,
        )


@dataclass(frozen=True, slots=True)
class RawEmulated:
    """The bytes that the emulator holds."""

    emulator: S3Emulator
    prefix: str

    def get(self, key: str) -> bytes | None:
        return self.emulator.objects().get(f"{self.prefix}/{key}")

    def put(self, key: str, data: bytes) -> None:
        self.emulator.put(f"{self.prefix}/{key}", data)


@contextmanager
def open_store(behaviour: Behaviour, *, tls: bool, by_sdk: bool = False) -> Iterator[Store]:
    """Start an emulator, and a client as the tier makes it, for either way of its bodies."""
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    profile = PROFILES[behaviour.name]
    with (
        S3Emulator(behaviour, buckets=(BUCKET,), credentials=[known], tls=tls, clock=Unhurried()) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        if emulator.ca_bundle is not None:
            patch.setenv("AWS_CA_BUNDLE", str(emulator.ca_bundle))
        region = behaviour.location if behaviour.regions is not None else None
        built = build_client(profile, emulator.endpoint_url, region, 10)
        client = built if by_sdk else direct(built)
        yield Store(emulator=emulator, profile=profile, client=client)
        client.close()


def scaled(behaviour: Behaviour) -> Behaviour:
    return replace(behaviour, min_part=min(behaviour.min_part, SMALL_PART))


@pytest.fixture(scope="module", params=CASES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Run each dialect once, with small parts."""
    behaviour, tls, by_sdk = request.param
    with open_store(scaled(behaviour), tls=tls, by_sdk=by_sdk) as opened:
        profile = replace(opened.profile, min_part=SMALL_PART)
        yield replace(opened, profile=profile)


@pytest.fixture
def place() -> str:
    return f"t{next(_prefixes):05d}"


class TestDialects(TierConformance):
    listing_keys = 15
    racers = 4

    @pytest.fixture
    def tier_factory(self, store: Store, place: str) -> TierFactory:
        return lambda: store.tier(place)

    @pytest.fixture
    def raw(self, store: Store, place: str) -> RawStore:
        return RawEmulated(store.emulator, place)


@pytest.mark.parametrize("behaviour", [AWS, R2], ids=lambda behaviour: behaviour.name)
def test_parts_of_real_size(behaviour: Behaviour) -> None:
    with open_store(behaviour, tls=True) as opened:
        tier = opened.tier("real")
        size = PROFILES[behaviour.name].min_part
        data = content(2 * size + 1)
        assert upload_all(tier, Key("k"), data, size).size == len(data)
        assert opened.emulator.objects() == {"real/k": data}
        tier.close()
