"""One record of everything, taken once: what the scenarios did, as the kernel saw it."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from durability.promises import MEMORY, split
from support.strace_log import Operation, read_log, traced

ROOT = Path(__file__).parents[2]
SCENARIOS = Path(__file__).parent / "scenarios.py"
LONG = os.environ.get("CKPTIER_CRASH_STATES") == "all"
"""Whether every state, every kill and every fsync is tried (minutes), rather than a fixed choice of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What happened below ``root``, by scenario; ``operations`` is the whole of it."""

    root: Path
    operations: list[Operation]
    scenarios: dict[str, list[Operation]]


def record(root: Path, log: Path, *arguments: str) -> Record:
    """Run scenarios under strace."""
    command = [sys.executable, str(SCENARIOS), str(root), *arguments]
    paths = f"{ROOT}:{ROOT / 'tests'}"
    traced(command, log, environment={"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"})
    operations = read_log(log, root)
    return Record(root=root, operations=operations, scenarios=split(operations))


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """Return a folder in memory where there is one: nothing here depends on a real disk."""
    with TemporaryDirectory(dir=MEMORY, prefix="ckptier-durability-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def recorded(memory: Path) -> Record:
    """Every scenario, once."""
    (memory / "scenarios").mkdir()
    return record(memory / "scenarios", memory / "strace")


@pytest.fixture(scope="session")
def inherited(memory: Path) -> Record:
    """Record processes killed before the fsync of a name, what their heirs promise, and a wrong program."""
    (memory / "heirs").mkdir()
    steps = {"publish": 9, "replicate": 15, "replicate-direct": 19, "restore": 21, "restore-to": 17}
    verbs = [f"killed:{verb}:{1 if LONG else step}" for verb, step in steps.items()]
    return record(memory / "heirs", memory / "strace-heirs", *verbs, "forgetful:/generations/")
