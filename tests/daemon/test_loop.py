"""The daemon's loop from the inside: what goes up next, and what it survives."""

import shutil
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from daemon.gates import Gate, gated, impatient
from daemon.stage import LIMIT, RUN, Inside, Machine, inside, live, publish, until, volume_view

from replicate import RunStore
from replicate.commit import Events
from replicate.daemon import Daemon, pause_after
from replicate.errors import ExitCode
from replicate.session import Prepared, Session
from replicate.watching import fingerprint


@pytest.fixture
def polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be noticed before the next poll."""
    monkeypatch.setattr("replicate.daemon.StoreWatcher", lambda _root, _wake: nullcontext())


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once what failed."""
    monkeypatch.setattr("replicate.daemon.FIRST_PAUSE", 0.02)


def failure_of(machine: Machine, name: str = "vol") -> str:
    """Return what status.json says went wrong on a tier, empty where nothing did."""
    tier = machine.tier(name)
    return tier.failure.message if tier is not None and tier.failure is not None else ""


def look_now(running: Inside) -> None:
    running.signals.wake.set()


def test_what_is_under_way_is_finished_and_then_the_newest_goes_first(machine: Machine) -> None:
    """A newer generation never pre-empts, or a slow tier would never finish any."""
    machine.configure(machine.volume(), poll_seconds=3600)
    gate = Gate("*-g000001-*/files/*")
    order: list[str] = []
    events = Events(on_start=lambda _tier, generation, _size: order.append(str(generation)))
    with inside(machine, opener=gated(gate), events=events) as running:
        first = publish(machine.root, 1)
        assert gate.reached.wait(30)
        later = [publish(machine.root, update) for update in (2, 3, 4)]
        until(lambda: len(running.session.board._present) == 4, "the daemon has noticed them")
        assert order == [first]
        gate.opened.set()
        until(lambda: all(machine.holds("vol", one) for one in later), "all are committed")
        assert running.drained() is ExitCode.OK
    assert order == [first, *reversed(later)]
    assert live(volume_view(machine.folder / "vol")) == order


def test_what_is_rolled_back_to_is_newer_than_what_it_replaced(machine: Machine) -> None:
    """Newest is by attempt and sequence: after going back from 500 to 200, the new 220 goes first."""
    machine.configure(machine.volume(), poll_seconds=3600)
    gate = Gate("*-u000000000200-*/files/*")
    with inside(machine, opener=gated(gate)) as running:
        first = publish(machine.root, 200)
        assert gate.reached.wait(30)
        others = [publish(machine.root, update) for update in (500, 220)]
        until(lambda: len(running.session.board._present) == 3, "the daemon has noticed them")
        gate.opened.set()
        until(lambda: all(machine.holds("vol", one) for one in others), "all are committed")
    assert live(volume_view(machine.folder / "vol")) == [first, others[1], others[0]]


