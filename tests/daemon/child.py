"""The command as it is installed, but for waits that a test cannot afford.

``child.py CHANGES ARGUMENTS…``: CHANGES is a JSON object; ``attempts`` bounds the requests of
a retry, ``first_pause`` and ``leave`` are the daemon's seconds, ``inotify`` false makes the
machine's limit of watches look exhausted.
"""

import errno
import json
import os
import sys
from functools import partial
from typing import Any
from unittest import mock

from watchdog.observers import Observer

from ckptier_command import entry
from replicate import daemon
from tiers.clock import Clock
from tiers.protocol import Tier
from tiers.retrying import RetryingTier, RetryPolicy


def _patient(chosen: RetryPolicy, inner: Tier, clock: Clock, _policy: RetryPolicy, **rest: Any) -> RetryingTier:
    return RetryingTier(inner, clock, chosen, **rest)


def _no_watch(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def main() -> None:
    """Apply the changes and run the command."""
    changes = json.loads(sys.argv[1])
    sys.argv[1:2] = []
    if "attempts" in changes:
        policy = RetryPolicy(attempts=changes["attempts"], base=0.0)
        patient = partial(_patient, policy)
        mock.patch("tiers.opening.RetryingTier", patient).start()
    daemon.FIRST_PAUSE = changes.get("first_pause", daemon.FIRST_PAUSE)
    daemon.LEAVE_SECONDS = changes.get("leave", daemon.LEAVE_SECONDS)
    if not changes.get("inotify", True):
        mock.patch.object(Observer, "start", _no_watch).start()
    entry()


if __name__ == "__main__":
    main()
