"""The demonstration's stage: machines that are folders, processes that are real, tiers that outlive both."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from replicate.config import Config, load_config
from replicate.engine import Replicator
from replicate.errors import CkptierError
from tiers.clock import Clock
from tiers.servers import SeaweedServer, find_weed

RUN = "demo"
BUCKET = "ckptier-demo"
PATIENCE = 60.0
"""Seconds that any one thing may take before the demonstration gives up."""


class DemoFailed(CkptierError):
    """The demonstration could not be carried through, or proved nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened, ``seconds`` after the start."""

    seconds: float
    where: str
    what: str


@dataclass(slots=True)
class Timeline:
    """What happened when; tells whoever watches as it goes."""

    clock: Clock
    watch: Callable[[Moment], None]
    moments: list[Moment] = field(default_factory=list)
    _began: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()

    def add(self, where: str, what: str) -> float:
        """Note something and return its time in seconds."""
        with self._lock:
            moment = Moment(seconds=round(self.clock.monotonic() - self._began, 2), where=where, what=what)
            self.moments.append(moment)
            self.watch(moment)
            return moment.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The tiers: a folder that stands for a network volume, and where installed a real S3 server."""

    volume: Path
    s3_endpoint: str | None
    environment: dict[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tiers."""
        return ("volume", "s3") if self.s3_endpoint else ("volume",)


def open_s3(folder: Path, clock: Clock) -> tuple[SeaweedServer, dict[str, str]] | None:
    """Start a real S3 server with throw-away credentials; None where it is not installed."""
    if find_spec("boto3") is None or find_weed() is None:
        return None
    key, secret = f"demo{secrets.token_hex(4)}", secrets.token_hex(16)
    server = SeaweedServer(folder, access_key=key, secret_key=secret, buckets=(BUCKET,), clock=clock)
    return server, {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}


class Machine:
    """A rented machine: a folder with a store and a ckptier.toml, and the processes that run on it."""

    def __init__(self, folder: Path, remote: Remote, *, tiers: tuple[str, ...] | None = None) -> None:
        self.folder = folder
        self.remote = remote
        folder.mkdir(parents=True)
        (folder / "ckptier.toml").write_text(_config_text(remote, tiers or remote.names))
        self._processes: list[Process] = []

    @property
    def store(self) -> Path:
        """Folder of the run's local generations."""
        return self.folder / "runs" / RUN

    @property
    def config(self) -> Config:
        """The machine's configuration."""
        return load_config(self.folder / "ckptier.toml")

    def engine(self, clock: Clock) -> Replicator:
        """Return the verbs over this machine's configuration."""
        return Replicator(self.config, clock=clock)

    def start(self, arguments: list[str], on_line: Callable[[dict[str, Any]], None]) -> "Process":
        """Start a Python module on this machine."""
        process = Process([sys.executable, "-m", *arguments], self.folder, self.remote.environment, on_line)
        self._processes.append(process)
        return process

    def lose(self) -> None:
        """Lose the machine: every process ends by SIGKILL, and the whole folder is gone."""
        for process in self._processes:
            process.kill()
        shutil.rmtree(self.folder)

    def stop(self) -> None:
        """End what still runs."""
        for process in self._processes:
            process.kill()


def _config_text(remote: Remote, tiers: tuple[str, ...]) -> str:
    text = f'run = "{RUN}"\nstore = "runs"\npoll_seconds = 0.5\n'
    if "volume" in tiers:
        text += f'\n[[tier]]\nname = "volume"\nurl = "{remote.volume.as_uri()}"\n'
    if "s3" in tiers and remote.s3_endpoint:
        text += f'\n[[tier]]\nname = "s3"\nurl = "s3://{BUCKET}/runs"\n'
        text += f'endpoint_url = "{remote.s3_endpoint}"\nprofile = "seaweedfs"\nregion = "us-east-1"\n'
    return text


class Process:
    """A child process whose JSON lines are read as they come."""

    def __init__(
        self, command: list[str], folder: Path, environment: dict[str, str], on_line: Callable[[dict[str, Any]], None]
    ) -> None:
        self._on_line = on_line
        self._seen: list[dict[str, Any]] = []
        self._other: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            document = _parse(line)
            with self._changed:
                if document is None:
                    self._other.append(line.rstrip())
                else:
                    self._seen.append(document)
                self._changed.notify_all()
            if document is not None:
                self._on_line(document)
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, event: str) -> dict[str, Any]:
        """Wait for an event of that name; raises DemoFailed where the process ends or takes too long first."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self._seen if line.get("event") == event), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or not self._reader.is_alive(), PATIENCE)
            document = found()
        if document is None:
            raise DemoFailed(f"a process ended or hung before {event!r}: {' / '.join(self._other[-5:])}")
        return document

    def finish(self) -> list[dict[str, Any]]:
        """Wait for the process to end well and return all of its lines."""
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        if code != 0:
            raise DemoFailed(f"a process ended with {code}: {' / '.join(self._other[-5:])}")
        return list(self._seen)

    def kill(self) -> None:
        """End the process by SIGKILL, as losing its machine would."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _parse(line: str) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
