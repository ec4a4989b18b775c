"""Retention beside replication: in its own time, never in the way, and never the end of it."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from daemon.gates import Opener
from daemon.stage import CLOCK, LIMIT, Machine, daemon, inside, publish, until, volume_view

from replicate import RunStore
from replicate.clearing import Clearing
from replicate.engine import Replicator
from replicate.errors import ExitCode
from replicate.generation.reading import being_read
from replicate.layout import GenerationId, LocalRun
from replicate.log import LogView
from replicate.opening import default_opener
from replicate.pruning import Pruning
from replicate.restore import RestoreReport, RestoreRequest
from replicate.session import Session
from tiers.clock import Clock
from tiers.errors import AccessDenied
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, Tier
from tiers.testing.passthrough import PassThroughTier


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def keeping(machine: Machine, *, delay: float = 0, keep: int = 2) -> dict[str, object]:
    return {**machine.volume(), "keep_last": keep, "retire_delay_seconds": delay}


def on_volume(machine: Machine) -> list[int]:
    """Return the updates of which anything lies on the volume."""
    folder = machine.folder / "vol" / "llm-7b" / "generations"
    return sorted(GenerationId.parse(path.name.partition(".t")[0]).next_update for path in folder.iterdir())


def here(machine: Machine) -> list[int]:
    return sorted(one.id.next_update for one in RunStore(machine.root).generations())


def view(machine: Machine) -> LogView:
    return volume_view(machine.folder / "vol")


class WatchedTier(PassThroughTier):
    """``act`` is called before each delete."""

    def __init__(self, inner: Tier, watch: "Watch") -> None:
        super().__init__(inner)
        self.watch = watch

    def delete(self, key: Key) -> None:
        self.watch.deletes.append(key)
        self.watch.before(key)
        self.inner.delete(key)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        self.watch.reading(key)
        return self.inner.open(key, start, length)


@dataclass
class Watch:
    """What a test sees of deletes and opens, and does at them."""

    before: Callable[[str], None] = lambda _key: None
    reading: Callable[[str], None] = lambda _key: None
    deletes: list[str] = field(default_factory=list)

    def opener(self) -> Opener:
        def opener(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
            return open_tier(spec, clock=clock, meter=meter, stop=stop, below=lambda tier: WatchedTier(tier, self))

        return opener


def push(machine: Machine, *updates: int) -> str:
    """Publish beside a daemon, each once the one before is committed."""
    made = ""
    for update in updates:
        made = publish(machine.root, update)
        until(lambda made=made: machine.holds("vol", made), "it is committed")  # type: ignore[misc]
    return made


def test_a_daemon_prunes_tier_and_store_by_itself(machine: Machine) -> None:
    machine.configure(keeping(machine), keep_last=1, poll_seconds=0.05)
    with inside(machine) as running:
        push(machine, 100, 200, 300, 400, 500)
        until(lambda: on_volume(machine) == [400, 500], "the tier keeps two")
        until(lambda: here(machine) == [500], "the store keeps one")
        assert running.drained() is ExitCode.OK
    assert [commit.id.next_update for commit in view(machine).live] == [500, 400]


def test_the_delay_holds_in_a_daemon_and_a_restart_does_not_shorten_it(machine: Machine) -> None:
    machine.configure(keeping(machine, delay=3600), poll_seconds=0.05)
    for updates in ((100, 200, 300), ()):
        with inside(machine) as running:
            push(machine, *updates)
            until(lambda: len(view(machine).live) == 2, "it is retired")
            assert running.drained() is ExitCode.OK
    assert on_volume(machine) == [100, 200, 300]


def test_c26_an_upload_never_waits_for_deletes(machine: Machine) -> None:
    """A delete hangs; a generation is published; the delete ends: the next thing done is the upload."""
    hanging, released = threading.Event(), threading.Event()

    def before(_key: str) -> None:
        hanging.set()
        assert released.wait(LIMIT)

    watch = Watch(before=before)
    machine.configure({**keeping(machine), "connections": 1}, poll_seconds=0.05)
    with inside(machine, opener=watch.opener()) as running:
        push(machine, 100, 200, 300)
        assert hanging.wait(LIMIT)
        newest = publish(machine.root, 400)
        until(lambda: len(running.session.board._present) == 4, "it is noticed")
        released.set()
        until(lambda: machine.holds("vol", newest), "it is committed")
        assert running.drained() is ExitCode.OK
    assert 400 in on_volume(machine)


def test_a_key_that_may_not_delete_fails_no_replication_and_is_told_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(key: str) -> None:
        raise AccessDenied("not with this key", tier="vol", operation="delete", key=key)

    watch = Watch(before=denied)
    machine.configure(keeping(machine, keep=1), poll_seconds=0.05)
    with inside(machine, opener=watch.opener()) as running:
        push(machine, 100, 200, 300)
        until(lambda: watch.deletes, "it was tried")
        assert running.drained() is ExitCode.OK
    assert on_volume(machine) == [100, 200, 300]
    assert len(view(machine).live) == 1
    assert caplog.text.count("deleting: ") == 1
    tier = machine.tier("vol")
    assert tier is not None
    assert tier.failure is None
    assert any("deleting" in note for note in tier.notes)


def test_more_than_a_share_is_told_and_left_to_a_person(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody lowered keep_last by a typing error: the daemon does not follow it at once."""
    machine.configure(machine.volume())
    for update in range(100, 900, 100):
        publish(machine.root, update)
    Replicator(machine.config).replicate_once()
    machine.configure(keeping(machine, keep=1), poll_seconds=0.05)
    with inside(machine) as running:
        until(lambda: "--unsafe-remove-most" in caplog.text, "it is told")
        assert running.drained() is ExitCode.OK
    assert len(view(machine).live) == 8


