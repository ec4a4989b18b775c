"""Asking the limited process for the tensors that two files differ in."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import replicate
from replicate.bounded import Ended, run_bounded
from replicate.causal import Comparison, Stage
from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.generation.disk import local_io
from replicate.generation.torch_check import NO_TORCH
from replicate.generation.validate import Limits, limited_environment
from tiers.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What loading found: how many values were compared, those that differ (the first ones), and what failed."""

    compared: int
    differing: int
    differences: tuple[Comparison, ...]
    faults: tuple[str, ...]


def compare_files(paths: Sequence[str], a: Path, b: Path, limits: Limits, clock: Clock) -> Loaded:
    """Compare files of the same path in two folders; raises CapabilityMissing without torch, IntegrityFailure."""
    with local_io(a, "comparing its files"):
        size = sum((folder / path).stat().st_size for path in paths for folder in (a, b))
        request = {
            "memory_bytes": size + limits.memory_bytes,
            "cpu_seconds": int(limits.seconds) + 1,
            "pairs": [
                {"path": path, "a": str((a / path).absolute()), "b": str((b / path).absolute())} for path in paths
            ],
        }
        ours = str(Path(replicate.__file__).parents[1])
        environment = limited_environment(os.environ.items())
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (ours, environment.get("PYTHONPATH"))))
        ended = run_bounded(
            [sys.executable, "-P", "-B", "-m", "replicate.comparing.child", json.dumps(request)],
            environment=environment,
            folder=a,
            seconds=limits.seconds,
            clock=clock,
        )
    return _answer(ended, limits)


def _answer(ended: Ended, limits: Limits) -> Loaded:
    if ended.status == NO_TORCH:
        raise CapabilityMissing("tensors cannot be compared without torch", hint="pip install 'ckptier[torch]'")
    lines = ended.tail.splitlines()
    if ended.late or ended.status != 0 or not lines:
        why = f"took longer than {limits.seconds:g} s" if ended.late else ended.words
        words = " ".join(ended.tail.split())[-300:]
        raise IntegrityFailure(
            f"the process that loads the tensors {why}: {words}", hint="`ckptier verify` checks the files' bytes"
        )
    answer = json.loads(lines[-1])
    return Loaded(
        compared=answer["compared"],
        differing=answer["differing"],
        differences=tuple(
            Comparison(stage=Stage(one["stage"]), name=one["name"], equal=False, detail=one["detail"])
            for one in answer["differences"]
        ),
        faults=tuple(answer["faults"]),
    )
