"""Checks of listings: complete, exact, ordered."""

from tiers.bodies import BytesBody
from tiers.protocol import Key, Tier, walk
from tiers.testing.base import ConformanceBase, TierFactory, race

ORDERED = tuple(
    Key(key)
    for key in (
        "order/%",
        "order/-",
        "order/.x",
        "order/0",
        "order/A",
        "order/_",
        "order/a%b",
        "order/a-b/c",
        "order/a.b",
        "order/a/b",
        "order/a/b.c/d",
        "order/a/b0",
        "order/a0",
        "order/aB",
        "order/ab/c",
        "order/~",
    )
)
"""In order of bytes: ``-`` and ``.`` sort before ``/``, digits and letters after it."""


def listed(tier: Tier, prefix: str) -> list[str]:
    """Return the keys of a whole listing."""
    return [info.key for info in walk(tier, prefix)]


class ListingChecks(ConformanceBase):
    """list_objects."""

    def test_list_of_nothing(self, tier: Tier) -> None:
        """An empty store answers with an empty page, not with an error."""
        page = tier.list_objects("")
        assert (page.objects, page.next_token) == ((), None)
        assert listed(tier, "no/such/prefix") == []

    def test_list_is_complete_over_pages(self, tier: Tier) -> None:
        """Every key comes exactly once, over as many pages as it takes; a lost page looks like lost data."""
        keys = [Key(f"pages/{number % 5}/{number:04d}") for number in range(self.listing_keys)]
        for key in keys:
            tier.put(key, BytesBody(key.encode()))
        infos = list(walk(tier, "pages/"))
        assert [info.key for info in infos] == sorted(keys)
        assert {info.size for info in infos} == {len(keys[0])}

    def test_list_is_in_byte_order(self, tier: Tier) -> None:
        """Keys ascend by their bytes, across folders and pages."""
        for key in reversed(ORDERED):
            tier.put(key, BytesBody(b""))
        assert list(ORDERED) == sorted(ORDERED, key=str.encode)
        assert listed(tier, "order/") == list(ORDERED)
        assert listed(tier, "") == list(ORDERED)

    def test_list_by_plain_prefix(self, tier: Tier) -> None:
        """A prefix is a string, not a folder, and no pattern."""
        keys = [Key(k) for k in ("p/a", "p/ab", "p/a/1", "p/a.b", "pa", "q/a")]
        for key in (k for k in keys if k != "p/a"):  # p/a and p/a/1 cannot both be on a volume
            tier.put(key, BytesBody(b"x"))
        assert listed(tier, "p/a") == ["p/a.b", "p/a/1", "p/ab"]
        assert listed(tier, "p/a/") == ["p/a/1"]
        assert listed(tier, "p/a/1") == ["p/a/1"]
        assert listed(tier, "p/") == ["p/a.b", "p/a/1", "p/ab"]
        assert listed(tier, "p") == ["p/a.b", "p/a/1", "p/ab", "pa"]
        for prefix in ("p/a/1/", "p/*", "P", "/p", "./p", "p//", "p/../q"):
            assert listed(tier, prefix) == [], prefix

    def test_list_describes_as_stat_does(self, tier: Tier) -> None:
        """What a listing says of an object, stat says too, where both say it."""
        tier.put(Key("same/a"), BytesBody(b"12345"))
        (info,) = walk(tier, "same/")
        stat = tier.stat(Key("same/a"))
        assert (info.key, info.size) == (stat.key, stat.size)
        assert info.etag in (None, stat.etag)
        assert info.sha256 in (None, stat.sha256)

    def test_list_sees_every_change(self, tier: Tier, open_another: TierFactory) -> None:
        """A put or create that returned is listed, from another machine too; a deleted key is not."""
        other = open_another()
        for number in range(5):
            tier.put(Key(f"seen/{number}"), BytesBody(b"x"))
            assert listed(other, "seen/") == [f"seen/{n}" for n in range(number + 1)]
        tier.create(Key("seen/5"), b"x")
        tier.delete(Key("seen/0"))
        assert listed(other, "seen/") == [f"seen/{n}" for n in range(1, 6)]

    def test_list_while_others_write(self, tier: Tier) -> None:
        """Keys that stood before a listing began are all in it, whatever else goes on."""
        settled = [Key(f"busy/{number:02d}") for number in range(self.listing_keys)]
        for key in settled:
            tier.put(key, BytesBody(b"x"))

        def act(number: int) -> list[str]:
            if number % 2:
                for round_number in range(5):
                    key = Key(f"busy/{number:02d}-{round_number}/new")
                    tier.put(key, BytesBody(b"y"))
                    tier.delete(key)
                return []
            return [key for key in listed(tier, "busy/") if "new" not in key]

        results = race(self.racers, act)
        assert results[0::2] == [settled] * len(results[0::2])
        assert results[1::2] == [[]] * len(results[1::2])
