"""The tracker: what is under way, and the last **completed** remote generation of each tier.

A SQLite journal that only a replicating process opens.  It never runs ahead of a
tier's log: completion is recorded after the commit entry was read back.  Losing it
loses no more than the parts in flight; it is rebuilt by reading the logs.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from replicate.journal import Lasting, int_of
from replicate.layout import GenerationId
from replicate.leftovers import Leftovers, keep_replaced, keep_uploads
from tiers.clock import Clock, rfc3339
from tiers.metered import OK, Usage
from tiers.protocol import Key, Part, Upload, UploadId

Counts = Mapping[tuple[str, str], tuple[int, int, int]]
"""(requests, bytes up, bytes down) by verb and outcome."""


def detail_of(spent: Usage) -> Counts:
    """Return what a meter counted by verb and outcome; only an open that succeeded hands out bytes."""
    down = {("open", OK): spent.bytes_down}
    return {kind: (n, spent.bytes_up.get(kind, 0), down.get(kind, 0)) for kind, n in spent.requests.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTerm:
    """The term that this tracker's store claimed on a tier; ``fenced`` says why it no longer may write."""

    term: int
    claim_nonce: str
    attempt_id: str
    fenced: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedUpload:
    """A generation that is under way to a tier; its prefix is resumed after a restart."""

    generation: GenerationId
    term: int
    nonce: str
    started_at: str
    part_size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A generation whose commit entry was read back."""

    generation: GenerationId
    slot: int
    manifest_sha256: str
    total_bytes: int
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The furthest slot of a log that this tracker has seen, and the digest of its bytes."""

    slot: int
    sha256: str


