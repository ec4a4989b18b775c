"""Emulated stores and the tiers that are opened on them."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY

from tiers.clock import Clock, SystemClock
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Tier
from tiers.retrying import RetryPolicy
from tiers.testing.s3_emulator import Behaviour, Credentials, S3Emulator

SMALL = 64 << 10
"""Bytes of the smallest part where the emulator is told so: what is tested are rules, not memory."""


@contextmanager
def emulated(behaviour: Behaviour, *, tls: bool = False, clock: Clock | None = None) -> Iterator[S3Emulator]:
    """Run a store that knows the test's credentials; with ``tls`` the SDK trusts it meanwhile."""
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with (
        S3Emulator(behaviour, buckets=(BUCKET,), credentials=[known], tls=tls, clock=clock) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        if emulator.ca_bundle is not None:
            patch.setenv("AWS_CA_BUNDLE", str(emulator.ca_bundle))
        yield emulator


def spec_for(emulator: S3Emulator, profile: str | None, *, attempts: int = 1) -> TierSpec:
    """Describe a tier on it."""
    behaviour = emulator.behaviour
    return TierSpec(
        name="store",
        url=f"s3://{BUCKET}/root",
        endpoint_url=emulator.endpoint_url,
        profile=profile,
        region=behaviour.location if behaviour.regions is not None else None,
        retry=RetryPolicy(attempts=attempts, base=0.0, cap=0.0),
    )


@contextmanager
def opened(emulator: S3Emulator, profile: str | None, *, attempts: int = 1) -> Iterator[Tier]:
    """Open a tier on it, with the whole stack."""
    tier = open_tier(spec_for(emulator, profile, attempts=attempts), clock=SystemClock())
    yield tier
    tier.close()


class Unhurried(SystemClock):
    """A store's clock by which a minute passes between any two looks: no write comes too soon after another."""

    def __init__(self) -> None:
        self._minutes = itertools.count()

    def monotonic(self) -> float:
        """Seconds, of which no two are near each other."""
        return 60.0 * next(self._minutes)


class Hurried(SystemClock):
    """A store's clock by which no time passes between any two looks: every second write to a key comes too soon."""

    def monotonic(self) -> float:
        """Seconds, always the same."""
        return 1.0


def scaled(behaviour: Behaviour) -> Behaviour:
    """Return the behaviour with small parts."""
    return replace(behaviour, min_part=SMALL)
