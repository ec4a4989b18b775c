"""Starting :mod:`support.fuse_server` for a test, and telling it what to fail at.

Where this machine forbids mounting, such a test is skipped by name: the one skip that CI lets
pass (tests/house/forbid_skips.py), and shows.
"""

import errno
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from support import fuse_server
from support.fuse_server import Failure, Rules

NO_FUSE = "this machine forbids FUSE mounts: root and /dev/fuse are needed"
_PATIENCE = 30
"""Seconds until a server that does not answer is given up."""

NO_RENAME = (
    Failure("RENAME", errno.EPERM),
    Failure("RENAME2", errno.EINVAL),
    Failure("LINK", errno.EPERM),
)
OBJECT_MOUNT = Rules(failures=list(NO_RENAME), sequential=True, write_once=True)
"""What mounts of object stores do: a file is written once, front to back, and keeps its name."""


class FuseMount:
    """A mounted filesystem: ``point`` is where, ``backing`` holds its files."""

    def __init__(self, process: "subprocess.Popen[str]", backing: Path, point: Path) -> None:
        self._process = process
        self.backing = backing
        self.point = point

    def rule(self, rules: Rules) -> None:
        """Replace the rules; what fired is counted from here on."""
        self._ask(json.dumps(asdict(rules)))

    @property
    def fired(self) -> dict[str, int]:
        """How often each operation was failed since the rules were set."""
        found: dict[str, int] = json.loads(self._ask("{}"))
        return found

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return answer_of(self._process)


def answer_of(process: "subprocess.Popen[str]") -> str:
    """Return the next line of a server, or fail."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
    line = process.stdout.readline() if ready else ""
    assert line, "the FUSE server does not answer: it needs /dev/fuse and the right to mount (root)"
    return line.rstrip("\n")


@contextmanager
def fuse_mount(folder: Path, rules: Rules | None = None) -> Iterator[FuseMount]:
    """Mount a filesystem below ``folder`` while the block runs."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip(NO_FUSE)
    backing, point = folder / "backing", folder / "mounted"
    backing.mkdir()
    point.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(Path(fuse_server.__file__)), str(backing), str(point)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    with process:
        try:
            assert answer_of(process) == "ready"
            mounted = FuseMount(process, backing, point)
            mounted.rule(rules or Rules())
            yield mounted
        finally:
            fuse_server.unmount(point)  # before the server goes: whoever still has it open gets an error, not a wait
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_PATIENCE)
            finally:
                process.kill()
