"""Committed generations made by hand: documents, objects and log entries, without the code that uploads."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replicate import canonical
from replicate.digests import combine, leaf_ranges
from replicate.layout import FOLD_EVERY, GenerationId, LocalRun, RemoteRun, run_name
from replicate.log import Body, Claim, Commit, Entry, LiveCommit, LogView, Retire
from replicate.logbook import Logbook
from replicate.manifest import (
    GenerationRecord,
    Manifest,
    ManifestObject,
    SealedFile,
    content_digest,
)
from replicate.restore import RestoreReport
from tiers.bodies import BytesBody
from tiers.protocol import Key, Tier

RUN = run_name("toy")
REMOTE = RemoteRun(RUN)
RUN_UID = "u" * 32
AT = "2026-01-01T00:00:00.000Z"
Restore = Callable[..., RestoreReport]
"""What the fixture ``run_restore`` is: ``run_restore(tier, …, to=…, options=…, dry_run=…)``."""
LEAF = 1024
"""Leaf size of hand-made generations: small, so that a few kilobytes have several leaves."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A generation: its document and the bytes of its files."""

    record: GenerationRecord
    contents: Mapping[str, bytes]

    @property
    def id(self) -> GenerationId:
        return self.record.generation


def sealed_file(path: str, data: bytes, *, mode: int = 0o644, leaf: int = LEAF) -> SealedFile:
    leaves = tuple(canonical.sha256(data[start : start + length]) for start, length in leaf_ranges(len(data), leaf))
    return SealedFile(path=path, size=len(data), mode=mode, sha256=combine(leaves), leaf_size=leaf, leaves=leaves)


def make(
    contents: Mapping[str, bytes],
    *,
    sequence: int = 1,
    update: int | None = None,
    attempt: int = 1,
    attempt_id: str | None = None,
    directories: tuple[str, ...] = (),
    modes: Mapping[str, int] | None = None,
    run_uid: str = RUN_UID,
    parent: str | None = None,
) -> Made:
    """Describe a generation; ``update`` is 100 times the sequence where not given."""
    files = tuple(
        sealed_file(path, data, mode=(modes or {}).get(path, 0o644)) for path, data in sorted(contents.items())
    )
    next_update = 100 * sequence if update is None else update
    identity = GenerationId(attempt, sequence, next_update, content_digest(files, directories)[:8])
    record = GenerationRecord(
        format=1,
        id=str(identity),
        run=RUN,
        run_uid=run_uid,
        attempt=attempt,
        attempt_id=attempt_id or f"attempt-{attempt}",
        sequence=sequence,
        parent=parent,
        next_update=next_update,
        payload="opaque",
        contract={"config": "c" * 64},
        sealed_at=AT,
        save_milliseconds=5,
        files=files,
        directories=directories,
    )
    return Made(record=record, contents=dict(contents))


def payload(seed: int, size: int = 5000) -> bytes:
    """Return bytes that differ from seed to seed."""
    return random.Random(seed).randbytes(size)


def generation(sequence: int, *, attempt: int = 1, attempt_id: str | None = None, run_uid: str = RUN_UID) -> Made:
    """Return a generation of three files, two of them with several leaves."""
    contents = {
        "model.bin": payload(sequence),
        "optim/state.bin": payload(1000 + sequence, 3000),
        "config.json": b'{"d": 64}',
    }
    return make(contents, sequence=sequence, attempt=attempt, attempt_id=attempt_id, run_uid=run_uid)


