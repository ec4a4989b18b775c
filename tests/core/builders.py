"""Sealed generations, recording tiers and whole machines for the tests of the commit protocol."""

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from replicate.commit import Events, PassReport, Replication
from replicate.digests import digest_file
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.logwriter import LogWriter
from replicate.manifest import GenerationRecord, SealedFile, content_digest
from replicate.origins import LocalFiles
from replicate.plan import LocalFact
from replicate.terms import Descent
from replicate.tracker import Tracker
from tiers.bodies import Body
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore, MemoryTier
from tiers.metered import Meter, MeteredTier, Usage
from tiers.protocol import Capabilities, Key, ObjectInfo, Part, Tier, Upload, Verification
from tiers.testing import Fault, FaultyTier, ManualClock, PassThroughTier, content

RUN = "llm-7b"
RUN_UID = "5f0c7a52-run"
REMOTE = RemoteRun.of(RUN)
READ_BACK = replace(MEMORY_CAPABILITIES, verification=Verification.READ_BACK)
FIRST = Descent(run_uid=RUN_UID, attempt=1, attempt_id="attempt-one")
SECOND = Descent(run_uid=RUN_UID, attempt=2, attempt_id="attempt-two")
LEAF = 64


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the trainer's files."""
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def seal_file(folder: Path, path: str, leaf_size: int) -> SealedFile:
    """Digest one file as sealing does, with small leaves."""
    digest = digest_file(folder / path, (folder / path).stat().st_size, leaf_size=leaf_size, workers=1)
    return SealedFile(
        path=path,
        size=digest.size,
        mode=0o644,
        sha256=digest.sha256,
        leaf_size=digest.leaf_size,
        leaves=digest.leaves,
    )


def sealed_bytes(path: str, data: bytes, leaf_size: int = LEAF) -> SealedFile:
    """Describe bytes as sealing would, without a file."""
    leaves = tuple(
        hashlib.sha256(data[start : start + leaf_size]).hexdigest() for start in range(0, max(1, len(data)), leaf_size)
    )
    whole = leaves[0] if len(leaves) == 1 else hashlib.sha256(b"".join(map(bytes.fromhex, leaves))).hexdigest()
    return SealedFile(path=path, size=len(data), mode=0o644, sha256=whole, leaf_size=leaf_size, leaves=leaves)


def generation_record(
    files: Sequence[SealedFile],
    *,
    sequence: int = 1,
    next_update: int = 300,
    descent: Descent = FIRST,
    parent: GenerationId | None = None,
) -> GenerationRecord:
    """Return the document of a generation that holds ``files``."""
    digest8 = content_digest(tuple(files), ())[:8]
    return GenerationRecord(
        format=1,
        id=str(GenerationId(descent.attempt, sequence, next_update, digest8)),
        run=RUN,
        run_uid=descent.run_uid,
        attempt=descent.attempt,
        attempt_id=descent.attempt_id,
        sequence=sequence,
        parent=str(parent) if parent else None,
        next_update=next_update,
        payload="opaque",
        contract={"config": "0" * 8},
        sealed_at="2026-01-01T00:00:00.000Z",
        save_milliseconds=12,
        files=tuple(files),
    )


@dataclass(slots=True)
class LocalSource:
    """A sealed generation in a folder: what committing needs of it, and what it did with it."""

    record: GenerationRecord
    record_bytes: bytes
    files: Path
    identity: dict[str, tuple[int, int, int]]
    quarantined: list[str] = field(default_factory=list)
    leases: int = 0

    @property
    def id(self) -> GenerationId:
        return self.record.generation

    @property
    def fact(self) -> LocalFact:
        parent = GenerationId.parse(self.record.parent) if self.record.parent else None
        return LocalFact(id=self.id, parent=parent, validated=True, quarantined=bool(self.quarantined))

    @property
    def origin(self) -> LocalFiles:
        return LocalFiles(self.files)

    def changed(self) -> tuple[str, ...]:
        return tuple(path for path, seen in self.identity.items() if identity(self.files / path) != seen)

    @contextmanager
    def lease(self) -> Iterator[None]:
        self.leases += 1
        yield
        self.leases -= 1

    def quarantine(self, reason: str) -> None:
        self.quarantined.append(reason)


