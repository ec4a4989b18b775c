"""``restore --to DIR``: exact, private until it is complete, and never into something that is there."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commits import Restore, Writer, expected, generation, make, payload, tree

from replicate.errors import Fenced, NothingFound, UsageError
from replicate.layout import LocalRun
from replicate.restore.staging import Place, locked
from replicate.restore.targets import DirectoryTarget
from tiers import effects
from tiers.memory import MemoryTier
from tiers.testing.manual_clock import ManualClock


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_the_restored_tree_is_the_sealed_one_and_nothing_else(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    made = generation(1)
    writer.commit(made)
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)
    assert (report.generation, report.files, report.total_bytes) == (made.id, 3, made.record.total_bytes)
    assert dict(report.by_place) == {"a": made.record.total_bytes}
    assert report.attempt is None
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_c45_empty_files_and_empty_folders_come_back(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    made = make({"__init__.py": b"", "rank/1.pt": b"", "x": b"1"}, directories=("hooks", "deep/er/empty"))
    writer.commit(made)
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)
    assert (tmp_path / "out/deep/er/empty").is_dir()


def test_a_generation_of_nothing_but_folders_comes_back(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    made = make({}, directories=("only",))
    writer.commit(made)
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == {"only": None}


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_c77_modes_are_the_recorded_ones_within_the_umask(
    writer: Writer, run_restore: Restore, tmp_path: Path, mask: int
) -> None:
    writer.commit(make({"a.pt": b"1", "run.sh": b"2", "ro": b"3", "d/b": b"4"}, modes={"run.sh": 0o755, "ro": 0o444}))
    with umask(mask):
        run_restore(writer.tier, to=tmp_path / "out")
    due = {"a.pt": 0o644, "run.sh": 0o755, "ro": 0o444, "d": 0o777, "b": 0o644}
    assert modes(tmp_path / "out") == {name: mode & ~mask for name, mode in due.items()}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask


def test_c77_an_empty_folder_that_is_replaced_gives_its_mode(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    writer.commit(generation(1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o700)
    run_restore(writer.tier, to=tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700


def test_c79_a_target_with_something_in_it_is_refused_and_left_alone(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    writer.commit(generation(1))
    target = tmp_path / "out"
    target.mkdir()
    (target / "optional_state.json").write_text("{}")
    with pytest.raises(UsageError, match="not empty") as caught:
        run_restore(writer.tier, to=target)
    assert "--to" in caught.value.hint
    assert tree(target) == {"optional_state.json": b"{}"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_c79_a_target_that_is_a_link_is_refused_and_not_followed(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    writer.commit(generation(1))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="symbolic link"):
        run_restore(writer.tier, to=tmp_path / "out")
    assert not any((tmp_path / "elsewhere").iterdir())


def test_a_mount_point_is_refused(writer: Writer, run_restore: Restore) -> None:
    writer.commit(generation(1))
    with pytest.raises(UsageError, match="mount point") as caught:
        run_restore(writer.tier, to=Path("/proc"))
    assert "subfolder" in caught.value.hint


def test_a_target_that_is_a_file_or_in_the_store_or_without_parent_is_refused(
    writer: Writer, run_restore: Restore, tmp_path: Path, local: LocalRun
) -> None:
    writer.commit(generation(1))
    (tmp_path / "file").write_text("x")
    local.root.mkdir(parents=True)
    for target, words in (
        (tmp_path / "file", "not a folder"),
        (tmp_path / "no/such", "does not exist"),
        (local.root / "out", "lies in the store"),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            run_restore(writer.tier, to=target)
        assert caught.value.hint


def test_a_link_among_the_parents_is_followed(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    made = generation(1)
    writer.commit(made)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    run_restore(writer.tier, to=tmp_path / "link/out")
    assert tree(tmp_path / "real/out") == expected(made)


def test_c82_a_second_restore_into_the_same_target_is_told_whom_to_wait_for(
    writer: Writer, run_restore: Restore, tmp_path: Path, local: LocalRun, clock: ManualClock
) -> None:
    writer.commit(generation(1))
    place = DirectoryTarget.at(tmp_path / "out", local).place
    with locked(place, clock), pytest.raises(Fenced, match=f"process {os.getpid()} on") as caught:
        run_restore(writer.tier, to=tmp_path / "out")
    assert "wait" in caught.value.hint
    run_restore(writer.tier, to=tmp_path / "other")
    run_restore(writer.tier, to=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


def test_c82_a_rename_that_is_denied_once_is_looked_at_again(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)
    real, calls = effects.rename, []

    def flaky(source: Path, target: Path, **where: int) -> None:
        calls.append(target)
        if len(calls) == 1:
            raise FileNotFoundError(2, "No such file or directory", str(source))
        real(source, target, **where)

    monkeypatch.setattr(effects, "rename", flaky)
    run_restore(writer.tier, to=tmp_path / "out")
    assert len(calls) == 2
    assert tree(tmp_path / "out") == expected(made)


def test_c82_a_rename_that_was_done_and_denied_counts_once(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)
    real = effects.rename

    def lying(source: Path, target: Path, **where: int) -> None:
        real(source, target, **where)
        raise FileNotFoundError(2, "No such file or directory", str(source))

    monkeypatch.setattr(effects, "rename", lying)
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)


def test_c82_what_a_killed_restore_left_is_removed_and_never_counted(
    writer: Writer, run_restore: Restore, tmp_path: Path, local: LocalRun
) -> None:
    old, new = generation(1), generation(2)
    writer.commit(old)
    writer.commit(new)
    place = DirectoryTarget.at(tmp_path / "out", local).place
    for made in (old, new):
        left = place.staging(made.id)
        left.mkdir(parents=True)
        (left / "stale").write_text("x")
        (left / "model.bin").symlink_to("/etc/passwd")
    foreign = Place(parent=tmp_path, label="12345678").staging(old.id)
    foreign.mkdir()
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(new)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([foreign.name, "out"])


def test_only_the_files_that_match_are_fetched(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    made = make({"a.json": b"1", "w/m.bin": payload(1), "w/o.bin": payload(2)}, directories=("w/empty", "x"))
    writer.commit(made)
    report = run_restore(writer.tier, to=tmp_path / "out", paths=("w/m*", "*.json", "w/e*"))
    assert tree(tmp_path / "out") == {"a.json": b"1", "w": None, "w/m.bin": payload(1), "w/empty": None}
    assert dict(report.by_place) == {"a": 5001}
    with pytest.raises(NothingFound, match="matches"):
        run_restore(writer.tier, to=tmp_path / "none", paths=("*.safetensors",))
    assert not (tmp_path / "none").exists()


def test_dry_run_writes_nothing_and_says_what_would_come(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    made = generation(1)
    writer.commit(made)
    for target in (tmp_path / "out", None):
        report = run_restore(writer.tier, to=target, dry_run=True)
        assert report.dry_run
        assert (report.generation, report.total_bytes, report.files) == (made.id, made.record.total_bytes, 3)
        assert not any(tmp_path.iterdir())


def test_c65_the_manifest_and_not_a_listing_says_which_objects_there_are(run_restore: Restore, tmp_path: Path) -> None:
    writer = Writer(MemoryTier("a", page_size=7))
    made = make({f"f/{number:05d}": b"%d" % number for number in range(300)})
    writer.commit(made)
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)
