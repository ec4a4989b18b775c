"""What this machine's tracker remembers of a log, read beside the process that has it open."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from replicate.signing.anchor import Anchor

_log = logging.getLogger(__name__)

Memory = Callable[[str], Anchor | None]
"""The furthest slot that this machine has seen of a tier's log, by the tier's name."""


def nothing(_tier: str) -> Anchor | None:
    """Remember nothing."""
    return None


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a tracker for reading, leaving no trace; raises sqlite3.Error."""
    # Nobody has it open where there is no side file: then it is read without leaving one.
    quiet = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{quiet}", uri=True, timeout=2)) as db:
        yield db


def last_seen(folder: Path, tier: str) -> Anchor | None:
    """Return the furthest slot of a tier's log that the tracker in ``folder`` has seen; None where it has none.

    A tracker that cannot be read is warned of and remembers nothing, as one that was lost.
    """
    path = folder / "tracker.sqlite"
    if not path.is_file():
        return None
    query = "SELECT seen_slot, seen_sha256 FROM tier WHERE name=? AND seen_slot IS NOT NULL"
    try:
        with read_only(path) as db:
            row = db.execute(query, (tier,)).fetchone()
    except sqlite3.Error as error:
        _log.warning("the tracker %s cannot be read, so that a rollback would not be noticed: %s", path, error)
        return None
    return Anchor(int(row[0]), str(row[1])) if row else None
