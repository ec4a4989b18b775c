"""``wait``: what it waits for, and when it gives up at once."""

import threading

import pytest
from daemon.gates import Gate, gated
from daemon.stage import RUN, Machine, inside, publish

from replicate import RunStore
from replicate.engine import Replicator
from replicate.errors import IntegrityFailure, NothingFound, PartialFailure, Unreachable
from replicate.generation.locks import Flock
from replicate.layout import GenerationId, LocalRun
from replicate.opening import default_opener
from replicate.session import Session
from replicate.statusfile import StatusFile, read_status
from replicate.waiting import WaitReport, wait_for
from tiers.clock import SystemClock
from tiers.testing import ManualClock


def wait(machine: Machine, *, generation: str | None = None, timeout: float | None = 30) -> WaitReport:
    wanted = GenerationId.parse(generation) if generation else None
    return wait_for(machine.config, machine.config.tier, wanted, timeout=timeout, clock=SystemClock())


def hold_lock(machine: Machine) -> Flock:
    """Be a daemon that does nothing."""
    machine.root.mkdir(parents=True, exist_ok=True)
    return Flock.take(machine.config.local.daemon_lock)


def test_what_is_held_is_answered_at_once_and_without_a_daemon(machine: Machine) -> None:
    machine.configure(machine.volume())
    identity = publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    report = wait(machine, timeout=0)
    assert (str(report.generation), report.tiers, report.not_due) == (identity, ("vol",), ())


def test_an_older_one_can_be_waited_for(machine: Machine) -> None:
    machine.configure(machine.volume())
    first, _ = publish(machine.root, 1), publish(machine.root, 2)
    Replicator(machine.config).replicate_once()
    assert str(wait(machine, generation=first).generation) == first


def test_a_tier_for_milestones_is_not_waited_for_where_this_is_none(machine: Machine) -> None:
    machine.configure(machine.volume(), {**machine.volume("rare"), "replicate_every": 100})
    publish(machine.root, 99)
    Replicator(machine.config).replicate_once()
    report = wait(machine, timeout=0)
    assert (report.tiers, report.not_due) == (("vol",), ("rare",))
    milestone = publish(machine.root, 100)
    with pytest.raises(PartialFailure, match="not on vol, rare"):
        wait(machine, generation=milestone)


def test_waiting_ends_with_the_commit_and_not_with_the_upload(machine: Machine) -> None:
    """Promise 3: while the manifest is not written, nothing is there."""
    machine.configure(machine.volume())
    gate = Gate("*/manifest.json")
    done: list[WaitReport] = []
    with inside(machine, opener=gated(gate)):
        identity = publish(machine.root, 1)
        waiter = threading.Thread(target=lambda: done.append(wait(machine)))
        waiter.start()
        assert gate.reached.wait(30)
        with pytest.raises(Unreachable, match="under way"):
            wait(machine, timeout=0)
        assert not done
        gate.opened.set()
        waiter.join(30)
    assert [str(report.generation) for report in done] == [identity]


def test_what_is_quarantined_is_hopeless(machine: Machine) -> None:
    machine.configure(machine.volume())
    identity = publish(machine.root, 1)
    RunStore(machine.root, run=RUN).quarantine(identity, "loss is NaN")
    lock = hold_lock(machine)
    with pytest.raises(IntegrityFailure, match="loss is NaN"):
        wait(machine)
    lock.release()


def test_without_a_daemon_it_is_hopeless_too(machine: Machine) -> None:
    machine.configure(machine.volume())
    publish(machine.root, 1)
    with pytest.raises(PartialFailure, match="no process replicates") as caught:
        wait(machine)
    assert "ckptier replicate" in caught.value.hint


def test_a_generation_that_is_not_here_is_not_waited_for(machine: Machine) -> None:
    machine.configure(machine.volume())
    with pytest.raises(NothingFound, match="no generation"):
        wait(machine)
    publish(machine.root, 1)
    lock = hold_lock(machine)
    with pytest.raises(NothingFound, match="a0009"):
        wait(machine, generation="a0009-g000001-u000000000001-00000000")
    lock.release()


def test_the_timeout_says_what_stands_in_the_way(machine: Machine) -> None:
    machine.configure({"name": "vol", "url": f"file://{machine.folder}/not-mounted"})
    publish(machine.root, 1)
    Replicator(machine.config, clock=ManualClock()).replicate_once()
    lock = hold_lock(machine)
    clock = ManualClock()
    with pytest.raises(Unreachable, match=r"after 7 s: vol: .*not-mounted"):
        wait_for(machine.config, machine.config.tier, None, timeout=7, clock=clock)
    assert 7 <= clock.monotonic() < 8
    lock.release()


def test_what_is_staged_is_the_newest_once_it_is_sealed(machine: Machine) -> None:
    machine.configure(machine.volume())
    publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    publish(machine.root, 2, defer=True)
    with inside(machine):
        report = wait(machine)
    assert report.generation.next_update == 2


def test_what_is_staged_is_never_passed_over_for_an_older_one(machine: Machine) -> None:
    """The older one is held; saying so would be taken to mean that nothing is at risk."""
    machine.configure(machine.volume())
    publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    publish(machine.root, 2, defer=True)
    with pytest.raises(PartialFailure, match="not sealed yet, and no process"):
        wait(machine, timeout=None)
    lock = hold_lock(machine)
    with pytest.raises(Unreachable, match="not sealed after 0 s"):
        wait(machine, timeout=0)
    lock.release()


def test_a_process_that_ends_between_two_looks_is_not_taken_for_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It committed and ended after its view was read: the view has to be read once more, not despaired of."""
    machine.configure(machine.volume())
    identity = publish(machine.root, 1)
    sessions: list[Session] = []

    def read_and_finish(local: LocalRun) -> StatusFile | None:
        found = read_status(local)
        if sessions:
            opened = sessions.pop()
            opened.run_tier("vol", opened.prepare())
            opened.close()
        return found

    monkeypatch.setattr("replicate.liveness.read_status", read_and_finish)
    with Session(machine.config, clock=SystemClock(), stop=threading.Event(), opener=default_opener) as session:
        sessions.append(session)
        assert str(wait(machine).generation) == identity
    assert not sessions


def test_waiting_asks_no_tier(machine: Machine) -> None:
    """Also where the tier is gone: what the daemon wrote down is enough."""
    machine.configure(machine.volume())
    identity = publish(machine.root, 1)
    Replicator(machine.config).replicate_once()
    (machine.folder / "vol").rename(machine.folder / "away")
    assert str(wait(machine, timeout=0).generation) == identity
