"""``ckptier replicate`` as a process of its own, beside publishers in other processes."""

import os
import signal
import subprocess
import sys

import pytest
from daemon.stage import Machine, daemon, live, publish, until, volume_view

from replicate.errors import ExitCode

PUBLISH = """
import sys
from replicate import RunStore
with RunStore(sys.argv[1], hash_workers=1).publish(next_update=int(sys.argv[2])) as directory:
    (directory / "state.bin").write_bytes(b"x" * 2000)
"""


def publish_elsewhere(machine: Machine, update: int) -> None:
    """Publish from another process."""
    subprocess.run([sys.executable, "-c", PUBLISH, str(machine.root), str(update)], check=True, timeout=60)


def until_committed(machine: Machine, count: int) -> None:
    """Wait until the volume's log has so many commits."""
    until(lambda: len(live(volume_view(machine.folder / "vol"))) == count, f"{count} are committed")


@pytest.mark.parametrize(("poll_seconds", "inotify"), [(3600, True), (0.1, False)], ids=["notified", "polling only"])
def test_a_generation_of_another_process_is_noticed_and_committed(
    machine: Machine, poll_seconds: float, inotify: bool
) -> None:
    """With inotify long before the next poll; without it, as on NFS, by the poll."""
    machine.configure(machine.volume(), poll_seconds=poll_seconds)
    with daemon(machine, inotify=inotify) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        for update in (1, 2):
            publish_elsewhere(machine, update)
            until_committed(machine, update)
        newest = live(volume_view(machine.folder / "vol"))[-1]
        until(lambda: machine.holds("vol", newest), "status.json says so")
        status = machine.status()
        assert status is not None
        assert (status.phase, status.pid) == ("running", running.process.pid)
        assert running.terminated() == ExitCode.OK
        assert ("cannot be watched" in running.log.read_text()) is not inotify
    assert machine.phase() == "stopped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("defer", [False, True], ids=["sealed", "deferred"])
def test_a_signal_drains_what_the_daemon_had_not_even_noticed(
    machine: Machine, number: signal.Signals, defer: bool
) -> None:
    machine.configure(machine.volume(), poll_seconds=3600)
    with daemon(machine, inotify=False) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        publish(machine.root, 7, defer=defer)
        running.send(number)
        assert running.ended() == ExitCode.OK
    (committed,) = live(volume_view(machine.folder / "vol"))
    assert "-u000000000007-" in committed
    assert machine.holds("vol", committed)


def test_deferred_generations_are_sealed_by_the_daemon(machine: Machine) -> None:
    """By a process that is as nice as it was told to be, within its share of the CPU."""
    machine.configure(machine.volume(), poll_seconds=3600, nice=3, cpu_share=0.9)
    with daemon(machine) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        for update in (1, 2):
            publish(machine.root, update, defer=True)
        until_committed(machine, 2)
        here = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, running.process.pid) == max(here, 3)
    assert not list(machine.root.glob(".staged-*"))


def test_one_daemon_a_store(machine: Machine) -> None:
    """The second one is told and changes nothing; the first one is not disturbed by those who look."""
    machine.configure(machine.volume(), poll_seconds=3600)
    with daemon(machine) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        for arguments in (["replicate"], ["replicate", "--once"]):
            second = machine.command(*arguments)
            assert second.returncode == ExitCode.FENCED
            assert "another process replicates" in second.stderr
            assert "next: " in second.stderr
        assert machine.command("status", "--json").returncode in (ExitCode.OK, ExitCode.NOTHING)
        identity = publish(machine.root, 1)
        assert machine.command("wait", "--timeout", "30").returncode == ExitCode.OK
        assert machine.holds("vol", identity)
        assert running.terminated() == ExitCode.OK
    assert machine.command("replicate", "--once").returncode == ExitCode.OK


def test_a_tier_that_fails_stops_no_other_and_is_shown(machine: Machine) -> None:
    """The volume is not mounted: its name is in status.json with what to do, and the exit code tells."""
    absent = {"name": "absent", "url": f"file://{machine.folder}/not-mounted"}
    machine.configure(absent, machine.volume(), poll_seconds=3600)
    identity = publish(machine.root, 1)
    with daemon(machine, attempts=1, first_pause=0.05) as running:
        until(lambda: machine.holds("vol", identity), "the good tier has it")
        until(
            lambda: (tier := machine.tier("absent")) and tier.failure and tier.failure.count >= 3, "it is tried again"
        )
        tier = machine.tier("absent")
        assert tier is not None
        assert tier.failure is not None
        assert tier.failure.exit_code == ExitCode.UNREACHABLE
        assert "mounted" in tier.failure.hint
        assert tier.failure.since < tier.failure.at
        assert (tier.newest, tier.held) == (None, ())
        good = machine.tier("vol")
        assert good is not None
        assert (good.failure, good.waiting, good.completed) == (None, (), 1)
        assert running.terminated() == ExitCode.PARTIAL


def test_when_every_tier_fails_alike_the_exit_code_is_theirs(machine: Machine) -> None:
    machine.configure({"name": "absent", "url": f"file://{machine.folder}/not-mounted"}, poll_seconds=3600)
    publish(machine.root, 1)
    with daemon(machine, attempts=1, first_pause=0.05) as running:
        until(lambda: (tier := machine.tier("absent")) and tier.failure, "the failure is shown")
        assert running.terminated() == ExitCode.UNREACHABLE


def test_the_daemon_outlives_the_publishers_that_die(machine: Machine) -> None:
    """A trainer that is killed while it writes leaves nothing that the daemon would take for a generation."""
    code = (
        "import os, signal, sys; from replicate import RunStore\n"
        "with RunStore(sys.argv[1]).publish(next_update=1) as directory:\n"
        "    (directory / 'half').write_bytes(b'x' * 1000)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    machine.configure(machine.volume(), poll_seconds=0.1)
    with daemon(machine) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        died = subprocess.run([sys.executable, "-c", code, str(machine.root)], check=False, timeout=60)
        assert died.returncode == -signal.SIGKILL
        identity = publish(machine.root, 2)
        until(lambda: machine.holds("vol", identity), "the next one is committed")
        assert live(volume_view(machine.folder / "vol")) == [identity]
        assert running.terminated() == ExitCode.OK


def test_a_killed_daemon_is_followed_by_another(machine: Machine) -> None:
    """Its lock goes with it, its journal stays: no takeover, no new term."""
    machine.configure(machine.volume(), poll_seconds=3600)
    publish(machine.root, 1)
    for update in (2, 3):
        with daemon(machine) as running:
            until(lambda: machine.phase() == "running", "the daemon runs")
            publish(machine.root, update)
            until_committed(machine, update)
            os.kill(running.process.pid, signal.SIGKILL)
            assert running.ended() == -signal.SIGKILL
    view = volume_view(machine.folder / "vol")
    assert view.state is not None
    assert (view.state.term, view.next_slot, len(view.live)) == (1, 4, 3)
    leftovers = [path.name for path in machine.root.iterdir() if path.name.startswith(".tmp")]
    assert len(leftovers) <= 1
