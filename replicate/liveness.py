"""Whether a process replicates a store, and what it last wrote down."""

import logging

from replicate.errors import CkptierError
from replicate.generation.locks import Flock
from replicate.layout import LocalRun
from replicate.statusfile import StatusFile, read_status

_log = logging.getLogger(__name__)


def last_view(local: LocalRun) -> StatusFile | None:
    """Return what a replicating process last wrote down; None where that is damaged, since nothing rests on it."""
    try:
        return read_status(local)
    except CkptierError as error:
        _log.warning("%s; it is not used, and replaced by the next pass", error.message)
        return None


def is_replicating(local: LocalRun) -> bool:
    """Whether a process holds the store's replication lock; those who ask do not take each other for one."""
    try:
        lock = Flock.attempt(local.daemon_lock, shared=True)
    except FileNotFoundError:
        return False
    if lock is None:
        return True
    lock.release()
    return False
