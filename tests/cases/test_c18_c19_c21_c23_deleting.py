"""C18, C19, C23: what deleting may take, and in which order."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from flows.machines import Machine, Place, payload
from support.commits import tree

from replicate import RunStore
from replicate.clearing import Clearing
from replicate.config import Config
from replicate.engine import Replicator
from replicate.errors import ExitCode, NothingFound
from replicate.layout import run_name
from replicate.pruning import Pruning
from replicate.restore import RestoreRequest
from tiers.protocol import Key, Tier, walk
from tiers.testing.faulty import Fault, FaultyTier

Make = Callable[..., Machine]
FOREVER = 10_000


def keeping(place: Place, keep: int, delay: float = 0.0) -> Place:
    """Return the place for a machine that keeps so many there."""
    settings = place.settings.model_copy(update={"keep_last": keep, "retire_delay_seconds": delay})
    return Place(settings, hook=place.hook, meter=place.meter)


def files_of(folder: Path) -> Mapping[str, bytes]:
    return {path: data for path, data in tree(folder).items() if data is not None}


def test_c18_what_is_under_way_counts_for_nothing_and_is_left_alone(volume: Place, machine: Make) -> None:
    """keep=1, 1000 is committed, 1500 lies there without its manifest: 1000 stays, whoever prunes, and comes back."""
    place = keeping(volume, 1)
    one = machine("one", place)
    one.push(500, 1000)
    assert [each.next_update for each in place.live()] == [1000]
    one.publish(1500)
    faults: list[FaultyTier] = []

    def no_manifest(inner: Tier) -> Tier:
        faults.append(FaultyTier(inner, [Fault(verb="put", key="*/manifest.json", times=FOREVER)]))
        return faults[-1]

    place.hook = no_manifest
    assert one.replicate().exit_code == ExitCode.UNREACHABLE
    assert any(tier.fired for tier in faults)
    place.hook = lambda inner: inner
    under_way = {key for key in place.stored() if "-u000000001500-" in key}
    assert len(under_way) == len(payload(1500)), "its objects are there"
    Pruning(one.config).prune(apply=True, most=True)
    Clearing(one.config).gc(apply=True)
    assert {key for key in place.stored() if "-u000000001500-" in key} == under_way
    assert [each.next_update for each in place.live()] == [1000]
    two = machine("two", keeping(volume, 1))
    two.restore()  # the upload was killed for good, with its machine
    assert files_of(two.resumed().files) == payload(1000)


def test_c19_a_run_never_deletes_what_another_run_has(volume: Place, tmp_path: Path, machine: Make) -> None:
    """Run 2 goes on from run 1's only copy, keeps one generation, commits and collects: run 1 is untouched."""
    first = machine("one", volume)
    (only,) = first.push(100)
    before = volume.stored()
    settings = volume.settings.model_copy(update={"keep_last": 1, "retire_delay_seconds": 0.0})
    second = Config(run=run_name("run2"), store="runs", tier=(settings,), source=tmp_path / "two" / "ckptier.toml")
    (tmp_path / "two").mkdir()
    machine("reader", volume).restore(to=tmp_path / "start")
    store = RunStore(second.local.root, hash_workers=1)
    store.adopt(tmp_path / "start", next_update=100)
    for update in (200, 300):
        with store.publish(next_update=update) as directory:
            (directory / "model.bin").write_bytes(b"%d" % update)
        assert Replicator(second).replicate_once().exit_code == 0
    Pruning(second).prune(apply=True, most=True)
    Clearing(second).gc(apply=True)
    with volume.raw() as tier:
        own = {str(info.key) for info in walk(tier, "run2/") if "/generations/" in info.key}
    assert {key.split("-u")[1][:12] for key in own} == {"000000000300"}, "it did prune its own"
    assert volume.stored() == before
    assert machine("three", volume).restore().generation == only


def test_c19_what_this_machine_went_on_from_stays_until_the_next_restore(volume: Place, machine: Make) -> None:
    machine("one", volume).push(100)
    two = machine("two", keeping(volume, 1))
    two.restore()
    two.push(200)
    two.push(300)
    assert [each.next_update for each in volume.live()] == [300, 100]


