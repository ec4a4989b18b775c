"""moto's S3 in a process of its own: right about semantics, credulous about bytes."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tiers.clock import SystemClock
from tiers.servers import HOST, ServerError, create_bucket, free_ports, stop_process, wait_until_answers


class MotoServer:
    """A context manager; everything is in its memory and goes with it."""

    def __init__(self, log: Path, *, bucket: str) -> None:
        self._bucket = bucket
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def endpoint_url(self) -> str:
        """The URL to give as ``endpoint_url``."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        for _ in range(3):
            (self.port,) = free_ports(1)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            if wait_until_answers(self.port, self._process, SystemClock()):
                create_bucket(self.endpoint_url, self._bucket, access_key="any", secret_key="any", clock=SystemClock())
                return self
            self._end()
        raise ServerError(f"moto did not start; its log is {self._log}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            stop_process(process)
