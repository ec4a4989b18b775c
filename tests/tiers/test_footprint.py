"""Reading to send leaves the page cache as it was: asked of the kernel, on a real disk."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tiers import bodies, footprint
from tiers.bodies import FileSlice
from tiers.footprint import Footprint, Footprints, missing

PAGE = os.sysconf("SC_PAGE_SIZE")
WINDOW = 4 << 20
"""What these tests look at together."""
SIZE = 6 * WINDOW


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of several windows whose bytes are on the disk, and nowhere else."""
    path = tmp_path / "file"
    with path.open("wb") as stream:
        for number in range(SIZE // WINDOW):
            stream.write(bytes([number]) * WINDOW)
        stream.flush()
        os.fsync(stream.fileno())
    evict(path)
    assert pages(path) == set(), f"{tmp_path} keeps all in memory: put --basetemp on a disk (ext4, xfs, btrfs)"
    return path


def evict(path: Path) -> None:
    with path.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pages(path: Path) -> set[int]:
    """Return the windows of which something is in the page cache."""
    with path.open("rb", buffering=0) as stream:
        size = path.stat().st_size
        absent = missing(stream.fileno(), 0, size)
    assert absent is not None, f"{path.parent} cannot tell what is cached: put --basetemp on a disk (ext4, xfs, btrfs)"
    gone = bytearray(size // PAGE)
    for start, length in absent:
        gone[start // PAGE : (start + length) // PAGE] = b"\1" * (length // PAGE)
    each = WINDOW // PAGE
    return {number for number in range(size // WINDOW) if 0 in gone[number * each : (number + 1) * each]}


def warm(path: Path, *windows: int) -> None:
    """Read whole windows, as the trainer would."""
    with path.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for number in windows:
            assert len(os.pread(stream.fileno(), WINDOW, number * WINDOW)) == WINDOW


def read_slice(path: Path, start: int, size: int, mine: Footprint) -> bytes:
    with FileSlice(path=path, start=start, size=size, sha256=None, footprint=mine).open() as reader:
        return b"".join(iter(lambda: reader.read(256 * 1024), b""))


def test_what_was_read_to_be_sent_is_let_go_of(file: Path) -> None:
    known = Footprints()
    mine = known.of(file.name, SIZE)
    assert read_slice(file, 0, SIZE, mine) == file_bytes(range(6))
    assert pages(file) == set(range(6))
    known.let_go(file.parent, file.name)
    assert pages(file) == set()


def file_bytes(windows: range) -> bytes:
    return b"".join(bytes([number]) * WINDOW for number in windows)


def test_what_others_had_read_before_stays(file: Path) -> None:
    warm(file, 1, 4)
    assert pages(file) == {1, 4}
    known = Footprints()
    read_slice(file, 0, SIZE, known.of(file.name, SIZE))
    known.let_go(file.parent, file.name)
    assert pages(file) == {1, 4}


def test_a_part_is_let_go_of_alone(file: Path) -> None:
    """And what the kernel read past it for the next part passes for nobody else's."""
    known = Footprints()
    mine = known.of(file.name, SIZE)
    read_slice(file, 0, 2 * WINDOW, mine)
    read_slice(file, 2 * WINDOW, 2 * WINDOW, mine)
    assert pages(file) >= {0, 1, 2, 3}
    known.let_go(file.parent, file.name, (0, 2 * WINDOW))
    assert pages(file) & {0, 1, 2, 3} == {2, 3}
    known.let_go(file.parent, file.name)
    assert pages(file) == set()


def test_the_kernel_reads_ahead_only_where_something_is_missing(file: Path) -> None:
    def advice() -> list[int]:
        with mock.patch.object(os, "posix_fadvise", wraps=os.posix_fadvise) as given:
            read_slice(file, 0, SIZE, Footprint(SIZE))
        return [call.args[3] for call in given.mock_calls]

    assert advice() == [os.POSIX_FADV_SEQUENTIAL]
    assert pages(file) == set(range(6))
    assert advice() == []


def test_a_second_reader_does_not_take_the_first_ones_pages_for_somebody_elses(file: Path) -> None:
    """A request that is repeated reads its body again."""
    known = Footprints()
    for _ in range(2):
        read_slice(file, 0, SIZE, known.of(file.name, SIZE))
    known.let_go(file.parent, file.name)
    assert pages(file) == set()


def test_a_large_file_is_let_go_of_behind_its_reader(file: Path) -> None:
    with mock.patch.object(bodies, "HELD", WINDOW):
        read_slice(file, 0, SIZE, Footprint(SIZE))
    assert pages(file) == {4, 5}


@pytest.fixture
def no_answers() -> Iterator[mock.Mock]:
    """Let the file system say that it cannot tell."""
    with mock.patch.object(footprint, "missing", return_value=None) as asked:
        yield asked


def test_where_it_cannot_be_told_nothing_is_let_go_of(file: Path, no_answers: mock.Mock) -> None:
    known = Footprints()
    assert read_slice(file, 0, SIZE, known.of(file.name, SIZE)) == file_bytes(range(6))
    known.let_go(file.parent, file.name)
    no_answers.assert_called_once()
    assert pages(file) >= {0, 5}


def test_a_platform_without_it_reads_all_the_same(file: Path) -> None:
    with mock.patch.object(footprint, "ABLE", new=False), mock.patch.object(os, "posix_fadvise") as advice:
        known = Footprints()
        assert read_slice(file, 0, SIZE, known.of(file.name, SIZE)) == file_bytes(range(6))
        known.let_go(file.parent, file.name)
    advice.assert_not_called()


def test_a_file_that_is_gone_has_nothing_left(file: Path) -> None:
    known = Footprints()
    read_slice(file, 0, WINDOW, known.of(file.name, SIZE))
    file.unlink()
    known.let_go(file.parent, file.name)
    assert known._known == {}
