"""Uploads that somebody else put into the bucket: a repair that signs commits for none of them."""

from pathlib import Path

import pytest
from cli.driver import Project, run_command, volume
from mending.stage import Bench
from support.commits import Made, Writer, make

from replicate.log import parse_entry
from tiers.bodies import BytesBody
from tiers.protocol import Key
from tiers.volume import VolumeTier

SIGNING = '[trust]\nkeyring = "trust.toml"\n[signing]\nkey = "key.pem"\n'


def signed(folder: Path) -> Bench:
    for tier in ("one", "two"):
        (folder / tier).mkdir()
    project = Project(folder=folder / "project", tiers={"one": volume(folder / "one")}).write(extra=SIGNING)
    made = run_command("keys", "new", str(project.folder / "key.pem"))
    (project.folder / "trust.toml").write_text(made.out)
    project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    return Bench(project=project, folder=folder)


def planted(run: Bench) -> Made:
    """Put a complete upload of this run there, as anybody can who reads the log and writes to the bucket."""
    seen = parse_entry(run.slot(1).read_bytes(), slot=1, run="toy")
    made = make({"model.bin": b"not yours"}, sequence=9, attempt_id=seen.attempt_id, run_uid=seen.run_uid)
    writer = Writer(VolumeTier("intruder", run.root("one")), run_uid=seen.run_uid)
    manifest = writer.manifest(made)
    writer.tier.put(Key(manifest.objects[0].key), BytesBody(b"not yours"))
    writer.tier.put(Key(f"{manifest.prefix}manifest.json"), BytesBody(manifest.encode()))
    return made


@pytest.mark.parametrize("end_is_lost", [True, False])
def test_what_was_planted_is_never_signed_for(tmp_path: Path, *, end_is_lost: bool) -> None:
    """The intruder also removes an entry, so that the operator has a reason to rebuild the log."""
    run = signed(tmp_path)
    made = planted(run)
    run.slot(2 if end_is_lost else 1).unlink()
    done = run.project("repair", "--rebuild-log", "--apply")
    assert done.code == 0, done.out
    done.says(f"{made.id} is not committed again: nothing on this machine vouches for it")
    assert run.live() == [1, 2], "what this machine committed itself is back"
    assert run.project("restore", "--to", str(tmp_path / "to"), "--tier", "one").code == 0
    assert (tmp_path / "to" / "model.bin").read_bytes().startswith(b"update 200\n")
    assert run.project("verify").code == 0


def test_the_plan_of_a_rebuilt_end_names_what_is_then_done(tmp_path: Path) -> None:
    """Without a trust root too: who reads the plan has to find in it what --apply commits."""
    run = signed(tmp_path)
    run.slot(2).unlink()
    plan = run.project("repair", "--rebuild-log", "--json").result()["places"][0]["plan"]["steps"]
    done = run.project("repair", "--rebuild-log", "--apply", "--json").result()["places"][0]["done"]
    assert [step["generation"] for step in plan if step["kind"] == "adopt"] == [
        step["generation"] for step in done if step["kind"] == "adopt"
    ]
    assert any(step["kind"] == "adopt" for step in done)


def test_a_rotation_after_a_repair_keeps_the_log_usable(tmp_path: Path) -> None:
    """An entry that is lost is a hole in the chain, below which a pinned digest would vouch for nothing."""
    run = signed(tmp_path)
    run.slot(1).unlink()
    assert run.project("repair", "--rebuild-log", "--apply").code == 0
    folder = run.project.folder
    run_command("keys", "new", str(folder / "new.pem"))
    told = run.project("keys", "rotate", str(folder / "new.pem"))
    told.says("a repair gave slot 1 up")
    last, new = told.out.split("last_slot = ")[1].split("\n", 1)
    ring = (folder / "trust.toml").read_text()
    (folder / "trust.toml").write_text(f"{ring.rstrip()}\nlast_slot = {last}\n{new}")
    rotated = Project(folder=folder, tiers=run.project.tiers).write(extra=SIGNING.replace("key.pem", "new.pem"))
    rotated.publish(300)
    assert rotated("replicate", "--once").code == 0
    assert rotated("verify").code == 0
    assert rotated("keys", "adopt").code != 0, "an anchor would not vouch for what lies before the hole"
