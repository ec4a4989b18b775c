"""What anybody sees first: help, version, and a stranger under our name."""

import json
import os
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path

import pytest
from cli.driver import run_command

from replicate.cli.main import app

ROOT = Path(__file__).parents[2]
COMMANDS = (
    *("demo", "init", "check", "adopt", "replicate", "restore", "copy", "wait"),
    *("status", "list", "show", "explain", "verify", "safe-to-terminate"),
    *("rehearse", "compare"),
    *("prune", "gc", "pin", "unpin", "destroy"),
    *("repair", "takeover"),
)
GROUPS = ("keys", "cost", "release")
HEAVY = ("pydantic", "rich", "torch", "numpy", "boto3", "botocore", "watchdog", "sqlite3", "replicate.engine")


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=environment.pop("cwd", str(ROOT)),
        env={**os.environ, **environment},
    )


def test_every_command_is_listed_with_a_whole_sentence() -> None:
    done = run_command("--help")
    assert done.code == 0
    listed = done.out.partition("Commands:")[2].strip().splitlines()
    assert tuple(line.split()[0] for line in listed) == (*COMMANDS, *GROUPS)
    assert all(line.endswith((".", "?")) and not line.endswith("...") for line in listed), "cut off at 80 columns"


def test_the_commands_are_those_of_the_app() -> None:
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert names | {"list"} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_within_80_columns(command: str) -> None:
    done = run_command(command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: ckptier {command} ")
    assert "--json" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert "list[" not in done.out, "a Python type is nobody's idea of an argument"


def test_the_version_is_the_distributions() -> None:
    done = run_command("--version")
    assert (done.code, done.out) == (0, f"ckptier {version('ckptier')}\n")


@pytest.mark.parametrize(
    "arguments", [(), ("bogus",), ("status", "--bogus"), ("show",), ("adopt", "x"), ("wait", "--timeout", "soon")]
)
def test_a_command_put_together_wrongly_is_usage(arguments: tuple[str, ...]) -> None:
    done = run_command(*arguments)
    assert done.code == 2
    assert "Usage: ckptier" in done.out + done.err


def test_help_loads_nothing_of_weight() -> None:
    code = f"""
        import json, sys
        sys.argv = ["ckptier", "--help"]
        from ckptier_command import entry
        try:
            entry()
        except SystemExit as leaving:
            assert not leaving.code
        sys.stderr.write(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
    """
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr) == []


def test_importing_the_library_loads_no_sdk_and_no_torch() -> None:
    code = """
        import sys, replicate
        assert replicate.RunStore
        print([name for name in ("torch", "boto3", "botocore", "typer", "rich") if name in sys.modules])
    """
    assert python(code).stdout == "[]\n"


@pytest.mark.parametrize("as_module", [False, True])
def test_a_stranger_called_replicate_is_explained(tmp_path: Path, as_module: bool) -> None:
    """PyPI has a package of that name; the one that is first on the path wins."""
    if as_module:
        found = tmp_path / "replicate.py"
    else:
        (tmp_path / "replicate").mkdir()
        found = tmp_path / "replicate" / "__init__.py"
    found.write_text("def run(*a): ...\n")
    code = """
        import importlib, sys
        sys.path.insert(0, sys.argv.pop(1))
        sys.argv = ["ckptier", "status"]
        importlib.import_module("ckptier_command").entry()
    """
    done = python(code, str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(found) in done.stderr
    assert "pip uninstall replicate" in done.stderr
    assert "Traceback" not in done.stderr
