"""A tier as the origin of an upload: nothing leaves it that was not proved, and whose fault it was stays clear."""

from collections.abc import Callable
from pathlib import Path

import pytest
from core.builders import LEAF, sealed_bytes

from replicate.errors import LocalDisk
from replicate.manifest import SealedFile
from replicate.origins import SourceDamage, digest_parts
from replicate.plan import ObjectPlan, PartPlan
from replicate.relay import HELD_IN_MEMORY, TierFiles
from tiers.bodies import BytesBody
from tiers.errors import TierUnavailable
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, Tier
from tiers.testing import Action, Fault, FaultyTier, content, read_all

DATA = content(3 * LEAF + 7)
FILE = sealed_bytes("model.bin", DATA)
WHOLE = PartPlan(number=1, start=0, size=len(DATA), sha256=None)


def files(tmp_path: Path, data: bytes = DATA, *faults: Fault) -> TierFiles:
    """Return an origin over one object."""
    tier = MemoryTier("source", MemoryStore())
    tier.put(Key("k"), BytesBody(data))
    faulty: Tier = FaultyTier(tier, faults)
    return TierFiles(faulty, {FILE.path: Key("k")}, tmp_path)


def leaf(number: int, file: SealedFile = FILE) -> PartPlan:
    start = number * file.leaf_size
    size = min(file.leaf_size, file.size - start)
    return PartPlan(number=number + 1, start=start, size=size, sha256=file.leaves[number])


def test_a_part_is_held_and_can_be_read_again_and_again(tmp_path: Path) -> None:
    origin = files(tmp_path)
    for number in range(4):
        with origin.body(FILE, leaf(number)) as body:
            assert (body.size, body.sha256) == (leaf(number).size, FILE.leaves[number])
            for _ in range(2):
                with body.open() as reader:
                    assert read_all(reader, 5) == DATA[number * LEAF :][:LEAF]
            with body.open() as reader:
                assert reader.seek(3) == reader.tell() == 3
                assert reader.seek(-1, 2) == body.size - 1
                assert len(reader.read()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_part_larger_than_the_memory_goes_to_the_disk_and_is_gone_after(tmp_path: Path) -> None:
    data = content(HELD_IN_MEMORY + 1)
    file = replace_file(sealed_bytes("model.bin", data, leaf_size=len(data)))
    with files(tmp_path, data).body(file, leaf(0, file)) as body, body.open() as reader:
        assert read_all(reader, 1 << 20) == data
    assert list(tmp_path.iterdir()) == []


def replace_file(file: SealedFile) -> SealedFile:
    return file.model_copy(update={"path": FILE.path})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-3], r"early|shorter|has 0 bytes"),
        (lambda data: data + b"x", "longer"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "not what was sealed"),
        (lambda _data: b"", r"early|shorter|has 0 bytes"),
    ],
)
@pytest.mark.parametrize("how", ["part", "passed on", "digested"])
def test_an_object_that_is_not_what_was_sealed_is_never_handed_out_whole(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str, how: str
) -> None:
    origin = files(tmp_path, change(DATA))
    handed = bytearray()
    with pytest.raises(SourceDamage, match=words) as caught:
        _USES[how](origin, handed)
    assert "source: k" in str(caught.value)
    assert "ckptier verify --tier source" in caught.value.hint
    assert len(handed) < len(DATA), "the last bytes of what is wrong stay here"


def _digest(origin: TierFiles, _handed: bytearray) -> None:
    parts = (PartPlan(number=1, start=0, size=len(DATA), sha256=None),)
    digest_parts(ObjectPlan(path=FILE.path, key=Key("t"), file=FILE, part_size=500, parts=parts), origin)


def _read(origin: TierFiles, part: PartPlan, handed: bytearray) -> None:
    with origin.body(FILE, part) as body, body.open() as reader:
        while piece := reader.read(10):
            handed += piece


_USES: dict[str, Callable[[TierFiles, bytearray], None]] = {
    "digested": _digest,
    "part": lambda origin, handed: _read(origin, leaf(3), handed),
    "passed on": lambda origin, handed: _read(origin, WHOLE, handed),
}


def test_a_missing_object_is_damage(tmp_path: Path) -> None:
    origin = files(tmp_path)
    origin.tier.delete(Key("k"))
    with pytest.raises(SourceDamage, match="missing"), origin.body(FILE, leaf(0)):
        pass
    with pytest.raises(SourceDamage, match="missing"), origin.body(FILE, WHOLE) as body, body.open() as reader:
        reader.read(1)


def test_a_wrong_transfer_is_asked_for_once_more(tmp_path: Path) -> None:
    origin = files(tmp_path, DATA, Fault(verb="open", action=Action.CORRUPT, at=3))
    with origin.body(FILE, leaf(1)) as body, body.open() as reader:
        assert read_all(reader, 9) == DATA[LEAF : 2 * LEAF]
    assert isinstance(origin.tier, FaultyTier)
    origin.tier.assert_all_fired()


@pytest.mark.parametrize("part", [leaf(0), WHOLE], ids=["part", "passed on"])
def test_a_source_that_does_not_answer_is_not_the_targets_failure(tmp_path: Path, part: PartPlan) -> None:
    """A tier lets an OSError of its caller's body through: the target is neither blamed nor asked again."""
    origin = files(tmp_path, DATA, Fault(verb="open", times=9))
    target = FaultyTier(MemoryTier("target", MemoryStore()), ())
    with pytest.raises(TierUnavailable, match="source: open k"):
        send(origin, part, target)


def send(origin: TierFiles, part: PartPlan, target: Tier) -> None:
    with origin.body(FILE, part) as body:
        target.put(Key("copy"), body)


def test_what_is_passed_on_arrives_and_a_repeat_asks_again(tmp_path: Path) -> None:
    origin = files(tmp_path)
    target = MemoryTier("target", MemoryStore())
    with origin.body(FILE, WHOLE) as body:
        assert (body.size, body.sha256) == (len(DATA), None)
        target.put(Key("copy"), body)
        target.put(Key("copy"), body)
        with body.open() as reader:
            assert reader.read(9) == DATA[:9]
            assert (reader.seek(0), reader.tell()) == (0, 0)
            assert read_all(reader, 100) == DATA
            with pytest.raises(OSError, match="from its start"):
                reader.seek(5)
    assert read_all(target.open(Key("copy")), 100) == DATA


def test_a_disk_without_room_for_a_part_is_told_as_that(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    data = content(HELD_IN_MEMORY + 1)
    file = replace_file(sealed_bytes("model.bin", data, leaf_size=len(data)))
    with pytest.raises(LocalDisk, match="cannot hold a part") as caught, files(gone, data).body(file, leaf(0, file)):
        pass
    assert "part_size" in caught.value.hint


@pytest.mark.parametrize("size", [0, 1, LEAF, LEAF + 1])
def test_comparing_judges_each_leaf_by_its_seal(tmp_path: Path, size: int) -> None:
    data = content(size)
    file = replace_file(sealed_bytes("model.bin", data))
    origin = files(tmp_path, data)
    with origin.comparing(file) as sealed:
        assert not any(sealed.differs(memoryview(data)[start : start + 50]) for start in range(0, size, 50))
    if size:
        wrong = data[:-1] + bytes([data[-1] ^ 1])
        with origin.comparing(file) as sealed:
            assert sealed.differs(memoryview(wrong))
