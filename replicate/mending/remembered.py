"""What this store's tracker knows of a tier, read beside the process that may have it open."""

import logging
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from replicate.signing.remembered import read_only
from replicate.tracker import HeldTerm, Seen

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The term that was claimed and the furthest slot that was seen; None where nothing is known."""

    held: HeldTerm | None = None
    seen: Seen | None = None


def committed_manifests(folder: Path, tier: str) -> frozenset[str]:
    """Return the digests of the manifests that this store has seen committed on a tier; none where that is lost."""
    path = folder / "tracker.sqlite"
    if not path.is_file():
        return frozenset()
    try:
        with read_only(path) as db:
            return frozenset(
                str(row[0]) for row in db.execute("SELECT manifest_sha256 FROM completed WHERE tier=?", (tier,))
            )
    except sqlite3.Error as error:
        _log.warning("the tracker %s cannot be read: %s", path, error)
        return frozenset()


def remembered(folder: Path, tier: str) -> Remembered:
    """Read it; a tracker that is not there, or cannot be read, remembers nothing."""
    path = folder / "tracker.sqlite"
    if not path.is_file():
        return Remembered()
    query = "SELECT term, claim_nonce, attempt_id, fenced, seen_slot, seen_sha256 FROM tier WHERE name=?"
    try:
        with read_only(path) as db:
            row = db.execute(query, (tier,)).fetchone()
    except sqlite3.Error as error:
        _log.warning("the tracker %s cannot be read: %s", path, error)
        return Remembered()
    if row is None:
        return Remembered()
    term, nonce, attempt, fenced, slot, digest = row
    return Remembered(
        held=HeldTerm(term=term, claim_nonce=nonce, attempt_id=attempt, fenced=fenced) if term else None,
        seen=Seen(slot=slot, sha256=digest) if slot is not None else None,
    )
