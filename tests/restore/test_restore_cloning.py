"""Copies that lie here: their blocks are shared, or copied by the kernel, and proved like anything else."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from support.commits import (
    RUN,
    RUN_UID,
    Made,
    Restore,
    Writer,
    expected,
    flip,
    generation,
    make,
    payload,
    seal_local,
    sealed_file,
    tree,
)

from replicate.generation.lineage import open_attempt
from replicate.layout import LocalRun
from replicate.restore import RestoreOptions, RestoreReport
from replicate.restore.cloning import FICLONE, open_copy
from replicate.restore.places import Fault
from replicate.restore.sources import TierSource
from tiers import effects
from tiers.memory import MemoryTier
from tiers.protocol import Key, Tier
from tiers.testing.manual_clock import ManualClock
from tiers.testing.passthrough import PassThroughTier
from tiers.volume import VolumeTier

ONE = RestoreOptions(workers=1)


def seal(local: LocalRun, made: Made) -> None:
    """Lay a generation into a store that has a lineage."""
    local.root.mkdir(parents=True, exist_ok=True)
    open_attempt(
        local,
        ManualClock(),
        run=RUN,
        run_uid=RUN_UID,
        seen_attempt=0,
        seen_sequence=made.id.sequence,
        parent=made.id,
        restored_from=None,
    )
    seal_local(local, made)


@pytest.fixture
def here(writer: Writer, local: LocalRun) -> Made:
    """Return a generation that a tier and the store have."""
    made = generation(1)
    writer.commit(made)
    seal(local, made)
    return made


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the files that a filesystem with shared blocks cloned; it is made up, its errors are not."""
    sizes: list[int] = []

    def ioctl(target: int, request: int, source: int) -> int:
        assert request == FICLONE
        data = os.pread(source, 1 << 20, 0)
        assert os.fstat(target).st_size in (0, len(data))
        os.pwrite(target, data, 0)
        sizes.append(len(data))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return sizes


def failing(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, code: int) -> list[int]:
    calls: list[int] = []

    def fail(*_: object) -> int:
        calls.append(code)
        if code:
            raise OSError(code, os.strerror(code))
        return 0

    monkeypatch.setattr(owner, name, fail)
    return calls


