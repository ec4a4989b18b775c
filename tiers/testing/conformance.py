"""The suite that decides what is a tier."""

from tiers.testing.copies import CopyChecks
from tiers.testing.listings import ListingChecks
from tiers.testing.objects import ObjectChecks
from tiers.testing.uploads import UploadChecks


class TierConformance(ObjectChecks, ListingChecks, UploadChecks, CopyChecks):
    """Every MUST of :mod:`tiers.protocol` as a check.

    A backend turns it on with a subclass whose name starts with ``Test`` and one fixture::

        from collections.abc import Iterator
        from pathlib import Path

        import pytest

        from tiers.testing import TierConformance, TierFactory
        from tiers.volume import VolumeTier


        class TestVolume(TierConformance):
            @pytest.fixture
            def tier_factory(self, tmp_path: Path) -> TierFactory:
                return lambda: VolumeTier("volume", tmp_path)

    Within one test every call of the factory MUST open the same store, which is empty at
    first: the first call is the tier under test, later ones are "another machine" that
    resumes its uploads.  What the suite opens through it, it closes.  A shared server is
    emptied by giving each test a prefix of its own.

    Optional, by overriding:

    - fixture ``raw`` -> RawStore: reads and writes that bypass the code under test; the
      default goes through a second tier, which proves less.
    - fixture ``part_size`` -> int: bytes of a full part; the default is the smallest that
      the capabilities allow, at least 1,024.
    - ``listing_keys``: how many objects the paging checks make; set the page size of the
      store or of the tier below it, so that several pages are really seen.
    - ``racers``: threads in the checks of concurrency.

    No check skips itself: a tier whose capabilities exclude something is asked to refuse it
    with Unsupported, and one that does not check digests is asked not to attest them.
    """
