"""The SQLite file behind the tracker: opening it, setting a damaged one aside, durable transactions."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Self

from replicate.errors import LocalDisk
from replicate.generation.disk import create_directory
from tiers.clock import Clock
from tiers.effects import Effect, effect

SCHEMA_VERSION = 3
"""1 counted requests by billing class only; 2 keeps verbs, outcomes and what was retired; 3 what is to be cleared."""
NETWORK_FILESYSTEMS = ("nfs", "nfs4", "fuse", "lustre", "cifs", "smb3", "9p", "ceph", "glusterfs", "beegfs")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tier(
    name TEXT PRIMARY KEY, term INTEGER NOT NULL, claim_nonce TEXT NOT NULL, attempt_id TEXT NOT NULL,
    fenced TEXT, seen_slot INTEGER, seen_sha256 TEXT) STRICT;
CREATE TABLE IF NOT EXISTS claiming(
    tier TEXT PRIMARY KEY, term INTEGER NOT NULL, claim_nonce TEXT NOT NULL, attempt_id TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS plan(
    tier TEXT NOT NULL, generation TEXT NOT NULL, term INTEGER NOT NULL, nonce TEXT NOT NULL,
    started_at TEXT NOT NULL, part_size INTEGER, PRIMARY KEY(tier, generation)) STRICT;
CREATE TABLE IF NOT EXISTS object(
    tier TEXT NOT NULL, generation TEXT NOT NULL, path TEXT NOT NULL, upload_id TEXT, upload_part_size INTEGER,
    verified_by TEXT, PRIMARY KEY(tier, generation, path)) STRICT;
CREATE TABLE IF NOT EXISTS part(
    tier TEXT NOT NULL, generation TEXT NOT NULL, path TEXT NOT NULL, upload_id TEXT NOT NULL,
    number INTEGER NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
    PRIMARY KEY(tier, generation, path, upload_id, number)) STRICT;
CREATE TABLE IF NOT EXISTS completed(
    tier TEXT NOT NULL, generation TEXT NOT NULL, slot INTEGER NOT NULL, manifest_sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY(tier, generation)) STRICT;
CREATE TABLE IF NOT EXISTS skipped(
    tier TEXT NOT NULL, generation TEXT NOT NULL, reason TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY(tier, generation)) STRICT;
CREATE TABLE IF NOT EXISTS abandoned(
    tier TEXT NOT NULL, prefix TEXT NOT NULL, reason TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY(tier, prefix)) STRICT;
CREATE TABLE IF NOT EXISTS usage(
    day TEXT NOT NULL, tier TEXT NOT NULL, class TEXT NOT NULL, requests INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL, PRIMARY KEY(day, tier, class)) STRICT;
CREATE TABLE IF NOT EXISTS request(
    day TEXT NOT NULL, tier TEXT NOT NULL, verb TEXT NOT NULL, outcome TEXT NOT NULL, requests INTEGER NOT NULL,
    bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL, PRIMARY KEY(day, tier, verb, outcome)) STRICT;
CREATE TABLE IF NOT EXISTS retired(
    tier TEXT NOT NULL, generation TEXT NOT NULL, bytes INTEGER NOT NULL, at TEXT NOT NULL, gone_at TEXT NOT NULL,
    PRIMARY KEY(tier, generation, at)) STRICT;
CREATE TABLE IF NOT EXISTS stray(
    tier TEXT NOT NULL, upload_id TEXT NOT NULL, key TEXT NOT NULL, part_size INTEGER NOT NULL,
    PRIMARY KEY(tier, upload_id)) STRICT;
CREATE TABLE IF NOT EXISTS swept(
    tier TEXT NOT NULL, manifest_key TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY(tier, manifest_key)) STRICT;
"""


class Journal(StrEnum):
    """SQLite's journal mode: WAL needs shared memory, which network file systems lack."""

    WAL = "wal"
    ROLLBACK = "delete"


