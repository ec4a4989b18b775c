"""In which order leaves are fetched, and by how many: large files first, small ones on a lane of their own."""

import pytest
from core.builders import sealed_bytes

from replicate.manifest import SealedFile
from replicate.restore import workers_for
from replicate.restore.lanes import SMALL, Lanes, Leaf


def large(path: str, leaves: int) -> SealedFile:
    """Return a file whose size decides, never its bytes."""
    size = SMALL * leaves
    return SealedFile.model_construct(
        path=path, size=size, mode=0o644, sha256="0" * 64, leaf_size=SMALL, leaves=("0" * 64,) * leaves
    )


def drained(lanes: Lanes, worker: int) -> list[Leaf]:
    return list(iter(lambda: lanes.take(worker), None))


FILES = (large("two", 2), sealed_bytes("small/a", b"a"), large("three", 3), sealed_bytes("small/b", b""))


def test_large_files_come_first_their_leaves_in_order_and_then_the_small_ones() -> None:
    order = [(leaf.file.path, leaf.number, leaf.start) for leaf in drained(Lanes(FILES, frozenset()), 0)]
    assert order == [
        *(("three", number, number * SMALL) for number in range(3)),
        *(("two", number, number * SMALL) for number in range(2)),
        ("small/a", 0, 0),
        ("small/b", 0, 0),
    ]


def test_one_worker_in_four_begins_with_the_small_ones_and_helps_with_the_others() -> None:
    for worker in range(8):
        first = Lanes(FILES, frozenset()).take(worker)
        assert first is not None
        assert first.file.path == ("small/a" if worker in (1, 5) else "three")
    assert len(drained(Lanes(FILES, frozenset()), 1)) == 7


def test_every_leaf_is_taken_once_whoever_asks() -> None:
    lanes = Lanes(FILES, frozenset({"two"}))
    left = [lanes.remaining]
    taken = []
    for number in range(7):
        leaf = lanes.take(number % 3)
        assert leaf is not None
        taken.append((leaf.file.path, leaf.number))
        left.append(lanes.remaining)
        assert leaf.resumed == (leaf.file.path == "two")
    assert len(set(taken)) == 7
    assert lanes.take(0) is None
    assert left[0] == 5 * SMALL + 1
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_no_file_is_no_work() -> None:
    assert Lanes((), frozenset()).take(0) is None


@pytest.mark.parametrize(
    ("connections", "spread", "workers"),
    [
        ([], False, 4),
        ([1], False, 2),
        ([2], False, 2),
        ([4, 2], False, 4),
        ([64], False, 8),
        ([4, 2], True, 6),
        ([64, 64, 4], True, 16),
    ],
)
def test_as_many_workers_as_the_tiers_bear(connections: list[int], spread: bool, workers: int) -> None:
    assert workers_for(connections, spread=spread) == workers
