"""A peer's harness, ckpt-chaos, kills our programs at every file event that it sees, and judges what comes back.

It sees what Python opens, renames and removes by name.  It does not see links, what SQLite does,
or a name that was not synced: it proves nothing about power loss (tests/crash does that).
Every start is a fork of a process that has imported everything; the long form also starts some anew.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

HERE = Path(__file__).parent
CHAOS = Path(sys.executable).with_name("ckpt-chaos")
MODES = ("before", "torn", "term")
BAD = "HARD_FAIL,SILENT_DIVERGENCE,LOST_WORK,CONTROL_FAIL"
PATHS = f"{HERE.parent}{os.pathsep}{HERE.parents[1]}"
MINIMUM = {
    "writer": {"before": 59, "torn": 5, "term": 59},
    "daemon": {"before": 38, "torn": 1, "term": 38},
    "restore": {"before": 19, "torn": 1, "term": 19},
    "probing": {"before": 84, "torn": 1, "term": 84},
}
"""Points of each mode; raised where a change adds file events, lowered only where one is gone on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the harness said: its exit code, its count of verdicts, and each point's mode and end."""

    code: int
    text: str
    verdicts: Counter[str]
    points: tuple[tuple[str, dict[str, object]], ...]

    def per_mode(self) -> Counter[str]:
        return Counter(mode for mode, _ in self.points)

    def count(self, mode: str, **fields: object) -> int:
        return sum(1 for found, point in self.points if found == mode and fields.items() <= point.items())


def run(command: Sequence[str], work: Path, *, points: int = 100_000) -> Outcome:
    """Run the harness over a command, at every point of the three modes or at so many, evenly spread."""
    options = [
        "--modes", ",".join(MODES), "--max-points", str(points), "--grace", "20", "--timeout", "60",
        "--checkpoint-glob", "{out}/ckpt-*", "--step-regex", r"resumed from step (\d+)",
        "--result-file", "{out}/result.json", "--fail-on", BAD, "--work", str(work),
    ]  # fmt: skip
    done = subprocess.run(
        [str(CHAOS), "run", *options, "--", *command],
        capture_output=True, text=True, check=False, timeout=1800, env={**os.environ, "PYTHONPATH": PATHS},
    )  # fmt: skip
    last = done.stdout.strip().rpartition("\n")[2]
    verdicts = Counter({name: int(count) for name, count in re.findall(r"([A-Z_]+): (\d+)", last)})
    judged = []
    for path in sorted(work.glob("pt_[0-9]*/result.json")):
        point = json.loads(path.read_text())
        judged.append((point["point"][1], point))
    return Outcome(code=done.returncode, text=done.stdout + done.stderr, verdicts=verdicts, points=tuple(judged))


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """Return a folder in memory: nothing here outlives a power cut anyway."""
    place = Path("/dev/shm")
    with TemporaryDirectory(dir=place if os.access(place, os.W_OK) else None, prefix="ckptier-chaos-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def warm(memory: Path) -> Iterator[Path]:
    """Serve starts of recipes; returns the folder that ``launch.sh`` names."""
    (memory / "warm" / "base").mkdir(parents=True)
    command = [sys.executable, str(HERE / "warm.py"), str(memory / "warm")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": PATHS}) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield memory / "warm"
        finally:
            os.kill(process.pid, signal.SIGKILL)


def launched(warm: Path, what: str) -> list[str]:
    return [str(HERE / "launch.sh"), str(warm), what, "{out}"]


def check_passes(outcome: Outcome) -> None:
    """Check that every point that was chosen was reached, as the plan says, and passed."""
    assert outcome.code == 0, outcome.text
    assert set(outcome.verdicts) == {"PASS"}, outcome.text
    assert outcome.verdicts["PASS"] == len(outcome.points) + 1, "and the control"
    assert not [point["label"] for _, point in outcome.points if point["drift"]]
    for mode in ("before", "torn"):
        assert outcome.count(mode, crashed=True) == outcome.per_mode()[mode]


def check_all_pass(outcome: Outcome, what: str) -> None:
    """Check that too, and that no points were lost."""
    check_passes(outcome)
    found = outcome.per_mode()
    assert {mode: found[mode] for mode in MODES if found[mode] < MINIMUM[what][mode]} == {}, f"points now: {found}"


@pytest.mark.parametrize("what", ["writer", "daemon", "restore", pytest.param("probing", marks=pytest.mark.long)])
def test_every_point_passes(what: str, warm: Path, memory: Path) -> None:
    """None raises, comes back different, or starts from less than was complete."""
    work = memory / what
    outcome = run(launched(warm, what), work)
    check_all_pass(outcome, what)
    ended_well = outcome.count("term", crashed=False)
    if what in ("daemon", "probing"):  # but for the folder that is there before it listens to signals
        assert ended_well >= MINIMUM[what]["term"] - 5, "a daemon that is asked to go finishes what is sealed"
    else:
        assert ended_well == 0, "training and restore end at the signal"
    shutil.rmtree(work)


@pytest.mark.parametrize(
    ("what", "verdict", "least"), [("naive", "HARD_FAIL", 2), ("forgetful", "LOST_WORK", 6)], ids=["naive", "forgetful"]
)
def test_a_program_that_does_it_wrong_fails(what: str, verdict: str, least: int, warm: Path, memory: Path) -> None:
    """Else the harness, or how it is asked, could tell nothing."""
    outcome = run(launched(warm, what), memory / what)
    assert outcome.code == 1, outcome.text
    assert outcome.verdicts[verdict] >= least, outcome.text


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("what", ["writer", "daemon", "restore"])
def test_points_pass_where_each_start_is_a_new_process(what: str, memory: Path) -> None:
    """The programs as they are, without the fork: a choice of points, since each costs two starts of Python."""
    from chaos import recipe  # noqa: PLC0415 - only here is its base made in this process

    base = memory / f"plain-{what}" / "base"
    base.mkdir(parents=True)
    recipe.prepare(base)
    command = [sys.executable, str(HERE / "recipe.py"), what, str(base), "{out}"]
    outcome = run(command, memory / f"plain-{what}" / "work", points=24)
    check_passes(outcome)
    assert sum(outcome.per_mode().values()) >= 17
