"""Checks of copies inside the store: of whole objects, and of what a part that was copied attests."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tiers.bodies import BytesBody
from tiers.errors import IntegrityError, ObjectNotFound, Unsupported
from tiers.protocol import Key, ObjectInfo, Tier, Verification
from tiers.testing.base import ConformanceBase, TierFactory, content, upload_all
from tiers.testing.objects import assert_holds, assert_missing

_SIZES = (0, 1, 4_097, 1_500_001)


def refuses_copies(tier: Tier) -> bool:
    """Tell whether the tier copies no objects; it must then say Unsupported, and store nothing."""
    if tier.capabilities.copy:
        return False
    tier.put(Key("copy/some"), BytesBody(b"some"))
    with pytest.raises(Unsupported):
        tier.copy(Key("copy/none"), tier.stat(Key("copy/some")))
    assert_missing(tier, Key("copy/none"))
    return True


class CopyChecks(ConformanceBase):
    """copy, and the digests of copy_part."""

    def test_copy_round_trip(self, tier: Tier) -> None:
        """A copy has the bytes of its source, which stays what it was."""
        if refuses_copies(tier):
            return
        for size in _SIZES:
            source, key, data = Key(f"copy/from/{size}"), Key(f"copy/to/{size}"), content(size)
            tier.put(source, BytesBody(data))
            known = tier.stat(source)
            info = tier.copy(key, known)
            assert (info.key, info.size) == (key, size)
            assert_holds(tier, key, data)
            assert_holds(tier, source, data)
            assert tier.stat(source).etag == known.etag

    def test_copy_and_stat_agree(self, tier: Tier) -> None:
        """What copy returns names the object that it made."""
        if refuses_copies(tier):
            return
        tier.put(Key("copy/agree"), BytesBody(content(500)))
        info, stat = tier.copy(Key("copy/agreed"), tier.stat(Key("copy/agree"))), tier.stat(Key("copy/agreed"))
        assert (stat.key, stat.size) == (info.key, info.size)
        assert info.etag is None or info.etag == stat.etag

    def test_copy_attests_only_its_own_bytes(self, tier: Tier, part_size: int) -> None:
        """A digest in the reply is that of the copied bytes, however the source came to be."""
        if refuses_copies(tier):
            return
        data = content(part_size)
        for source in self._sources(tier, data, part_size):
            info = tier.copy(Key("copy/attested"), source)
            digest = hashlib.sha256(data).hexdigest()
            if tier.capabilities.verification is Verification.STORE_SHA256:
                assert info.sha256 == digest, source.key
            else:
                assert info.sha256 in (None, digest), source.key
            assert_holds(tier, Key("copy/attested"), data)

    def test_copy_part_attests_only_its_own_bytes(self, tier: Tier, part_size: int) -> None:
        """The same of a part, also where it is all of its source: the composite of one part is another digest."""
        if not tier.capabilities.multipart or not tier.capabilities.copy_part:
            return
        data = content(part_size)
        digest = hashlib.sha256(data).hexdigest()
        for number, source in enumerate(self._sources(tier, data, part_size)):
            key = Key(f"copy/part/{number}")
            upload = tier.begin_upload(key, size=part_size, part_size=part_size)
            part = tier.copy_part(upload, 1, source, 0, part_size)
            if tier.capabilities.verification is Verification.STORE_SHA256:
                assert part.sha256 == digest, source.key
            else:
                assert part.sha256 in (None, digest), source.key
            tier.complete(upload, [part])
            assert_holds(tier, key, data)

    @staticmethod
    def _sources(tier: Tier, data: bytes, part_size: int) -> Iterator[ObjectInfo]:
        tier.put(Key("copy/put"), BytesBody(data))
        yield tier.stat(Key("copy/put"))
        if tier.capabilities.multipart:
            upload_all(tier, Key("copy/uploaded"), data, part_size)
            yield tier.stat(Key("copy/uploaded"))

    def test_copy_replaces_and_repeats(self, tier: Tier) -> None:
        """After a lost reply the same copy is made again; what was there before is gone."""
        if refuses_copies(tier):
            return
        tier.put(Key("copy/over"), BytesBody(content(2_000, seed=1)))
        tier.put(Key("copy/base"), BytesBody(content(900)))
        source = tier.stat(Key("copy/base"))
        for _ in range(3):
            assert tier.copy(Key("copy/over"), source).size == source.size
        assert_holds(tier, Key("copy/over"), content(900))

    def test_copy_of_a_changed_source_is_refused(self, tier: Tier) -> None:
        """A source that is no longer the object that was described is not copied, and nothing changes."""
        if refuses_copies(tier):
            return
        tier.put(Key("copy/there"), BytesBody(b"there"))
        tier.put(Key("copy/source"), BytesBody(content(700, seed=1)))
        old = tier.stat(Key("copy/source"))
        tier.put(Key("copy/source"), BytesBody(content(700, seed=2)))
        for source in (old, replace(old, etag="no-such-etag"), replace(old, key=Key("copy/absent"))):
            for key in (Key("copy/there"), Key("copy/new")):
                with pytest.raises((IntegrityError, ObjectNotFound)):
                    tier.copy(key, source)
        assert_holds(tier, Key("copy/there"), b"there")
        assert_missing(tier, Key("copy/new"))

    def test_copy_outlives_its_source(self, tier: Tier, open_another: TierFactory) -> None:
        """A copy is an object of its own: deleting or replacing the source leaves it, for every machine."""
        if refuses_copies(tier):
            return
        for number, size in enumerate((3_000, 1_500_001)):
            source, key = Key(f"copy/mortal/{number}"), Key(f"copy/kept/{number}")
            tier.put(source, BytesBody(content(size)))
            tier.copy(key, tier.stat(source))
            tier.put(source, BytesBody(content(size, seed=8)))
            assert_holds(tier, key, content(size))
            tier.delete(source)
            assert_holds(open_another(), key, content(size))
