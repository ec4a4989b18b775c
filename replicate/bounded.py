"""Run a program with an end: bounded in time, its output kept to a tail, nothing of its group left behind."""

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiers.clock import Clock

TAIL = 16 * 1024
"""Bytes of output that are kept: the last ones."""
_BLOCK = 64 * 1024
_LOOK = 0.05
"""Seconds between looks at whether the program has ended, where it writes nothing."""
_MOST_AFTER = 64
"""Blocks that are still read once it has ended: what left the group may go on writing for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How it ended.  ``status`` is negative for a signal; ``late``: it was ended for the time it took."""

    status: int
    late: bool
    tail: str

    @property
    def words(self) -> str:
        """Say it in words."""
        if self.status < 0:
            return f"was ended by {signal.Signals(-self.status).name}"
        return f"ended with status {self.status}"


def run_bounded(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path, seconds: float, clock: Clock
) -> Ended:
    """Run ``command`` in ``folder`` for at most ``seconds``; stdin is empty, stdout and stderr are one.

    It leads a group of its own, which is gone when this returns or raises.  Raises OSError
    where it cannot be started.
    """
    reading, writing = os.pipe()
    try:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        with child:
            tail = bytearray()
            try:
                late = not _ended(child, reading, tail, clock.monotonic() + seconds, clock)
            finally:
                _end(child)
            _drain(reading, tail)
    finally:
        os.close(reading)
    return Ended(status=child.returncode, late=late, tail=tail.decode(errors="replace"))


def _ended(child: "subprocess.Popen[bytes]", reading: int, tail: bytearray, deadline: float, clock: Clock) -> bool:
    """Follow the output until the child has ended; False where the time was over first."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while clock.monotonic() < deadline:
        if poll.poll(_LOOK * 1000):
            data = os.read(reading, _BLOCK)
            _keep(tail, data)
            if not data:  # it has closed its output, and may still be at work
                poll.unregister(reading)
        if _has_ended(child):
            return True
    return False


def _has_ended(child: "subprocess.Popen[bytes]") -> bool:
    """Whether it has ended; it stays a zombie, so that its number, and the group's, is nobody else's yet."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the whole group, and take the child's status."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _drain(reading: int, tail: bytearray) -> None:
    """Read what is left in the pipe, without waiting for more."""
    os.set_blocking(reading, False)
    for _ in range(_MOST_AFTER):
        try:
            data = os.read(reading, _BLOCK)
        except BlockingIOError:
            return
        if not data:
            return
        _keep(tail, data)


def _keep(tail: bytearray, data: bytes) -> None:
    tail += data
    del tail[:-TAIL]
