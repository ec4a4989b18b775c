"""What may stand in the tree: no place of this machine, no registry, no loose end, no file too long."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from replicate.errors import ExitCode

ROOT = Path(__file__).parents[2]
MAX_LINES = 450
LOOSE_END = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
REGISTRY = re.compile(
    r"(?:files\.)?python" r"hosted\.org|\bpy" r"pi\.org|download\.py" r"torch\.org|conda\.anaconda\.org"
)


@cache
def tree() -> dict[str, str]:
    """Every text file that is tracked, or would be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files: dict[str, str] = {}
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            files[name] = data.decode()
    return files


def package_sources() -> list[str]:
    """Names and addresses that this machine's pip is configured with."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if re.search(r"index-url|find-links|trusted-host", line)]
    found = re.findall(r"[a-z+]+://([^\s'\"/]+)|(/[\w./-]{4,})", "\n".join(lines))
    return [host or path for host, path in found]


def places_of(pattern: re.Pattern[str]) -> list[str]:
    """Return file, line and text of each match."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in tree().items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("pattern", [LOOSE_END, REGISTRY], ids=["loose ends", "registries"])
def test_the_tree_holds_none(pattern: re.Pattern[str]) -> None:
    assert places_of(pattern) == []


def test_no_place_of_this_machine() -> None:
    """Neither the folder that the checkout lies in, nor the home folder, nor where packages come from."""
    here = [f"{folder}/" for folder in (ROOT.parent, Path.home()) if len(folder.parts) > 1]
    places = [place for place in (*here, *package_sources()) if place not in ("/tmp/", "localhost")]
    assert [found for place in places for found in places_of(re.compile(re.escape(place)))] == []


@pytest.mark.parametrize("package", ["replicate", "tiers", "cost"])
def test_no_file_is_too_long(package: str) -> None:
    lengths = {name: text.count("\n") for name, text in tree().items() if re.match(rf"{package}/.*\.py", name)}
    assert lengths
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_readme_says_what_an_operator_needs() -> None:
    readme = tree()["README.md"]
    assert "scripts/demo" in readme
    assert "scripts/test" in readme
    table = {int(match) for match in re.findall(r"^\| *(\d+) *\|", readme, re.MULTILINE)}
    assert table == {int(code) for code in ExitCode}
