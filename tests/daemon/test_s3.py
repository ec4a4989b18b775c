"""The daemon and a real S3 server behind a proxy: stalls, signals, zombies, and silence where nothing happens."""

import signal
from contextlib import closing
from pathlib import Path

import pytest
from daemon.stage import REMOTE, Machine, Running, daemon, inside, live, publish, until
from support.proxy import Action, Fault, FaultProxy, When
from support.s3_tiers import s3_tier
from support.seaweed import BUCKET

from replicate.engine import Replicator
from replicate.errors import ExitCode
from replicate.log import Claim, LogView
from replicate.logbook import Logbook
from replicate.restore import RestoreRequest
from replicate.watching import fingerprint
from tiers.servers import free_ports

MIB = 1 << 20
PART = 5 * MIB
BIG = 11 * MIB


def tier(endpoint_url: str, prefix: str, **more: object) -> dict[str, object]:
    """Return the settings of a tier on the test server."""
    url = f"s3://{BUCKET}/{prefix}"
    settings = {"name": "s3", "url": url, "endpoint_url": endpoint_url, "profile": "seaweedfs", "connections": 1}
    return {**settings, "part_size": PART, **more}


def view(proxy: FaultProxy, prefix: str) -> LogView:
    """Read the log past the proxy."""
    with closing(s3_tier(f"http://127.0.0.1:{proxy.upstream_port}", prefix)) as reader:
        return Logbook(reader, REMOTE).read()


def stalled(machine: Machine, proxy: FaultProxy, prefix: str, running: Running) -> str:
    """Publish a large generation whose second part does not get through; returns its id, once that is so."""
    proxy.inject(Fault(operation="UploadPart", nth=2, action=Action.STALL))
    until(lambda: machine.phase() == "running", "the daemon runs")
    identity = publish(machine.root, 1, BIG)
    until(lambda: proxy.fired, "a part is stalled")
    assert running.process.poll() is None
    assert view(proxy, prefix).live == ()
    return identity


def parts_received(proxy: FaultProxy) -> int:
    return sum(size for (operation, _), size in proxy.received.items() if operation == "UploadPart")


def check_resumes(machine: Machine, proxy: FaultProxy, prefix: str, identity: str) -> None:
    """Check that another start sends what is missing and nothing else."""
    assert parts_received(proxy) == PART
    assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK
    assert parts_received(proxy) == BIG
    assert proxy.counts["CreateMultipartUpload"] == 1
    assert live(view(proxy, prefix)) == [identity]


def test_a_stalled_upload_does_not_keep_the_daemon_past_its_deadline(
    machine: Machine, proxy: FaultProxy, prefix: str
) -> None:
    """143, not 0: something is left to do.  Also the thread in the stalled request does not hold the process."""
    machine.configure(tier(proxy.endpoint_url, prefix), poll_seconds=3600, drain_seconds=0.3)
    with daemon(machine, leave=0.3) as running:
        identity = stalled(machine, proxy, prefix, running)
        assert running.terminated(limit=10) == ExitCode.TERMINATED
        assert "left behind" in running.log.read_text()
    shown = machine.tier("s3")
    assert machine.phase() == "stopped"
    assert shown is not None
    assert shown.under_way is not None
    assert (shown.under_way.generation, shown.under_way.done_bytes, shown.held) == (identity, PART, ())
    check_resumes(machine, proxy, prefix, identity)


def test_a_slow_upload_is_finished_where_the_deadline_allows(machine: Machine, proxy: FaultProxy, prefix: str) -> None:
    """SIGTERM is no reason to throw away what is nearly there."""
    machine.configure(tier(proxy.endpoint_url, prefix), poll_seconds=3600, drain_seconds=60)
    with daemon(machine) as running:
        proxy.inject(Fault(operation="UploadPart", nth=2, action=Action.DELAY, seconds=1))
        until(lambda: machine.phase() == "running", "the daemon runs")
        identity = publish(machine.root, 1, BIG)
        until(lambda: proxy.fired, "a part is slow")
        assert running.terminated() == ExitCode.OK
    assert machine.holds("s3", identity)
    assert live(view(proxy, prefix)) == [identity]
    assert parts_received(proxy) == BIG


def test_a_second_signal_ends_the_daemon_at_once(machine: Machine, proxy: FaultProxy, prefix: str) -> None:
    machine.configure(tier(proxy.endpoint_url, prefix), poll_seconds=3600, drain_seconds=3600)
    with daemon(machine) as running:
        identity = stalled(machine, proxy, prefix, running)
        running.send(signal.SIGTERM)
        until(lambda: machine.phase() == "draining", "it drains")
        assert running.process.poll() is None
        assert running.terminated(limit=5) == ExitCode.TERMINATED
    check_resumes(machine, proxy, prefix, identity)


def test_an_interrupted_once_ends_at_the_next_request(machine: Machine, proxy: FaultProxy, prefix: str) -> None:
    """Ctrl-C does not wait for all that is pending, nor is anything lost by it."""
    machine.configure(tier(proxy.endpoint_url, prefix))
    identity = publish(machine.root, 1, BIG)
    proxy.inject(Fault(operation="UploadPart", nth=2, action=Action.DELAY, when=When.AFTER, seconds=4))
    with daemon(machine, arguments=["replicate", "--once"]) as running:
        until(lambda: proxy.fired, "a part is under way")
        running.send(signal.SIGINT)
        assert running.ended() == ExitCode.INTERRUPTED
    assert parts_received(proxy) == 2 * PART
    assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK
    assert parts_received(proxy) == BIG
    assert live(view(proxy, prefix)) == [identity]


