"""The S3 tier is a tier, on a production server and on moto."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, cast

import pytest
from support.moto_server import MotoServer
from support.s3_tiers import RawS3, s3_tier
from support.seaweed import SeaweedServer

from tiers.testing import TierConformance, TierFactory
from tiers.testing.listings import ListingChecks
from tiers.testing.objects import ObjectChecks

PAGE = 7
Check = Callable[..., None]


def weakness(reason: str, check: Check) -> Check:
    """Mark a check that this store is known to fail; one that begins to pass fails."""

    @wraps(check)
    def known(*args: Any, **fixtures: Any) -> None:
        check(*args, **fixtures)

    return cast("Check", pytest.mark.xfail(reason=reason, strict=True)(known))


class TestSeaweedFS(TierConformance):
    @pytest.fixture
    def tier_factory(self, seaweed: SeaweedServer, prefix: str) -> TierFactory:
        return lambda: s3_tier(seaweed.endpoint_url, prefix, page_size=PAGE)

    @pytest.fixture
    def raw(self, seaweed: SeaweedServer, prefix: str) -> Iterator[RawS3]:
        store = RawS3(seaweed.endpoint_url, prefix)
        yield store
        store.close()


class TestSeaweedFSBySdk(TestSeaweedFS):
    """The SDK sends and receives everything: what the direct way is checked against, and falls back to."""

    @pytest.fixture
    def tier_factory(self, seaweed: SeaweedServer, prefix: str) -> TierFactory:
        return lambda: s3_tier(seaweed.endpoint_url, prefix, page_size=PAGE, by_sdk=True)


class TestMoto(TierConformance):
    """Credulous about bytes, so its profile trusts nothing but ETags."""

    test_complete_ends_the_upload = weakness("answers 500", TierConformance.test_complete_ends_the_upload)
    test_abort_frees_and_repeats = weakness("answers 500", TierConformance.test_abort_frees_and_repeats)

    @pytest.fixture
    def tier_factory(self, moto: MotoServer, prefix: str) -> TierFactory:
        return lambda: s3_tier(moto.endpoint_url, prefix, profile="moto", page_size=PAGE)

    @pytest.fixture
    def raw(self, moto: MotoServer, prefix: str) -> Iterator[RawS3]:
        store = RawS3(moto.endpoint_url, prefix)
        yield store
        store.close()


class TestGeneric(ObjectChecks, ListingChecks):
    """What a store gets that nobody has looked at: advisory creates, whole listings.  Its parts are moto's."""

    @pytest.fixture
    def tier_factory(self, moto: MotoServer, prefix: str) -> TierFactory:
        return lambda: s3_tier(moto.endpoint_url, prefix, profile="generic-s3", page_size=PAGE)
