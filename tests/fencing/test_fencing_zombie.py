"""Real processes on a volume: one is suspended (SIGSTOP) across a takeover and wakes up as a zombie."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemon.stage import Machine as Host
from daemon.stage import daemon, until
from fencing.writers import RESTARTS, check_stays_out, claims, code, digests, outcome
from flows.machines import REMOTE, RUN, Machine, Place, payload

from replicate.clearing import Clearing
from replicate.config import TierConfig
from replicate.errors import ExitCode
from replicate.restore import RestoreRequest

Make = Callable[..., Machine]
LIMIT = 60.0
HERE = Path(__file__).parent


def write_config(machine: Machine) -> Path:
    """Write the configuration for a process of its own."""
    (place,) = machine.places
    lines = [
        f'run = "{RUN}"', 'store = "runs"', "hash_workers = 1", "[[tier]]",
        f'name = "{place.name}"', f'url = "{place.settings.url}"', "connections = 1",
        *([f"keep_last = {place.settings.keep_last}"] if place.settings.keep_last else []),
    ]  # fmt: skip
    (machine.folder / "ckptier.toml").write_text("\n".join(lines) + "\n")
    return machine.folder / "ckptier.toml"


@contextmanager
def suspended(machine: Machine, moment: str, pattern: str) -> Iterator["subprocess.Popen[str]"]:
    """Yield a replication once it has stopped itself; whatever happens, nothing of it stays."""
    command = [sys.executable, str(HERE / "stalled.py"), str(write_config(machine)), moment, pattern]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here
                assert process.stderr is not None
                raise AssertionError(f"it never came to {moment} {pattern}: {process.stderr.read()}")
            yield process
        finally:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)


def woken(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Let it go on; returns its exit code and what it said."""
    os.kill(process.pid, signal.SIGCONT)
    _, said = process.communicate(timeout=LIMIT)
    return process.returncode, said


def keeping_one(place: Place) -> Place:
    """Return the same volume for a machine that keeps one generation there and deletes others at once."""
    return Place(place.settings.model_copy(update={"keep_last": 1, "retire_delay_seconds": 0.0}))


POINTS = [
    pytest.param("after", "* put */files/meta.json", id="in its upload", marks=pytest.mark.long),
    pytest.param("after", "* put */manifest.json", id="its manifest up"),
    pytest.param("before", f"* create {REMOTE.log(3)}", id="before its commit"),
]


@pytest.mark.parametrize(("moment", "pattern"), POINTS)
def test_a_zombie_is_told_and_nothing_is_changed(volume: Place, machine: Make, moment: str, pattern: str) -> None:
    """The other machine restores, commits, prunes and collects what the zombie had sent, while that stands still."""
    one, two = machine("one", volume), machine("two", keeping_one(volume))
    one.push(5, 10)
    one.publish(15)
    with suspended(one, moment, pattern) as process:
        two.restore()
        two.push(20)
        collected = Clearing(two.config).gc(apply=True).places[0].report
        assert collected is not None
        assert [each.generation.next_update for each in collected.deleted] == [15]
        assert [each.next_update for each in volume.live()] == [20, 10], "the oldest is pruned, its own start stays"
        before = digests(volume)
        assert not [key for key in before if "u000000000005" in key]
        ended, said = woken(process)
    assert ended == ExitCode.FENCED, said
    assert "another writer has taken over this run" in said
    after = digests(volume)
    assert {key: digest for key, digest in after.items() if key in before} == before, "what is the other's is as it was"
    extra = set(after) - set(before)
    assert all("u000000000015" in key for key in extra), "it may have gone on under its own prefix, which is nobody's"
    assert claims(volume) == [(1, 1), (2, 2)]
    for _ in range(RESTARTS):
        assert code(outcome(one)) is ExitCode.FENCED
    assert digests(volume) == after, "it claims again by itself"
    Clearing(two.config).gc(apply=True)
    assert not [key for key in digests(volume) if "u000000000015" in key], "what is left of it is an orphan"
    three = machine("three", volume)
    three.restore()
    assert {path: (three.resumed().files / path).read_bytes() for path in payload(20)} == payload(20)


def test_a_zombie_whose_commit_was_in_time_stays_committed(volume: Place, machine: Make) -> None:
    """It is stopped between the entry and reading it back: the heir goes on from that very generation.

    What it says is true, and all that it may still say: it wanted to retire what is older, and may not.
    """
    one, two = machine("one", keeping_one(volume)), machine("two", volume)
    one.push(10)
    middle = one.publish(15)
    with suspended(one, "after", f"* create {REMOTE.log(2)}") as process:
        assert two.restore().generation == middle
        two.push(20)
        before = digests(volume)
        ended, _ = woken(process)
    assert ended == ExitCode.OK
    assert digests(volume) == before
    assert [each.next_update for each in volume.live()] == [20, 15, 10]
    one.publish(16)
    check_stays_out(one)


def test_of_two_live_daemons_the_older_attempt_ends_and_stays_out(tmp_path: Path) -> None:
    """Two machines, a store each, one volume; a service manager starts the loser again and again."""
    volume = tmp_path / "volume"
    volume.mkdir()
    tier = {"name": "vol", "url": f"file://{volume}", "connections": 1}
    place = Place(TierConfig(name="vol", url=f"file://{volume}"))
    hosts = [Host(tmp_path / name) for name in ("one", "two")]
    for host in hosts:
        host.configure(tier, run=RUN, poll_seconds=0.1)
    one, two = (Machine(host.folder, (place,)) for host in hosts)
    with daemon(hosts[0]) as first:
        one.publish(10)
        until(lambda: [each.next_update for each in place.live()] == [10], "the first daemon works")
        two.restore()
        with daemon(hosts[1]) as second:
            two.publish(20)
            until(lambda: [each.next_update for each in place.live()] == [20, 10], "the second has taken over")
            one.publish(15)
            assert first.ended() == ExitCode.FENCED, "by itself"
            assert "ckptier restore" in first.log.read_text(), "and says what opens the way"
            with daemon(hosts[0]) as again:
                assert again.ended() == ExitCode.FENCED
            for _ in range(RESTARTS):
                assert code(outcome(one)) is ExitCode.FENCED
            two.publish(30)
            until(lambda: place.live()[0].next_update == 30, "the second was never disturbed")
            assert second.terminated() == ExitCode.OK
    assert claims(place) == [(1, 1), (2, 2)], "no ping-pong"
    shutil.rmtree(one.folder / "runs")
    assert one.engine.restore(RestoreRequest()).generation == place.live()[0]
