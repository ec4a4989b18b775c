"""``ckptier takeover``: one of two writers of an attempt goes on, and the other one stays out for good."""

import shutil
from pathlib import Path

import pytest
from mending.stage import REMOTE, Bench, bench, document

from replicate.errors import ExitCode
from replicate.generation.locks import Flock

APPLY = ("takeover", "--apply", "--reason", "the other disk is gone", "--tier", "one")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("base"), 100, tiers=("one",))


@pytest.fixture
def run(base: Bench, tmp_path: Path) -> Bench:
    return base.copied(tmp_path)


@pytest.fixture(scope="module")
def parted(base: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return the machine once a copy of its disk has gone on with the run, which it has noticed."""
    made = base.copied(tmp_path_factory.mktemp("parted"))
    twin = made.clone("twin")
    twin.project.publish(200)
    assert twin.project("replicate", "--once").code == 0
    made.project.publish(300)
    done = made.project("replicate", "--once")
    assert done.code == ExitCode.FENCED
    done.says("is this disk a copy?", "`ckptier takeover --reason TEXT`")
    return made


@pytest.fixture
def out(parted: Bench, tmp_path: Path) -> Bench:
    """Return the machine that is shut out."""
    return parted.copied(tmp_path)


@pytest.fixture
def twin(out: Bench) -> Bench:
    """Return the other one."""
    return out.named("twin")


def test_a_takeover_says_who_holds_the_run_and_changes_nothing(out: Bench, twin: Bench) -> None:
    before = out.snapshot()
    done = out.project("takeover", "--reason", "mine")
    assert done.code == 0
    done.says("term 1 is held by", "by the store's clock", f"newest there: {twin.ids[-1]}", "claims term 2", "--apply")
    assert out.snapshot() == before
    found = out.project("takeover", "--reason", "mine", "--json").result()
    assert found["places"][0]["needed"] is True
    assert found["places"][0]["term"] is None


def test_who_takes_over_goes_on_and_the_other_one_stays_out(out: Bench, twin: Bench) -> None:
    """What the other one committed stays.  There is no way back by itself, and one for who asks for it."""
    done = out.project(*APPLY)
    assert done.code == 0, done.out
    done.says("taken over: this store holds term 2")
    body = document(out.slot(3))
    assert (body["kind"], body["takeover"]) == ("claim", "the other disk is gone")
    assert out.project("replicate", "--once").code == 0
    assert len(out.live()) == 3
    out.project("takeover", "--reason", "again").says("nothing to take over: term 2 is ours")
    twin.project.publish(400)
    for _ in range(2):
        refused = twin.project("replicate", "--once")
        assert refused.code == ExitCode.FENCED
        refused.says("`ckptier takeover --reason TEXT`")
    assert out.project("gc", "--apply").code == 0
    state = out.view().state
    assert state is not None
    prefixes = {path.name for path in (out.root("one") / REMOTE.generations_prefix).iterdir()}
    assert prefixes == {Path(one.manifest_key).parent.name for one in state.live}, "what was under way is collected"
    assert twin.project(*APPLY).code == 0
    assert twin.project("replicate", "--once").code == 0
    out.project.publish(500)
    assert out.project("replicate", "--once").code == ExitCode.FENCED


def test_a_takeover_of_what_nobody_else_holds_does_nothing(run: Bench) -> None:
    before = run.snapshot()
    run.project(*APPLY).says("nothing to take over: term 1 is ours")
    assert run.snapshot() == before
    (run.folder / "one" / "toy").rename(run.folder / "moved")
    run.project.local.root.joinpath("tracker.sqlite").unlink()
    run.project(*APPLY).says("nothing to take over: the log is empty")


def test_a_takeover_is_refused_where_it_is_not_the_way(out: Bench) -> None:
    """A higher attempt, a damaged log, no store, no reason, a daemon that runs."""
    out.project.refused(ExitCode.USAGE, "takeover", "--reason", " ")
    lock = Flock.attempt(out.project.local.daemon_lock)
    assert lock is not None
    out.project.refused(ExitCode.FENCED, *APPLY)
    lock.release()
    out.flip_slot(2)
    done = out.project(*APPLY)
    assert done.code == ExitCode.INTEGRITY
    done.says("log slot 2 is damaged", "`ckptier repair --tier one`")
    out.flip_slot(2)
    third = out.clone("third")
    shutil.rmtree(third.project.local.root)
    third.project.refused(ExitCode.NOTHING, *APPLY)
    assert third.project("restore").code == 0
    third.project.publish(500)
    assert third.project("replicate", "--once").code == 0
    before = out.snapshot()
    done = out.project(*APPLY)
    assert done.code == ExitCode.FENCED
    done.says("gone on to attempt 2", "`ckptier restore` opens a new one")
    assert out.snapshot() == before


def test_a_takeover_of_another_run_or_another_line_is_refused(run: Bench) -> None:
    stranger = run.clone("stranger")
    shutil.rmtree(stranger.project.local.root)
    stranger.project.publish(100)
    done = stranger.project(*APPLY)
    assert done.code == ExitCode.TRUST
    done.says("belong to another run")
    forked = [run.clone(name) for name in ("left", "right")]
    for one in forked:
        shutil.rmtree(one.project.local.root)
        assert one.project("restore").code == 0
    forked[0].project.publish(600)
    assert forked[0].project("replicate", "--once").code == 0
    before = run.snapshot()
    done = forked[1].project(*APPLY)
    assert done.code == ExitCode.TRUST
    done.says("attempt 2 stands in the log as", "`ckptier restore --generation ID`")
    assert run.snapshot() == before
