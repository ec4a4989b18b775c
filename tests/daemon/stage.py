"""Machines with a real daemon, and waiting for what they do without ever sleeping blindly."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from replicate import RunStore
from replicate.commit import Events
from replicate.config import Config, load_config
from replicate.daemon import Daemon, Signals
from replicate.errors import ExitCode
from replicate.layout import RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.opening import Opener, default_opener
from replicate.session import Session
from replicate.statusfile import StatusFile, TierStatus, read_status
from tiers.clock import SystemClock
from tiers.volume import VolumeTier

RUN = "llm-7b"
REMOTE = RemoteRun.of(RUN)
CLOCK = SystemClock()
LIMIT = 30.0
"""Seconds after which a condition that does not come true is a failure; a fast machine needs milliseconds."""
CHILD = Path(__file__).with_name("child.py")
T = TypeVar("T")


def until(condition: Callable[[], T], what: str, limit: float = LIMIT) -> T:
    """Return the first true value of ``condition``; AssertionError after ``limit`` seconds."""
    deadline = CLOCK.monotonic() + limit
    while not (value := condition()):
        assert CLOCK.monotonic() < deadline, f"not within {limit:g} s: {what}"
        CLOCK.wait(0.01)
    return value


def publish(root: Path, update: int, size: int = 2000, *, defer: bool = False) -> str:
    """Publish a generation from this process, as a trainer would beside the daemon; returns its id."""
    store = RunStore(root, hash_workers=1)
    with store.publish(next_update=update, defer_seal=defer) as directory:
        (directory / "state.bin").write_bytes(update.to_bytes(4, "big") * (size // 4))
    newest = store.latest()
    return str(newest.id) if newest is not None else ""


def volume_view(root: Path) -> LogView:
    """Read the log on a volume."""
    return Logbook(VolumeTier("reader", root), REMOTE).read()


def live(view: LogView) -> list[str]:
    """Return the committed generations in the order of their commits."""
    return [commit.generation for commit in sorted(view.live, key=lambda commit: commit.slot)]


@dataclass(frozen=True, slots=True)
class Machine:
    """A configured store."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "runs" / RUN

    @property
    def toml(self) -> Path:
        return self.folder / "ckptier.toml"

    @property
    def config(self) -> Config:
        return load_config(self.toml)

    def configure(self, *tiers: Mapping[str, object], **top: object) -> None:
        """Write the configuration."""
        self.folder.mkdir(exist_ok=True)
        settings = {"run": RUN, "store": "runs", "hash_workers": 1, "nice": 0, **top}  # a busy machine would starve it
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        for tier in tiers:
            lines += ["[[tier]]", *(f"{name} = {json.dumps(value)}" for name, value in tier.items())]
        self.toml.write_text("\n".join(lines) + "\n")

    def volume(self, name: str = "vol") -> dict[str, object]:
        """Create a volume; returns its tier."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return {"name": name, "url": f"file://{self.folder / name}"}

    def status(self) -> StatusFile | None:
        return read_status(self.config.local) if self.root.is_dir() else None

    def tier(self, name: str) -> TierStatus | None:
        """Return what status.json says of a tier."""
        status = self.status()
        return next((one for one in status.tiers if one.name == name), None) if status else None

    def holds(self, name: str, generation: str) -> bool:
        """Whether status.json says that a tier holds a generation."""
        tier = self.tier(name)
        return tier is not None and generation in tier.held

    def phase(self) -> str:
        status = self.status()
        return status.phase if status else ""

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run ``ckptier`` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "ckptier_command", *arguments, "--config", str(self.toml)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@dataclass(slots=True)
class Running:
    """``ckptier replicate`` in a process of its own; ``log`` is what it wrote to stderr."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def ended(self, limit: float = LIMIT) -> int:
        """Return the exit code, once it has ended."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit:g} s:\n{self.log.read_text()}") from None

    def terminated(self, limit: float = LIMIT) -> int:
        """Send SIGTERM; returns the exit code."""
        self.send(signal.SIGTERM)
        return self.ended(limit)


@contextmanager
def daemon(machine: Machine, *, arguments: Sequence[str] = ("replicate",), **changes: Any) -> Iterator[Running]:
    """Run ``ckptier replicate`` beside the block; ``changes`` are those of child.py."""
    log = machine.folder / "daemon.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, str(CHILD), json.dumps(changes), *arguments, "--config", str(machine.toml)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, "PYTHONPATH": str(CHILD.parents[2])},
        )
    try:
        yield Running(process, log)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait(LIMIT)


@dataclass(slots=True)
class Inside:
    """A daemon in a thread of this process, for tests that reach into it."""

    session: Session
    signals: Signals
    thread: threading.Thread
    code: list[ExitCode] = field(default_factory=list)

    def drained(self, limit: float = LIMIT) -> ExitCode:
        """Let it drain; returns what the process would exit with."""
        self.signals.draining.set()
        self.signals.wake.set()
        self.thread.join(limit)
        assert not self.thread.is_alive(), "the daemon does not end"
        return self.code[0]


@contextmanager
def inside(machine: Machine, *, opener: Opener = default_opener, events: Events | None = None) -> Iterator[Inside]:
    """Run a daemon in a thread beside the block; it is drained at the end."""
    with Session(machine.config, clock=CLOCK, stop=threading.Event(), opener=opener, events=events) as session:
        signals = Signals()
        running = Inside(session, signals, threading.Thread())
        running.thread = threading.Thread(
            target=lambda: running.code.append(Daemon(session, signals, CLOCK).run()), name="daemon"
        )
        running.thread.start()
        try:
            yield running
        finally:
            session.stop.set()
            running.drained()
