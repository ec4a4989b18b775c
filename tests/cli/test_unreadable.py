"""One generation whose own document cannot be read hides none of the others."""

import json

import pytest
from cli.driver import Project

from replicate import canonical
from replicate.errors import ExitCode


def broken(project: Project, text: bytes) -> tuple[str, str]:
    older, newer = project.publish(100, 200)
    (project.local.generation(newer) / "generation.json").write_bytes(text)
    return str(older), str(newer)


@pytest.mark.parametrize("command", ["status", "list", "explain"])
def test_a_damaged_document_is_shown_and_the_rest_goes_on(project: Project, command: str) -> None:
    older, newer = broken(project, b"{")
    done = project("replicate", "--once")
    assert done.code == ExitCode.INTEGRITY
    shown = project(command)
    shown.says(older)
    if command != "explain":
        shown.says(newer, "uarantined" if command == "list" else "QUARANTINED")


def test_a_newer_format_is_left_alone_and_the_rest_goes_on(project: Project) -> None:
    """A newer ckptier wrote it: it is neither damaged nor ours to judge."""
    older, newer = project.publish(100, 200)
    path = project.local.generation(newer) / "generation.json"
    document = json.loads(path.read_bytes())
    path.write_bytes(canonical.dump({**document, "format": 99}) + b"\n")
    (project.local.evidence / f"{newer}.json").unlink()
    done = project("replicate", "--once")
    assert done.code == 0, done
    done.says(f"committed {older}")
    assert path.is_file()
    assert json.loads(path.read_bytes())["format"] == 99
