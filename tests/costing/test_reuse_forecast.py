"""What stays the same is sent once, and its copies are on the bill as requests and not as bytes."""

from collections import Counter

import pytest
from costing.test_forecast import ROUTE, by_label, course, site

from cost.rates.terms import Operation
from replicate.costing.forecast import forecast
from replicate.costing.shape import Described, capabilities_of, described_record
from replicate.costing.usage import UPLOAD
from replicate.manifest import GenerationRecord

MIB = 2**20
BASE, SHARDS, ADAPTER = Described("base", 200 * MIB, 1, True), Described("shard", 8 * MIB, 3, True), 5 * MIB
UNCHANGED = frozenset([*BASE.paths, *SHARDS.paths])


@pytest.fixture(scope="module")
def record() -> GenerationRecord:
    return described_record("plan", [BASE, SHARDS, Described("adapter", ADAPTER, 1), Described("tiny", 10, 1, True)])


@pytest.mark.parametrize("store", ["aws", "volume", "r2"])
def test_a_frozen_base_is_sent_once(record: GenerationRecord, store: str) -> None:
    """Ten generations: nine of them copy the base (4 leaves) and the shards, where the store can."""
    can = capabilities_of("file://x" if store == "volume" else "s3://", None if store == "volume" else store, None)
    found = forecast("p", record, [site(capabilities=can, route=ROUTE)], course(10), unchanged=UNCHANGED).plan
    asked = Counter[str]()
    for (operation, _), count in by_label(found.usage.requests)[UPLOAD].items():
        asked[operation] += count
    up = sum(leg.bytes for leg in found.usage.transfers if leg.to_zone == "t")
    data = record.total_bytes
    if store == "r2":
        assert (asked[Operation.UPLOAD_PART_COPY], asked[Operation.COPY_OBJECT]) == (0, 0)
        assert up > 10 * data
        return
    assert data + 9 * ADAPTER < up < data + 9 * ADAPTER + MIB, "all of it once, then what changes, and documents"
    alone = store == "aws"
    assert asked[Operation.UPLOAD_PART_COPY] == 9 * (4 + (3 if alone else 0))
    assert asked[Operation.COPY_OBJECT] == 9 * (0 if alone else 3)
    assert asked[Operation.HEAD_OBJECT] == 9 * 4, "each source is looked at once"


def test_nothing_is_assumed_to_stay(record: GenerationRecord) -> None:
    found = forecast("p", record, [site()], course(10)).plan
    operations = {operation for operation, _ in by_label(found.usage.requests)[UPLOAD]}
    assert operations.isdisjoint({Operation.UPLOAD_PART_COPY, Operation.COPY_OBJECT})
