"""kill -9 at half: how much is sent again."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.sidebyside.figures import Finding, verdict
from benchmarks.sidebyside.measuring import CLOCK, ClientFailed
from benchmarks.sidebyside.running import Place, Say
from benchmarks.sidebyside.servers import ShapedLink, Sink, environment
from benchmarks.sidebyside.targets.links import ROUND_TRIP

MIB = 1 << 20
RATE = 100 * MIB
GIVE_UP = 120.0
PAUSE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Bytes sent twice, and what the parts in flight may have been: the most at once, of the largest size."""

    again: int
    flying: int
    total: int


def measure_kill(place: Place, say: Say) -> Killed:
    """Kill a replication when half of the bytes have arrived, and run it again to its end."""
    with Sink() as sink, ShapedLink(sink.port, rate=RATE, round_trip=ROUND_TRIP) as link:
        sink.read_from(place.files)
        config = place.project("killed", link.url)
        command = [sys.executable, "-m", "benchmarks.sidebyside.clients.ours"]
        spec = json.dumps({"role": "replicate", "config": str(config)})
        variables = environment()
        process = subprocess.Popen([*command, spec], env=variables, cwd=place.folder, stdout=subprocess.DEVNULL)
        deadline = CLOCK.monotonic() + GIVE_UP
        while process.poll() is None and CLOCK.monotonic() < deadline:
            if sink.ask("counters")["bytes_up"] >= place.workload.total // 2:
                process.send_signal(signal.SIGKILL)
                break
            CLOCK.wait(PAUSE)
        if process.wait(GIVE_UP) != -signal.SIGKILL:
            raise ClientFailed("the replication ended before it could be killed")
        place.ours("replicate", label="killed", config=str(config))
        seen, passed = sink.ask("counters"), link.ask("counters")
    killed = Killed(
        again=max(0, passed["up"] - place.workload.total),
        flying=seen["most_open"] * seen["largest"],
        total=place.workload.total,
    )
    say(f"  kill at half: {killed.again / MIB:.1f} MiB again, in flight up to {killed.flying / MIB:.1f}")
    return killed


def kill_findings(found: Killed) -> list[Finding]:
    """Hold it against the target."""
    return [
        Finding(
            target="kill -9 at half: sent again",
            bound="≤ parts in flight",
            shown=f"{found.again / MIB:.1f} MiB",
            verdict=verdict(found.again, found.flying),
            beside=f"in flight up to {found.flying / MIB:.1f} of {found.total / MIB:.0f} MiB",
        )
    ]