def test_draining_waits_for_what_is_sealed_meanwhile(
    machine: Machine, polling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tier that finishes while the last look still seals must not leave without what that look finds."""
    machine.configure(machine.volume(), poll_seconds=3600)
    gate = Gate("*-g000001-*/files/*")
    idle = threading.Event()
    prepare, waiting = Session.prepare, Daemon._wait_for_change

    def slow(session: Session, seen: tuple[str, ...] = ()) -> Prepared:
        if gate.reached.is_set():
            gate.opened.set()
            until(lambda: idle.is_set() or not _tier_threads(), "the tier has finished the first one")
        return prepare(session, seen)

    def noted(daemon: Daemon, version: int, longest: float | None) -> None:
        if gate.opened.is_set():
            idle.set()
        waiting(daemon, version, longest)

    monkeypatch.setattr(Session, "prepare", slow)
    monkeypatch.setattr(Daemon, "_wait_for_change", noted)
    publish(machine.root, 1)
    with inside(machine, opener=gated(gate)) as running:
        assert gate.reached.wait(30)
        publish(machine.root, 2, defer=True)
        assert running.drained() is ExitCode.OK
    assert len(live(volume_view(machine.folder / "vol"))) == 2


def _tier_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ckptier-vol" and thread.is_alive()]


def publish_two_files(root: Path, update: int) -> str:
    store = RunStore(root, hash_workers=1)
    with store.publish(next_update=update) as directory:
        for name in ("a.bin", "b.bin"):
            (directory / name).write_bytes(name.encode() * 500)
    newest = store.latest()
    assert newest is not None
    return str(newest.id)


@pytest.mark.parametrize("newer", [True, False])
def test_draining_sends_the_newest_first_and_comes_back_to_what_was_under_way(machine: Machine, *, newer: bool) -> None:
    """C29: what is left of the time may do for the small last generation, and not for the large one before it."""
    machine.configure({**machine.volume(), "connections": 1}, poll_seconds=3600)
    gate = Gate("*-g000001-*/files/a.bin")
    with inside(machine, opener=gated(gate)) as running:
        first = publish_two_files(machine.root, 1)
        assert gate.reached.wait(LIMIT)
        expected = [publish(machine.root, 2), first] if newer else [first]
        running.signals.draining.set()
        running.signals.wake.set()
        until(lambda: machine.phase() == "draining", "it drains")
        replication = running.session._replications["vol"]
        until(replication._hurried.is_set, "the tier was told")
        until(lambda: replication._set_aside.is_set() == newer, "what is under way is set aside where there is a newer")
        gate.opened.set()
        assert running.drained() is ExitCode.OK
    assert live(volume_view(machine.folder / "vol")) == expected


def test_a_volume_that_is_mounted_later_gets_what_it_missed(machine: Machine, eager: None) -> None:
    machine.configure({"name": "vol", "url": f"file://{machine.folder}/vol"}, poll_seconds=3600)
    with inside(machine, opener=impatient) as running:
        identity = publish(machine.root, 1)
        until(lambda: failure_of(machine), "the failure is shown")
        (machine.folder / "vol").mkdir()
        until(lambda: machine.holds("vol", identity), "it is committed")
        until(lambda: not failure_of(machine), "the failure is gone")
        assert running.drained() is ExitCode.OK


def test_a_staged_generation_that_cannot_be_sealed_holds_up_nothing(machine: Machine) -> None:
    """One bad directory must not end the replication of the run."""
    machine.configure(machine.volume(), poll_seconds=3600)
    publish(machine.root, 1, defer=True)
    (staged,) = machine.root.glob(".staged-*")
    (staged / "staged.json").write_bytes(b"{}")
    with inside(machine) as running:
        identity = publish(machine.root, 2)
        until(lambda: machine.holds("vol", identity), "the next one is committed")
        assert running.drained() is ExitCode.INTEGRITY
    assert staged.is_dir()


def test_a_damaged_document_costs_that_generation_and_no_other(machine: Machine) -> None:
    """It was committed before; what comes after it goes up all the same."""
    machine.configure(machine.volume(), poll_seconds=3600)
    first = publish(machine.root, 1)
    with inside(machine) as running:
        until(lambda: machine.holds("vol", first), "the first is committed")
        (machine.root / "generations" / first / "generation.json").write_bytes(b"{}")
        second = publish(machine.root, 2)
        until(lambda: machine.holds("vol", second), "the second is committed")
        assert running.drained() is ExitCode.OK
    status = machine.status()
    assert status is not None
    assert first in status.quarantined
    assert live(volume_view(machine.folder / "vol")) == [first, second]


def test_a_status_that_cannot_be_written_fails_no_upload(machine: Machine) -> None:
    """As on a full disk: the picture is missing, the generation is not."""
    machine.configure(machine.volume(), poll_seconds=3600)
    machine.root.mkdir(parents=True)
    (machine.root / "status.json").mkdir()
    publish(machine.root, 1)
    with inside(machine) as running:
        until(lambda: live(volume_view(machine.folder / "vol")), "it is committed")
        assert running.drained() is ExitCode.OK


def test_a_store_that_cannot_be_looked_at_is_looked_at_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network volume that answers with an error for a while must not end the daemon."""
    machine.configure(machine.volume(), poll_seconds=0.01)
    failures = iter([OSError(116, "Stale file handle")] * 3)

    def stale(root: Path) -> tuple[str, ...]:
        error = next(failures, None)
        if error is not None:
            raise error
        return fingerprint(root)

    monkeypatch.setattr("replicate.daemon.fingerprint", stale)
    with inside(machine) as running:
        identity = publish(machine.root, 1)
        until(lambda: machine.holds("vol", identity), "it is committed")
        assert running.drained() is ExitCode.OK


def test_a_generation_that_rotates_away_before_it_goes_up_is_no_failure(machine: Machine, polling: None) -> None:
    machine.configure(machine.volume(), poll_seconds=3600)
    gate = Gate("*-g000001-*/files/*")
    with inside(machine, opener=gated(gate)) as running:
        publish(machine.root, 1)
        look_now(running)
        assert gate.reached.wait(30)
        gone, kept = publish(machine.root, 2), publish(machine.root, 3)
        look_now(running)
        until(lambda: len(running.session.board._present) == 3, "the daemon has noticed them")
        RunStore(machine.root, run=RUN).remove(gone)
        look_now(running)
        until(lambda: len(running.session.board._present) == 2, "the daemon has noticed that too")
        gate.opened.set()
        until(lambda: machine.holds("vol", kept), "the other is committed")
        assert running.drained() is ExitCode.OK
    assert not failure_of(machine)
    shutil.rmtree(machine.root)


def test_pauses_double_and_never_end() -> None:
    assert [pause_after(failures) for failures in (1, 2, 3, 7, 500)] == [5.0, 10.0, 20.0, 300.0, 300.0]