class Tracker(Leftovers):
    """The open journal.  Safe from several threads; every change is one transaction, durable but where it says so."""

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock) -> None:
        super().__init__(connection, path, clock)
        self._completed: dict[str, tuple[int, dict[str, Completed]]] = {}

    def term(self, tier: str) -> HeldTerm | None:
        """Return the term held on a tier, if one ever was."""
        rows = self._rows("SELECT term, claim_nonce, attempt_id, fenced FROM tier WHERE name=? AND term>0", tier)
        if not rows:
            return None
        term, nonce, attempt, fenced = rows[0]
        return HeldTerm(
            term=int_of(term),
            claim_nonce=str(nonce),
            attempt_id=str(attempt),
            fenced=None if fenced is None else str(fenced),
        )

    def hold_term(self, tier: str, *, term: int, claim_nonce: str, attempt_id: str) -> None:
        """Record a claim that was read back; uploads planned under other terms are abandoned."""
        with self._change(f"hold term {term} on {tier}") as db:
            db.execute(
                "INSERT INTO tier(name, term, claim_nonce, attempt_id) VALUES(?,?,?,?) ON CONFLICT(name) DO UPDATE "
                "SET term=excluded.term, claim_nonce=excluded.claim_nonce, attempt_id=excluded.attempt_id, fenced=NULL",
                (tier, term, claim_nonce, attempt_id),
            )
            db.execute("DELETE FROM claiming WHERE tier=?", (tier,))

    def begin_claim(self, tier: str, *, term: int, claim_nonce: str, attempt_id: str) -> None:
        """Journal a claim before it is made: one that another process finds in the log is then known to be ours."""
        with self._change(f"claim term {term} on {tier}") as db:
            db.execute("INSERT OR REPLACE INTO claiming VALUES(?,?,?,?)", (tier, term, claim_nonce, attempt_id))

    def begun_claim(self, tier: str) -> HeldTerm | None:
        """Return the claim that was begun and of which nothing more is known."""
        rows = self._rows("SELECT term, claim_nonce, attempt_id FROM claiming WHERE tier=?", tier)
        if not rows:
            return None
        term, nonce, attempt = rows[0]
        return HeldTerm(term=int_of(term), claim_nonce=str(nonce), attempt_id=str(attempt), fenced=None)

    def fence(self, tier: str, reason: str) -> None:
        """Record that this store may no longer write to a tier; only a new attempt or a takeover lifts it."""
        with self._change(f"fenced on {tier}") as db:
            db.execute("UPDATE tier SET fenced=? WHERE name=?", (reason, tier))

    def seen(self, tier: str) -> Seen | None:
        """Return the furthest slot seen of a tier's log."""
        rows = self._rows("SELECT seen_slot, seen_sha256 FROM tier WHERE name=? AND seen_slot IS NOT NULL", tier)
        return Seen(slot=int_of(rows[0][0]), sha256=str(rows[0][1])) if rows else None

    def planned(self, tier: str) -> tuple[PlannedUpload, ...]:
        """Return what is under way to a tier."""
        rows = self._rows("SELECT generation, term, nonce, started_at, part_size FROM plan WHERE tier=?", tier)
        return tuple(
            PlannedUpload(
                generation=GenerationId.parse(str(generation)),
                term=int_of(term),
                nonce=str(nonce),
                started_at=str(started),
                part_size=None if part_size is None else int_of(part_size),
            )
            for generation, term, nonce, started, part_size in rows
        )

    def begin(self, tier: str, planned: PlannedUpload) -> None:
        """Journal a plan before anything remote is done for it."""
        with self._change(f"plan {planned.generation} to {tier}") as db:
            db.execute(
                "INSERT INTO plan(tier, generation, term, nonce, started_at, part_size) VALUES(?,?,?,?,?,?)",
                (
                    tier,
                    str(planned.generation),
                    planned.term,
                    planned.nonce,
                    planned.started_at,
                    planned.part_size,
                ),
            )

    def abandon(self, tier: str, planned: PlannedUpload, prefix: str, reason: str) -> None:
        """Give up a plan; its prefix and its uploads are remembered so that what they left can be cleared away."""
        with self._change(f"abandon {planned.generation} to {tier}") as db:
            keep_uploads(db, tier, planned.generation, prefix)
            db.execute(
                "INSERT OR REPLACE INTO abandoned VALUES(?,?,?,?)", (tier, prefix, reason, rfc3339(self._clock.now()))
            )
            _forget(db, tier, planned.generation)

    def upload_of(self, tier: str, generation: GenerationId, path: str, key: Key, size: int) -> Upload | None:
        """Return the upload that was begun for a file, if one was."""
        rows = self._rows(
            "SELECT upload_id, upload_part_size FROM object "
            "WHERE tier=? AND generation=? AND path=? AND upload_id IS NOT NULL",
            tier,
            str(generation),
            path,
        )
        if not rows:
            return None
        return Upload(key=key, upload_id=UploadId(str(rows[0][0])), size=size, part_size=int_of(rows[0][1]))

    def begun_in_parts(self, tier: str, generation: GenerationId) -> frozenset[str]:
        """Return the files that were begun as uploads in parts, whether or not they are complete by now."""
        rows = self._rows(
            "SELECT path FROM object WHERE tier=? AND generation=? AND upload_part_size IS NOT NULL",
            tier,
            str(generation),
        )
        return frozenset(str(path) for (path,) in rows)

    def upload_begun(self, tier: str, generation: GenerationId, path: str, upload: Upload) -> None:
        """Journal an upload id; one that it takes the place of is remembered, to be aborted."""
        with self._change(f"upload of {path}") as db:
            keep_replaced(db, tier, generation, path, upload)
            db.execute(
                "INSERT OR REPLACE INTO object(tier, generation, path, upload_id, upload_part_size) VALUES(?,?,?,?,?)",
                (tier, str(generation), path, upload.upload_id, upload.part_size),
            )

    def parts_of(self, tier: str, generation: GenerationId, path: str, upload: Upload) -> dict[int, Part]:
        """Return the parts whose checksum was accepted, by number."""
        rows = self._rows(
            "SELECT number, size, etag FROM part WHERE tier=? AND generation=? AND path=? AND upload_id=?",
            tier,
            str(generation),
            path,
            upload.upload_id,
        )
        return {
            int_of(number): Part(number=int_of(number), size=int_of(size), etag=str(etag))
            for number, size, etag in rows
        }

    def part_accepted(self, tier: str, generation: GenerationId, path: str, upload: Upload, part: Part) -> None:
        """Journal a part whose checksum was accepted; a kill does not undo it, a power cut of the next second may."""
        with self._change(f"part {part.number} of {path}", lasting=Lasting.SOON) as db:
            db.execute(
                "INSERT OR REPLACE INTO part VALUES(?,?,?,?,?,?,?)",
                (tier, str(generation), path, upload.upload_id, part.number, part.size, part.etag),
            )

    def verified(self, tier: str, generation: GenerationId) -> dict[str, str]:
        """Return the files that were verified, and by what."""
        rows = self._rows(
            "SELECT path, verified_by FROM object WHERE tier=? AND generation=? AND verified_by IS NOT NULL",
            tier,
            str(generation),
        )
        return {str(path): str(means) for path, means in rows}

    def objects_verified(self, tier: str, generation: GenerationId, means: Mapping[str, str]) -> None:
        """Journal that objects were verified on the tier, and by what; by path."""
        name = str(generation)
        with self._change(f"verified {len(means)} of {name}") as db:
            db.executemany(
                "INSERT INTO object(tier, generation, path, verified_by) VALUES(?,?,?,?) "
                "ON CONFLICT(tier, generation, path) DO UPDATE SET verified_by=excluded.verified_by, upload_id=NULL",
                [(tier, name, path, verified_by) for path, verified_by in means.items()],
            )
            db.executemany(
                "DELETE FROM part WHERE tier=? AND generation=? AND path=?",
                [(tier, name, path) for path in means],
            )

    def complete(self, tier: str, completed: Sequence[Completed], seen: Seen) -> None:
        """Record commits that were read back: the moment from which they count as replicated."""
        with self._lock:
            self._write_completed(tier, completed, seen)
            self._note(tier, {str(item.generation): item for item in completed}, ())

    def _write_completed(self, tier: str, completed: Sequence[Completed], seen: Seen) -> None:
        with self._change(f"completed {', '.join(str(item.generation) for item in completed)} on {tier}") as db:
            for item in completed:
                db.execute(
                    "INSERT OR REPLACE INTO completed VALUES(?,?,?,?,?,?)",
                    (tier, str(item.generation), item.slot, item.manifest_sha256, item.total_bytes, item.at),
                )
                db.execute("DELETE FROM skipped WHERE tier=? AND generation=?", (tier, str(item.generation)))
                _forget(db, tier, item.generation)
            db.execute(
                "INSERT INTO tier(name, term, claim_nonce, attempt_id, seen_slot, seen_sha256) VALUES(?,0,'','',?,?) "
                "ON CONFLICT(name) DO UPDATE SET seen_slot=excluded.seen_slot, seen_sha256=excluded.seen_sha256",
                (tier, seen.slot, seen.sha256),
            )

    def uncomplete(self, tier: str, generations: Sequence[GenerationId]) -> None:
        """Move completions that the log no longer carries to what was retired: its age is on the bill."""
        gone = [(tier, str(item)) for item in generations]
        now = rfc3339(self._clock.now())
        with self._lock:
            with self._change(f"retired on {tier}") as db:
                db.executemany(
                    "INSERT OR REPLACE INTO retired SELECT tier, generation, bytes, at, ? FROM completed "
                    "WHERE tier=? AND generation=?",
                    [(now, *item) for item in gone],
                )
                db.executemany("DELETE FROM completed WHERE tier=? AND generation=?", gone)
            self._note(tier, {}, [name for _, name in gone])

    def completed(self, tier: str) -> tuple[Completed, ...]:
        """Return the completed generations of a tier, newest first."""
        return tuple(self.completed_by_name(tier).values())

    def completed_by_name(self, tier: str) -> Mapping[str, Completed]:
        """Return the same by generation; they are read again only where another process has changed them."""
        with self._lock:
            version = int_of(self._rows("PRAGMA data_version")[0][0])  # that of what others wrote
            known = self._completed.get(tier)
            if known is None or known[0] != version:
                known = self._completed[tier] = version, self._read_completed(tier)
            return known[1]

    def _note(self, tier: str, fresh: Mapping[str, Completed], gone: Sequence[str]) -> None:
        """Keep in step with what was written: a commit is one of thousands."""
        if tier in self._completed:
            version, found = self._completed[tier]
            left = {**found, **fresh}
            for name in gone:
                left.pop(name, None)
            self._completed[tier] = version, _newest_first(left.values())

    def _read_completed(self, tier: str) -> dict[str, Completed]:
        rows = self._rows("SELECT generation, slot, manifest_sha256, bytes, at FROM completed WHERE tier=?", tier)
        found = [
            Completed(
                generation=GenerationId.parse(str(generation)),
                slot=int_of(slot),
                manifest_sha256=str(digest),
                total_bytes=int_of(size),
                at=str(at),
            )
            for generation, slot, digest, size, at in rows
        ]
        return _newest_first(found)

    def was_completed(self, tier: str) -> frozenset[GenerationId]:
        """Return the generations that were completed once, and which a log no longer carried when it was read."""
        rows = self._rows("SELECT DISTINCT generation FROM retired WHERE tier=?", tier)
        return frozenset(GenerationId.parse(str(generation)) for (generation,) in rows)

    def skip(self, tier: str, generation: GenerationId, reason: str) -> None:
        """Count a generation that was superseded while it waited."""
        with self._change(f"skip {generation} on {tier}") as db:
            db.execute(
                "INSERT OR IGNORE INTO skipped VALUES(?,?,?,?)",
                (tier, str(generation), reason, rfc3339(self._clock.now())),
            )

    def count_skipped(self, tier: str) -> int:
        """Return how many generations were superseded while they waited."""
        return int_of(self._rows("SELECT COUNT(*) FROM skipped WHERE tier=?", tier)[0][0])

    def skipped(self, tier: str) -> dict[GenerationId, str]:
        """Return the generations that were superseded while they waited, with the reason."""
        rows = self._rows("SELECT generation, reason FROM skipped WHERE tier=?", tier)
        return {GenerationId.parse(str(generation)): str(reason) for generation, reason in rows}

    def add_usage(self, tier: str, counts: dict[str, tuple[int, int, int]], detail: Counts | None = None) -> None:
        """Add (requests, bytes up, bytes down) to a tier's count of today, by billing class and by verb and outcome."""
        day = self._clock.now().date().isoformat()
        with self._change(f"usage of {tier}") as db:
            for (verb, outcome), spent in (detail or {}).items():
                db.execute(
                    "INSERT INTO request VALUES(?,?,?,?,?,?,?) ON CONFLICT(day, tier, verb, outcome) DO UPDATE SET "
                    "requests=requests+excluded.requests, bytes_up=bytes_up+excluded.bytes_up, "
                    "bytes_down=bytes_down+excluded.bytes_down",
                    (day, tier, verb, outcome, *spent),
                )
            for billing, (requests, up, down) in counts.items():
                db.execute(
                    "INSERT INTO usage VALUES(?,?,?,?,?,?) ON CONFLICT(day, tier, class) DO UPDATE SET "
                    "requests=requests+excluded.requests, bytes_up=bytes_up+excluded.bytes_up, "
                    "bytes_down=bytes_down+excluded.bytes_down",
                    (day, tier, billing, requests, up, down),
                )

    def spent(self, tier: str) -> tuple[dict[str, int], int]:
        """Return the requests of a tier by billing class, and the bytes sent, over all days."""
        rows = self._rows("SELECT class, SUM(requests), SUM(bytes_up) FROM usage WHERE tier=? GROUP BY class", tier)
        return {str(name): int_of(count) for name, count, _ in rows}, sum(int_of(up) for _, _, up in rows)

    def usage(self) -> tuple[tuple[str, str, str, int, int, int], ...]:
        """Return (day, tier, billing class, requests, bytes up, bytes down), oldest first."""
        rows = self._rows(
            "SELECT day, tier, class, requests, bytes_up, bytes_down FROM usage ORDER BY day, tier, class"
        )
        return tuple((str(d), str(t), str(c), int_of(r), int_of(u), int_of(n)) for d, t, c, r, u, n in rows)


def _newest_first(found: Iterable[Completed]) -> dict[str, Completed]:
    ordered = sorted(found, key=lambda item: item.generation, reverse=True)
    return {str(item.generation): item for item in ordered}


def _forget(db: sqlite3.Connection, tier: str, generation: GenerationId) -> None:
    for table in ("plan", "object", "part"):
        db.execute(f"DELETE FROM {table} WHERE tier=? AND generation=?", (tier, str(generation)))  # noqa: S608 - three constants