class Opened(PassThroughTier):
    """Notes which files of a generation are read through the tier."""

    def __init__(self, inner: Tier) -> None:
        super().__init__(inner)
        self.files: list[Key] = []

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Note the key."""
        if "/files/" in key:
            self.files.append(key)
        return super().open(key, start, length)


def local_file(local: LocalRun, made: Made, path: str) -> Path:
    return local.generation(made.id) / "files" / path


def test_a_copy_in_the_store_is_shared_block_by_block_and_no_byte_is_moved(
    writer: Writer, here: Made, run_restore: Restore, tmp_path: Path, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []

    def watch(kind: effects.Effect, what: str, moment: effects.Moment) -> None:
        if kind is effects.Effect.LINK and moment is effects.Moment.AFTER:
            announced.append(what.rpartition("/")[2])

    copied = failing(monkeypatch, os, "copy_file_range", errno.ENOSYS)
    with effects.observing(watch):
        report = run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    assert tree(tmp_path / "out") == expected(here)
    assert dict(report.by_place) == {"local": here.record.total_bytes}
    assert sorted(shared) == sorted(len(data) for data in here.contents.values())
    assert sorted(announced) == ["config.json", "model.bin", "state.bin"]
    assert (copied, report.incidents, report.leaves_reused) == ([], (), 0)


def test_what_was_shared_and_is_not_as_sealed_is_fetched_leaf_by_leaf(
    writer: Writer, here: Made, run_restore: Restore, tmp_path: Path, local: LocalRun, shared: list[int]
) -> None:
    rotten = local_file(local, here, "model.bin")
    rotten.write_bytes(flip(2000)(rotten.read_bytes()))
    before = rotten.read_bytes()
    report = run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    assert shared
    assert tree(tmp_path / "out") == expected(here)
    assert dict(report.by_place) == {"local": here.record.total_bytes - 1024, "a": 1024}
    assert {(one.place, one.path, one.leaf, one.fault) for one in report.incidents} == {
        ("local", "model.bin", 1, Fault.DIFFERS)
    }
    assert rotten.read_bytes() == before


def test_what_an_earlier_try_wrote_is_not_overwritten_by_a_copy(
    writer: Writer,
    here: Made,
    run_restore: Restore,
    tmp_path: Path,
    local: LocalRun,
    shared: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(effects, "fsync_fd", stop)
        with pytest.raises(KeyboardInterrupt):
            run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    shared.clear()
    for path in here.contents:
        local_file(local, here, path).write_bytes(bytes(len(here.contents[path])))
    report = run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    assert tree(tmp_path / "out") == expected(here)
    assert report.leaves_reused > 0
    assert set(shared) <= {len(here.contents["config.json"])}, "only what was not begun is new"


@pytest.mark.parametrize(
    "code",
    [errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EINVAL, errno.EPERM, errno.ETXTBSY, errno.EIO, errno.ENOSPC],
)
def test_where_blocks_cannot_be_shared_the_kernel_copies(
    writer: Writer, here: Made, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = failing(monkeypatch, fcntl, "ioctl", code)
    real, calls = os.copy_file_range, []

    def short(source: int, target: int, count: int, *places: int) -> int:
        calls.append(count)
        return real(source, target, min(count, 700), *places)

    monkeypatch.setattr(os, "copy_file_range", short)
    report = run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    assert tree(tmp_path / "out") == expected(here)
    assert dict(report.by_place) == {"local": here.record.total_bytes}
    assert asked == [code], "a filesystem that cannot is asked once"
    assert 324 in calls, "what was left of a leaf was copied too"


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EIO, 0])
def test_where_the_kernel_copies_nothing_the_bytes_are_read_and_written(
    writer: Writer, here: Made, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failing(monkeypatch, fcntl, "ioctl", errno.EOPNOTSUPP)
    calls = failing(monkeypatch, os, "copy_file_range", code)
    report = run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    assert tree(tmp_path / "out") == expected(here)
    assert dict(report.by_place) == {"local": here.record.total_bytes}
    assert len(calls) == report.leaves


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _lengthened(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def _flipped(file: Path) -> None:
    file.write_bytes(flip(0)(file.read_bytes()))


def _link(file: Path) -> None:
    file.rename(file.with_name("aside"))
    file.symlink_to("aside")


def _gone(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("harm", [_cut, _flipped, _gone, _link])
def test_a_copy_that_is_not_the_sealed_one_costs_a_request_and_nothing_else(
    writer: Writer,
    here: Made,
    run_restore: Restore,
    tmp_path: Path,
    local: LocalRun,
    harm: Callable[[Path], None],
) -> None:
    harm(local_file(local, here, "config.json"))
    report: RestoreReport = run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(here)
    assert dict(report.by_place)["a"] == len(here.contents["config.json"])


@pytest.mark.parametrize("harm", [_cut, _lengthened, _gone, _link])
def test_only_a_regular_file_of_the_sealed_size_is_cloned(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"sealed")
    fd = open_copy(file, 6)
    assert fd is not None
    os.close(fd)
    harm(file)
    assert open_copy(file, 6) is None


def test_equal_files_of_other_generations_serve_too(
    writer: Writer, run_restore: Restore, tmp_path: Path, local: LocalRun, shared: list[int]
) -> None:
    old, new = make({"a.bin": payload(1)}), make({"b/a.bin": payload(1), "new": payload(2)}, sequence=2)
    seal(local, old)
    writer.commit(new)
    report = run_restore(writer.tier, to=tmp_path / "out", options=ONE)
    assert tree(tmp_path / "out") == expected(new)
    assert dict(report.by_place) == {"local": 5000, "a": 5000}
    assert shared == [5000]


def test_files_of_a_volume_are_shared_too_and_read_as_a_tier_where_they_cannot_be(
    run_restore: Restore, tmp_path: Path, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "volume").mkdir()
    made = generation(1)
    Writer(VolumeTier("v", tmp_path / "volume")).commit(made)
    options = RestoreOptions(workers=1, volumes={"v": tmp_path / "volume"})
    tier = Opened(VolumeTier("v", tmp_path / "volume"))
    report = run_restore(tier, to=tmp_path / "out", options=options)
    assert dict(report.by_place) == {"v": made.record.total_bytes}
    assert len(shared) == 3
    assert tier.files == []
    failing(monkeypatch, fcntl, "ioctl", errno.EXDEV)
    copied = failing(monkeypatch, os, "copy_file_range", errno.ENOSYS)
    report = run_restore(tier, to=tmp_path / "again", options=options)
    assert tree(tmp_path / "again") == tree(tmp_path / "out") == expected(made)
    assert dict(report.by_place) == {"v": made.record.total_bytes}
    assert copied == [], "the tier's pace and counts hold"
    assert len(tier.files) == report.leaves


def test_a_key_that_leads_out_of_the_volume_is_not_followed(tmp_path: Path) -> None:
    """The manifest is somebody else's word; its digest would have to fit too."""
    data = b"sealed"
    (tmp_path / "outside").write_bytes(data)
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/inside").write_bytes(data)
    file = sealed_file("f", data)
    tier = MemoryTier("v")
    opened = {
        key: TierSource(tier, {(file.sha256, file.size): Key(key)}, volume=tmp_path / "volume").descriptor(file)
        for key in ("inside", "../outside", "/inside", "./inside", "")
    }
    assert {key for key, fd in opened.items() if fd is not None} == {"inside"}
    for fd in opened.values():
        if fd is not None:
            os.close(fd)
