"""Running a client as a child process and accounting for that process alone."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sidebyside.figures import Figure
from benchmarks.sidebyside.servers import environment
from tiers.clock import SystemClock

CLOCK = SystemClock()
TAIL = 400


class ClientFailed(RuntimeError):
    """A client ended with an error; the message is the end of what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A child that ended well, and what else it printed."""

    figure: Figure
    marks: Mapping[str, Any]


def run_child(command: Sequence[str], *, extra: Mapping[str, str], log: Path) -> Ran:
    """Run a child to its end.  CPU and memory are its own and its children's, by wait4 (spawn.py), not the server's."""
    variables = environment(extra)
    spent = log.with_suffix(".spent")
    spawn = [sys.executable, "-m", "benchmarks.sidebyside.spawn", str(spent), *command]
    with log.open("wb") as said:
        subprocess.run(
            spawn,
            check=True,
            env=variables,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    text, took = log.read_text(encoding="utf-8", errors="replace"), json.loads(spent.read_text(encoding="utf-8"))
    if took["code"] != 0:
        raise ClientFailed(f"exit {took['code']}: {' '.join(text[-TAIL:].split())}")
    marks = _marks(text)
    figure = Figure(
        wall=took["wall"],
        cpu=took["cpu"],
        peak_mib=took["peak_mib"],
        operation_wall=marks["ended"] - marks["began"] if marks else None,
        operation_cpu=marks.get("cpu"),
        began=marks.get("began"),
        ended=marks.get("ended"),
    )
    return Ran(figure=figure, marks=marks)


def _marks(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        if line.startswith('{"began"'):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a live process and the children it waited for have used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Return the memory that a live process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
