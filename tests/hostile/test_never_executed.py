"""A checkpoint that would run code where it is loaded: no verb of ckptier loads it, whatever it is called.

Python announces to audit hooks every name that an unpickler looks up, so that not only the
canary is watched, which one payload would make, but unpickling itself.
"""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.driver import Project, volume
from hostile.payloads import executing, honest_dcp, torch_zip

from replicate import RunStore
from replicate.errors import ExitCode
from replicate.generation.evidence import Level

VERBS = (
    ("list",),
    ("list", "--json"),
    ("replicate", "--once"),
    ("status", "--remote"),
    ("explain",),
    ("verify",),
    ("verify", "--read-data", "100%"),
    ("check",),
    ("gc",),
    ("safe-to-terminate",),
)


class _Watch:
    """What unpicklers looked up while it was on; a hook stays for the process, so there is one."""

    def __init__(self) -> None:
        self.on = False
        self.names: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event == "pickle.find_class":
            self.names.append(".".join(map(str, arguments)))


_watch = _Watch()


@pytest.fixture
def unpickled() -> Iterator[list[str]]:
    """Return what is looked up by any unpickler of this process while the test runs."""
    _watch.names = []
    _watch.on = True
    yield _watch.names
    _watch.on = False


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "executed"


def files(canary: Path) -> dict[str, bytes]:
    """Return a checkpoint with the same payload under every name that something might load."""
    evil = executing(canary)
    return {
        "payload.pt": torch_zip(pickled=evil),
        "legacy.pth": evil,
        "rng.pkl": evil,
        "optimizer.bin": evil,
        "trainer_state.json": evil,
        "other/.metadata": evil,
    }


def test_the_payload_would_run_and_the_watch_would_see_it(canary: Path, unpickled: list[str]) -> None:
    """The control."""
    pickle.loads(executing(canary))
    assert canary.is_dir()
    assert unpickled == ["os.mkdir"]


def test_no_verb_loads_what_a_checkpoint_holds(tmp_path: Path, canary: Path, unpickled: list[str]) -> None:
    (tmp_path / "volume").mkdir()
    project = Project(folder=tmp_path / "p", tiers={"t": volume(tmp_path / "volume")}).write()
    publication = project.store.publish(next_update=1)
    with publication as directory:
        for path, content in files(canary).items():
            (directory / path).parent.mkdir(exist_ok=True)
            (directory / path).write_bytes(content)
    generation = project.store.latest()
    assert generation is not None
    assert generation.level is Level.VALIDATED, "opaque files are nobody's to judge"
    codes = [project(*verb).code for verb in VERBS]
    assert ExitCode.OK in codes
    assert project("restore", "--to", str(tmp_path / "out")).code == ExitCode.OK
    assert (tmp_path / "out" / "rng.pkl").read_bytes() == executing(canary)
    assert not canary.exists()
    assert unpickled == []


def test_adopting_and_validating_a_hostile_distributed_checkpoint_runs_nothing(
    tmp_path: Path, canary: Path, unpickled: list[str]
) -> None:
    store = RunStore(tmp_path / "run", hash_workers=1)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for path, content in {**honest_dcp(), ".metadata": executing(canary)}.items():
        (folder / path).write_bytes(content)
    adopted = store.adopt(folder, next_update=1, validate=False)
    found = store.validate(adopted.id)
    assert found.level is Level.QUARANTINED
    assert "os.mkdir" in found.reason
    assert store.latest() is None
    assert not canary.exists()
    assert unpickled == []
