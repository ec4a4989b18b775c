"""Run what loads models, templates or foreign code in a process of its own, offline and bounded.

The child (replicate.release.verifying.child) limits its own memory, CPU time and file
writes before it touches a byte of a release.  This side bounds its wall time, ends its
whole process group, and never imports torch or anything that the child was given.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import replicate
from replicate.errors import LocalDisk
from replicate.release.verifying.checks import Check, Verdict, not_done

_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "VIRTUAL_ENV")
_QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_DEACTIVATE_ASYNC_LOAD": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_AFTER_KILL = 10.0
"""Seconds for the pipes to close once the group is gone; what left the group may hold them open for ever."""
_REASON = 500


class Task(StrEnum):
    """What the child can do."""

    DESCRIBE = "describe"
    COMPARE = "compare"
    PLAN = "plan"
    LOAD = "load"
    TOKENIZE = "tokenize"
    LABEL = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one child.

    ``seconds`` are of wall time, and of CPU time.  ``memory_bytes`` come on top of what Python with
    torch takes and of a few times the size of what is loaded.
    """

    seconds: float = 1_800.0
    memory_bytes: int = 2 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to do, with arguments that JSON can carry; ``names`` are the checks that it answers.

    A job with ``foreign_code`` runs what the user wrote, and shares its child with no other kind.
    """

    task: Task
    names: tuple[str, ...]
    arguments: dict[str, Any]
    foreign_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a job: its checks, or for ``describe`` its ``data``."""

    checks: tuple[Check, ...]
    data: dict[str, Any] = field(default_factory=dict)


def run_jobs(jobs: Sequence[Job], *, limits: Limits, loaded_bytes: int) -> list[Answer]:
    """Do the jobs one after another in one child, and return an answer for each.

    ``loaded_bytes`` is the size of what will be loaded.  Where the child ended early, the job that
    it was at has failed and the later ones are not done.  Raises LocalDisk where no child can be started.
    """
    request = {
        "memory_bytes": limits.memory_bytes + 6 * loaded_bytes,
        "cpu_seconds": int(limits.seconds) + 1,
        "silent": any(job.foreign_code for job in jobs),
        "jobs": [{"task": job.task.value, "names": job.names, "arguments": job.arguments} for job in jobs],
    }
    try:
        with tempfile.TemporaryDirectory(prefix="ckptier-verify-", ignore_cleanup_errors=True) as scratch:
            path = Path(scratch) / "request.json"
            path.write_text(json.dumps(request), encoding="utf-8")
            answers, reason = _run(path, limits)
    except OSError as error:
        raise LocalDisk(
            f"the verifying process cannot be started: {error}", hint="check space in the temporary folder"
        ) from error
    unanswered = jobs[len(answers) :]
    return answers[: len(jobs)] + [_unanswered(job, reason if job is unanswered[0] else None) for job in unanswered]


def failed_at(names: Sequence[str], reason: str) -> Answer:
    """Return the answer of a job that broke: its first check failed, the others were not done."""
    rest = (not_done(name, f"see {names[0]}") for name in names[1:])
    return Answer(checks=(Check(name=names[0], verdict=Verdict.FAILED, detail=_trim(reason)), *rest))


def _unanswered(job: Job, reason: str | None) -> Answer:
    if reason is not None:
        return failed_at(job.names, reason)
    return Answer(checks=tuple(not_done(name, "the verifying process ended before it") for name in job.names))


def _run(request: Path, limits: Limits) -> tuple[list[Answer], str]:
    """Return what was answered, and why there is no more."""
    command = [sys.executable, "-P", "-B", "-m", "replicate.release.verifying.child", str(request)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=request.parent,
        env=_environment(os.environ.items(), request.parent),
        start_new_session=True,
    ) as child:
        late = False
        try:
            output, errors = child.communicate(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            late = True
            _end(child)
            output, errors = _rest(child)
        finally:
            _end(child)
    ended = f"took longer than {limits.seconds:g} s, and was ended"
    if not late:
        ended = f"the verifying process ended with status {child.returncode} without an answer: {_tail(errors)}"
    return [answer for line in output.splitlines() if (answer := _answer(line)) is not None], ended


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started in its group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _rest(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    try:
        return child.communicate(timeout=_AFTER_KILL)
    except subprocess.TimeoutExpired as error:
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        return error.stdout or b"", error.stderr or b""


def _environment(inherited: Iterable[tuple[str, str]], scratch: Path) -> dict[str, str]:
    """Pass on what finding Python takes and nothing that could hold a secret; caches and tokens lie elsewhere."""
    passed = {name: value for name, value in inherited if name in _PASSED}
    ours = str(Path(replicate.__file__).parents[1])
    inherited_path = os.environ.get("PYTHONPATH")
    return {
        **passed,
        **_QUIET,
        "HF_HOME": str(scratch / "hf"),
        "TMPDIR": str(scratch),
        "PYTHONPATH": f"{ours}{os.pathsep}{inherited_path}" if inherited_path else ours,
        "PYTHONUNBUFFERED": "1",
    }


def _answer(line: bytes) -> Answer | None:
    """Read a reply; None for what is none: cut off by the end of the child, or written by foreign code."""
    try:
        document = json.loads(line)
        checks = tuple(
            Check(name=str(one["name"]), verdict=Verdict(one["verdict"]), detail=_trim(str(one["detail"])))
            for one in document["checks"]
        )
        return Answer(checks=checks, data=dict(document["data"]))
    except (ValueError, KeyError, TypeError):
        return None


def _tail(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())[-_REASON:] or "it said nothing"


def _trim(text: str) -> str:
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= 4 * _REASON else words[: 4 * _REASON] + "…"
