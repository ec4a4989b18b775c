"""A repair of a log whose entries have to be signed: what it writes is signed too, and nobody else's counts."""

from pathlib import Path

import pytest
from cli.driver import Project, run_command, volume
from mending.stage import Bench

from replicate import canonical
from replicate.errors import ExitCode
from replicate.log import Pin, parse_entry

SIGNING = '[trust]\nkeyring = "trust.toml"\n[signing]\nkey = "key.pem"\n'


@pytest.fixture
def run(tmp_path: Path) -> Bench:
    for tier in ("one", "two"):
        (tmp_path / tier).mkdir()
    project = Project(folder=tmp_path / "project", tiers={"one": volume(tmp_path / "one")}).write(extra=SIGNING)
    made = run_command("keys", "new", str(project.folder / "key.pem"), "--comment", "trainer")
    (project.folder / "trust.toml").write_text(made.out)
    project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    return Bench(project=project, folder=tmp_path)


def test_what_a_repair_writes_is_signed(run: Bench) -> None:
    """The filler of a gap and the voids as well.  With a trust root, a bit that flipped looks like a forgery."""
    run.slot(1).unlink()
    assert run.project("repair", "--apply").code == 0
    run.flip_slot(2)
    assert run.project("repair", "--apply", "--rebuild-log").code == ExitCode.TRUST
    done = run.project("repair", "--apply", "--rebuild-log", "--unsafe-void-untrusted")
    assert done.code == 0, done.out
    assert run.live() == [1, 2]
    lines = {slot: run.slot(slot).read_bytes().count(b"\n") for slot in range(run.view().next_slot) if slot != 2}
    assert set(lines.values()) == {3}, "content, digest, signature"
    assert run.project("verify").code == 0
    assert run.project("replicate", "--once").code == 0


def test_an_entry_that_nobody_trusted_signed_is_voided_only_where_the_danger_is_named(run: Bench) -> None:
    last = run.slot(2)
    signed = parse_entry(last.read_bytes(), slot=2, run="toy")
    digest = canonical.sha256(last.read_bytes())
    body = Pin(generation=str(run.ids[0]), reason="a stranger's")
    run.slot(3).write_bytes(signed.model_copy(update={"slot": 3, "prev": digest, "body": body}).encode())
    run.project.publish(300)
    assert run.project("replicate", "--once").code == ExitCode.TRUST
    before = run.snapshot()
    done = run.project("repair", "--apply", "--rebuild-log")
    assert done.code == ExitCode.TRUST
    done.says("it is not signed", "--unsafe-void-untrusted")
    assert run.snapshot() == before
    done = run.project("repair", "--apply", "--unsafe-void-untrusted")
    assert done.code == 0, done.out
    assert run.project("replicate", "--once").code == 0
    assert run.project("verify").code == 0
    assert run.live() == [1, 2, 3]
