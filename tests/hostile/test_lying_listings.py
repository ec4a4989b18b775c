"""Listings that show other keys than were asked for, show nothing at first, or begin again."""

import pytest
from support.commits import REMOTE, Writer, generation

from replicate.errors import IntegrityFailure
from replicate.gc import survey
from replicate.prune import delete_under
from tiers.bodies import BytesBody
from tiers.errors import TierUnavailable
from tiers.memory import MemoryTier
from tiers.protocol import Key, ObjectPage
from tiers.testing import PassThroughTier

PREFIX = "toy/generations/x/"


class Wide(PassThroughTier):
    """Does not look at the prefix."""

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        del prefix
        return self.inner.list_objects("", token)


class Late(PassThroughTier):
    """Shows nothing on its first page, as stores do that skip what was deleted."""

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        if token is None:
            return ObjectPage(objects=(), next_token="go on")
        return self.inner.list_objects(prefix, None)


class Circular(PassThroughTier):
    """Shows its first page for ever."""

    pages = 0

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        del token
        self.pages += 1
        assert self.pages < 10, "nobody noticed"
        return ObjectPage(objects=self.inner.list_objects(prefix, None).objects, next_token="again")


@pytest.fixture
def tier() -> MemoryTier:
    made = MemoryTier("m")
    made.put(Key("a/of/others"), BytesBody(b"1"))
    made.put(Key(f"{PREFIX}one"), BytesBody(b"1"))
    return made


def test_i9_what_lies_elsewhere_is_not_deleted(tier: MemoryTier) -> None:
    with pytest.raises(IntegrityFailure, match="a/of/others"):
        delete_under(Wide(tier), PREFIX, connections=1)
    assert tier.stat(Key("a/of/others")).size == 1


def test_nothing_is_called_swept_before_the_last_page(tier: MemoryTier) -> None:
    assert delete_under(Late(tier), PREFIX, connections=1) == 1
    assert not tier.list_objects(PREFIX).objects


def test_i14_a_listing_that_begins_again_is_given_up() -> None:
    tier = MemoryTier("m")
    Writer(tier).commit(generation(1))
    with pytest.raises(TierUnavailable, match="was listed before"):
        survey(Circular(tier), REMOTE)
