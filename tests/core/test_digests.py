"""Digests: leaves, their combination, and the counter that proves bytes are hashed once."""

import hashlib
from pathlib import Path

import pytest

from replicate import digests
from replicate.digests import MAX_LEAVES, MIN_LEAF, combine, digest_file, digest_range, leaf_ranges, leaf_size_for
from tiers.testing import content


@pytest.mark.parametrize(
    ("size", "leaf"),
    [
        (0, MIN_LEAF),
        (MIN_LEAF * MAX_LEAVES, MIN_LEAF),
        (MIN_LEAF * MAX_LEAVES + 1, 2 * MIN_LEAF),
        (5 * 1024**4, 1024 * 1024**2),
    ],
)
def test_leaf_size_doubles_until_8192_leaves_are_enough(size: int, leaf: int) -> None:
    assert leaf_size_for(size) == leaf


@pytest.mark.parametrize(
    ("size", "ranges"),
    [(0, [(0, 0)]), (1, [(0, 1)]), (4, [(0, 4)]), (5, [(0, 4), (4, 1)]), (8, [(0, 4), (4, 4)])],
)
def test_leaves_cover_the_file_once(size: int, ranges: list[tuple[int, int]]) -> None:
    """An empty file has one empty leaf."""
    assert list(leaf_ranges(size, 4)) == ranges


def test_one_leaf_is_its_file_and_several_are_hashed_over() -> None:
    one, other = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    assert combine((one,)) == one
    assert combine((one, other)) == hashlib.sha256(bytes.fromhex(one) + bytes.fromhex(other)).hexdigest()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 100, 1000, 1001])
def test_file_digest_is_that_of_its_bytes_and_counts_each_once(tmp_path: Path, size: int, workers: int) -> None:
    data = content(size)
    (tmp_path / "f").write_bytes(data)
    before = digests.HASHED.value
    found = digest_file(tmp_path / "f", size, leaf_size=100, workers=workers)
    assert digests.HASHED.value - before == size
    pieces = [data[start : start + length] for start, length in leaf_ranges(size, 100)]
    assert found.leaves == tuple(hashlib.sha256(piece).hexdigest() for piece in pieces)
    assert found.sha256 == combine(found.leaves)


def test_file_that_shrinks_is_an_error_not_a_shorter_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 150)
    with pytest.raises(OSError, match="ended at 150 bytes"):
        digest_file(tmp_path / "f", 200, leaf_size=100)


def test_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "link").symlink_to("f")
    with pytest.raises(OSError, match="symbolic"):
        digest_range(tmp_path / "link", 0, 1)
