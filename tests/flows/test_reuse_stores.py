"""A second generation on a real server and on a volume: most of it is copied there, and every request was foreseen."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from socket import gethostname
from threading import Event

import pytest
from core.builders import FIRST, REMOTE, LocalSource, make_source
from support.proxy import FaultProxy
from support.s3_tiers import s3_tier

from replicate.commit import Committed, Replication
from replicate.costing.operations import Traits, operations
from replicate.layout import GenerationId
from replicate.logbook import Logbook
from replicate.logwriter import LogWriter
from replicate.manifest import Manifest
from replicate.plan import plan_upload
from replicate.requests import LogPosition, Sending, Writer, replicate_requests
from replicate.reuse import Stock, reusing
from replicate.tracker import Tracker
from replicate.verify import read_manifest
from tiers.clock import SystemClock
from tiers.metered import Meter, MeteredTier, Usage
from tiers.protocol import Key, Tier, Verification, walk
from tiers.testing import content, read_all
from tiers.volume import VolumeTier

MIB = 1 << 20
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Run:
    """Three generations: everything, nine tenths of the leaves unchanged, and an adapter on a frozen base."""

    leaf: int
    leaves: int
    tokenizer: int

    @cached_property
    def full(self) -> Files:
        base = content(self.leaves * self.leaf + 17)
        return {
            "base.bin": base,
            "tokenizer.json": content(self.tokenizer, seed=1),
            "adapter.bin": content(self.leaf // 20, seed=2),
            "meta": b"{}",
        }

    @cached_property
    def tuned(self) -> Files:
        base = self.full["base.bin"]
        other = base[: 4 * self.leaf] + content(self.leaf, seed=90) + base[5 * self.leaf :]
        return {**self.full, "base.bin": other, "adapter.bin": content(self.leaf // 20, seed=3)}

    @cached_property
    def lora(self) -> Files:
        return {**self.tuned, "adapter.bin": content(self.leaf // 20, seed=4)}


ON_S3 = Run(5 * MIB, 9, 4 * MIB + 5)
"""Leaves of the smallest part of S3."""
ON_A_VOLUME = Run(MIB, 10, MIB)


def total(files: Files) -> int:
    return sum(map(len, files.values()))


@dataclass(frozen=True, slots=True)
class Stage:
    """One machine and one tier, with what is asked of it."""

    folder: Path
    inner: Tier
    meter: Meter
    tracker: Tracker
    replication: Replication
    proxy: FaultProxy | None
    leaf: int

    def publish(self, sequence: int, files: Files, parent: GenerationId | None) -> LocalSource:
        return make_source(self.folder, files, sequence=sequence, parent=parent, leaf_size=self.leaf)

    def reopened(self) -> "Stage":
        """Return the same machine, as a new process."""
        log = self.replication.log
        fresh = LogWriter(
            tier=log.tier, remote=log.remote, tracker=self.tracker, clock=SystemClock(), writer=log.writer
        )
        return replace(self, replication=Replication(log=fresh, stop=Event(), connections=2))

    def run(self, *sources: LocalSource) -> tuple[Committed, Usage, Counter[str]]:
        """Commit the last; what it asked of the tier, by verb and on the wire."""
        before, wire = self.meter.snapshot(), Counter(self.proxy.counts if self.proxy else {})
        done = self.replication.run_pass(FIRST, sources).committed[0]
        return done, self.meter.snapshot() - before, Counter(self.proxy.counts if self.proxy else {}) - wire

    def manifest(self, source: LocalSource) -> Manifest:
        view = Logbook(self.inner, REMOTE).read()
        assert view.state is not None
        live = view.state.find(source.id)
        assert live is not None
        return read_manifest(self.inner, REMOTE, view.state.run_uid, live)

    def holds(self, source: LocalSource, files: Files) -> bool:
        objects = self.manifest(source).objects
        return {item.path: read_all(self.inner.open(Key(item.key)), MIB) for item in objects} == dict(files)

    def sending(self, source: LocalSource, parent: LocalSource, *, read: bool) -> Sending:
        """Return what is foreseen for a generation whose parent is there."""
        can, manifest = self.inner.capabilities, self.manifest(parent)
        prefix = REMOTE.prefix(source.id, 1, "0" * 16)
        keys = {item.path: Key(item.key) for item in manifest.objects}
        stock = Stock.of(manifest.record().id, manifest.record().files, keys)
        plan = reusing(plan_upload(source.record, prefix, can), stock, can)
        return Sending(plan=plan, record=source.record, manifest_read=len(manifest.encode()) if read else 0)


@pytest.fixture
def open_stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    opened: list[Tracker] = []

    def make(tier: Tier, leaf: int, proxy: FaultProxy | None = None) -> Stage:
        meter, clock = Meter(), SystemClock()
        tracker = Tracker.open(tmp_path / "state", clock)
        opened.append(tracker)
        log = LogWriter(
            tier=MeteredTier(tier, meter), remote=REMOTE, tracker=tracker, clock=clock,
            writer=f"{gethostname()}:{os.getpid()}",
        )  # fmt: skip
        replication = Replication(log=log, stop=Event(), connections=2)
        return Stage(tmp_path / "store", tier, meter, tracker, replication, proxy, leaf)

    yield make
    for tracker in opened:
        tracker.close()


def check_line(stage: Stage, run: Run, traits: Traits, *, parts_only: bool) -> None:
    """Commit three generations, and fail unless each was sent, foreseen and kept as it should be."""
    first = stage.publish(1, run.full, None)
    _, usage, _ = stage.run(first)
    assert usage.count("copy") == usage.count("copy_part") == 0
    second = stage.publish(2, run.tuned, first.id)
    at = LogPosition(next_slot=2, head=0, read_to=2, head_written=0, holds_term=True, seen=1)
    expected, _ = replicate_requests(
        [stage.sending(second, first, read=False)], at, Writer(name=stage.replication.log.writer)
    )
    done, usage, wire = stage.run(first, second)
    assert usage.sent() <= 0.12 * total(run.tuned), f"{usage.sent()} of {total(run.tuned)} bytes were sent"
    assert done.copied_bytes == total(run.tuned) - run.leaf - 17 - run.leaf // 20 - 2
    assert usage.count("copy_part") == run.leaves - 1 + parts_only
    assert dict(usage.bytes_up) == dict(expected.usage.bytes_up)
    assert dict(usage.requests) == dict(expected.usage.requests)
    assert usage.bytes_down == expected.usage.bytes_down
    if stage.proxy is not None:
        foreseen = operations(expected.asked, traits)
        assert wire == Counter(one.value for (one, _), n in foreseen.items() for _ in range(n))
    third, stage = stage.publish(3, run.lora, second.id), stage.reopened()
    at = LogPosition(next_slot=3, head=0, holds_term=True, seen=2)
    expected, _ = replicate_requests([stage.sending(third, second, read=True)], at, listing_pages=False)
    _, usage, _ = stage.run(first, second, third)
    assert usage.sent() <= 0.01 * total(run.lora), "a frozen base is not sent again"
    assert dict(usage.requests) == dict(expected.usage.requests), "a new process reads the parent's manifest"
    check_each_alone(stage, [(first, run.full), (second, run.tuned), (third, run.lora)])


def check_each_alone(stage: Stage, line: Sequence[tuple[LocalSource, Files]]) -> None:
    """Remove what each was copied from, oldest first: what is left is whole."""
    attests = stage.inner.capabilities.verification is Verification.STORE_SHA256
    for source, files in line:
        assert stage.holds(source, files)
        manifest = stage.manifest(source)
        means = {item.verified_by for item in manifest.objects}
        assert all(one == "store-sha256" if attests else one.startswith("read-") for one in means)
        for info in list(walk(stage.inner, manifest.prefix)):
            stage.inner.delete(info.key)


def test_on_a_production_server(proxy: FaultProxy, prefix: str, open_stage: Callable[..., Stage]) -> None:
    """Its copies are proved by the digest that UploadPartCopy returns, a whole file as an upload of one part."""
    with closing(s3_tier(proxy.endpoint_url, prefix)) as tier:
        check_line(
            open_stage(tier, ON_S3.leaf, proxy), ON_S3, Traits(asks_twice=True, whole_listing=True), parts_only=True
        )


def test_on_a_volume(tmp_path: Path, open_stage: Callable[..., Stage]) -> None:
    """Copied by the filesystem, and read back like anything else."""
    root = tmp_path / "volume"
    root.mkdir()
    check_line(open_stage(VolumeTier("volume", root), ON_A_VOLUME.leaf), ON_A_VOLUME, Traits(), parts_only=False)
