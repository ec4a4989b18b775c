"""Cases of listings: many ranks at once, and answers that somebody remembered for too long."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from flows.kinds import Running
from flows.machines import REMOTE, Machine, Place, payload
from support.commits import tree

from replicate.errors import Fenced
from replicate.logbook import Logbook
from replicate.restore import Outcome
from tiers.bodies import BytesBody
from tiers.errors import ObjectNotFound, TierUnavailable
from tiers.protocol import Key, ObjectPage, Tier, walk
from tiers.testing.passthrough import PassThroughTier

Make = Callable[..., Machine]
RANKS = 64
SLOTS = 3
"""Log entries of two generations: a claim and two commits."""


class SlowsDown(PassThroughTier):
    """Refuses the first listing of each rank, as a store does that is asked by all at a time."""

    refused = False

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """List, or say that it is too much."""
        if not self.refused:
            self.refused = True
            raise TierUnavailable("SlowDown", tier=self.name, operation="list_objects", key=prefix, retry_after=0.01)
        return self.inner.list_objects(prefix, token)


def test_c59_many_ranks_restore_at_once_with_one_listing_each_at_most(memory: Place, machine: Make) -> None:
    """However many objects and generations there are, and while the store refuses the first listing of each."""
    one = machine("one", memory)
    many = {f"rank-{number:05d}.bin": b"%d" % number for number in range(RANKS)}
    one.publish(100)
    made = one.publish(200, many)
    assert one.replicate().exit_code == 0
    ranks = [machine(f"rank-{number}", memory) for number in range(RANKS)]
    memory.hook = SlowsDown
    before = memory.meter.snapshot()

    def restore(number: int) -> set[str]:
        own = f"rank-{number:05d}.bin"
        ranks[number].restore(to=ranks[number].folder / "out", paths=(own,))
        return set(tree(ranks[number].folder / "out"))

    with ThreadPoolExecutor(RANKS) as pool:
        restored = list(pool.map(restore, range(RANKS)))
    assert restored == [{f"rank-{number:05d}.bin"} for number in range(RANKS)]
    asked = memory.meter.snapshot() - before
    assert asked.count("list_objects") == RANKS
    small = {"head": 1, "entries": SLOTS, "end": 1, "manifest": 1}
    assert asked.count("open") == RANKS * (sum(small.values()) + 1), "and the one file that each needs"
    assert memory.live()[0] == made


def test_c59_ranks_that_share_a_store_fetch_once(memory: Place, machine: Make) -> None:
    """One of them restores; those that come meanwhile are told so, and find it there when they ask again."""
    one = machine("one", memory)
    (made,) = one.push(100)
    node = machine("node", memory)
    before = memory.meter.snapshot()

    def restore(_rank: int) -> str:
        try:
            return node.restore(if_absent=True).outcome
        except Fenced as error:
            return error.message

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(restore, range(8)))
    assert outcomes.count(Outcome.RESTORE) == 1
    told = set(outcomes) - {Outcome.RESTORE, Outcome.ALREADY_HERE}
    assert all(words.startswith("another restore into this place is under way") for words in told)
    assert [restore(rank) for rank in range(8)] == [Outcome.ALREADY_HERE] * 8
    assert node.resumed().id == made
    asked = memory.meter.snapshot() - before
    assert asked.count("list_objects") <= 16
    sealed = sum(map(len, payload(100).values()))
    assert sealed <= asked.bytes_down < sealed + 16 * 8 * 1024, "the data once; the log each time"


CACHING = ["fsspec-memory", "fsspec-local", "fsspec-s3fs", "fsspec-webdav", "s3-seaweedfs", "volume"]


@pytest.mark.parametrize("kind", CACHING, indirect=True)
def test_c64_an_open_tier_always_sees_what_another_has_done(kind: Running, machine: Make) -> None:
    """No listing, size or existence is answered from what was seen before; two connections that stay open."""
    place = kind.place()
    one = machine("one", place)
    (first,) = one.push(100)
    with place.raw() as old, place.raw() as other:
        seen = Logbook(old, REMOTE).read(thorough=True)
        assert [commit.id for commit in seen.live] == [first]
        keys = {str(info.key) for info in walk(old, "flow/")}
        (second,) = one.push(200)
        again = Logbook(old, REMOTE).read(seen)
        assert [commit.id for commit in again.live] == [second, first]
        assert [commit.id for commit in Logbook(old, REMOTE).read(thorough=True).live] == [second, first]
        added = {str(info.key) for info in walk(old, "flow/")} - keys
        assert {key.rpartition("/")[2] for key in added} >= {"manifest.json", "model.bin"}
        check_changes_are_seen(old, other, Key(next(key for key in keys if key.endswith("/model.bin"))))


def check_changes_are_seen(old: Tier, other: Tier, key: Key) -> None:
    """Let another connection replace and remove an object that this one has looked at in every way."""
    size = old.stat(key).size
    with old.open(key) as stream:
        assert len(stream.read()) == size
    other.delete(key)
    with pytest.raises(ObjectNotFound):
        old.stat(key)
    with pytest.raises(ObjectNotFound):
        old.open(key)
    assert key not in {info.key for info in walk(old, "flow/")}
    other.put(key, BytesBody(b"other bytes"))
    assert old.stat(key).size == len(b"other bytes")
    with old.open(key) as stream:
        assert stream.read() == b"other bytes"
    assert {info.key: info.size for info in walk(old, "flow/")}[key] == len(b"other bytes")
