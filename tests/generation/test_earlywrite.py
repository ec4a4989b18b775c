"""Writing to the disk while a save is still being made: only a hint, bounded, and over with the block."""

import os
import threading
from pathlib import Path

import pytest

from replicate import RunStore
from replicate.generation import earlywrite
from replicate.generation.earlywrite import AT_ONCE, LONGEST_RANGE, EarlyWriter
from replicate.generation.writeback import can_start_writeback, start_writeback
from tiers.clock import SystemClock
from tiers.testing import ManualClock

WAIT = 60


class Begun:
    """Notes which ranges of which files were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[str, int, int]] = []
        self.any = threading.Event()
        monkeypatch.setattr(earlywrite, "start_writeback", self.begin)

    def begin(self, fd: int, start: int, length: int) -> bool:
        self.ranges.append((Path(f"/proc/self/fd/{fd}").readlink().name, start, length))
        self.any.set()
        return True


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    return Begun(monkeypatch)


def grow(path: Path, size: int) -> None:
    with path.open("ab") as stream:
        stream.truncate(size)


def test_what_was_added_is_begun_once_in_bounded_ranges(tmp_path: Path, begun: Begun) -> None:
    early = EarlyWriter(tmp_path, ManualClock())
    (tmp_path / "sub").mkdir()
    grow(tmp_path / "sub/a", AT_ONCE - 1)
    early.look()
    assert begun.ranges == [], "a little that still grows is left to come together"
    grow(tmp_path / "sub/a", AT_ONCE + 5)
    early.look()
    grow(tmp_path / "sub/a", AT_ONCE + LONGEST_RANGE + 10)
    early.look()
    assert begun.ranges == [
        ("a", 0, AT_ONCE + 5),
        ("a", AT_ONCE + 5, LONGEST_RANGE),
        ("a", AT_ONCE + LONGEST_RANGE + 5, 5),
    ]
    early.look()
    assert len(begun.ranges) == 3
    assert early.begun == AT_ONCE + LONGEST_RANGE + 10


def test_the_little_rest_of_a_file_is_begun_when_it_rests(tmp_path: Path, begun: Begun) -> None:
    early = EarlyWriter(tmp_path, ManualClock())
    grow(tmp_path / "a", 7)
    early.look()
    early.look()
    assert begun.ranges == [("a", 0, 7)]


def test_only_regular_files_and_not_through_links(tmp_path: Path, begun: Begun) -> None:
    """A FIFO must not be waited for, and a link leads elsewhere."""
    folder = tmp_path / "files"
    folder.mkdir()
    grow(tmp_path / "outside", AT_ONCE)
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    early = EarlyWriter(folder, ManualClock())
    early.look()
    early.look()
    assert begun.ranges == []


def test_a_file_that_goes_away_is_the_trainers_business(
    tmp_path: Path, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "a", AT_ONCE)
    early = EarlyWriter(tmp_path, ManualClock())
    found = list(earlywrite._files(tmp_path))
    (tmp_path / "a").unlink()
    monkeypatch.setattr(earlywrite, "_files", lambda _folder: iter(found))
    early.look()
    assert begun.ranges == []


def test_a_crowded_folder_is_looked_at_in_part(tmp_path: Path, begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlywrite, "MOST_FILES", 5)
    for number in range(20):
        grow(tmp_path / str(number), AT_ONCE)
    EarlyWriter(tmp_path, ManualClock()).look()
    assert 0 < len(begun.ranges) <= 20


@pytest.mark.parametrize("defer", [True, False])
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_the_thread_ends_with_the_block(store: RunStore, begun: Begun, *, defer: bool, ends: str) -> None:
    threaded = RunStore(store.local.root, hash_workers=2)

    def save() -> None:
        with threaded.publish(next_update=1, defer_seal=defer, validate=False) as directory:
            grow(directory / "state.bin", AT_ONCE)
            assert begun.any.wait(WAIT), "writing has begun before the block is left"
            assert "ckptier-early" in names()
            if ends == "badly":
                raise KeyError(ends)

    if ends == "badly":
        with pytest.raises(KeyError):
            save()
    else:
        save()
    assert "ckptier-early" not in names()
    assert begun.ranges[0] == ("state.bin", 0, AT_ONCE)


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_no_thread_where_none_may_be_started_or_nothing_can_begin(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore(store.local.root, hash_workers=1).publish(next_update=1, validate=False) as directory:
        assert "ckptier-early" not in names()
        (directory / "a").write_bytes(b"1")
    monkeypatch.setattr(earlywrite, "can_start_writeback", lambda: False)
    with RunStore(store.local.root, hash_workers=2).publish(next_update=2, validate=False) as directory:
        assert "ckptier-early" not in names()
        (directory / "a").write_bytes(b"1")


def test_a_machine_that_can_start_no_thread_saves_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    early = EarlyWriter(tmp_path, SystemClock())
    early.start()
    early.stop()


def test_the_kernel_takes_the_call(tmp_path: Path) -> None:
    """On Linux, for a file of an ordinary filesystem; elsewhere it is said that it cannot be had."""
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        assert start_writeback(fd, 0, 0) in {can_start_writeback(), False}
    finally:
        os.close(fd)
    assert not start_writeback(fd, 0, 0), "a closed descriptor"
