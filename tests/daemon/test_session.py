"""One session: what it refuses, what fails alone, and what it writes down."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemon.gates import advisory, impatient
from daemon.stage import CLOCK, RUN, Machine, live, publish, volume_view

from replicate import RunStore
from replicate.commit import PassReport
from replicate.engine import Replicator
from replicate.errors import ConfigInvalid, ExitCode, Fenced, IntegrityFailure, NothingFound, TrustFailure, Unreachable
from replicate.generation.locks import Flock
from replicate.opening import Opener, default_opener
from replicate.outcomes import TierResult, combined_exit
from replicate.restore import RestoreRequest
from replicate.session import LOCK_TRIES, Session
from tiers.clock import SystemClock
from tiers.memory import MemoryStore


@contextmanager
def session(machine: Machine, opener: Opener = default_opener, clock: SystemClock = CLOCK) -> Iterator[Session]:
    with Session(machine.config, clock=clock, stop=threading.Event(), opener=opener) as opened:
        yield opened


def test_without_a_tier_there_is_nothing_to_do(machine: Machine) -> None:
    machine.configure()
    with pytest.raises(ConfigInvalid, match="no tier"), session(machine):
        pass
    assert not machine.root.exists()


def test_an_advisory_tier_is_refused_unless_that_was_accepted(machine: Machine) -> None:
    """Such a store cannot keep two writers apart; who uses it has to know."""
    store, closed = MemoryStore(), list[str]()
    for accepted in (False, True):
        machine.configure({"name": "adv", "url": "memory://x", "accept_advisory": accepted})
        with session(machine, advisory(store, closed)) as opened:
            publish(machine.root, 1 + accepted)
            result = opened.run_tier("adv", opened.prepare())
            if accepted:
                assert result.failure is None
                assert result.report is not None
                assert len(result.report.committed) == 2
            else:
                assert result.failure is not None
                assert result.failure.exit_code is ExitCode.CAPABILITY
                assert "accept_advisory" in result.failure.hint
                assert closed == ["adv"]
    assert closed == ["adv", "adv"]


@pytest.mark.parametrize("url", ["nowhere://x", "file://host/path", "s3://"])
def test_a_tier_that_cannot_be_opened_fails_alone(machine: Machine, url: str) -> None:
    machine.configure({"name": "bad", "url": url}, machine.volume())
    identity = publish(machine.root, 1)
    report = Replicator(machine.config).replicate_once()
    bad, good = report.results
    assert bad.failure is not None
    assert bad.failure.exit_code is ExitCode.CONFIG
    assert good.failure is None
    assert report.exit_code is ExitCode.PARTIAL
    assert live(volume_view(machine.folder / "vol")) == [identity]


def test_one_session_a_store(machine: Machine) -> None:
    machine.configure(machine.volume())
    with session(machine), pytest.raises(Fenced, match="another process"), session(machine):
        pass
    with session(machine):
        pass


def test_somebody_who_only_looks_does_not_keep_a_daemon_from_starting(machine: Machine) -> None:
    """``wait`` asks four times a second whether anybody replicates, by the same lock."""
    machine.configure(machine.volume())
    machine.root.mkdir(parents=True)
    path = machine.config.local.daemon_lock
    path.touch()
    looking = Flock.take(path, shared=True)

    class Passing(SystemClock):
        waits = 0

        def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
            self.waits += 1
            looking.release()
            return super().wait(0.0, stop)

    clock = Passing()
    with session(machine, clock=clock):
        assert 1 <= clock.waits < LOCK_TRIES


def test_two_that_look_do_not_take_each_other_for_a_daemon(machine: Machine) -> None:
    machine.configure(machine.volume())
    replicator = Replicator(machine.config)
    assert not replicator.replicating()
    with session(machine):
        assert replicator.replicating()
    looking = Flock.attempt(machine.config.local.daemon_lock, shared=True)
    assert looking is not None
    assert not replicator.replicating()
    looking.release()


def test_an_empty_store_is_nothing_to_replicate(machine: Machine) -> None:
    machine.configure(machine.volume())
    with session(machine) as opened:
        result = opened.run_tier("vol", opened.prepare())
        assert result == TierResult(tier="vol", report=PassReport(tier="vol"))
    with pytest.raises(NothingFound, match="no generation yet"):
        Replicator(machine.config).replicate_once()


def test_status_json_says_what_is_where(machine: Machine) -> None:
    machine.configure(machine.volume(), {**machine.volume("rare"), "replicate_every": 100})
    small, milestone = publish(machine.root, 99), publish(machine.root, 100, 5000)
    report = Replicator(machine.config).replicate_once()
    assert report.exit_code is ExitCode.OK
    assert [str(one.generation) for tier, one in report.committed if tier == "vol"] == [milestone, small]
    document = json.loads((machine.root / "status.json").read_bytes())
    assert (document["format"], document["run"], document["phase"]) == (1, RUN, "stopped")
    vol, rare = document["tiers"]
    assert set(vol["held"]) == {small, milestone}
    assert rare["held"] == [milestone]
    assert (vol["newest"]["generation"], vol["newest"]["slot"], vol["newest"]["total_bytes"]) == (milestone, 1, 5000)
    assert (vol["completed"], vol["skipped"], vol["under_way"], vol["waiting"], vol["failure"]) == (
        2,
        0,
        None,
        [],
        None,
    )
    assert len(vol["verified_by"]) == 1
    assert vol["verified_by"][0].startswith("read-"), "how far around the page cache is the filesystem's affair"
    assert vol["bytes_up"] > 7000
    assert vol["requests"]["A"] > rare["requests"]["A"] > 0
    assert [path.name for path in machine.root.glob(".tmp*")] == []


def test_what_was_counted_adds_up_over_sessions(machine: Machine) -> None:
    machine.configure(machine.volume())
    counted = []
    for update in (1, 2):
        publish(machine.root, update)
        Replicator(machine.config).replicate_once()
        tier = machine.tier("vol")
        assert tier is not None
        counted.append(tier.bytes_up)
    assert counted[1] > counted[0] + 2000


def test_a_damaged_tracker_is_rebuilt_from_the_log(machine: Machine) -> None:
    """It is kept as evidence; nothing goes up twice."""
    machine.configure(machine.volume())
    identity = publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    before = volume_view(machine.folder / "vol")
    for path in machine.root.glob("tracker.sqlite*"):
        path.write_bytes(b"not a database" * 100)
    with session(machine) as opened:
        assert opened.tracker.rebuilt_from is not None
        assert opened.tracker.rebuilt_from.exists()
        assert opened.tracker.completed("vol") == ()
        opened.run_tier("vol", opened.prepare())
        assert [str(one.generation) for one in opened.tracker.completed("vol")] == [identity]
    assert live(volume_view(machine.folder / "vol")) == live(before)


def test_what_is_quarantined_never_goes_up(machine: Machine) -> None:
    machine.configure(machine.volume())
    good, bad = publish(machine.root, 1), publish(machine.root, 2)
    RunStore(machine.root, run=RUN).quarantine(bad, "loss is NaN")
    report = Replicator(machine.config).replicate_once()
    assert report.exit_code is ExitCode.INTEGRITY
    assert {str(one): why for one, why in report.quarantined.items()} == {bad: "loss is NaN"}
    assert live(volume_view(machine.folder / "vol")) == [good]


def test_bytes_that_are_no_longer_what_was_sealed_are_quarantined_and_the_rest_goes_up(machine: Machine) -> None:
    machine.configure(machine.volume())
    good, bad = publish(machine.root, 1), publish(machine.root, 2)
    (machine.root / "generations" / bad / "files" / "state.bin").write_bytes(b"overwritten")
    report = Replicator(machine.config).replicate_once()
    assert report.exit_code is ExitCode.INTEGRITY
    assert live(volume_view(machine.folder / "vol")) == [good]
    status = machine.status()
    assert status is not None
    assert RunStore(machine.root, run=RUN).get(bad).level == "quarantined"


def test_a_staged_generation_that_cannot_be_sealed_is_in_the_report(machine: Machine) -> None:
    machine.configure(machine.volume())
    publish(machine.root, 1, defer=True)
    (staged,) = machine.root.glob(".staged-*")
    (staged / "staged.json").write_bytes(b"{}")
    identity = publish(machine.root, 2)
    report = Replicator(machine.config).replicate_once()
    assert live(volume_view(machine.folder / "vol")) == [identity]
    assert report.exit_code is ExitCode.INTEGRITY
    assert report.unsealed is not None
    assert staged.name in report.unsealed


@pytest.mark.parametrize("sizes", [(2000, 3000), (2000, 2000)], ids=["other bytes", "the same bytes"])
def test_a_fork_is_reported_and_nothing_is_written(machine: Machine, tmp_path: Path, sizes: tuple[int, int]) -> None:
    """Two machines restored at the same time: one number, two ids.  The second one is told, exit 6.

    Also where both came to the same bytes, so that what the log holds looks like its own.
    """
    machine.configure(machine.volume())
    publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    heirs = [Machine(tmp_path / name) for name in ("left", "right")]
    for heir, size in zip(heirs, sizes, strict=True):
        heir.configure({**machine.volume()})
        assert Replicator(heir.config).restore(RestoreRequest()).attempt == 2
        publish(heir.root, 2, size)
    assert Replicator(heirs[0].config).replicate_once().exit_code is ExitCode.OK
    before = volume_view(machine.folder / "vol")
    (result,) = Replicator(heirs[1].config).replicate_once().results
    assert isinstance(result.failure, TrustFailure)
    assert "share a number" in result.failure.message
    tier = heirs[1].tier("vol")
    assert tier is not None
    assert tier.completed == 0
    assert volume_view(machine.folder / "vol") == before


def test_a_store_that_starts_afresh_under_an_old_name_is_refused(machine: Machine, tmp_path: Path) -> None:
    machine.configure(machine.volume())
    publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    stranger = Machine(tmp_path / "stranger")
    stranger.configure(machine.volume())
    publish(stranger.root, 1)
    before = volume_view(machine.folder / "vol")
    (result,) = Replicator(stranger.config).replicate_once().results
    assert isinstance(result.failure, TrustFailure)
    assert "ckptier restore" in result.failure.hint
    assert volume_view(machine.folder / "vol") == before


def test_a_failure_is_counted_until_a_success(machine: Machine) -> None:
    machine.configure({"name": "vol", "url": f"file://{machine.folder}/vol"})
    publish(machine.root, 1)
    with session(machine, impatient) as opened:
        prepared = opened.prepare()
        for expected in (1, 2):
            assert isinstance(opened.run_tier("vol", prepared).failure, Unreachable)
            tier = machine.tier("vol")
            assert tier is not None
            assert tier.failure is not None
            assert tier.failure.count == expected
        (machine.folder / "vol").mkdir()
        assert opened.run_tier("vol", prepared).failure is None
        tier = machine.tier("vol")
        assert tier is not None
        assert tier.failure is None


DONE = TierResult(tier="a", report=PassReport(tier="a"))
DOWN = TierResult(tier="b", failure=Unreachable("down"))
FENCED = TierResult(tier="c", failure=Fenced("taken over"))
BROKEN = TierResult(tier="d", failure=IntegrityFailure("damaged"))


@pytest.mark.parametrize(
    ("results", "quarantined", "code"),
    [
        ([DONE], False, ExitCode.OK),
        ([DONE], True, ExitCode.INTEGRITY),
        ([DONE, DOWN], False, ExitCode.PARTIAL),
        ([DONE, DOWN], True, ExitCode.PARTIAL),
        ([DOWN, DOWN], False, ExitCode.UNREACHABLE),
        ([DOWN, BROKEN], False, ExitCode.PARTIAL),
        ([DONE, FENCED], False, ExitCode.FENCED),
        ([DOWN, FENCED], False, ExitCode.FENCED),
    ],
)
def test_many_outcomes_become_one_exit_code(results: list[TierResult], quarantined: bool, code: ExitCode) -> None:
    assert combined_exit(results, quarantined=quarantined) is code
