"""Adopting what something else wrote."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from replicate import RunStore
from replicate.errors import LocalDisk, UsageError
from replicate.generation import adoption
from replicate.generation.adoption import SourceChanged
from replicate.generation.tree import SpecialFile


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a checkpoint that a trainer wrote."""
    folder = tmp_path / "out" / "step-5"
    (folder / "sub").mkdir(parents=True)
    (folder / "none").mkdir()
    (folder / "w.pt").write_bytes(b"not a zip, and nobody's business")
    (folder / "sub" / "script.sh").write_text("echo")
    (folder / "sub" / "script.sh").chmod(0o755)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_directory_is_copied_and_left_alone(store: RunStore, source: Path) -> None:
    inode = (source / "w.pt").stat().st_ino
    generation = store.adopt(source, next_update=5, contract={"config": "aa"})
    assert contents(generation.files) == contents(source)
    assert generation.record.directories == ("none",)
    assert {file.path: file.mode for file in generation.record.files}["sub/script.sh"] == 0o755
    assert (source / "w.pt").stat().st_ino == inode
    assert (source / "w.pt").stat().st_nlink == 1
    assert store.latest() == generation


def test_a_trainer_that_rewrites_its_file_does_not_change_what_was_sealed(store: RunStore, source: Path) -> None:
    generation = store.adopt(source, next_update=5)
    with (source / "w.pt").open("r+b") as file:
        file.write(b"later")
    assert (generation.files / "w.pt").read_bytes() == b"not a zip, and nobody's business"


def test_a_single_file_and_a_link_to_it_can_be_named(store: RunStore, source: Path) -> None:
    (source.parent / "last.pt").symlink_to("step-5/w.pt")
    for path in (source / "w.pt", source.parent / "last.pt"):
        assert [file.path for file in store.adopt(path, next_update=5).record.files] == ["w.pt"]


def test_a_link_inside_the_tree_becomes_its_targets_bytes(store: RunStore, source: Path) -> None:
    (source / "last.pt").symlink_to("./w.pt")
    generation = store.adopt(source, next_update=5)
    assert stat.S_ISREG((generation.files / "last.pt").lstat().st_mode)
    assert (generation.files / "last.pt").read_bytes() == (source / "w.pt").read_bytes()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/etc/passwd", "outside"),
        ("..", "outside"),
        ("../step-4/w.pt", "outside"),
        ("nope", "to nothing"),
        ("sub", "no regular file"),
        ("odd", "to nothing|no regular file"),
    ],
)
def test_other_links_are_refused_by_name(store: RunStore, source: Path, target: str, words: str) -> None:
    (source / "odd").symlink_to(target)
    with pytest.raises(SpecialFile, match=f"'odd' is a symbolic link.*({words})"):
        store.adopt(source, next_update=5)
    assert store.generations() == ()


def test_a_fifo_is_refused_before_anything_is_opened(store: RunStore, source: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(SpecialFile, match="'pipe' is a FIFO"):
        store.adopt(source, next_update=5)
    with pytest.raises(SpecialFile, match="FIFO"):
        store.adopt(source / "pipe", next_update=5)


@pytest.mark.parametrize("change", ["rewrite", "add", "remove"])
def test_a_source_that_changes_meanwhile_is_refused(
    store: RunStore, source: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = adoption._clone
    changes: dict[str, Callable[[], object]] = {
        "rewrite": lambda: (source / "w.pt").write_bytes(b"again"),
        "add": lambda: (source / "optimizer.pt").write_bytes(b"again"),
        "remove": lambda: (source / "w.pt").unlink(missing_ok=True),
    }

    def racing(reading: int, writing: int, size: int) -> None:
        honest(reading, writing, size)
        changes[change]()

    monkeypatch.setattr(adoption, "_clone", racing)
    with pytest.raises(SourceChanged):
        store.adopt(source, next_update=5)
    assert store.generations() == ()


def test_the_store_itself_is_not_adopted(store: RunStore, source: Path) -> None:
    store.adopt(source, next_update=5)
    for path in (store.local.root, store.local.root.parent, store.local.generations):
        with pytest.raises(UsageError, match="overlaps"):
            store.adopt(path, next_update=6)


def test_what_is_not_there_is_named(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(LocalDisk, match="nowhere"):
        store.adopt(tmp_path / "nowhere", next_update=1)
