"""The program that loads what a release holds: one request, one line of JSON for each job.

Run as ``python -m replicate.release.verifying.child REQUEST``.  Libraries are imported first,
then memory, CPU time and file writes are limited, and only then is anything of the release or
of the user's code read.  What a job raises is its finding.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from replicate.errors import CapabilityMissing
from replicate.generation.torch_check import limit
from replicate.release.verifying.checks import Check, not_done, words
from replicate.release.verifying.sandbox import Answer, Task, failed_at

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = frozenset(
    {
        "os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn", "os.spawn", "os.system",
        "pty.spawn", "socket.bind", "socket.connect", "socket.getaddrinfo", "subprocess.Popen",
    }
)  # fmt: skip
_CHANGING = frozenset(
    {
        "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink",
        "os.truncate", "os.utime", "shutil.rmtree",
    }
)  # fmt: skip
_LIBRARIES = ("torch", "transformers", "peft")


def main(arguments: list[str]) -> int:
    """Do the jobs of the request in turn."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    replies = _take_stdout(silent=request["silent"])
    needed = {name for job in request["jobs"] for name in job["arguments"].get("libraries", ())}
    for name in _LIBRARIES:
        with suppress(ImportError):  # the job that needs it says so
            if name in needed:
                importlib.import_module(name)
    tempfile.gettempdir()  # found by writing to it, which the limits below forbid; it is remembered
    limit(request["memory_bytes"], request["cpu_seconds"])
    sys.addaudithook(_refuse_effects)
    for job in request["jobs"]:
        answer = do(Task(job["task"]), job["names"], job["arguments"])
        document = {"checks": [_plain(check) for check in answer.checks], "data": answer.data}
        replies.write(json.dumps(document).encode() + b"\n")
        replies.flush()
        gc.collect()
    return 0


def _take_stdout(*, silent: bool) -> BinaryIO:
    """Keep the pipe for replies to ourselves: what a library or foreign code prints must not look like one."""
    replies = os.fdopen(os.dup(1), "wb")
    if silent:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
    os.dup2(2, 1)
    return replies


def _refuse_effects(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what nothing that loads a model needs.

    A hook cannot be taken away again, but native code passes it by: this stops code that does too
    much, not code that is out to do harm.
    """
    if event in _REFUSED:
        raise PermissionError(f"{event} is not allowed while a release is verified")
    writes = event == "open" and arguments[2] & _WRITING and arguments[0] != os.devnull
    if (writes or event in _CHANGING) and not _is_scratch(arguments[0]):
        raise PermissionError(f"{event} of {arguments[0]!r} for writing is not allowed while a release is verified")


def _is_scratch(path: Any) -> bool:
    """Whether a path is in the child's own temporary folder, where libraries make empty caches."""
    return isinstance(path, str) and path.startswith(tempfile.gettempdir() + os.sep) and ".." not in path


def do(task: Task, names: Sequence[str], arguments: dict[str, Any]) -> Answer:
    """Do one job; ``names`` are the checks that it answers.  Whatever it raises is its finding."""
    try:
        return _job(task)(arguments)
    except CapabilityMissing as error:
        return Answer(checks=tuple(not_done(name, f"{error.message}: {error.hint}") for name in names))
    except BaseException as error:  # noqa: BLE001 - whatever a release or its code provokes is the finding
        return failed_at(names, words(error))


def _job(task: Task) -> Callable[[dict[str, Any]], Answer]:
    """Return what does the task; each module loads its libraries when it is called."""
    module = {
        Task.DESCRIBE: "building",
        Task.COMPARE: "comparing_child",
        Task.PLAN: "planning_child",
        Task.LOAD: "loading_child",
        Task.TOKENIZE: "tokenizing_child",
        Task.LABEL: "labelling_child",
    }[task]
    found = importlib.import_module(f"replicate.release.verifying.{module}")
    job: Callable[[dict[str, Any]], Answer] = found.run
    return job


def _plain(check: Check) -> dict[str, str]:
    return {"name": check.name, "verdict": check.verdict.value, "detail": check.detail}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
