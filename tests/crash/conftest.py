"""Processes to kill, and a run that they work on."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from crash.stage import BIG, RUN, Case, noise, publish
from crash.zygote import Zygote, zygote

from replicate import RunStore


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """One process that forks children to be killed."""
    with zygote(tmp_path_factory.mktemp("zygote") / "log") as running:
        yield running


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Another one, so that two cases run at a time."""
    with zygote(tmp_path_factory.mktemp("zygote") / "log") as running:
        yield running


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder in memory where there is one: a killed process loses no page, so a disk would only be slower."""
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        yield tmp_path_factory.mktemp("crash")
        return
    with TemporaryDirectory(dir=place, prefix="ckptier-crash-") as folder:
        yield Path(folder)


@pytest.fixture
def scratch(memory: Path) -> Iterator[Path]:
    """Return an empty folder, gone after the test."""
    folder = Path(mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def base(memory: Path) -> Case:
    """Return a store where two generations wait: a small one; one with parts, an empty file and an empty folder."""
    case = Case(memory / "base")
    store = RunStore(case.root, run=RUN, hash_workers=1)
    publish(store, 100, {"state.bin": noise(1, 3000)})
    files = {"model.bin": noise(2, BIG), "optim/small.bin": noise(3, 5000), "optim/empty": b""}
    publish(store, 200, files, empty_folder=True)
    return case
