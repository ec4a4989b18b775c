"""What a tier still holds and nobody needs, as the tracker remembers it until it is cleared away.

Prefixes of uploads that were given up, uploads in parts that will never be completed, and
retired generations whose objects are proved to be gone.
"""

import logging
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from replicate.journal import JournalFile, int_of
from replicate.layout import GenerationId, encode_path
from replicate.signing.remembered import read_only
from tiers.clock import rfc3339
from tiers.protocol import Key, Upload, UploadId

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """A prefix under which this store began an upload and gave it up."""

    prefix: str
    reason: str
    at: str


class Leftovers(JournalFile):
    """The part of the tracker that says what may be cleared away."""

    def abandoned(self, tier: str) -> tuple[Abandoned, ...]:
        """Return the prefixes that were given up on a tier, oldest first."""
        rows = self._rows("SELECT prefix, reason, at FROM abandoned WHERE tier=? ORDER BY at, prefix", tier)
        return tuple(Abandoned(prefix=str(prefix), reason=str(reason), at=str(at)) for prefix, reason, at in rows)

    def collected(self, tier: str, prefix: str) -> None:
        """Forget a prefix that was given up: nothing lies under it any more."""
        with self._change(f"collected {prefix} on {tier}") as db:
            db.execute("DELETE FROM abandoned WHERE tier=? AND prefix=?", (tier, prefix))

    def strays(self, tier: str) -> tuple[Upload, ...]:
        """Return uploads in parts that were begun and will never be completed (their size is not remembered)."""
        rows = self._rows("SELECT key, upload_id, part_size FROM stray WHERE tier=? ORDER BY key, upload_id", tier)
        return tuple(
            Upload(key=Key(str(key)), upload_id=UploadId(str(identity)), size=0, part_size=int_of(part_size))
            for key, identity, part_size in rows
        )

    def aborted(self, tier: str, upload: Upload) -> None:
        """Forget an upload that the tier has aborted."""
        with self._change(f"aborted {upload.key} on {tier}") as db:
            db.execute("DELETE FROM stray WHERE tier=? AND upload_id=?", (tier, upload.upload_id))

    def swept(self, tier: str) -> frozenset[str]:
        """Return the manifest keys of retired generations of which nothing is left, and which the log still lists."""
        return frozenset(str(key) for (key,) in self._rows("SELECT manifest_key FROM swept WHERE tier=?", tier))

    def note_swept(self, tier: str, generation: GenerationId, manifest_key: str) -> None:
        """Journal that nothing is left of a retired generation; what it cost ends now."""
        now = rfc3339(self._clock.now())
        with self._change(f"swept {generation} on {tier}") as db:
            db.execute("INSERT OR REPLACE INTO swept VALUES(?,?,?)", (tier, manifest_key, now))
            db.execute(
                "UPDATE retired SET gone_at=? WHERE tier=? AND generation=? AND gone_at="
                "(SELECT max(gone_at) FROM retired WHERE tier=? AND generation=?)",
                (now, tier, str(generation), tier, str(generation)),
            )

    def forget_swept(self, tier: str, listed: Collection[str]) -> None:
        """Forget what the log no longer lists as retired; ``listed`` are the manifest keys that it does."""
        gone = [(tier, key) for key in self.swept(tier) - frozenset(listed)]
        if gone:
            with self._change(f"cleared away on {tier}") as db:
                db.executemany("DELETE FROM swept WHERE tier=? AND manifest_key=?", gone)

    def forget_tier(self, tier: str) -> None:
        """Forget all that is known of a tier but what it cost: the run was destroyed there."""
        with self._change(f"forget {tier}") as db:
            db.execute("DELETE FROM tier WHERE name=?", (tier,))
            for table in ("claiming", "plan", "object", "part", "completed", "skipped", "abandoned", "stray", "swept"):
                db.execute(f"DELETE FROM {table} WHERE tier=?", (tier,))  # noqa: S608 - constants


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoversSeen:
    """What the tracker says of one tier, read beside the process that has it open."""

    swept: frozenset[str] = frozenset()
    given_up: dict[str, str] = field(default_factory=dict)
    strays: int = 0
    planned: frozenset[tuple[str, int, str]] = frozenset()


def read_leftovers(folder: Path, tier: str) -> LeftoversSeen:
    """Read the tracker in ``folder`` without opening it for writing; nothing where there is none, or an older one."""
    path = folder / "tracker.sqlite"
    if not path.is_file():
        return LeftoversSeen()
    try:
        with read_only(path) as db:
            given_up = db.execute("SELECT prefix, reason FROM abandoned WHERE tier=?", (tier,)).fetchall()
            planned = db.execute("SELECT generation, term, nonce FROM plan WHERE tier=?", (tier,)).fetchall()
            swept = db.execute("SELECT manifest_key FROM swept WHERE tier=?", (tier,)).fetchall()
            (strays,) = db.execute("SELECT count(*) FROM stray WHERE tier=?", (tier,)).fetchone()
    except sqlite3.Error as error:
        _log.warning("the tracker %s cannot be read: %s", path, error)
        return LeftoversSeen()
    return LeftoversSeen(
        swept=frozenset(key for (key,) in swept), given_up=dict(given_up), strays=strays, planned=frozenset(planned)
    )


def keep_uploads(db: sqlite3.Connection, tier: str, generation: GenerationId, prefix: str) -> None:
    """Remember the uploads in parts of a plan that is given up, inside the transaction that forgets the plan."""
    rows = db.execute(
        "SELECT path, upload_id, upload_part_size FROM object "
        "WHERE tier=? AND generation=? AND upload_id IS NOT NULL AND verified_by IS NULL",
        (tier, str(generation)),
    ).fetchall()
    _insert(db, tier, ((f"{prefix}files/{encode_path(path)}", identity, size) for path, identity, size in rows))


def keep_replaced(db: sqlite3.Connection, tier: str, generation: GenerationId, path: str, upload: Upload) -> None:
    """Remember the upload that another one takes the place of."""
    rows = db.execute(
        "SELECT upload_id, upload_part_size FROM object "
        "WHERE tier=? AND generation=? AND path=? AND upload_id IS NOT NULL AND upload_id<>?",
        (tier, str(generation), path, upload.upload_id),
    ).fetchall()
    _insert(db, tier, ((upload.key, identity, size) for identity, size in rows))


def _insert(db: sqlite3.Connection, tier: str, uploads: Iterable[tuple[str, str, int]]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO stray(tier, upload_id, key, part_size) VALUES(?,?,?,?)",
        [(tier, identity, key, size) for key, identity, size in uploads],
    )