def identity(path: Path) -> tuple[int, int, int]:
    """Return what a write would change."""
    if not path.exists():
        return (0, 0, 0)
    found = path.stat()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def make_source(
    root: Path,
    files: Mapping[str, bytes],
    *,
    sequence: int = 1,
    next_update: int | None = None,
    descent: Descent = FIRST,
    parent: GenerationId | None = None,
    leaf_size: int = LEAF,
) -> LocalSource:
    """Write and seal a generation under ``root``."""
    folder = root / f"a{descent.attempt}-g{sequence}" / "files"
    write_files(folder, files)
    record = generation_record(
        [seal_file(folder, path, leaf_size) for path in files],
        sequence=sequence,
        next_update=300 * sequence if next_update is None else next_update,
        descent=descent,
        parent=parent,
    )
    return LocalSource(
        record=record,
        record_bytes=record.encode(),
        files=folder,
        identity={path: identity(folder / path) for path in files},
    )


def several(root: Path, count: int) -> list[LocalSource]:
    """Return generations that descend from each other, oldest first."""
    found: list[LocalSource] = []
    for sequence in range(1, count + 1):
        parent = found[-1].id if found else None
        files = {"model.bin": content(2 * LEAF, seed=sequence)}
        found.append(make_source(root / "store", files, sequence=sequence, parent=parent))
    return found


class RecordingTier(PassThroughTier):
    """Notes every request that arrived, and the content that each write left under its key."""

    def __init__(self, inner: Tier) -> None:
        super().__init__(inner)
        self.requests: list[tuple[str, str]] = []
        self.written: dict[str, set[str]] = {}

    def count(self, verb: str) -> int:
        return sum(1 for asked, _ in self.requests if asked == verb)

    def overwritten(self) -> list[str]:
        """Return the keys that were written with two contents; the hint may be."""
        return [key for key, seen in self.written.items() if len(seen) > 1 and not key.endswith("/head.json")]

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self.requests.append(("put", key))
        with body.open() as stream:
            data = stream.read()
        info = self.inner.put(key, body)
        self.written.setdefault(key, set()).add(hashlib.sha256(data).hexdigest())
        return info

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        self.requests.append(("create", key))
        info = self.inner.create(key, data)
        self.written.setdefault(key, set()).add(hashlib.sha256(data).hexdigest())
        return info

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        self.requests.append(("put_part", upload.key))
        return self.inner.put_part(upload, number, body)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        self.requests.append(("complete", upload.key))
        info = self.inner.complete(upload, parts)
        with self.inner.open(upload.key) as stream:
            self.written.setdefault(upload.key, set()).add(hashlib.sha256(stream.read()).hexdigest())
        return info


class Machine:
    """One machine that replicates: its tracker folder, its place in the run, and a tier stack over a shared store."""

    def __init__(
        self,
        folder: Path,
        store: MemoryStore,
        *,
        descent: Descent = FIRST,
        writer: str = "one",
        capabilities: Capabilities = MEMORY_CAPABILITIES,
    ) -> None:
        self.local = LocalRun(folder)
        self.store = store
        self.descent = descent
        self.writer = writer
        self.clock = ManualClock()
        self.meter = Meter()
        self.stop = threading.Event()
        self.recorder = RecordingTier(MemoryTier("remote", store, capabilities=capabilities))
        self.faulty = FaultyTier(self.recorder, ())
        self.settings: dict[str, int] = {}
        self.tracker = Tracker.open(folder, self.clock)
        self.schedule()

    def start(self, *faults: Fault) -> None:
        """Begin as a new process does: the tracker from disk, the log unread."""
        self.tracker.close()
        self.tracker = Tracker.open(self.local.root, self.clock)
        self.schedule(*faults)

    def schedule(self, *faults: Fault) -> None:
        """Let the requests from here on meet these faults; the log is read anew."""
        self.faulty = FaultyTier(self.recorder, faults)
        tier = MeteredTier(self.faulty, self.meter)
        log = LogWriter(tier=tier, remote=REMOTE, tracker=self.tracker, clock=self.clock, writer=self.writer)
        self.replication = Replication(log=log, stop=self.stop, connections=2, events=Events())
        for name, value in self.settings.items():
            setattr(self.replication, name, value)

    @property
    def tier(self) -> Tier:
        return self.replication.log.tier

    def run(self, *sources: LocalSource) -> PassReport:
        return self.replication.run_pass(self.descent, sources)

    def usage_of(self, *sources: LocalSource) -> Usage:
        """Return what one pass asks for."""
        before = self.meter.snapshot()
        self.run(*sources)
        return self.meter.snapshot() - before

    def view(self) -> LogView:
        """Read the log as somebody new would."""
        return Logbook(MemoryTier("reader", self.store), REMOTE).read()
