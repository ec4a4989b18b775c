"""Starting what is measured against: SeaweedFS, the sink, and a link before either."""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote

ROOT = Path(__file__).parents[2]
BUCKET = "ckptier-bench"
ACCESS_KEY = "bench"
SECRET_KEY = "bench-secret"
STOP_LIMIT = 10.0
CREDENTIALS: Mapping[str, str] = MappingProxyType(
    {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
)


@dataclass(slots=True, kw_only=True)
class Process(AbstractContextManager["Process"]):
    """A module of ours in a process of its own, which prints its ports first."""

    module: str
    arguments: tuple[str, ...] = ()
    ports: tuple[int, ...] = field(default=(), init=False)
    _process: "subprocess.Popen[str] | None" = field(default=None, init=False)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", f"benchmarks.sidebyside.{self.module}", *self.arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line.strip():
            self.__exit__(None, None, None)
            raise RuntimeError(f"{self.module} did not start")
        self.ports = tuple(map(int, line.split()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_LIMIT)
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid if self._process else 0

    @property
    def port(self) -> int:
        """The port that clients speak to."""
        return self.ports[0]

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"{'https' if '--tls' in self.arguments else 'http'}://127.0.0.1:{self.port}"


class Sink(Process):
    """The raw sink."""

    def __init__(self, *, tls: tuple[Path, Path] | None = None) -> None:
        arguments = ("--tls", *map(str, tls)) if tls else ()
        super().__init__(module="sink", arguments=arguments)

    def ask(self, what: str, **query: str) -> dict[str, Any]:
        """Ask the sink's control; returns its counters."""
        more = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        trusting = ssl._create_unverified_context()  # noqa: SLF001 - our own process, on loopback
        address = f"{self.url}/-/{what}?{more}"
        with urllib.request.urlopen(address, timeout=STOP_LIMIT, context=trusting) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def read_from(self, folder: Path) -> None:
        """Take the files below a folder as what data objects hold."""
        self.ask("sources", folder=str(folder))


class ShapedLink(Process):
    """A link to a port; ``rate`` in bytes a second, ``round_trip`` in seconds."""

    def __init__(self, to: int, *, rate: float = 0.0, round_trip: float = 0.0) -> None:
        super().__init__(
            module="link", arguments=("--to", str(to), "--rate", str(rate), "--round-trip", str(round_trip))
        )

    def ask(self, what: str) -> dict[str, Any]:
        """``counters`` or ``reset``; returns what passed."""
        where = ("127.0.0.1", self.ports[1])
        with socket.create_connection(where, timeout=STOP_LIMIT) as sock, sock.makefile("rw") as lines:
            lines.write(what + "\n")
            lines.flush()
            found: dict[str, Any] = json.loads(lines.readline())
            return found


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a client's environment: credentials, and nothing of this machine's proxies, certificates or profiles."""
    foreign = re.compile(r"AWS_.*|.*_PROXY|SSL_CERT_.*|.*_CA_BUNDLE|CKPTIER_CONFIG", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not foreign.fullmatch(name)}
    return {**kept, **CREDENTIALS, "PYTHONPATH": str(ROOT), **(extra or {})}
