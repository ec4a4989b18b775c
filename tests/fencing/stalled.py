"""A replication that stops itself, as a suspended machine does, at one announcement of its side effects.

``stalled.py CONFIG MOMENT PATTERN``: SIGSTOP at the first remote effect whose name matches PATTERN, at MOMENT
(``before`` or ``after``).  Goes on where it was once somebody sends SIGCONT; exits as `ckptier replicate --once` would.
"""

import os
import signal
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from replicate.config import load_config
from replicate.engine import Replicator
from tiers.effects import Effect, Moment, observing


def main(config: Path, moment: str, pattern: str) -> int:
    """Run it; returns the exit code."""
    stopped: list[str] = []

    def observe(effect: Effect, what: str, now: Moment) -> None:
        if effect is Effect.REMOTE and now == moment and not stopped and fnmatchcase(what, pattern):
            stopped.append(what)
            os.kill(os.getpid(), signal.SIGSTOP)

    with observing(observe):
        report = Replicator(load_config(config)).replicate_once()
    for result in report.results:
        if result.failure is not None:
            sys.stderr.write(f"{result.failure.message}\n")
    return int(report.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
