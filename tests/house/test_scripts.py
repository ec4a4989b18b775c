"""The developer's interface: scripts that are there, can be run and are valid bash."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = (
    "scripts/install",
    "scripts/demo",
    "scripts/test",
    "scripts/soak",
    "scripts/bench",
    "scripts/check",
    ".ci/run",
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_is_executable_and_valid(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    subprocess.run(["bash", "-n", path], check=True)


def test_every_pin_is_exact() -> None:
    """The constraints are what makes two installs alike; a local version would not exist elsewhere."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert any(pin.startswith("torch==") for pin in pins)
    assert [pin for pin in pins if pin.count("==") != 1 or "+" in pin or "@" in pin] == []


def test_install_refuses_an_old_python(tmp_path: Path) -> None:
    """The message names what to do instead of a traceback from a syntax error."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install", "constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    command = ["bash", str(tmp_path / "scripts/install")]
    environment = {**os.environ, "PYTHON": str(old)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd="/")
    assert done.returncode == 1
    assert "3.11" in done.stderr
    assert not (tmp_path / ".venv").exists()