def test_c23_a_deletion_that_fails_half_way_is_finished_later_and_never_half_visible(
    volume: Place, machine: Make
) -> None:
    """Ten objects: the sixth delete answers 5xx for ever, one object was removed by somebody else before."""
    place = keeping(volume, 1)
    one = machine("one", place)
    names = [f"part-{number}.bin" for number in range(9)]
    one.publish(400, {name: name.encode() * 50 for name in names})
    assert one.replicate().exit_code == 0
    doomed = {key for key in place.stored() if "-u000000000400-" in key}
    assert len(doomed) == 10
    place.delete(next(key for key in sorted(doomed) if key.endswith("part-2.bin")))
    tiers: list[FaultyTier] = []

    def failing(inner: Tier) -> Tier:
        tiers.append(FaultyTier(inner, [Fault(verb="delete", nth=6, times=FOREVER)]))
        return tiers[-1]

    place.hook = failing
    one.publish(500)
    assert one.replicate().exit_code == 0, "a deletion that fails fails no replication"
    assert any(tier.fired for tier in tiers)
    left = {key for key in place.stored() if "-u000000000400-" in key}
    assert 0 < len(left) < 9
    assert not [key for key in left if key.endswith("manifest.json")], "the manifest goes first"
    assert [each.next_update for each in place.live()] == [500], "what is half there is not offered"
    assert machine("two", volume).restore().generation == place.live()[0]

    place.hook = lambda inner: inner
    assert one.replicate().exit_code == 0
    assert {key for key in place.stored() if "-u000000000400-" in key} == set()
    before = place.stored()
    assert one.replicate().exit_code == 0
    assert place.stored() == before, "and then there is nothing left to do"


class Slow(FaultyTier):
    """Lets something happen when the first file of a generation is asked for."""

    def __init__(self, inner: Tier, generation: str, act: Callable[[], object], seen: list[str]) -> None:
        super().__init__(inner, ())
        self.generation, self.act, self.seen = generation, act, seen

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        if "/files/" in key and self.generation in key and not self.seen:
            self.seen.append(str(key))
            self.act()
        return super().open(key, start, length)


def slow_reader(
    machine: Make, volume: Place, generation: object, act: Callable[[], object]
) -> tuple[Machine, list[str]]:
    seen: list[str] = []
    place = Place(volume.settings, hook=lambda inner: Slow(inner, str(generation), act, seen))
    return machine("reader", place), seen


@pytest.mark.parametrize("earlier", [[], [200]], ids=["only newer ones are left", "an older one is left"])
def test_c21_a_generation_that_is_deleted_while_it_is_restored_leaves_no_mixed_tree(
    volume: Place, machine: Make, tmp_path: Path, earlier: list[int]
) -> None:
    """The reader is slow, and the writer's delay is shorter than that: it is told, and takes another one, whole."""
    settings = keeping(volume, 1).settings.model_copy(update={"keep_every": 200 if earlier else None})
    one = machine("one", Place(settings))
    *_, old = one.push(*earlier, 300)
    reader, seen = slow_reader(machine, volume, old, lambda: (one.push(350), one.push(500)))
    report = reader.engine.restore(RestoreRequest(to=tmp_path / "target"))
    assert len(seen) == 1
    expected = 200 if earlier else 500
    assert report.generation is not None
    assert report.generation.next_update == expected
    assert files_of(tmp_path / "target") == payload(expected)
    if earlier:
        assert [str(skip.generation) for skip in report.skipped] == [str(old)]
        assert "retired during restore" in report.skipped[0].reason
    assert [path.name for path in tmp_path.iterdir() if "restoring" in path.name] == []


def test_c21_a_named_generation_that_is_deleted_meanwhile_is_told_and_nothing_is_left(
    volume: Place, machine: Make, tmp_path: Path
) -> None:
    one = machine("one", keeping(volume, 1))
    (old,) = one.push(300)
    reader, seen = slow_reader(machine, volume, old, lambda: (one.push(400), one.push(500)))
    with pytest.raises(NothingFound, match="retired during restore"):
        reader.engine.restore(RestoreRequest(to=tmp_path / "target", generation=old))
    assert len(seen) == 1
    assert not (tmp_path / "target").exists()


def test_c21_within_the_delay_a_slow_reader_gets_exactly_what_it_began(
    volume: Place, machine: Make, tmp_path: Path
) -> None:
    one = machine("one", keeping(volume, 1, delay=3600))
    (old,) = one.push(300)
    reader, seen = slow_reader(machine, volume, old, lambda: one.push(400))
    report = reader.engine.restore(RestoreRequest(to=tmp_path / "target"))
    assert len(seen) == 1
    assert [each.next_update for each in volume.live()] == [400], "it was taken back in the middle"
    assert report.generation == old
    assert files_of(tmp_path / "target") == payload(300)
