"""``ckptier copy``: its words, its one document, its exit codes."""

from pathlib import Path

import pytest
from cli.driver import Project, volume
from support.commits import tree

from replicate.errors import ExitCode
from replicate.generation.locks import Flock
from replicate.layout import GenerationId


@pytest.fixture
def two(tmp_path: Path) -> tuple[Project, GenerationId, GenerationId]:
    """Return a project whose generations are on ``first``, and a second, empty tier."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    project = Project(folder=tmp_path / "project", tiers={"first": volume(tmp_path / "one")}).write()
    older, newer = project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    both = {"first": volume(tmp_path / "one"), "second": volume(tmp_path / "two")}
    return Project(folder=project.folder, tiers=both).write(), older, newer


Two = tuple[Project, GenerationId, GenerationId]


def test_copy_says_what_it_did(two: Two) -> None:
    project, _older, newer = two
    text = project("copy", "--from", "first", "--to", "second")
    assert text.code == 0
    text.says(f"second: copied {newer} (", "verified by read-")
    again = project("copy", "--from", "first", "--to", "second")
    assert again.code == 0
    again.says(f"{newer} is on second already, and intact", "nothing to do")


def test_copy_in_json(two: Two) -> None:
    project, older, newer = two
    found = project("copy", "--from", "first", "--to", "second", "--all", "--json").result()
    assert [(one["generation"], one["outcome"]) for one in found["generations"]] == [
        (str(newer), "copied"),
        (str(older), "copied"),
    ]
    assert (found["source"], found["target"], found["dry_run"]) == ("first", "second", False)
    listed = project("list", "--json").result()["generations"]
    places = [{place["place"] for place in one["places"]} for one in listed]
    assert all({"first", "second"} <= found for found in places)


def test_a_dry_run_changes_nothing(two: Two, tmp_path: Path) -> None:
    project, older, _newer = two
    before = tree(tmp_path)
    text = project("copy", "--from", "first", "--to", "second", "--generation", str(older), "--dry-run")
    assert text.code == 0
    text.says(f"would copy {older}: ", "requests to first, ")
    assert tree(tmp_path) == before


def test_damage_is_told_with_the_object_and_a_next_step(two: Two, tmp_path: Path) -> None:
    project, _older, newer = two
    (hurt,) = (tmp_path / "one").glob(f"toy/generations/{newer}.*/files/model.bin")
    data = hurt.read_bytes()
    hurt.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = project("copy", "--from", "first", "--to", "second")
    assert done.code == ExitCode.INTEGRITY
    done.says(f"DAMAGED on first: {newer}: ", "files/model.bin", "nothing was copied", "next: ")
    assert project("copy", "--from", "first", "--to", "second", "--json").document()["exit_code"] == 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--from", "first", "--to", "first"), ExitCode.USAGE),
        (("--from", "first", "--to", "second", "--all", "--newest"), ExitCode.USAGE),
        (("--from", "first", "--to", "second", "--generation", "x"), ExitCode.USAGE),
        (("--from", "nowhere", "--to", "second"), ExitCode.CONFIG),
        (("--from", "second", "--to", "first"), ExitCode.NOTHING),
    ],
)
def test_what_cannot_be_done_is_an_error_with_a_next_step(two: Two, arguments: tuple[str, ...], code: ExitCode) -> None:
    project, _older, _newer = two
    done = project("copy", *arguments, "--json")
    assert done.code == code
    assert done.error()["hint"]


def test_a_running_daemon_keeps_it_out_with_words(two: Two) -> None:
    project, _older, _newer = two
    lock = Flock.attempt(project.local.daemon_lock)
    assert lock is not None
    done = project("copy", "--from", "first", "--to", "second")
    lock.release()
    assert done.code == ExitCode.FENCED
    done.says("replicates", "next: ", "stop it")
