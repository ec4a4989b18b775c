"""kill -9 at every side effect of a restore, before and after it, and the same command again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from crash.stage import RUN, Case, noise, publish
from crash.store import check_latest, check_whole
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Zygote
from support.commits import tree

from replicate import RunStore
from replicate.generation.lineage import read_lineage
from replicate.layout import LocalRun

FILES = {"model.bin": noise(7, 40_000), "optim/state.bin": noise(8, 3_000), "optim/empty": b""}
MINIMUM = {
    "folder": {"fsync": 8, "rename": 1, "remote": 8},
    "store": {"fsync": 19, "rename": 4, "remote": 8},
}
"""Effects of one undisturbed restore; see check_points for how to raise them."""


@pytest.fixture(scope="module")
def volume(memory: Path, first: Zygote) -> Path:
    """Return a volume that holds one committed generation."""
    case = Case(memory / "lost-machine")
    publish(RunStore(case.root, run=RUN), 100, FILES, empty_folder=True)
    place = memory / "lost-machine-volume"
    place.mkdir()
    case.configure(f"file://{place}")
    first.finish("replicate", case.journal, config=str(case.config))
    return place


def fresh(folder: Path, volume: Path) -> Case:
    """Return a new machine: configured, with no store."""
    case = Case(folder)
    folder.mkdir()
    case.configure(f"file://{volume}")
    return case


def sealed() -> dict[str, bytes | None]:
    """Return what has to come out, files and folders."""
    return {**FILES, "optim": None, "empty-folder": None}


@SOME
def test_a_restore_into_a_folder_killed_anywhere_leaves_it_absent_or_complete(
    volume: Path, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    calm = fresh(scratch / "calm", volume)
    job: dict[str, Any] = {"config": str(calm.config), "to": str(calm.folder / "out")}
    points = check_points(first.run("restore", calm.journal, **job), MINIMUM["folder"])
    assert tree(calm.folder / "out") == sealed()

    def kill_at(zygote: Zygote, number: int) -> None:
        case = fresh(scratch / str(number), volume)
        out = case.folder / "out"
        job = {"config": str(case.config), "to": str(out)}
        killed = zygote.run("restore", case.journal, kill_at=number, **job)
        assert killed.killed
        if out.exists():
            assert tree(out) == sealed(), killed.last
            shutil.rmtree(out)  # complete: a second restore refuses it, as it should
        zygote.finish("restore", case.journal, **job)
        assert tree(out) == sealed()
        assert not list(case.folder.glob(".restoring*")), killed.last
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))


@SOME
def test_a_restore_into_the_store_killed_anywhere_is_repeated(
    volume: Path, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    """The generation is absent or complete; each try opens an attempt above the last; training can go on."""
    calm = fresh(scratch / "calm", volume)
    points = check_points(first.run("restore", calm.journal, config=str(calm.config)), MINIMUM["store"])

    def kill_at(zygote: Zygote, number: int) -> None:
        case = fresh(scratch / str(number), volume)
        killed = zygote.run("restore", case.journal, kill_at=number, config=str(case.config))
        assert killed.killed
        check_whole(case.root)
        check_latest(case.root)
        opened = read_lineage(LocalRun(case.root))
        again = zygote.finish("restore", case.journal, config=str(case.config))
        assert check_whole(case.root) == [1], killed.last
        check_latest(case.root)
        store = RunStore(case.root, run=RUN)
        assert tree(store.resume().files) == sealed()
        assert again["attempt"] == (opened.attempt + 1 if opened else 2), killed.last
        assert not list(case.root.glob(".restoring*")), killed.last
        zygote.finish("publish", case.journal, store=str(case.root), update=101)
        assert [(one.id.attempt, one.id.sequence) for one in store.generations()] == [(again["attempt"], 2), (1, 1)]
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))
