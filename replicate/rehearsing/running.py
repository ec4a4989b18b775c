"""Starting the user's function beside the restored files, and reading what it answered."""

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from replicate.bounded import Ended, run_bounded
from replicate.errors import ConfigInvalid
from replicate.generation.disk import local_io
from replicate.generation.rehearsals import MAX_OBSERVATIONS
from replicate.layout import GenerationId
from replicate.rehearsing import child
from replicate.rehearsing.observations import Answer, read_answer
from tiers.clock import Clock

GENERATION = "CKPTIER_GENERATION"
"""Environment variable that names the generation to the function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """What to call, and within which bounds.

    ``base`` is where it runs.  ``memory_bytes`` bounds the private memory of each of its processes.
    """

    named: str
    base: Path
    python_path: tuple[str, ...]
    seconds: float
    memory_bytes: int | None

    def require_module(self) -> None:
        """Raise ConfigInvalid where its package is nowhere to be found: before anything is fetched for it."""
        top = self.named.partition(":")[0].partition(".")[0]
        if PathFinder.find_spec(top, list(self.python_path)) is not None:
            return
        try:
            found = importlib.util.find_spec(top)
        except ValueError:  # a module that was put together by hand; the child will see
            return
        if found is None:
            raise unusable(self, f"there is no module {top!r}")


def unusable(function: Function, why: str) -> ConfigInvalid:
    """Return the error for a function that cannot be called."""
    places = ", ".join(function.python_path)
    return ConfigInvalid(
        f"rehearse: {function.named}: {why}",
        hint=f"python_path of [rehearse] says where modules lie (now {places}), beside what is installed",
    )


def call(
    function: Function, directory: Path, workspace: Path, generation: GenerationId, clock: Clock
) -> tuple[Ended, Answer | None]:
    """Call it in a process of its own, with the restored ``directory``; raises ConfigInvalid, LocalDisk.

    The process inherits the environment, and nothing but the path of its request in argv.
    """
    request, result = workspace / "request.json", workspace / "result.json"
    document = {
        "function": function.named,
        "directory": str(directory),
        "python_path": function.python_path,
        "memory_bytes": function.memory_bytes,
        "max_bytes": MAX_OBSERVATIONS,
        "result": str(result),
        "parent": os.getpid(),
    }
    environment = {
        **os.environ,
        GENERATION: str(generation),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with local_io(workspace, "starting the rehearsal"):
        request.write_text(json.dumps(document), encoding="utf-8")
        ended = run_bounded(
            [sys.executable, "-P", str(Path(child.__file__)), str(request)],
            environment=environment,
            folder=function.base,
            seconds=function.seconds,
            clock=clock,
        )
    answer = read_answer(result)
    if answer is not None and answer.unusable:
        raise unusable(function, answer.unusable)
    return ended, answer