def test_an_endpoint_that_is_down_is_shown_and_the_volume_goes_on(machine: Machine, prefix: str) -> None:
    (port,) = free_ports(1)
    down = tier(f"http://127.0.0.1:{port}", prefix)
    machine.configure(down, machine.volume(), poll_seconds=3600)
    with daemon(machine, attempts=2, first_pause=0.05) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        identity = publish(machine.root, 1)
        until(lambda: machine.holds("vol", identity), "the volume has it")
        until(
            lambda: (shown := machine.tier("s3")) and shown.failure and shown.failure.count > 1, "the failure is shown"
        )
        shown = machine.tier("s3")
        assert shown is not None
        assert shown.failure is not None
        assert shown.failure.exit_code == ExitCode.UNREACHABLE
        assert "endpoint_url" in shown.failure.hint
        assert running.terminated() == ExitCode.PARTIAL


def test_a_zombie_that_was_taken_over_finds_out_and_stays_out(machine: Machine, proxy: FaultProxy, prefix: str) -> None:
    """Promise 8 with a process that really is stopped in mid-upload while another machine goes on with the run."""
    direct = f"http://127.0.0.1:{proxy.upstream_port}"
    machine.configure(tier(proxy.endpoint_url, prefix), poll_seconds=3600)
    other = Machine(machine.folder.with_name("other"))
    other.configure(tier(direct, prefix))
    with daemon(machine) as zombie:
        until(lambda: machine.phase() == "running", "the daemon runs")
        first = publish(machine.root, 1)
        until(lambda: machine.holds("s3", first), "the first is committed")
        fault = Fault(operation="PutObject", key="*-g000002-*/files/*", action=Action.DELAY, when=When.AFTER, seconds=2)
        proxy.inject(fault)
        publish(machine.root, 2)
        until(lambda: proxy.fired, "the second is under way")
        zombie.send(signal.SIGSTOP)

        assert Replicator(other.config).restore(RestoreRequest()).attempt == 2
        successor = publish(other.root, 2)
        assert Replicator(other.config).replicate_once().exit_code is ExitCode.OK

        zombie.send(signal.SIGCONT)
        assert zombie.ended() == ExitCode.FENCED
        assert "ckptier restore" in zombie.log.read_text()
    after = view(proxy, prefix)
    assert (live(after), after.damaged, after.refused) == ([first, successor], (), ())
    with daemon(machine) as again:  # Restart=always: no ping-pong
        assert again.ended() == ExitCode.FENCED
    assert view(proxy, prefix) == after
    assert after.state is not None
    with closing(s3_tier(direct, prefix)) as reader:
        entries = [Logbook(reader, REMOTE).entry(slot)[0] for slot in range(after.next_slot)]
    assert [entry.term for entry in entries if isinstance(entry.body, Claim)] == [1, 2]
    publish(other.root, 3)
    assert Replicator(other.config).replicate_once().exit_code is ExitCode.OK


def test_an_idle_daemon_asks_for_nothing(
    machine: Machine, proxy: FaultProxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request a poll would cost more than the storage of a small run."""
    polls = [0]

    def counted(root: Path) -> tuple[str, ...]:
        polls[0] += 1
        return fingerprint(root)

    monkeypatch.setattr("replicate.daemon.fingerprint", counted)
    machine.configure(tier(proxy.endpoint_url, prefix), poll_seconds=0.01)
    identity = publish(machine.root, 1)
    with inside(machine) as running:
        until(lambda: machine.holds("s3", identity), "it is committed")
        until(lambda: (shown := machine.tier("s3")) and not shown.under_way, "the pass has ended")
        counts, seen = proxy.counts, polls[0]
        until(lambda: polls[0] >= seen + 20, "many polls went by")
        assert proxy.counts == counts
        assert running.drained() is ExitCode.OK
        assert proxy.counts == counts  # nor does leaving ask for anything


def test_a_server_that_comes_back_gets_what_it_missed(
    machine: Machine, proxy: FaultProxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No restart is needed, and the failure goes from status.json with the first success."""
    monkeypatch.setattr("replicate.daemon.FIRST_PAUSE", 0.05)
    (port,) = free_ports(1)
    there, proxy.upstream_port = proxy.upstream_port, port
    machine.configure(tier(proxy.endpoint_url, prefix), poll_seconds=3600)
    with daemon(machine, attempts=1, first_pause=0.05) as running:
        until(lambda: machine.phase() == "running", "the daemon runs")
        identity = publish(machine.root, 1)
        until(
            lambda: (shown := machine.tier("s3")) and shown.failure and shown.failure.count > 1, "the failure is shown"
        )
        proxy.upstream_port = there
        until(lambda: machine.holds("s3", identity), "it is committed")
        until(lambda: (shown := machine.tier("s3")) and not shown.failure, "the failure is gone")
        assert running.terminated() == ExitCode.OK
    assert live(view(proxy, prefix)) == [identity]
