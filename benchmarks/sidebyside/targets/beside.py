"""Beside training: the daemon's share of the machine while it sends, and what it costs when there is nothing to do."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sidebyside.figures import Finding, verdict, worst
from benchmarks.sidebyside.measuring import CLOCK, ClientFailed, cpu_of, resident_mib
from benchmarks.sidebyside.running import Place, Say
from benchmarks.sidebyside.servers import ShapedLink, Sink, environment
from benchmarks.sidebyside.targets.links import ROUND_TRIP

MIB = 1 << 20
RATE = 100 * MIB
SHARE = 0.04
IDLE_CORE = 0.002
IDLE_MIB = 120.0
PAUSE = 0.05
GIVE_UP = 120.0
SETTLE = 2.0
REFERENCE_CORES = 2
"""The share is told of a machine with so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What the daemon took: parts of two cores and of one, MiB."""

    share: float
    idle_requests: int
    idle_core: float
    idle_mib: float
    idle_seconds: float


@contextmanager
def daemon(config: Path, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the replicating process; it is ended as a service manager would, then killed."""
    code = "from ckptier_command import entry; entry()"
    command = [sys.executable, "-c", code, "replicate", "--config", str(config)]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            env=environment(),
            cwd=config.parent,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(GIVE_UP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure_beside(place: Place, idle_seconds: float, say: Say) -> Beside:
    """Let a daemon send a generation through a link, then leave it alone."""
    with Sink() as sink, ShapedLink(sink.port, rate=RATE, round_trip=ROUND_TRIP) as link:
        sink.read_from(place.files)
        config = place.project("daemon", link.url)
        with daemon(config, place.folder / "daemon.log") as process:
            share = _share(process, sink)
            say(f"  daemon: {share:.1%} of {REFERENCE_CORES} cores while it sends")
            CLOCK.wait(SETTLE)
            sink.ask("reset")
            spent = _nanoseconds(process.pid)
            CLOCK.wait(idle_seconds)
            idle = (_nanoseconds(process.pid) - spent) / 1e9 / idle_seconds
            requests = sum(sink.ask("counters")["requests"].values())
            held = resident_mib(process.pid)
            say(f"  daemon: idle {idle:.2%} of a core, {held:.0f} MiB, {requests} requests")
    return Beside(share=share, idle_requests=requests, idle_core=idle, idle_mib=held, idle_seconds=idle_seconds)


def _share(process: "subprocess.Popen[bytes]", sink: Sink) -> float:
    """Return the daemon's CPU between the first byte and the commit, as a part of the machine."""
    deadline = CLOCK.monotonic() + GIVE_UP
    samples: list[tuple[float, float]] = []
    while CLOCK.monotonic() < deadline and process.poll() is None:
        samples.append((CLOCK.monotonic(), cpu_of(process.pid)))
        seen = sink.ask("counters") if len(samples) % 8 == 0 else {}
        if seen.get("first_body") and (seen.get("last_log_put") or 0) > seen["last_body"]:
            return _between(samples, seen)
        CLOCK.wait(PAUSE)
    raise ClientFailed("the daemon did not replicate")


def _between(samples: list[tuple[float, float]], seen: dict[str, Any]) -> float:
    began, ended = float(seen["first_body"]), float(seen["last_log_put"])
    at_first = max((cpu for moment, cpu in samples if moment <= began), default=samples[0][1])
    at_last = min((cpu for moment, cpu in samples if moment >= ended), default=samples[-1][1])
    return (at_last - at_first) / (ended - began) / REFERENCE_CORES


def _nanoseconds(pid: int) -> int:
    """Return what the living threads of a process have run; finer than the ticks of its whole."""
    return sum(
        int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


def beside_findings(found: Beside) -> list[Finding]:
    """Hold it against the targets."""
    idle = [
        verdict(found.idle_requests, 0),
        verdict(found.idle_core, IDLE_CORE, digits=4),
        verdict(found.idle_mib, IDLE_MIB),
    ]
    return [
        Finding(
            target="daemon while 100 MiB/s replicate",
            bound=f"≤ {SHARE:.0%} of two cores",
            shown=f"{found.share:.1%}",
            verdict=verdict(found.share, SHARE, digits=3),
        ),
        Finding(
            target="idle daemon",
            bound=f"0 requests, ≤ {IDLE_CORE:.1%} of a core, ≤ {IDLE_MIB:.0f} MiB",
            shown=f"{found.idle_requests} requests, {found.idle_core:.2%}, {found.idle_mib:.0f} MiB",
            verdict=worst(idle),
            beside=f"{found.idle_seconds:.0f} s",
        ),
    ]
