"""Folders that a restore must not touch: refused before the first byte, and as they were."""

import os
from pathlib import Path

import pytest
from cli.driver import Project
from support.commits import tree

from replicate.errors import ExitCode


@pytest.fixture
def replicated(project: Project) -> Project:
    project.publish(100)
    assert project("replicate", "--once").code == 0
    return project


def beside(folder: Path) -> set[str]:
    """Return what lies in a folder, hidden files too."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_folder_with_something_in_it(replicated: Project, tmp_path: Path, dry: tuple[str, ...]) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / "theirs").write_text("keep me")
    before = tree(tmp_path)
    done = replicated.refused(ExitCode.USAGE, "restore", "--to", str(target), *dry)
    done.says("is not empty", f"--to {target}/restored")
    assert tree(tmp_path) == before


def test_a_symbolic_link(replicated: Project, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    replicated.refused(ExitCode.USAGE, "restore", "--to", str(link)).says("symbolic link", str(tmp_path / "real"))
    link.unlink()
    link.symlink_to(tmp_path / "dangling")
    replicated.refused(ExitCode.USAGE, "restore", "--to", str(link)).says("symbolic link")
    assert link.is_symlink()
    assert beside(tmp_path / "real") == set()


def test_a_mount_point(replicated: Project) -> None:
    assert os.path.ismount("/proc")
    replicated.refused(ExitCode.USAGE, "restore", "--to", "/proc").says("mount point", "/proc/restored")


def test_a_file_and_a_folder_without_a_parent(replicated: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep me")
    before = tree(tmp_path)
    replicated.refused(ExitCode.USAGE, "restore", "--to", str(tmp_path / "file")).says("is not a folder")
    deep = tmp_path / "no" / "such"
    replicated.refused(ExitCode.USAGE, "restore", "--to", str(deep)).says(f"mkdir -p {deep.parent}")
    assert tree(tmp_path) == before


def test_the_store_itself(replicated: Project) -> None:
    before = replicated.snapshot()
    for target in (replicated.local.root / "out", replicated.local.generations / "out"):
        replicated.refused(ExitCode.USAGE, "restore", "--to", str(target)).says("lies in the store")
    assert replicated.snapshot() == before


def test_an_empty_folder_is_taken_and_keeps_its_mode(replicated: Project, tmp_path: Path) -> None:
    target = tmp_path / "empty"
    target.mkdir(mode=0o750)
    assert replicated("restore", "--to", str(target)).code == 0
    assert target.stat().st_mode & 0o777 == 0o750
    assert beside(target) == {"model.bin", "meta"}


def test_options_that_contradict_each_other(replicated: Project, tmp_path: Path) -> None:
    before = tree(tmp_path)
    target = str(tmp_path / "out")
    replicated.refused(ExitCode.USAGE, "restore", "--path", "x").says("--to DIR")
    replicated.refused(ExitCode.USAGE, "restore", "--if-absent", "--to", target).says("leave one of the two out")
    replicated.refused(ExitCode.NOTHING, "restore", "--to", target, "--path", "absent*").says("`ckptier show ")
    replicated.refused(ExitCode.USAGE, "verify", "--read-data", "lots").says("write 100%")
    left = {path: data for path, data in tree(tmp_path).items() if not path.endswith(".lock")}
    assert left == {path: data for path, data in before.items() if not path.endswith(".lock")}


def test_what_a_killed_restore_left_is_used_or_swept(replicated: Project, tmp_path: Path) -> None:
    (made,) = (generation.id for generation in replicated.store.generations())
    other = Project(folder=tmp_path / "b", tiers=replicated.tiers).write()
    half = other.local.root / f".restoring-{made}"
    (half / "files").mkdir(parents=True)
    (half / "files" / "model.bin").write_bytes(b"half of it")
    (half / "files" / "stranger").write_bytes(b"from nowhere")
    assert other("restore").code == 0
    assert tree(other.local.generation(made) / "files") == tree(replicated.local.generation(made) / "files")
    assert not list(other.local.root.glob(".restoring*"))