def journal_mode_for(folder: Path, mounts: str) -> Journal:
    """Choose the journal mode by the type of the file system that ``folder`` lies on.

    ``mounts`` is the text of ``/proc/mounts``.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:  # noqa: PLR2004 - device, mount point, type
            continue
        point = fields[1].replace("\\040", " ")
        inside = folder == Path(point) or Path(point) in folder.parents
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return Journal.ROLLBACK if kind.partition(".")[0] in NETWORK_FILESYSTEMS else Journal.WAL


class Lasting(StrEnum):
    """What a transaction outlives: the process always; the machine ``NOW``, or within ``SOON_SECONDS``."""

    NOW = "now"
    SOON = "soon"


SOON_SECONDS = 1.0
"""How long a transaction that need not be durable at once may wait for the fsync of another."""


class JournalFile:
    """The open file.  Safe from several threads; every change is one transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self._clock = clock
        self._wal = connection.execute("PRAGMA journal_mode").fetchone() == (Journal.WAL,)
        self._flushed = clock.monotonic()
        self.path = path
        self.rebuilt_from: Path | None = None

    @property
    def clock(self) -> Clock:
        """The clock of what works with this journal."""
        return self._clock

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> Self:
        """Open or create ``tracker.sqlite``; a damaged one is set aside, never deleted, and started anew."""
        path = folder / "tracker.sqlite"
        try:
            create_directory(folder, settle=True)
            try:
                return cls(_connect(path), path, clock)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                    raise
                aside = _set_aside(path, clock)
                tracker = cls(_connect(path), path, clock)
                tracker.rebuilt_from = aside
                return tracker
        except (OSError, sqlite3.Error) as error:
            raise LocalDisk(
                f"the tracker {path} cannot be opened: {error}",
                hint="check space and permissions there, or put it elsewhere with state_dir in ckptier.toml",
            ) from error

    def close(self) -> None:
        """Close the journal."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _change(self, what: str, lasting: Lasting = Lasting.NOW) -> Iterator[sqlite3.Connection]:
        """One transaction: kept when the block ends (durable, but where ``lasting`` says soon), undone when it raises.

        Each durable one makes those before it durable too.
        """
        with self._lock:
            try:
                with effect(Effect.TRANSACTION, what), self._flushing(lasting), self._connection:
                    self._connection.execute("BEGIN IMMEDIATE")
                    yield self._connection
            except sqlite3.Error as error:
                raise LocalDisk(
                    f"the tracker {self.path} cannot be written ({what}): {error}",
                    hint="free space on that file system; nothing that was acknowledged is lost",
                ) from error

    @contextmanager
    def _flushing(self, lasting: Lasting) -> Iterator[None]:
        """Leave out the fsync where it may come later: in a write-ahead log that loses the end, never the middle."""
        now = self._clock.monotonic()
        if lasting is Lasting.NOW or not self._wal or now - self._flushed >= SOON_SECONDS:
            yield
            self._flushed = now
            return
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            self._connection.execute("PRAGMA synchronous=FULL")

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise LocalDisk(
                    f"the tracker {self.path} cannot be read: {error}",
                    hint="check that disk; a tracker that is removed is rebuilt from the tiers",
                ) from error


def _connect(path: Path) -> sqlite3.Connection:
    mounts = Path("/proc/mounts")
    mode = journal_mode_for(path.parent.resolve(), mounts.read_text() if mounts.exists() else "")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute("PRAGMA synchronous=FULL")
        _check(connection)
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Raise what SQLite itself raises for a file that is not a sound database of ours."""
    if connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("malformed")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise sqlite3.OperationalError(f"it was written by a newer ckptier (schema {version}); update this one")


def _set_aside(path: Path, clock: Clock) -> Path:
    """Keep a damaged journal as evidence, with its side files."""
    aside = path.with_name(f"{path.name}.bad-{clock.now():%Y%m%dT%H%M%S%f}")
    path.rename(aside)
    for suffix in ("-wal", "-shm", "-journal"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(aside.with_name(aside.name + suffix))
    return aside


def int_of(value: object) -> int:
    """Return a column's value, which STRICT tables promise to be an integer."""
    if not isinstance(value, int):
        raise TypeError(value)
    return value