def test_a_daemon_as_a_process_prunes_and_with_no_prune_does_not(machine: Machine) -> None:
    machine.configure(keeping(machine, keep=1), poll_seconds=0.05)
    with daemon(machine, arguments=("replicate", "--no-prune")) as running:
        push(machine, 100, 200)
        assert running.terminated() == 0
    assert on_volume(machine) == [100, 200]
    with daemon(machine) as running:
        until(lambda: on_volume(machine) == [200], "it prunes")
        assert running.terminated() == 0


@contextmanager
def slow_reader(machine: Machine, reader: Machine, to: Path) -> Iterator[Callable[[], RestoreReport]]:
    """Restore the volume's newest into a folder; it stops at the first object until its report is asked for."""
    waiting, go = threading.Event(), threading.Event()

    def reading(key: str) -> None:
        if "/files/" in key and not go.is_set():
            waiting.set()
            assert go.wait(LIMIT)

    engine = Replicator(reader.config, opener=Watch(reading=reading).opener())
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(engine.restore, RestoreRequest(to=to, tier="vol"))
        try:
            assert waiting.wait(LIMIT)

            def report() -> RestoreReport:
                go.set()
                return future.result(LIMIT)

            yield report
        finally:
            go.set()


def elsewhere(machine: Machine, **top: object) -> Machine:
    """Return another machine with the same volume."""
    other = Machine(machine.folder.parent / "other")
    other.configure({**keeping(machine, keep=1), "url": f"file://{machine.folder / 'vol'}"}, **top)
    return other


def committed(machine: Machine, *updates: int) -> list[str]:
    made = []
    for update in updates:
        made.append(publish(machine.root, update))
        assert Replicator(machine.config).replicate_once(prune=False).exit_code is ExitCode.OK
    return made


def test_c21_a_reader_elsewhere_is_protected_by_the_delay(machine: Machine, tmp_path: Path) -> None:
    """I21, first half: what it began with is retired under it, and it ends exactly."""
    machine.configure(keeping(machine, delay=3600, keep=1))
    (first,) = committed(machine, 100)
    with slow_reader(machine, elsewhere(machine), tmp_path / "out") as report:
        committed(machine, 200)
        assert Pruning(machine.config).prune(tier="vol", apply=True).places[0].retired
        assert str(report().generation) == first
    assert (tmp_path / "out" / "state.bin").exists()


