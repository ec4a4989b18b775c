"""A log without a trust root into which somebody wrote numbers after which there is none, and keys that are none."""

from pathlib import Path

import pytest
from cli.driver import Project, volume
from support.commits import REMOTE, make

from replicate.errors import ExitCode
from replicate.log import Claim, Commit, Entry, LogView, parse_entry
from replicate.logbook import Logbook
from tiers.bodies import BytesBody
from tiers.volume import VolumeTier

GONE = "a0001-g999999999999-u000000000300-5e2bf871"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "volume").mkdir()
    made = Project(folder=tmp_path / "one", tiers={"t": volume(tmp_path / "volume")}).write()
    made.publish(100)
    assert made("replicate", "--once").code == 0
    return made


def other(project: Project) -> Project:
    """Return a machine that knows nothing yet."""
    return Project(folder=project.folder.parent / "two", tiers=project.tiers).write()


def tier_of(project: Project) -> VolumeTier:
    return VolumeTier("intruder", project.folder.parent / "volume")


def intrude(project: Project, body: Claim | Commit, **changed: object) -> None:
    """Append an entry like the last one, with some of it changed."""
    tier = tier_of(project)
    view: LogView = Logbook(tier, REMOTE).read()
    last = parse_entry(Logbook(tier, REMOTE).entry(view.next_slot - 1)[1], slot=view.next_slot - 1, run=REMOTE.run)
    said = {"slot": view.next_slot, "prev": view.last_sha256, "body": body, "nonce": "0" * 16}
    entry = Entry.model_validate({**dict(last), **said, **changed})
    tier.put(REMOTE.log(view.next_slot), BytesBody(entry.encode()))


@pytest.mark.parametrize("attempt", [10**9 - 1, 2**53 - 1])
def test_a_restore_opens_no_attempt_that_could_never_publish(project: Project, attempt: int) -> None:
    intrude(project, Claim(writer="x"), term=2, attempt=attempt, attempt_id="z")
    machine = other(project)
    refused = machine.refused(ExitCode.TRUST, "restore")
    refused.says("no number is left", "--to DIR")
    assert not machine.local.lineage.exists()
    assert machine("restore", "--to", str(machine.folder / "to")).code == 0


def test_nor_one_whose_sequences_are_used_up(project: Project) -> None:
    body = Commit(
        generation=GONE,
        parent=None,
        manifest_key=f"toy/generations/{GONE}.t1-0/manifest.json",
        manifest_size=1,
        manifest_sha256="0" * 64,
        total_bytes=1,
        objects=1,
    )
    intrude(project, body)
    machine = other(project)
    machine.refused(ExitCode.TRUST, "restore").says("no number is left")
    assert not machine.local.lineage.exists()


def test_a_term_after_which_there_is_none_is_said_and_ends_nothing_else(project: Project) -> None:
    intrude(project, Claim(writer="x"), term=2**53 - 1)
    machine = other(project)
    assert machine("restore").code == 0
    machine.publish(200)
    done = machine("replicate", "--once")
    assert done.code == ExitCode.INTEGRITY
    done.says("no term is left")


@pytest.mark.parametrize("key", ["../../../etc/.t1-x/manifest.json", "toy/.t1-\0", "toy/.t1-" + "x" * 2000])
def test_a_commit_whose_manifest_could_lie_nowhere_is_hurt(project: Project, key: str) -> None:
    tier = tier_of(project)
    view = Logbook(tier, REMOTE).read()
    made = make({"model.bin": b"x"}, sequence=7, run_uid=view.state.run_uid if view.state else "")
    body = Commit(
        generation=str(made.id),
        parent=None,
        manifest_key=key,
        manifest_size=1,
        manifest_sha256="0" * 64,
        total_bytes=1,
        objects=1,
    )
    intrude(project, body)
    assert project("verify").code == ExitCode.INTEGRITY
    assert project("repair").code == ExitCode.INTEGRITY
    done = other(project)("restore", "--to", str(project.folder / "to"))
    assert done.code == 0, "the one before it is taken"
    done.says("passed over", "none of ours")


def test_a_prefix_with_a_term_that_nobody_could_hold_raises_no_term(project: Project) -> None:
    """A repair goes above all terms that it sees; a key is enough to show one."""
    tier = tier_of(project)
    tier.put(REMOTE.manifest(f"toy/generations/{GONE}.t999999999999999-0/"), BytesBody(b"x"))
    tier.delete(REMOTE.log(1))
    assert project("repair", "--rebuild-log", "--apply").code == 0
    state = Logbook(tier, REMOTE).read(thorough=True).state
    assert state is not None
    assert state.term < 100
