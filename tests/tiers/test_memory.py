"""The memory tier: a tier, with limits that it enforces."""

from dataclasses import replace

import pytest

from tiers.bodies import BytesBody
from tiers.errors import Unsupported
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore, MemoryTier, shared_store
from tiers.protocol import Key, all_parts
from tiers.testing import TierConformance, TierFactory, content, upload_all


class TestMemory(TierConformance):
    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        store = MemoryStore()
        return lambda: MemoryTier("memory", store, page_size=3)


class TestMemoryWithoutParts(TierConformance):
    """The suite also fits a tier that can do less."""

    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        store = MemoryStore()
        less = replace(MEMORY_CAPABILITIES, multipart=False, resumable=False, copy_part=False)
        return lambda: MemoryTier("memory", store, capabilities=less)


LIMITS = replace(MEMORY_CAPABILITIES, max_put=10, min_part=4, max_part=6, max_parts=3, max_object=16)


def test_put_limit() -> None:
    tier = MemoryTier("memory", capabilities=LIMITS)
    tier.put(Key("fits"), BytesBody(bytes(10)))
    with pytest.raises(Unsupported):
        tier.put(Key("large"), BytesBody(bytes(11)))


@pytest.mark.parametrize(("size", "part_size"), [(12, 4), (16, 6), (3, 6), (3, 3), (0, 4)])
def test_uploads_within_the_limits(size: int, part_size: int) -> None:
    """The smallest part size binds only where there are several parts."""
    tier = MemoryTier("memory", capabilities=LIMITS)
    upload = tier.begin_upload(Key("k"), size=size, part_size=part_size)
    assert upload.size == size


@pytest.mark.parametrize(("size", "part_size"), [(17, 6), (13, 4), (10, 7), (6, 3)])
def test_uploads_beyond_the_limits(size: int, part_size: int) -> None:
    tier = MemoryTier("memory", capabilities=LIMITS)
    with pytest.raises(Unsupported):
        tier.begin_upload(Key("k"), size=size, part_size=part_size)


@pytest.mark.parametrize(("size", "part_size"), [(-1, 4), (4, 0)])
def test_uploads_that_make_no_sense(size: int, part_size: int) -> None:
    with pytest.raises(ValueError, match="upload of"):
        MemoryTier("memory").begin_upload(Key("k"), size=size, part_size=part_size)


def test_an_empty_object_in_parts() -> None:
    """It has one part, which is empty."""
    tier = MemoryTier("memory")
    upload = tier.begin_upload(Key("k"), size=0, part_size=4)
    tier.complete(upload, [tier.put_part(upload, 1, BytesBody(b""))])
    assert tier.stat(Key("k")).size == 0


def test_etags_are_opaque() -> None:
    """The same bytes twice are two etags: nobody can mistake one for a digest."""
    tier = MemoryTier("memory")
    first = tier.put(Key("k"), BytesBody(b"x")).etag
    assert first != tier.put(Key("k"), BytesBody(b"x")).etag


def test_parts_come_in_pages() -> None:
    tier = MemoryTier("memory", page_size=2)
    upload = tier.begin_upload(Key("k"), size=5, part_size=1)
    for number in (5, 1, 2, 4, 3):
        tier.put_part(upload, number, BytesBody(b"x"))
    assert [part.number for part in tier.list_parts(upload).parts] == [1, 2]
    assert [part.number for part in all_parts(tier, upload)] == [1, 2, 3, 4, 5]


def test_shared_store_is_one_per_name() -> None:
    assert shared_store("test-memory-a") is shared_store("test-memory-a")
    assert shared_store("test-memory-a") is not shared_store("test-memory-b")


def test_large_object_in_parts() -> None:
    tier = MemoryTier("memory")
    data = content(100_000)
    assert upload_all(tier, Key("k"), data, 1 << 14).size == len(data)
