"""The Hub tier is a tier, on an emulator that was built from the requests of the Hub's own library."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hub.client import CLASSIC_LFS_WARNING
from support.hub_tiers import HubSite, RawHub, hub_site

from tiers.testing import TierConformance, TierFactory

pytestmark = pytest.mark.filterwarnings(CLASSIC_LFS_WARNING)  # the library's own upload, which RawHub makes


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HubSite]:
    with hub_site(tmp_path / "hf-home") as found:
        yield found


class TestHub(TierConformance):
    """As it is without a probe: nothing is attested."""

    @pytest.fixture
    def tier_factory(self, site: HubSite) -> TierFactory:
        return site.open

    @pytest.fixture
    def raw(self, site: HubSite) -> RawHub:
        return RawHub(site)


class TestHubWithoutPrefix(TierConformance):
    """The root of the repo, where the Hub has a file of its own; a probe found that digests are checked."""

    @pytest.fixture
    def tier_factory(self, site: HubSite) -> TierFactory:
        return lambda: site.open("", checked=True)