@dataclass
class Writer:
    """Writes commits to one tier by hand; ``remote`` says how they are signed, if they are."""

    tier: Tier
    remote: RemoteRun = REMOTE
    term: int = 1
    run_uid: str = RUN_UID
    view: LogView = field(default_factory=lambda: LogView(state=None))
    serial: int = 0

    def claim(self, *, attempt: int = 1, attempt_id: str | None = None) -> None:
        """Claim the term (the first commit does it by itself)."""
        self.append(Claim(writer="hand"), attempt=attempt, attempt_id=attempt_id or f"attempt-{attempt}")

    def commit(self, made: Made) -> LiveCommit:
        """Upload every object and the manifest, and commit."""
        if self.view.state is None:
            self.claim(attempt=made.record.attempt, attempt_id=made.record.attempt_id)
        manifest = self.manifest(made)
        for item in manifest.objects:
            self.tier.put(Key(item.key), BytesBody(made.contents[item.path]))
        return self.commit_document(made, manifest.encode(), manifest.prefix)

    def manifest(self, made: Made) -> Manifest:
        """Describe where the objects lie on this tier."""
        self.serial += 1
        prefix = REMOTE.prefix(made.id, self.term, f"{self.serial:016x}")
        objects = tuple(
            ManifestObject(
                path=file.path,
                key=REMOTE.object(prefix, file.path),
                size=file.size,
                sha256=file.sha256,
                verified_by="store-sha256",
                part_size=0,
            )
            for file in made.record.files
        )
        return Manifest(
            format=1,
            run_uid=self.run_uid,
            term=self.term,
            nonce=f"{self.serial:016x}",
            prefix=prefix,
            generation=made.record.model_dump(mode="json"),
            generation_sha256=canonical.sha256(made.record.encode()),
            objects=objects,
            written_at=AT,
        )

    def commit_document(self, made: Made, document: bytes, prefix: str) -> LiveCommit:
        """Put a manifest's bytes, whatever they are, and commit to exactly those."""
        if self.view.state is None:
            self.claim(attempt=made.record.attempt, attempt_id=made.record.attempt_id)
        key = REMOTE.manifest(prefix)
        self.tier.put(key, BytesBody(document))
        body = Commit(
            generation=str(made.id),
            parent=made.record.parent,
            manifest_key=key,
            manifest_size=len(document),
            manifest_sha256=canonical.sha256(document),
            total_bytes=sum(map(len, made.contents.values())),
            objects=len(made.contents),
        )
        self.append(body, attempt=made.record.attempt, attempt_id=made.record.attempt_id)
        assert self.view.state is not None
        commit = self.view.state.find(made.id)
        assert commit is not None
        return commit

    def retire(self, made: Made) -> None:
        """Take a generation back."""
        assert self.view.state is not None
        commit = self.view.state.find(made.id)
        assert commit is not None
        body = Retire(generation=str(made.id), manifest_key=commit.manifest_key, reason="by hand")
        self.append(body, attempt=made.record.attempt, attempt_id=made.record.attempt_id)

    def append(self, body: Body, *, attempt: int, attempt_id: str) -> None:
        """Append one entry."""
        slot = self.view.next_slot
        term = self.term
        folded = self.view.state if slot and slot % FOLD_EVERY == 0 else None
        entry = Entry(
            format=1,
            run=RUN,
            run_uid=self.run_uid,
            slot=slot,
            term=term,
            attempt=attempt,
            attempt_id=attempt_id,
            prev=self.view.last_sha256,
            nonce=f"{slot:016x}",
            at=AT,
            body=body,
            state=folded,
        )
        self.view = Logbook(self.tier, self.remote).append(self.view, entry)


def keys(tier: Tier, made: Made, commit: LiveCommit) -> dict[str, Key]:
    """Return the key of each path of a committed generation."""
    prefix = commit.manifest_key.removesuffix("manifest.json")
    return {path: REMOTE.object(prefix, path) for path in made.contents}


def tamper(tier: Tier, key: Key, change: Callable[[bytes], bytes]) -> None:
    """Replace an object's bytes behind everybody's back."""
    with tier.open(key) as stream:
        data = stream.read()
    tier.delete(key)
    tier.put(key, BytesBody(change(data)))


def flip(at: int) -> Callable[[bytes], bytes]:
    """Return a change that flips one bit of one byte."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def seal_local(local: LocalRun, made: Made) -> Path:
    """Lay a generation into a store as sealing would (without lineage or evidence)."""
    folder = local.generation(made.id)
    files = folder / "files"
    files.mkdir(parents=True)
    for path in made.record.directories:
        (files / path).mkdir(parents=True)
    for path, data in made.contents.items():
        (files / path).parent.mkdir(parents=True, exist_ok=True)
        (files / path).write_bytes(data)
    (folder / "generation.json").write_bytes(made.record.encode())
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return every path below a folder with its bytes, None for folders."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def expected(made: Made) -> dict[str, bytes | None]:
    """Return what ``tree`` has to give for a restored generation."""
    found: dict[str, bytes | None] = dict(made.contents)
    for path in (*made.contents, *(f"{folder}/x" for folder in made.record.directories)):
        for end in (index for index, letter in enumerate(path) if letter == "/"):
            found[path[:end]] = None
    return found
