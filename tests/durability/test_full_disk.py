"""Disks that are really full: the error says so, training goes on, and room is all that is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from durability.conftest import ROOT

from replicate import RunStore
from replicate.errors import LocalDisk

SCRIPT = Path(__file__).parent / "full_disk.py"
NO_NAMESPACES = "this machine lets nobody mount: root, or namespaces of users, are needed"


@pytest.fixture(scope="module")
def outcome(memory: Path) -> dict[str, dict[str, Any]]:
    """Return what became of each disk."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip(NO_NAMESPACES)
    (memory / "full").mkdir()
    done = subprocess.run(
        [*unshare, sys.executable, str(SCRIPT), str(memory / "full")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}


def test_a_save_that_does_not_fit(outcome: dict[str, dict[str, Any]]) -> None:
    """In the trainer's own write, or in sealing what it wrote: the generation before stays, and nothing is left."""
    saving = outcome["saving"]
    for failed in (saving["failed"], saving["sealing"]):
        assert failed["code"] == 11
        assert "No space left on device" in failed["message"]
        assert "(0 bytes are free), then publish again" in failed["hint"]
    assert (saving["kept"], saving["left"], saving["again"]) == (1, [], {"code": 0})


def test_a_tracker_that_does_not_fit(outcome: dict[str, dict[str, Any]]) -> None:
    """Nothing is sent that could not be journalled; publishing does not notice."""
    found = outcome["journalling"]
    assert [one["code"] for one in found["failures"]] == [11]
    assert "tracker" in found["failures"][0]["message"]
    assert "space" in found["failures"][0]["hint"]
    assert (found["first"], found["again"], found["resumed"]) == (0, 0, 3)


def test_a_volume_that_is_full(outcome: dict[str, dict[str, Any]]) -> None:
    """The tier is told to be full, by exit code and on the status board; publishing does not notice."""
    found = outcome["replicating"]
    assert found["code"] == 3
    assert "ENOSPC" in found["failures"][0]["message"]
    assert found["failures"][0]["hint"].startswith("make room on the volume")
    assert "ENOSPC" in found["shown"][0]
    assert (found["first"], found["tmp"], found["again"]) == (0, [], 0)


def test_a_target_that_is_full(outcome: dict[str, dict[str, Any]]) -> None:
    """Found out before, and, where the filesystem said otherwise, while it is written."""
    found = outcome["restoring"]
    assert [one["code"] for one in found["failures"]] == [11, 11]
    assert "needs 6700 bytes" in found["failures"][0]["message"]
    assert "the target is untouched" in found["failures"][1]["message"]
    assert (found["left"], found["exact"]) == (["ballast"], True)


@pytest.mark.parametrize(("free", "words"), [(0, "No space left"), (1 << 30, "could not write")])
def test_a_writer_of_torch_hides_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, words: str
) -> None:
    """A RuntimeError comes, whatever it was; how much is free tells."""
    usage = os.statvfs_result((4096, 4096, 1, 0, free // 4096, 0, 0, 0, 0, 255))
    store = RunStore(tmp_path / "toy")
    failure = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

    def write() -> None:
        monkeypatch.setattr(os, "statvfs", lambda _path: usage)
        raise failure

    with pytest.raises(LocalDisk, match=words), store.publish(next_update=1):
        write()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="trainer's own"), store.publish(next_update=1):
        raise RuntimeError("the trainer's own")
