"""What the crash tests work on: a small run, copies of it, and an independent look at what a tier holds."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from replicate import RunStore
from replicate.digests import combine
from replicate.layout import RemoteRun
from replicate.log import NO_ENTRY, LogView
from replicate.logbook import Logbook
from replicate.manifest import parse_manifest
from tiers.protocol import Key, Tier, walk
from tiers.volume import VolumeTier

RUN = "llm-7b"
REMOTE = RemoteRun.of(RUN)
MIB = 1 << 20
PART = 5 * MIB
BIG = 11 * MIB
"""Three parts, the last one smaller."""


def publish(store: RunStore, update: int, files: Mapping[str, bytes], *, empty_folder: bool = False) -> str:
    """Publish one generation; returns its id."""
    with store.publish(next_update=update) as directory:
        for path, data in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(data)
        if empty_folder:
            (directory / "empty-folder").mkdir()
    latest = store.latest()
    assert latest is not None
    return str(latest.id)


def noise(seed: int, size: int) -> bytes:
    """Return bytes that no other seed gives."""
    return random.Random(seed).randbytes(size)


@dataclass(frozen=True, slots=True)
class Case:
    """One machine: its store, configuration and folder for whatever else."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "ckptier.toml"

    @property
    def root(self) -> Path:
        """The run's folder in the store."""
        return self.folder / "runs" / RUN

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def configure(self, url: str, **tier: object) -> None:
        """Write the configuration, with one tier."""
        settings = {"name": "t", "url": url, "connections": 1, "part_size": PART, **tier}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        text = "\n".join([f'run = "{RUN}"', 'store = "runs"', "hash_workers = 1", "[[tier]]", *lines])
        self.config.write_text(text + "\n")

    def completed(self) -> dict[str, int]:
        """Return what the tracker calls completed, and in which slot; read from a copy, which cannot change it."""
        source = self.root / "tracker.sqlite"
        if not source.exists():
            return {}
        copy = self.folder / "peek.sqlite"
        for suffix in ("", "-wal"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
            if Path(f"{source}{suffix}").exists():
                shutil.copyfile(f"{source}{suffix}", f"{copy}{suffix}")
        connection = sqlite3.connect(copy)
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}
            if "completed" not in tables:
                return {}
            return dict(connection.execute("SELECT generation, slot FROM completed").fetchall())
        finally:
            connection.close()


def clone(base: Case, folder: Path) -> Case:
    """Copy a machine; sealed generations are linked, since their inodes are what sealing saw."""
    copy = Case(folder)
    folder.mkdir()
    shutil.copytree(base.root, copy.root, copy_function=_link_or_copy)
    return copy


def _link_or_copy(source: str, target: str) -> str:
    if "/generations/" in source:
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What lies on a tier: the live commits by generation, and the digest of every key but the hint."""

    live: dict[str, int]
    slots: int
    keys: dict[str, str]


def volume_digests(root: Path) -> dict[str, str]:
    """Hash every object of a volume, straight from its files."""
    found = {}
    for info in walk(VolumeTier("reader", root), ""):
        with (root / info.key).open("rb") as stream:
            found[str(info.key)] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def tier_digests(tier: Tier) -> dict[str, str]:
    """Hash every object of a tier."""
    found = {}
    for info in walk(tier, ""):
        with tier.open(info.key) as stream:
            found[str(info.key)] = hashlib.sha256(stream.read()).hexdigest()
    return found


def look(tier: Tier, keys: dict[str, str]) -> Seen:
    """Check promise 1 on what lies on a tier: a log in one chain, and each live commit whole."""
    view = Logbook(tier, REMOTE).read()
    assert not view.damaged
    assert not view.refused
    _check_chain(tier, keys, view)
    for commit in view.live:
        data = _read(tier, Key(commit.manifest_key))
        assert len(data) == commit.manifest_size
        assert hashlib.sha256(data).hexdigest() == commit.manifest_sha256
        manifest = parse_manifest(data)
        files = {file.path: file for file in manifest.record().files}
        for item in manifest.objects:
            # Every file here is smaller than a leaf, so that its digest is that of its bytes.
            assert files[item.path].sha256 == combine(files[item.path].leaves) == item.sha256
            assert keys[item.key] == item.sha256, f"{item.key} is not what was sealed"
    return Seen(
        live={commit.generation: commit.slot for commit in view.live},
        slots=view.next_slot,
        keys={key: digest for key, digest in keys.items() if not key.endswith("/head.json")},
    )


def _check_chain(tier: Tier, keys: dict[str, str], view: LogView) -> None:
    slots = sorted(key for key in keys if key.startswith(REMOTE.log_prefix))
    assert slots == [REMOTE.log(slot) for slot in range(view.next_slot)]
    before = NO_ENTRY
    for key in slots:
        assert json.loads(_read(tier, Key(key)).split(b"\n")[0])["prev"] == before
        before = keys[key]


def _read(tier: Tier, key: Key) -> bytes:
    with tier.open(key) as stream:
        return stream.read()


def check_nothing_rewritten(before: Seen, after: Seen) -> None:
    """Check promise 2: what was there has the content that it had."""
    changed = [key for key, digest in before.keys.items() if after.keys.get(key) != digest]
    assert changed == []