def test_c21_without_the_delay_it_is_told_and_takes_the_next(machine: Machine, tmp_path: Path) -> None:
    """I21, second half: nothing of two generations is ever mixed."""
    machine.configure(keeping(machine, delay=0, keep=1))
    first, second = committed(machine, 100, 200)
    Clearing(machine.config).pin(GenerationId.parse(first))
    with slow_reader(machine, elsewhere(machine), tmp_path / "out") as report:
        committed(machine, 300)
        (place,) = Pruning(machine.config).prune(tier="vol", apply=True).places
        assert [str(one.generation) for one in place.swept] == [second]
        found = report()
    assert (str(found.generation), found.fell_back) == (first, True)
    assert [skip.reason for skip in found.skipped] == ["retired during restore on vol"]
    expected = RunStore(machine.root).get(first).files / "state.bin"
    assert (tmp_path / "out" / "state.bin").read_bytes() == expected.read_bytes()


def test_what_is_being_restored_on_this_machine_is_not_deleted(machine: Machine, tmp_path: Path) -> None:
    """Promise 6: also without any delay, also into a folder."""
    machine.configure(keeping(machine, delay=0, keep=1))
    (first,) = committed(machine, 100)
    with slow_reader(machine, machine, tmp_path / "out") as report:
        assert being_read(LocalRun(machine.root)) == {GenerationId.parse(first)}
        committed(machine, 200)
        (place,) = Pruning(machine.config).prune(tier="vol", apply=True).places
        assert (place.retired, place.swept) == ((), ())
        assert str(report().generation) == first
    (place,) = Pruning(machine.config).prune(tier="vol", apply=True).places
    assert [str(one.generation) for one in place.swept] == [first]


def test_c19_a_run_that_goes_on_elsewhere_keeps_what_it_went_on_from(machine: Machine) -> None:
    """The heir's own first commit must not push out the only other copy of where it began."""
    machine.configure(keeping(machine, keep=1))
    committed(machine, 100)
    heir = elsewhere(machine, keep_last=1)
    Replicator(heir.config).restore(RestoreRequest())
    publish(heir.root, 110)
    publish(heir.root, 120)
    assert Replicator(heir.config).replicate_once().exit_code is ExitCode.OK
    assert on_volume(machine) == [100, 120]
    assert here(heir) == [100, 120]


def test_between_passes_the_tier_is_asked_nothing_until_a_delay_is_over(machine: Machine) -> None:
    """The first look writes and reads the store's clock; then the daemon sleeps for as long as that left."""
    machine.configure(keeping(machine, delay=3600, keep=1))
    committed(machine, 100, 200)
    with Session(machine.config, clock=CLOCK, stop=threading.Event(), opener=default_opener) as session:
        prepared = session.prepare()
        assert session.run_tier("vol", prepared).failure is None
        first = session.tend("vol", prepared, lambda: False)
        before = session._meters["vol"].snapshot()
        again = [session.tend("vol", prepared, lambda: False) for _ in range(3)]
        assert session.run_tier("vol", prepared).failure is None
        assert dict((session._meters["vol"].snapshot() - before).requests) == {}
    assert all(one.next_in is not None and 3500 < one.next_in <= 3600 for one in (first, *again))


def test_the_list_of_what_may_go_is_durable_and_names_where_it_is(machine: Machine) -> None:
    machine.configure(machine.volume(), poll_seconds=0.05)
    with inside(machine) as running:
        first = publish(machine.root, 100)
        publish(machine.root, 200)
        until((machine.root / "released.json").exists, "it is written")

        def listed() -> bool:
            document = json.loads((machine.root / "released.json").read_text())
            return [one["generation"] for one in document["generations"]] == [first]

        until(listed, "it names the older one")
        assert running.drained() is ExitCode.OK
