"""Several tiers, milestones, and what following the log costs."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest
from flows.machines import RUN, Machine, Place, payload, spent
from support.commits import tree

from replicate import digests
from replicate.config import TierConfig
from replicate.errors import ExitCode, PartialFailure
from replicate.layout import GenerationId
from replicate.outcomes import ReplicateReport
from tiers.protocol import Tier
from tiers.testing.faulty import Fault, FaultyTier

Make = Callable[..., Machine]
MIB = 1024 * 1024


def down(tier: Tier) -> Tier:
    """Make every request fail."""
    return FaultyTier(tier, [Fault(verb="*", times=10_000)])


def updates(place: Place) -> list[int]:
    return [one.next_update for one in place.live()]


def results(report: ReplicateReport) -> dict[str, ExitCode]:
    return {one.tier: one.failure.exit_code if one.failure else ExitCode.OK for one in report.results}


def test_a_broken_tier_holds_up_nobody_and_catches_up(memory: Place, volume: Place, machine: Make) -> None:
    one = machine("one", memory, volume)
    memory.hook = down
    made = [one.publish(update) for update in (100, 200)]
    report = one.replicate()
    assert report.exit_code == ExitCode.PARTIAL
    assert results(report) == {"memory": ExitCode.UNREACHABLE, "volume": ExitCode.OK}
    assert volume.live() == made[::-1]
    assert one.engine.safe_to_terminate(("volume",)).safe
    assert not one.engine.safe_to_terminate(()).safe
    memory.hook = lambda tier: tier
    made.append(one.publish(300))
    assert one.replicate().exit_code == ExitCode.OK
    assert memory.live() == volume.live() == made[::-1]
    assert one.engine.safe_to_terminate(()).safe


def test_a_restore_takes_the_newest_of_several_tiers(memory: Place, volume: Place, machine: Make) -> None:
    one = machine("one", memory, volume)
    one.push(100)
    memory.hook = down
    (newest,) = [one.publish(200)]
    assert one.replicate().exit_code == ExitCode.PARTIAL
    memory.hook = lambda tier: tier
    two = machine("two", memory, volume)
    report = two.restore()
    assert report.generation == newest
    assert {place for place, _count in report.by_place} == {"volume"}


@pytest.fixture
def milestones(memory: Place) -> Place:
    """Return the memory place as a tier that takes milestones of 250 only."""
    memory.settings = TierConfig(name="milestones", url=memory.settings.url, replicate_every=250)
    return memory


def test_milestones_go_where_they_should_and_nothing_else_does(milestones: Place, volume: Place, machine: Make) -> None:
    """The first generation at or after each multiple: 300 for 250, 500 itself."""
    one = machine("one", milestones, volume)
    one.push(100, 200, 300, 400, 500, 600)
    assert updates(volume) == [600, 500, 400, 300, 200, 100]
    assert updates(milestones) == [500, 300]
    assert not [key for key in milestones.stored() if "-u000000000600-" in key]
    one.push(749, 750, 800)
    assert updates(milestones) == [750, 500, 300]


def test_leaving_and_waiting_count_the_tiers_that_get_everything(
    milestones: Place, volume: Place, machine: Make
) -> None:
    one = machine("one", milestones, volume)
    one.push(300, 400)
    assert one.engine.safe_to_terminate(()).safe, "400 is no milestone, and the volume has it"
    asked = one.engine.safe_to_terminate(("milestones",))
    assert (asked.safe, [risk.tier for risk in asked.risks]) == (False, ["milestones"])
    waited = one.engine.wait(tier=None, generation=None, timeout=0)
    assert (waited.tiers, waited.not_due) == (("volume",), ("milestones",))


def test_leaving_where_every_tier_gets_milestones_only(milestones: Place, machine: Make) -> None:
    one = machine("one", milestones)
    (made,) = one.push(300)
    assert one.engine.safe_to_terminate(()).safe
    one.push(400)
    safety = one.engine.safe_to_terminate(())
    assert (safety.safe, safety.restart_from) == (False, made)
    assert [risk.updates for risk in safety.risks] == [100]
    waited = one.engine.wait(tier=None, generation=None, timeout=0)
    assert (waited.tiers, waited.not_due) == ((), ("milestones",))
    assert one.engine.wait(tier=None, generation=made, timeout=0).tiers == ("milestones",)


def test_waiting_for_what_nobody_replicates_ends_at_once(volume: Place, machine: Make) -> None:
    one = machine("one", volume)
    one.push(100)
    made = one.publish(200)
    with pytest.raises(PartialFailure, match=str(made)):
        one.engine.wait(tier=None, generation=None, timeout=None)


def test_a_pass_with_nothing_new_follows_the_log_and_asks_no_more(place: Place, machine: Make) -> None:
    """The hint, the entries since the last folded one, and the slot that is not there yet."""
    one = machine("one", place)
    one.push(100, 200)
    entries = 3
    usage = spent(place, one.replicate)
    assert dict(usage.requests) == {("open", "ok"): 1 + entries, ("open", "ObjectNotFound"): 1}
    assert usage.sent() == 0


def test_looking_costs_no_more_than_reading_the_log(place: Place, machine: Make) -> None:
    one = machine("one", place)
    one.push(100, 200)
    reading = {("open", "ok"): 4, ("open", "ObjectNotFound"): 1}
    assert dict(spent(place, lambda: one.engine.status(ask_tiers=False)).requests) == {}
    assert dict(spent(place, lambda: one.engine.wait(tier=None, generation=None, timeout=0)).requests) == {}
    for look in (
        lambda: one.engine.status(ask_tiers=True),
        one.engine.list_generations,
        lambda: one.engine.explain(None),
        lambda: one.engine.safe_to_terminate(()),
        one.engine.preview,
    ):
        usage = spent(place, look)
        assert dict(usage.requests) == reading
        assert usage.bytes_down < 16 * 1024


def test_without_its_tracker_a_process_learns_from_the_log(place: Place, machine: Make) -> None:
    """Nothing goes up again, and what is completed is known again."""
    one = machine("one", place)
    made = one.push(100, 200)
    root = one.config.local.root
    for path in root.glob("tracker.sqlite*"):
        path.unlink()
    (root / "status.json").unlink()
    before = place.stored()
    usage = spent(place, one.replicate)
    assert place.stored() == before
    assert usage.sent() == 0
    with closing(sqlite3.connect(root / "tracker.sqlite")) as database:
        assert "ok" in database.execute("PRAGMA integrity_check").fetchone()
    waited = [one.engine.wait(tier=None, generation=each, timeout=0).generation for each in made]
    assert waited == made
    (after,) = one.push(300)
    assert place.live() == [after, *made[::-1]]


def hashed_by(work: Callable[[], object]) -> int:
    before = digests.HASHED.value
    work()
    return digests.HASHED.value - before


def test_bytes_are_hashed_once_between_the_seal_and_the_commit(place: Place, machine: Make) -> None:
    one = machine("one", place)
    made: list[GenerationId] = []
    total = sum(map(len, payload(100).values()))
    assert hashed_by(lambda: made.append(one.publish(100))) == total
    assert hashed_by(one.replicate) == 0
    assert place.live() == made
    two = machine("two", place)
    assert hashed_by(two.restore) == total, "a restore hashes what arrives, once"


def big(size: int) -> dict[str, bytes]:
    return {"model.bin": random.Random(7).randbytes(size), "small": b"x"}


def test_a_file_of_several_leaves_goes_up_in_parts_and_is_not_hashed_again(bucket_place: Place, machine: Make) -> None:
    one = machine("one", bucket_place)
    one.publish(100, big(digests.MIN_LEAF + 3))
    reports: list[ReplicateReport] = []
    before = bucket_place.meter.snapshot()
    assert hashed_by(lambda: reports.append(one.replicate())) == 0
    assert reports[0].exit_code == 0
    usage = bucket_place.meter.snapshot() - before
    assert (usage.count("put_part", "ok"), usage.count("complete", "ok")) == (2, 1)
    assert machine("two", bucket_place).restore().leaves == 3


@pytest.mark.parametrize("size", [6 * MIB, 11 * MIB + 1])
def test_parts_that_are_no_leaves_are_hashed_again_and_counted(bucket_place: Place, machine: Make, size: int) -> None:
    settings = bucket_place.settings
    bucket_place.settings = TierConfig(**{**settings.model_dump(), "part_size": 5 * MIB})
    one = machine("one", bucket_place)
    one.publish(100, big(size))
    (preview,) = one.engine.preview()
    assert preview.generations[0].hashed_again == 2 * size
    reports: list[ReplicateReport] = []
    assert hashed_by(lambda: reports.append(one.replicate())) == 2 * size, (
        "as parts, and as the leaves that were sealed"
    )
    assert reports[0].exit_code == 0
    two = machine("two", bucket_place)
    two.restore()
    assert tree(two.resumed().files) == tree(one.resumed().files)
    assert RUN in str(two.config.local.root)
