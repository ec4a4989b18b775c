"""From evidence to retention, beside a running daemon; and what a killed rehearsal leaves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from daemon.stage import Machine, inside, publish, until, volume_view
from rehearsing.rehearsals import FUNCTIONS, Stage, alive, configure

from replicate import RunStore
from replicate.generation.locks import Flock
from replicate.layout import GenerationId
from replicate.pruning import Pruning
from replicate.rehearsal import RehearsalRequest, Rehearsing
from replicate.rehearsing.scratch import PREFIX, scratch, sweep


def test_local_retention_waits_for_the_rehearsal_and_goes_on_after_it(tmp_path: Path) -> None:
    """The daemon holds its locks all the while: evidence files are all that passes between the two."""
    machine = Machine(tmp_path / "machine")
    machine.configure(machine.volume(), keep_last=1, local_requires="rehearsed", poll_seconds=0.05)
    (machine.folder / "mine.py").write_text(FUNCTIONS.replace('"meta" / "state.json"', '"state.bin"'))
    older = GenerationId.parse(publish(machine.root, 100))
    newer = GenerationId.parse(publish(machine.root, 200))

    def held() -> list[GenerationId]:
        return sorted(one.id for one in RunStore(machine.root).generations())

    def rehearse(function: str) -> bool:
        request = RehearsalRequest(generation=older, function=f"mine:{function}")
        return Rehearsing(machine.config).rehearse(request).passed

    def reason() -> str:
        (place,) = Pruning(machine.config).prune(tier="local").places
        assert place.plan is not None
        return next(one.reasons[0].text for one in place.plan.verdicts if one.id == older)

    with inside(machine):
        until(lambda: {one.id for one in volume_view(machine.folder / "vol").live} == {older, newer}, "both committed")
        assert reason().endswith(", not rehearsed")
        assert not rehearse("raising")
        assert reason().endswith(", not rehearsed")
        assert held() == [older, newer]
        assert rehearse("silent")
        until(lambda: held() == [newer], "what was rehearsed has gone from the store")


def test_a_rehearsal_that_was_killed_is_swept_by_the_next(stage: Stage) -> None:
    """Kill -9: its child goes with it, and the lock of its scratch is free."""
    configure(stage.project, section='function = "mine:hanging"')
    pids = stage.project.folder / "pids"
    with subprocess.Popen(
        [sys.executable, "-m", "ckptier_command", "rehearse", "--config", str(stage.project.config)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:  # fmt: skip
        until(pids.exists, "the function runs")
        child, grandchild = map(int, until(pids.read_text, "both are written").split())
        assert sweep(stage.project.local.root.parent) == (), "it lives"
        process.send_signal(signal.SIGKILL)
    try:
        until(lambda: not alive(child), "the child ends with its parent")
    finally:
        os.kill(grandchild, signal.SIGKILL)
    left = stage.leftovers()
    assert len(left) == 2
    assert all(name.startswith(PREFIX) for name in left)
    assert stage.rehearse("good").passed
    assert stage.leftovers() == []


def test_scratch_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    with scratch(tmp_path) as folder:
        (folder / "file").write_text("x")
        assert sweep(tmp_path) == ()
        with scratch(tmp_path) as other:
            assert other != folder
        assert (folder / "file").exists()
    assert list(tmp_path.iterdir()) == []


def test_scratch_that_lost_its_folder_or_never_had_one_is_swept(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}0123.lock").touch()
    (tmp_path / f"{PREFIX}4567").mkdir()
    (tmp_path / f"{PREFIX}4567" / "files").mkdir(mode=0o500)
    (tmp_path / f"{PREFIX}4567.lock").touch()
    (tmp_path / "else").touch()
    held = Flock.take(tmp_path / f"{PREFIX}89ab.lock")
    try:
        assert [path.name for path in sweep(tmp_path)] == [f"{PREFIX}0123", f"{PREFIX}4567"]
    finally:
        held.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}89ab.lock", "else"]
