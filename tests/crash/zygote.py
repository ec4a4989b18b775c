"""The outside of the processes that are killed: starting them, and reading what they left."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHILD = Path(__file__).parents[1] / "support" / "crash_child.py"


@dataclass(frozen=True, slots=True)
class Point:
    """One announcement."""

    kind: str
    what: str
    moment: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A write that the tier accepted."""

    verb: str
    key: str
    number: int
    size: int

    @property
    def data(self) -> bool:
        """Whether it carried a trainer's bytes."""
        return "/files/" in self.key and self.verb != "complete"

    @property
    def what(self) -> tuple[str, str, int]:
        """Which bytes of which generation, whatever prefix they were sent under."""
        prefix, _, path = self.key.partition("/files/")
        return (prefix.rpartition(".t")[0], path, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one child did.  ``result`` is None where it died first."""

    killed: bool
    points: tuple[Point, ...]
    sent: tuple[Sent, ...]
    result: dict[str, Any] | None
    error: str | None

    def per_kind(self) -> Counter[str]:
        """Effects by kind (each is announced before and after)."""
        return Counter(point.kind for point in self.points if point.moment == "before")

    @property
    def last(self) -> str:
        """Where it died, for messages."""
        point = self.points[-1]
        return f"{point.moment} {point.kind} {point.what}"


class Zygote:
    """Runs jobs one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, verb: str, journal: Path, *, kill_at: int | None = None, **job: Any) -> Run:
        """Run one job; with ``kill_at`` it dies at that announcement, if it gets so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"verb": verb, "journal": str(journal), "kill_at": kill_at, **job}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        run = read_journal(journal, killed=code == -signal.SIGKILL)
        assert code in (0, -signal.SIGKILL), f"{verb} ended with {code}: {run.error}"
        return run

    def finish(self, verb: str, journal: Path, **job: Any) -> dict[str, Any]:
        """Run one job to its end; returns its result."""
        result = self.run(verb, journal, **job).result
        assert result is not None
        return result


def read_journal(path: Path, *, killed: bool) -> Run:
    """Read what a child wrote down."""
    points, sent = [], []
    result, error = None, None
    for kind, *fields in map(json.loads, path.read_text().splitlines()):
        match kind:
            case "point":
                points.append(Point(*fields))
            case "sent":
                sent.append(Sent(*fields))
            case "result":
                result = fields[0]
            case _:
                error = fields[0]
    return Run(killed=killed, points=tuple(points), sent=tuple(sent), result=result, error=error)


@contextmanager
def zygote(log: Path) -> Iterator[Zygote]:
    """Start one; it ends with the block."""
    environment = {**os.environ, "PYTHONPATH": str(CHILD.parents[2])}
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            env=environment,
        )
    with process:
        yield Zygote(process)
        assert process.stdin is not None
        process.stdin.close()  # the end of its jobs
