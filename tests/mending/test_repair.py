"""``ckptier repair`` as people type it: damaged logs, hurt copies, and what must not be touched."""

import os
import shutil
from pathlib import Path

import pytest
from mending.stage import REMOTE, Bench, bench, document

from replicate.errors import ExitCode
from replicate.generation.locks import Flock


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("base"), 100, 200, 300)


@pytest.fixture
def run(base: Bench, tmp_path: Path) -> Bench:
    return base.copied(tmp_path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One tier, and a generation that neither the store nor anybody else has whole."""
    made = bench(tmp_path_factory.mktemp("small"), 100, 200, tiers=("one",))
    oldest = made.ids[0]
    shutil.rmtree(made.project.local.generation(oldest))
    made.hurt(oldest)
    return made


def evidence(run: Bench) -> list[str]:
    return sorted(path.name for path in run.project.local.evidence.glob("*@*.json"))


def test_a_healthy_run_is_left_as_it_is(run: Bench) -> None:
    before = run.snapshot()
    for arguments in ((), ("--apply",), ("--apply", "--rebuild-log", "--read-data", "100%")):
        done = run.project("repair", *arguments)
        assert done.code == 0, done.out
        assert done.out.count("nothing to repair") == 2
        assert run.snapshot() == before


def test_a_damaged_slot_stops_replication_until_it_is_repaired(run: Bench) -> None:
    run.flip_slot(2)
    run.project.publish(400)
    done = run.project("replicate", "--once")
    assert done.code == ExitCode.PARTIAL
    done.says("log slot 2 is damaged", "`ckptier repair --tier one`")
    before = run.snapshot()
    plan = run.project("repair")
    assert plan.code == 0
    plan.says(
        "CLAIM a new term", "VOID log slot 2", "a pin may be among what is lost", "1 upload lies there", "--apply"
    )
    assert run.snapshot() == before
    done = run.project("repair", "--apply")
    assert done.code == 0, done.out
    done.says("claimed a new term", "voided log slot 2")
    assert run.live() == [1, 3]
    run.sound()
    assert run.live() == [1, 2, 3, 4], "what the store still has goes up again"
    run.project("repair", "--apply").says("nothing to repair")


def test_a_repair_says_everything_in_json(run: Bench) -> None:
    run.slot(1).unlink()
    found = run.project("repair", "--json", "--tier", "one").result()
    steps = found["places"][0]["plan"]["steps"]
    assert [(step["kind"], step["slot"]) for step in steps] == [("fill", 1), ("claim", None), ("void", 1)]
    assert found["applied"] is False


def test_a_lost_commit_is_committed_again_as_it_lies_there(run: Bench) -> None:
    """The bytes are whole: nothing is sent again, and what collects leftovers takes it for what it is."""
    run.slot(2).unlink()
    kept = run.root("one") / REMOTE.generations_prefix
    done = run.project("repair", "--apply", "--rebuild-log", "--tier", "one")
    assert done.code == 0, done.out
    done.says("filled the gap at log slot 2", f"committed again as it lies there: {run.ids[1]}, in log slot 6")
    assert run.live() == [1, 2, 3]
    lost = run.ids[1]
    before = {path for path in kept.rglob("*") if path.is_file() and str(lost) in str(path)}
    run.sound()
    after = {path for path in kept.rglob("*") if path.is_file() and str(lost) in str(path)}
    assert before == after
    state = run.view().state
    assert state is not None
    assert [(one.number, one.start) for one in state.attempts] == [(1, None)]
    target = run.folder / "out"
    assert run.project("restore", "--generation", str(lost), "--tier", "one", "--to", str(target)).code == 0
    assert (target / "model.bin").read_bytes().startswith(b"update 200")


def test_what_was_shut_out_is_not_committed_unless_that_is_asked_for(run: Bench) -> None:
    """A complete upload of a term that is over looks like a lost commit: only its owner can tell."""
    run.flip_slot(3)
    run.project("repair", "--apply").says("--rebuild-log commits those that are")
    assert run.live() == [2, 3]


@pytest.mark.parametrize("apart", [False, True])
def test_a_log_that_is_gone_is_rebuilt_from_intact_manifests(run: Bench, *, apart: bool) -> None:
    """Also where some of it is left, from its beginning or its end; only where that is said."""
    for slot in (0, 1, 2) if apart else (2, 3):
        run.slot(slot).unlink()
    refused = run.project("repair", "--apply", "--tier", "one")
    assert refused.code == (0 if apart else ExitCode.TRUST)
    if not apart:
        refused.says("the log was rolled back", "--rebuild-log")
        assert run.project("replicate", "--once").code == ExitCode.PARTIAL
    done = run.project("repair", "--apply", "--rebuild-log", "--tier", "one")
    assert done.code == 0, done.out
    assert run.live() == [1, 2, 3]
    run.project("repair", "--apply", "--rebuild-log").says("nothing to repair")
    assert run.project("replicate", "--once").code == 0


def test_the_whole_log_is_rebuilt_in_order(run: Bench) -> None:
    run.project.publish(400)
    shutil.rmtree(run.root("one") / "toy" / "log")
    (run.root("one") / "toy" / "head.json").unlink()
    assert run.project("repair", "--tier", "one").code == ExitCode.TRUST
    plan = run.project("repair", "--tier", "one", "--rebuild-log")
    assert plan.code == 0, plan.out
    assert plan.out.count("COMMIT AGAIN") == 3
    done = run.project("repair", "--apply", "--rebuild-log", "--tier", "one")
    assert done.code == 0, done.out
    assert [document(run.slot(slot))["kind"] for slot in range(4)] == ["claim", "commit", "commit", "commit"]
    assert [commit.id.sequence for commit in reversed(run.view().live)] == [1, 2, 3]
    run.sound()
    assert run.live() == [1, 2, 3, 4]


def test_what_is_hurt_or_foreign_is_not_committed_again(run: Bench) -> None:
    hurt, foreign, _ = run.ids
    run.hurt(hurt)
    manifest = run.prefix(foreign) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"run_uid":"', '"run_uid":"f', 1))
    shutil.rmtree(run.root("one") / "toy" / "log")
    done = run.project("repair", "--apply", "--rebuild-log", "--tier", "one")
    assert done.code == 0, done.out
    done.says(f"{hurt} is not committed again")
    assert run.live() == [3]
    assert run.project("replicate", "--once").code == 0
    assert run.live() == [1, 2, 3], "the store has them"


def test_a_hurt_copy_is_replaced_by_the_store_s(run: Bench) -> None:
    """Pinned as it is; and the newest too.  The hurt one goes after its delay."""
    newest = run.ids[-1]
    run.hurt(newest)
    assert run.project("pin", str(newest), "--tier", "one").code == 0
    before = run.prefix(newest)
    assert run.project("verify", "--tier", "one").code == ExitCode.INTEGRITY
    assert evidence(run) == [f"{newest}@one.json"]
    plan = run.project("repair")
    assert plan.code == 0
    plan.says("REPLACE by the good copy of local", str(newest))
    done = run.project("repair", "--apply")
    assert done.code == 0, done.out
    assert run.live() == [1, 2, 3]
    assert run.prefix(newest) != before
    kinds = [document(run.slot(slot))["kind"] for slot in range(5, 7)]
    assert kinds == ["retire", "commit"], "taken back and committed again, back to back"
    state = run.view().state
    assert state is not None
    assert [(one.generation, one.damaged) for one in state.retired] == [(str(newest), True)]
    assert state.pins == (str(newest),)
    assert evidence(run) == []
    assert before.exists(), "for readers elsewhere, until the delay is over"
    run.sound()
    assert run.live() == [1, 2, 3]


def test_what_only_reading_finds_is_repaired_where_it_was_found_before_or_is_read_now(run: Bench) -> None:
    older, newer, _ = run.ids
    run.hurt(older, same_size=True)
    run.project("repair", "--apply").says("nothing to repair")
    assert run.project("verify", "--tier", "one", "--read-data", "100%").code == ExitCode.INTEGRITY
    run.project("repair").says("REPLACE", "an earlier `ckptier verify` found it hurt")
    assert run.project("repair", "--apply").code == 0
    run.hurt(newer, same_size=True)
    run.project("repair", "--apply", "--read-data", "100%").says("replaced by the good copy of local")
    assert run.project("verify", "--read-data", "100%").code == 0


def test_a_copy_is_replaced_from_another_tier_where_the_store_has_none(run: Bench) -> None:
    oldest = run.ids[0]
    shutil.rmtree(run.project.local.generation(oldest))
    (run.prefix(oldest) / "files" / "model.bin").unlink()
    done = run.project("repair", "--apply")
    assert done.code == 0, done.out
    done.says("replaced by the good copy of two")
    assert run.live() == [1, 2, 3]
    assert run.project("verify", "--read-data", "100%").code == 0


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_rotten_copy_in_the_store_replaces_nothing(tmp_path: Path, *, elsewhere: bool) -> None:
    """The bytes are looked at again before anything is sent; then the next place is asked, and else nothing is done."""
    run = bench(tmp_path, 100, 200, 300)  # not a copy: the inode has to be the one that sealing saw
    oldest = run.ids[0]
    path = run.project.local.generation(oldest) / "files" / "model.bin"
    times = path.stat()
    path.write_bytes(b"R" + path.read_bytes()[1:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    run.hurt(oldest)
    if not elsewhere:
        run.hurt(oldest, "two")
    before = run.snapshot()
    done = run.project("repair", "--apply", "--tier", "one")
    if elsewhere:
        done.says("replaced by the good copy of two")
        assert run.project("verify", "--tier", "one", "--read-data", "100%").code == 0
    else:
        assert done.code == ExitCode.INTEGRITY
        done.says("HURT, left alone", "is no longer what was sealed")
        assert {key: run.snapshot()[key] for key in before if "head.json" not in key}.items() <= before.items()
        assert run.live() == [1, 2, 3]


def test_without_a_good_copy_a_hurt_one_is_left_or_given_up_where_the_danger_is_named(
    small: Bench, tmp_path: Path
) -> None:
    run = small.copied(tmp_path)
    before = run.snapshot()
    done = run.project("repair", "--apply")
    assert done.code == ExitCode.INTEGRITY
    done.says("HURT, left alone", "no good copy is known", "--unsafe-retire-hurt")
    assert run.snapshot() == before
    done = run.project("repair", "--apply", "--unsafe-retire-hurt")
    assert done.code == 0, done.out
    done.says("gave up a0001-g000001-u000000000100-", ", in log slot 3")
    assert run.live() == [2]
    run.sound()


def test_the_last_copy_is_never_given_up(small: Bench, tmp_path: Path) -> None:
    """Something of it may still be put together from what is left."""
    run = small.copied(tmp_path)
    shutil.rmtree(run.project.local.generation(run.ids[-1]))
    run.hurt(max(one.id for one in run.view().live))
    done = run.project("repair", "--apply", "--unsafe-retire-hurt")
    assert done.code == ExitCode.INTEGRITY
    done.says("nothing here is intact")
    assert run.live() == [1, 2]


def test_a_repair_stays_out_beside_a_daemon(run: Bench) -> None:
    lock = Flock.attempt(run.project.local.daemon_lock)
    assert lock is not None
    try:
        run.project.refused(ExitCode.FENCED, "repair", "--apply")
        assert run.project("repair").code == 0
    finally:
        lock.release()


def test_the_repair_of_another_machine_s_log_is_refused_with_what_to_do(run: Bench) -> None:
    """A restore elsewhere went on: its attempt is higher."""
    other = run.clone("other")
    shutil.rmtree(other.project.local.root)
    assert other.project("restore").code == 0
    other.project.publish(400)
    assert other.project("replicate", "--once").code == 0
    run.flip_slot(2)
    before = run.snapshot()
    done = run.project("repair", "--apply", "--tier", "one")
    assert done.code == ExitCode.FENCED
    done.says("gone on to attempt 2", "`ckptier restore` opens a new attempt")
    assert run.snapshot() == before
    assert other.project("repair", "--apply").code == 0
    assert other.view().damaged == ()
