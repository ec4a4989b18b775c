"""What users import and type, pinned: a change here is a change of the interface."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import replicate
from replicate.errors import ExitCode
from tiers.protocol import Tier

VERBS = {
    "put", "create", "open", "stat", "list_objects", "copy", "delete", "close",
    "begin_upload", "put_part", "list_parts", "copy_part", "complete", "abort",
}  # fmt: skip
HEAVY = ("torch", "numpy", "boto3", "botocore", "typer", "rich", "watchdog")


def test_one_name_is_exported() -> None:
    assert replicate.__all__ == ["RunStore"]
    with pytest.raises(AttributeError):
        _ = replicate.Nothing


def test_a_tier_has_fourteen_verbs() -> None:
    members = {name for name, value in vars(Tier).items() if not name.startswith("_") and callable(value)}
    assert members == VERBS
    assert len(VERBS) == 14


def test_exit_codes_are_an_interface() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0, "ERROR": 1, "USAGE": 2, "PARTIAL": 3, "NOTHING": 4, "INTEGRITY": 5, "TRUST": 6, "FENCED": 7,
        "DENIED": 8, "UNREACHABLE": 9, "CONFIG": 10, "DISK": 11, "CAPABILITY": 12, "NOT_SAFE": 20,
        "INTERRUPTED": 130, "TERMINATED": 143,
    }  # fmt: skip


@pytest.mark.parametrize("statement", ["import replicate", "from replicate import RunStore"])
def test_importing_is_light(statement: str) -> None:
    """A training script pays for what it uses; ``status`` must not wait for an SDK."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert loaded.isdisjoint(HEAVY), loaded.intersection(HEAVY)


def test_what_only_looks_loads_nothing_that_moves_bytes() -> None:
    """``status`` is asked from scripts and prompts: what it does not show, it does not load."""
    code = (
        "import replicate.looking, replicate.render.looking, json, sys\n"
        "print(json.dumps([name for name in sys.modules if name.startswith(('replicate.', 'tiers.', 'cost'))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert "replicate.status" in loaded
    moving = {"commit", "upload", "session", "daemon", "restore", "verify", "opening", "tracker", "retention"}
    assert loaded.isdisjoint({*(f"replicate.{name}" for name in moving), "tiers.opening", "cost"})


def test_help_is_there_and_light() -> None:
    """The installed command answers, and loads neither torch nor an SDK to do so."""
    command = Path(sys.executable).with_name("ckptier")
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "NO_COLOR": "1"}
    done = subprocess.run([command, "--help"], check=True, capture_output=True, text=True, env=environment)
    assert "replicate" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "numpy", "boto3", "botocore"})
