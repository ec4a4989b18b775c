"""Checks of whole objects: put, create, open, stat, delete, close."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import pytest

from tiers.bodies import Body, BytesBody
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Fencing, Key, ObjectInfo, Tier, Verification
from tiers.testing.base import ConformanceBase, RawStore, TierFactory, content, one_by_one, race, read_all

SIZES = (0, 1, 2, 255, 4_097, 70_001, 300_000)
ODD_KEYS = tuple(
    Key(key)
    for key in (
        "0",
        "a.b_c-d",
        "A/b/C",
        "a%2Fb/c%20d",
        "~" + "0f" * 32,
        "x/~tilde/-dash/_under/%25",
        "x/.hidden/file",
        "x/...",
        "x/trailing.",
        "n" * 200 + "/" + "m" * 200,
    )
)


@dataclass(frozen=True, slots=True)
class LyingBody:
    """A body whose size or digest is not that of its bytes."""

    data: bytes
    size: int
    sha256: str | None

    def open(self) -> BinaryIO:
        """Return a reader over the bytes."""
        return io.BytesIO(self.data)


def wrong_digest(size: int) -> Body:
    """Return a body of the right size that has the digest of other bytes."""
    return LyingBody(content(size, seed=1), size, hashlib.sha256(content(size, seed=2)).hexdigest())


def assert_missing(tier: Tier, key: Key) -> None:
    """Fail unless no verb sees the key."""
    with pytest.raises(ObjectNotFound):
        tier.stat(key)
    with pytest.raises(ObjectNotFound):
        tier.open(key)
    assert key not in [info.key for info in tier.list_objects(key).objects]


def assert_holds(tier: Tier, key: Key, data: bytes) -> None:
    """Fail unless the key holds exactly these bytes."""
    assert tier.stat(key).size == len(data)
    assert read_all(tier.open(key)) == data


class ObjectChecks(ConformanceBase):
    """put, create, open, stat, delete, close."""

    def test_put_round_trip(self, tier: Tier) -> None:
        """What was put comes back, byte for byte, at sizes around the usual borders."""
        for size in SIZES:
            key = Key(f"round/{size}")
            info = tier.put(key, BytesBody(content(size)))
            assert (info.key, info.size) == (key, size)
            assert_holds(tier, key, content(size))

    def test_put_stores_the_bytes_literally(self, tier: Tier, raw: RawStore) -> None:
        """The store holds the bytes under the key, and a reader sees what the store holds."""
        tier.put(Key("raw/a"), BytesBody(content(5_000)))
        assert raw.get("raw/a") == content(5_000)
        raw.put("raw/b", content(3_000, seed=1))
        assert_holds(tier, Key("raw/b"), content(3_000, seed=1))

    def test_put_and_stat_agree(self, tier: Tier) -> None:
        """Two descriptions of an object that nobody touched name the same object."""
        put = tier.put(Key("agree"), BytesBody(content(100)))
        stat = tier.stat(Key("agree"))
        assert (stat.key, stat.size) == (put.key, put.size)
        assert put.etag is None or put.etag == stat.etag
        assert stat.modified is None or stat.modified.tzinfo is not None

    def test_put_attests_no_digest_but_the_right_one(self, tier: Tier) -> None:
        """A digest in a reply is a proof for the caller: the right one, or none."""
        body = BytesBody(content(1_000))
        reply, stat = tier.put(Key("attested"), body).sha256, tier.stat(Key("attested")).sha256
        assert stat in (None, body.sha256)
        if tier.capabilities.verification is Verification.STORE_SHA256:
            assert reply == body.sha256, "a store that checks SHA-256 echoes it"
        else:
            assert reply in (None, body.sha256)

    def test_put_takes_a_body_without_digest(self, tier: Tier) -> None:
        """A caller that does not know the digest can still store the bytes."""
        tier.put(Key("plain"), LyingBody(b"abc", 3, None))
        assert_holds(tier, Key("plain"), b"abc")

    def test_put_of_wrong_bytes(self, tier: Tier) -> None:
        """A store that claims to check refuses bytes that are not the sealed ones; another does not vouch for them."""
        body = wrong_digest(2_000)
        try:
            info = tier.put(Key("wrong"), body)
        except IntegrityError:
            assert_missing(tier, Key("wrong"))
            return
        assert tier.capabilities.verification is not Verification.STORE_SHA256, "wrong bytes were accepted"
        for attested in (info.sha256, tier.stat(Key("wrong")).sha256):
            assert attested != body.sha256, "a digest was attested that nobody checked"

    def test_refused_put_keeps_what_is_there(self, tier: Tier) -> None:
        """A put that is refused does not damage the object under its key."""
        tier.put(Key("kept"), BytesBody(b"good"))
        with pytest.raises(IntegrityError):
            tier.put(Key("kept"), LyingBody(content(100), 2_000, None))
        assert_holds(tier, Key("kept"), b"good")

    @pytest.mark.parametrize("held", [1_999, 0], ids=["one-byte-short", "empty"])
    def test_put_of_a_short_body_stores_nothing(self, tier: Tier, held: int) -> None:
        """A body that ends before its declared size is never an object."""
        with pytest.raises(IntegrityError):
            tier.put(Key("short"), LyingBody(content(held), 2_000, None))
        assert_missing(tier, Key("short"))

    def test_put_is_safe_to_repeat(self, tier: Tier) -> None:
        """After a lost reply the same put is sent again."""
        for _ in range(3):
            tier.put(Key("again"), BytesBody(content(1_000)))
        assert_holds(tier, Key("again"), content(1_000))

    def test_keys_are_literal(self, tier: Tier) -> None:
        """Nothing is globbed, decoded, folded or normalised."""
        for number, key in enumerate(ODD_KEYS):
            tier.put(key, BytesBody(content(20, seed=number)))
        for number, key in enumerate(ODD_KEYS):
            assert_holds(tier, key, content(20, seed=number))

    def test_case_matters(self, tier: Tier) -> None:
        """Two keys that differ in case are two objects."""
        tier.put(Key("case/Name"), BytesBody(b"upper"))
        tier.put(Key("case/name"), BytesBody(b"lower"))
        assert_holds(tier, Key("case/Name"), b"upper")
        assert_holds(tier, Key("case/name"), b"lower")

    def test_concurrent_puts_and_reads(self, tier: Tier) -> None:
        """A tier is used from several threads at once."""

        def act(number: int) -> bytes:
            key = Key(f"threads/{number % 4}/{number}")
            tier.put(key, BytesBody(content(20_000, seed=number)))
            return read_all(tier.open(key))

        assert race(self.racers, act) == [content(20_000, seed=n) for n in range(self.racers)]

    def test_create_once(self, tier: Tier) -> None:
        """The second create is refused and changes nothing, with the same bytes or others."""
        created = tier.create(Key("log/1"), b"first")
        assert (created.key, created.size) == (Key("log/1"), 5)
        for data in (b"second, longer", b"first", b""):
            with pytest.raises(ObjectExists):
                tier.create(Key("log/1"), data)
            assert_holds(tier, Key("log/1"), b"first")

    def test_create_sees_what_put_stored(self, tier: Tier) -> None:
        """A key that was put is taken."""
        tier.put(Key("log/2"), BytesBody(b"put"))
        with pytest.raises(ObjectExists):
            tier.create(Key("log/2"), b"created")
        assert_holds(tier, Key("log/2"), b"put")

    def test_create_after_delete(self, tier: Tier) -> None:
        """A key that was deleted is free."""
        tier.create(Key("log/3"), b"old")
        tier.delete(Key("log/3"))
        tier.create(Key("log/3"), b"new")
        assert_holds(tier, Key("log/3"), b"new")

    def test_create_has_one_winner(self, tier: Tier, open_another: TierFactory) -> None:
        """Of racing creators exactly one returns, and its bytes stay; two writers in one log are the catastrophe."""
        tiers = [tier, *(open_another() for _ in range(self.racers - 1))]
        for round_number in range(3):
            key = Key(f"race/{round_number}")
            alone = tier.capabilities.fencing is Fencing.ADVISORY  # it promises no more than one after the other
            together = one_by_one if alone else race
            results = together(self.racers, partial(self._create, tiers, key))
            winners = [n for n, result in enumerate(results) if isinstance(result, ObjectInfo)]
            losers = [result for result in results if not isinstance(result, ObjectInfo)]
            assert len(winners) == 1, results
            assert all(isinstance(loser, ObjectExists | TierUnavailable) for loser in losers), losers
            assert_holds(tier, key, content(300, seed=winners[0]))
            with pytest.raises(ObjectExists):  # once nothing is in flight there is no doubt
                tier.create(key, content(300, seed=winners[0]))

    @staticmethod
    def _create(tiers: Sequence[Tier], key: Key, number: int) -> ObjectInfo:
        return tiers[number].create(key, content(300, seed=number))

    def test_open_ranges(self, tier: Tier) -> None:
        """Every range inside the object is exactly its bytes, at all borders."""
        data = content(1_000)
        tier.put(Key("range"), BytesBody(data))
        for start, length in ((0, 1), (0, 1_000), (0, 999), (1, 998), (999, 1), (500, 500), (0, 0), (1_000, 0)):
            assert read_all(tier.open(Key("range"), start, length)) == data[start : start + length], (start, length)
        for start in (0, 1, 500, 999):
            assert read_all(tier.open(Key("range"), start)) == data[start:], start

    def test_open_past_the_end_is_refused(self, tier: Tier) -> None:
        """A caller that was promised more bytes is told so, and gets no shorter stream."""
        tier.put(Key("end"), BytesBody(content(1_000)))
        for start, length in ((1_000, None), (1_001, None), (0, 1_001), (999, 2), (1_000, 1), (5_000, 5)):
            with pytest.raises(IntegrityError):
                read_all(tier.open(Key("end"), start, length))

    def test_open_of_an_empty_object(self, tier: Tier) -> None:
        """An empty object is an empty stream; a byte of it is not to be had."""
        tier.put(Key("empty"), BytesBody(b""))
        assert read_all(tier.open(Key("empty"))) == b""
        assert read_all(tier.open(Key("empty"), 0, 0)) == b""
        with pytest.raises(IntegrityError):
            read_all(tier.open(Key("empty"), 0, 1))

    def test_open_gives_every_promised_byte(self, tier: Tier) -> None:
        """A stream that ends has given all its bytes, however it is read: an early end must not look like EOF."""
        data = content(300_001)
        tier.put(Key("whole"), BytesBody(data))
        for chunk in (1_000, 65_536, 1 << 20):
            assert read_all(tier.open(Key("whole")), chunk) == data, chunk
            assert read_all(tier.open(Key("whole"), 1, 300_000), chunk) == data[1:], chunk
        with tier.open(Key("whole")) as stream:
            assert stream.read() == data

    def test_streams_are_independent(self, tier: Tier) -> None:
        """Two readers of one object do not move each other, and one may stop early."""
        data = content(5_000)
        tier.put(Key("two"), BytesBody(data))
        with tier.open(Key("two")) as first, tier.open(Key("two"), 100) as second:
            assert (first.read(10), second.read(10)) == (data[:10], data[100:110])
        assert read_all(tier.open(Key("two"))) == data

    def test_missing_keys(self, tier: Tier) -> None:
        """A key that is not there is ObjectNotFound at once, also for ranges and beside longer keys."""
        tier.put(Key("present/key"), BytesBody(b"x"))
        for key in ("absent", "present", "present/ke", "present/key2", "present/absent", "absent/deeply/below"):
            assert_missing(tier, Key(key))
            with pytest.raises(ObjectNotFound):
                tier.open(Key(key), 0, 0)

    def test_not_found_names_what_it_is_about(self, tier: Tier) -> None:
        """An error says which tier, which verb and which key."""
        with pytest.raises(TierError) as caught:
            tier.stat(Key("absent"))
        assert (caught.value.tier, caught.value.operation, caught.value.key) == (tier.name, "stat", "absent")

    def test_delete_is_exact(self, tier: Tier) -> None:
        """Only the key itself goes, not what it is a prefix of: the widest mistake there is."""
        siblings = [Key(k) for k in ("del/b", "del/bc", "del/b.txt", "del/b-", "del/x/1", "del/x/2", "del2/b")]
        for key in siblings:
            tier.put(key, BytesBody(key.encode()))
        tier.delete(Key("del/b"))
        assert_missing(tier, Key("del/b"))
        tier.delete(Key("del/x"))
        tier.delete(Key("del"))
        for key in siblings[1:]:
            assert_holds(tier, key, key.encode())

    def test_delete_of_a_missing_key_is_fine(self, tier: Tier) -> None:
        """Deleting is safe to repeat."""
        tier.put(Key("gone/a"), BytesBody(b"x"))
        for key in ("gone/a", "gone/a", "gone/never", "never/there"):
            tier.delete(Key(key))
        assert_missing(tier, Key("gone/a"))

    def test_put_after_delete(self, tier: Tier) -> None:
        """A key can be stored again, also where its whole folder went."""
        tier.put(Key("back/again/a"), BytesBody(b"1"))
        tier.delete(Key("back/again/a"))
        tier.put(Key("back/again/a"), BytesBody(b"2"))
        assert_holds(tier, Key("back/again/a"), b"2")

    def test_another_tier_sees_the_objects(self, tier: Tier, open_another: TierFactory) -> None:
        """What was put is there for a second machine, and after the first one closed."""
        tier.put(Key("other/a"), BytesBody(content(100)))
        tier.close()
        assert_holds(open_another(), Key("other/a"), content(100))

    def test_close_twice(self, tier: Tier) -> None:
        """Closing is safe to repeat."""
        tier.put(Key("closed"), BytesBody(b"x"))
        tier.close()
        tier.close()

    def test_name_and_capabilities_are_data(self, tier: Tier) -> None:
        """Limits are positive and consistent, and asking twice gives the same."""
        limits = tier.capabilities
        assert tier.name
        assert limits == tier.capabilities
        assert 1 <= limits.min_part <= limits.max_part
        assert limits.max_parts >= 1
        assert limits.max_put >= 1
        assert limits.max_object >= limits.max_put
