"""Documents of the store in whose place something lies that need not end, or is waited for."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from cli.driver import Project

from replicate.errors import ExitCode

MEANS = {"status.json": ExitCode.OK, "LATEST.json": ExitCode.OK, "lineage.json": ExitCode.DISK}


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Fail, not hang, where something is waited for."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("it is waited for")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["fifo", "device"])
@pytest.mark.parametrize("name", MEANS)
def test_i14_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    project = Project(folder=tmp_path).write()
    project.publish(100)
    path = project.local.root / name
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")
    for command in (("status",), ("safe-to-terminate",)):
        assert project(*command).code in (MEANS[name], ExitCode.NOT_SAFE), command
