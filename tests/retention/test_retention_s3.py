"""Pruning, collecting and destroying on a strict S3: its clock, its bad days, its versions, and kill -9."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from crash.stage import REMOTE, RUN, Case, clone, noise, publish
from crash.sweep import check_points, sweep
from crash.zygote import Zygote, zygote
from support.seaweed import ACCESS_KEY, SECRET_KEY

from replicate import RunStore
from replicate.clearing import Clearing
from replicate.config import load_config
from replicate.engine import Replicator
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.manifest import parse_manifest
from replicate.pruning import PlacePruned, Pruning
from tiers.bodies import BytesBody
from tiers.clock import Clock, SystemClock
from tiers.memory import MemoryTier
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, Tier
from tiers.retrying import RetryPolicy
from tiers.testing.s3_emulator import AWS, BUCKET, R2, Action, Behaviour, Credentials, Fault, S3Emulator, When

MINIMUM = {"remote": 13}
"""Requests of one undisturbed pruning; see check_points for how to raise them."""


class ShiftedClock(SystemClock):
    """The store's clock, which a test moves."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def emulator(behaviour: Behaviour = AWS, clock: Clock | None = None) -> S3Emulator:
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    return S3Emulator(behaviour, credentials=[known], clock=clock)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a store with two generations."""
    case = Case(tmp_path_factory.mktemp("s3") / "base")
    store = RunStore(case.root, run=RUN, hash_workers=1)
    for number in (1, 2):
        publish(store, 100 * number, {"state.bin": noise(number, 900), "meta": noise(9 + number, 30)})
    return case


def hasty(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
    """Open a tier that asks once."""
    return open_tier(replace(spec, retry=RetryPolicy(attempts=1)), clock=clock, meter=meter, stop=stop)


def configure(case: Case, store: S3Emulator, prefix: str, profile: str = "aws", **tier: object) -> None:
    case.configure(f"s3://{BUCKET}/{prefix}", endpoint_url=store.endpoint_url, profile=profile, **tier)


def committed(base: Case, folder: Path, store: S3Emulator, *, profile: str = "aws", delay: float = 0) -> Case:
    """Return a machine with both generations on the store, of which one is to stay."""
    case = clone(base, folder)
    configure(case, store, "p", profile)
    assert Replicator(load_config(case.config)).replicate_once().exit_code == 0
    configure(case, store, "p", profile, keep_last=1, retire_delay_seconds=delay)
    return case


def prune(case: Case, *, patient: bool = False) -> PlacePruned:
    config = load_config(case.config)
    verb = Pruning(config) if patient else Pruning(config, opener=hasty)
    (place,) = verb.prune(tier="t", apply=True).places
    return place


def seen(store: S3Emulator, prefix: str = "p") -> LogView:
    """Read the log from a copy of the store, and check that what it commits is whole (I1)."""
    copy = MemoryTier("copy")
    for key, data in store.objects().items():
        if key.startswith(f"{prefix}/"):
            copy.put(Key(key.removeprefix(f"{prefix}/")), BytesBody(data))
    view = Logbook(copy, REMOTE).read()
    assert not view.damaged
    for commit in view.live:
        with copy.open(Key(commit.manifest_key)) as stream:
            manifest = parse_manifest(stream.read())
        assert all(copy.stat(Key(item.key)).size == item.size for item in manifest.objects)
    return view


def left(store: S3Emulator, prefix: str = "p") -> list[int]:
    """Return the sequences of which any object is there."""
    keys = (key.partition(f"{prefix}/{RUN}/generations/")[2] for key in store.objects())
    return sorted({int(key[7:13]) for key in keys if key})


@pytest.mark.parametrize(("behaviour", "profile"), [(AWS, "aws"), (R2, "r2")], ids=["aws", "r2"])
def test_what_goes_is_gone_and_nothing_else(base: Case, tmp_path: Path, behaviour: Behaviour, profile: str) -> None:
    with emulator(behaviour) as store:
        case = committed(base, tmp_path / "case", store, profile=profile)
        store.put("p/llm-7b-2/theirs", b"theirs")
        place = prune(case)
        assert place.failure is None
        assert left(store) == [2]
        assert "p/llm-7b-2/theirs" in store.objects()
        assert [commit.id.sequence for commit in seen(store).live] == [2]


def test_the_delay_is_by_the_stores_clock(base: Case, tmp_path: Path) -> None:
    """S3 tells it in seconds, and only of what is there: the hint is rewritten to learn what time it is."""
    clock = ShiftedClock()
    with emulator(AWS, clock) as store:
        case = committed(base, tmp_path / "case", store, delay=600)
        assert [one.due_in is not None and 590 < one.due_in <= 600 for one in prune(case).pending] == [True]
        clock.ahead = timedelta(seconds=599 - 5)
        assert prune(case).swept == ()
        clock.ahead = timedelta(seconds=602)
        assert [one.generation.sequence for one in prune(case).swept] == [1]
        assert left(store) == [2]


@dataclass(frozen=True)
class Fleet:
    """Copies of one machine, each with a prefix of its own on one store."""

    store: S3Emulator
    source: Case
    kept: Mapping[str, bytes]

    @classmethod
    def of(cls, store: S3Emulator, source: Case) -> "Fleet":
        return cls(store, source, {key: data for key, data in store.objects().items() if key.startswith("p/")})

    def machine(self, folder: Path) -> Case:
        case = clone(self.source, folder)
        for key, data in self.kept.items():
            self.store.put(f"{folder.name}/{key.removeprefix('p/')}", data)
        configure(case, self.store, folder.name, keep_last=1, retire_delay_seconds=0)
        return case


def test_every_reply_of_it_may_be_lost_once_and_the_next_run_finishes(base: Case, tmp_path: Path) -> None:
    """The store does what it is asked, and the connection dies."""
    with emulator() as store:
        fleet = Fleet.of(store, committed(base, tmp_path / "source", store))
        nth = 0
        while True:
            nth += 1
            case = fleet.machine(tmp_path / str(nth))
            store.forget_requests()
            store.inject(Fault(operation="*", key=f"{nth}/*", nth=nth, when=When.AFTER, action=Action.DROP))
            prune(case)
            if not store.fired:
                break
            assert 2 in [commit.id.sequence for commit in seen(store, str(nth)).live]
            again = prune(case)
            assert again.failure is None, again.failure
            assert left(store, str(nth)) == [2]
            assert [commit.id.sequence for commit in seen(store, str(nth)).live] == [2]
            assert seen(store, str(nth)).next_slot == 4, "retired once"
    assert nth > MINIMUM["remote"] - 3


def test_c98_deleting_in_a_versioned_bucket_frees_nothing_and_a_probe_makes_it_said(base: Case, tmp_path: Path) -> None:
    """Every check of ours passes, and the bill stays: only asking the bucket tells."""
    with emulator(replace(AWS, versioned=True)) as store:
        case = committed(base, tmp_path / "case", store)
        before = store.footprint()
        assert prune(case).failure is None
        after = store.footprint()
        assert after.current < before.current
        assert after.current + after.noncurrent >= before.current
        Replicator(load_config(case.config)).check(probe=True)
        (place,) = Pruning(load_config(case.config)).prune(tier="t").places
        assert "keeps old versions" in place.note


def test_parts_of_an_upload_that_was_given_up_are_freed(base: Case, tmp_path: Path) -> None:
    case = Case(tmp_path / "parts")
    publish(RunStore(case.root, run=RUN), 100, {"model.bin": noise(7, 11 << 20)})
    with emulator() as store:
        configure(case, store, "p")
        store.inject(Fault(operation="UploadPart", nth=2, action=Action.STATUS, status=403))
        report = Replicator(load_config(case.config), opener=hasty).replicate_once()
        assert report.exit_code != 0
        assert store.footprint().parts > 0
        config = load_config(case.config)
        with Clearing(config).session() as session:
            log = session.writer("t")
            log.refresh(None)
            (planned,) = session.tracker.planned("t")
            log.abandon(planned.generation, "a test")
        (place,) = Clearing(config, opener=hasty).gc(apply=True).places
        assert place.report is not None
        assert place.report.aborted == 1
        assert (store.uploads(), store.footprint().parts, left(store)) == ({}, 0, [])


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Zygote, Zygote]]:
    folder = tmp_path_factory.mktemp("zygotes")
    with zygote(folder / "one") as one, zygote(folder / "two") as two:
        yield one, two


def test_pruning_killed_at_any_request_is_finished_by_the_next(
    base: Case, tmp_path: Path, zygotes: tuple[Zygote, Zygote]
) -> None:
    kinds = ["remote"]
    with emulator() as store:
        fleet = Fleet.of(store, committed(base, tmp_path / "source", store))
        calm = fleet.machine(tmp_path / "calm")
        run = zygotes[0].run("prune", calm.journal, config=str(calm.config), kinds=kinds)
        points = check_points(run, MINIMUM)
        assert left(store, "calm") == [2]

        def kill_at(process: Zygote, number: int) -> None:
            case = fleet.machine(tmp_path / str(number))
            killed = process.run("prune", case.journal, config=str(case.config), kinds=kinds, kill_at=number)
            assert killed.killed
            assert 2 in [commit.id.sequence for commit in seen(store, str(number)).live], killed.last
            result = process.finish("prune", case.journal, config=str(case.config))
            assert result["failures"] == [], killed.last
            assert [commit.id.sequence for commit in seen(store, str(number)).live] == [2], killed.last
            assert left(store, str(number)) == [2], killed.last
            assert case.completed() == {commit.generation: commit.slot for commit in seen(store, str(number)).live}

        # Before each request: what follows one is what precedes the next.
        sweep(zygotes, points // 2, lambda process, number: kill_at(process, 2 * number - 1))
