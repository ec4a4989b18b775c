"""What is wrong is told alike by all that show the run, and the next step that is named works as it stands."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli.driver import run_command
from mending.stage import Bench, bench

from replicate.errors import ExitCode


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("base"), 100, 200, tiers=("one",))


@pytest.fixture
def run(base: Bench, tmp_path: Path) -> Bench:
    return base.copied(tmp_path)


def test_a_damaged_log_is_told_by_all_and_mended_as_they_say(run: Bench) -> None:
    run.flip_slot(2)
    listed = run.project("list")
    assert listed.code == ExitCode.PARTIAL
    listed.says("! one: log slot 2 is damaged", "`ckptier verify --tier one`")
    assert run.project("list", "--json").result()["damaged"] == {"one": [2]}
    status = run.project("status", "--remote")
    assert status.code == ExitCode.PARTIAL
    status.says("DAMAGED log slots: 2")
    run.project.publish(300)
    assert run.project("replicate", "--once").code == ExitCode.INTEGRITY
    for command in (("safe-to-terminate",), ("wait",), ("status",)):
        told = run.project(*command)
        assert told.code != 0
        told.says("`ckptier repair --tier one`")
        assert "one: one:" not in told.out + told.err
    plan = run.project("repair", "--tier", "one", "--rebuild-log")
    named = re.search(r"nothing was changed; next: `(.*)`", plan.out)
    assert named is not None, plan.out
    done = run_command(*shlex.split(named[1])[1:])
    assert done.code == 0, done.out
    done.says("voided log slot 2", "next: `ckptier verify`")
    assert run.project("replicate", "--once").code == 0
    assert run.project("safe-to-terminate").code == 0


def test_a_log_that_is_gone_is_nothing_to_restart_from(run: Bench) -> None:
    """An unmounted volume looks the same: the first question is where the place is, and nothing says `-1`."""
    shutil.rmtree(run.root("one"))
    run.root("one").mkdir()
    assert run.project("replicate", "--once").code == ExitCode.TRUST
    status = run.project("status")
    assert status.code == ExitCode.TRUST
    status.says("NOT KNOWN: one, for the reason below", "last written down: update 200", "is the volume mounted")
    run.project("list").says("! one is not to be trusted: ", "is the volume mounted")
    verified = run.project("verify")
    assert verified.code == ExitCode.TRUST
    verified.says("what still works: NOTHING, since a restore refuses it", "--rebuild-log")
    repair = run.project("repair", "--tier", "one")
    repair.says("nothing of it is there", "is the volume mounted")
    run.project("repair", "--rebuild-log").says("the log is gone", "in the wrong place")


def test_logs_that_cannot_be_read_are_no_proof_that_there_is_nothing(run: Bench) -> None:
    for slot in (1, 2):
        run.flip_slot(slot)
    shutil.rmtree(run.project.local.root)
    assert run.project("list").code == ExitCode.PARTIAL
    run.project.refused(ExitCode.INTEGRITY, "explain").says("one may have a generation", "`ckptier verify --tier one`")
    run.project("status", "--remote").says("NOTHING that can be read in the logs")
    shutil.rmtree(run.root("one"))
    run.project.refused(ExitCode.UNREACHABLE, "explain").says("one may have a generation: ", "is the volume mounted")


def test_a_hurt_copy_and_a_restore_that_fell_back_lead_to_the_repair(run: Bench, tmp_path: Path) -> None:
    run.hurt(run.ids[1], same_size=True)
    fell_back = run.project("restore", "--to", str(tmp_path / "to"), "--tier", "one")
    fell_back.says("this is NOT the newest", "`ckptier verify --read-data 100%`")
    run.project("repair").says("nothing to repair", "no stored bytes were read")
    assert run.project("verify", "--read-data", "100%").code == ExitCode.INTEGRITY
    unsafe = run.project("safe-to-terminate")
    assert unsafe.code == ExitCode.NOT_SAFE
    unsafe.says("    next: `ckptier repair --tier one`")
    assert run.project("repair", "--tier", "one", "--apply").code == 0
    assert run.project("safe-to-terminate").code == 0


def test_a_fork_is_told_by_verify_though_nothing_is_hurt(run: Bench) -> None:
    other = run.clone("other")
    shutil.rmtree(other.project.local.root)
    for machine in (run, other):
        assert machine.project("restore").code == 0
    run.project.publish(300)
    assert run.project("replicate", "--once").code == 0
    other.project.publish(400)
    assert other.project("replicate", "--once").code == ExitCode.TRUST
    told = other.project("verify")
    assert told.code == ExitCode.TRUST
    told.says("a restore REFUSES: the run forked", "--generation ID")


def test_safe_says_where_nobody_answered(run: Bench) -> None:
    """What was committed counts, since a tier that is away has it still; that it was not asked now is said."""
    assert run.project("replicate", "--once").code == 0
    assert "did not answer" not in run.project("safe-to-terminate").out
    shutil.move(run.root("one"), run.folder / "away")
    safe = run.project("safe-to-terminate")
    assert safe.code == 0
    safe.says("one did not answer now: it was committed there before")
    assert run.project("safe-to-terminate", "--json").result()["silent"] == ["one"]
