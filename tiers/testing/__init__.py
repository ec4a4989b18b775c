"""For authors and users of tiers: the conformance suite, and doubles that have bad days.

:class:`TierConformance` checks every MUST of :mod:`tiers.protocol`; a backend's whole
test is a subclass with one fixture.  :class:`FaultyTier` makes chosen requests fail,
:mod:`tiers.testing.broken` holds tiers that are wrong on purpose, to test the suite,
and :class:`ManualClock` is time that a test owns.  Needs pytest.
"""

import pytest

pytest.register_assert_rewrite(
    "tiers.testing.base",
    "tiers.testing.listings",
    "tiers.testing.objects",
    "tiers.testing.uploads",
)

from tiers.testing.base import RawStore, TierFactory, content, read_all, upload_all  # noqa: E402 - rewriting comes first
from tiers.testing.conformance import TierConformance  # noqa: E402
from tiers.testing.faulty import Action, Fault, FaultyTier, Fired, When  # noqa: E402
from tiers.testing.manual_clock import ManualClock  # noqa: E402
from tiers.testing.passthrough import PassThroughTier  # noqa: E402

__all__ = [
    "Action",
    "Fault",
    "FaultyTier",
    "Fired",
    "ManualClock",
    "PassThroughTier",
    "RawStore",
    "TierConformance",
    "TierFactory",
    "When",
    "content",
    "read_all",
    "upload_all",
]
