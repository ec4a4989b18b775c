"""A run that is lost and goes on, more than once: its last line of descent is the newest."""

import shutil
from collections.abc import Callable

from flows.machines import Machine, Place, payload
from support.commits import tree

from replicate.errors import ExitCode
from replicate.restore import Outcome
from tiers.protocol import Tier
from tiers.testing.faulty import Fault, FaultyTier

Make = Callable[..., Machine]


def restored_files(machine: Machine) -> dict[str, bytes | None]:
    return {path: data for path, data in tree(machine.resumed().files).items() if data is not None}


def test_the_second_line_of_descent_is_the_newest(place: Place, machine: Make) -> None:
    machine("one", place).push(100, 200, 300)
    two = machine("two", place)
    assert two.restore().attempt == 2
    assert two.resumed().id.next_update == 300
    (made,) = two.push(320)
    assert (made.attempt, made.sequence) == (2, 4)
    three = machine("three", place)
    report = three.restore()
    assert (report.generation, report.attempt, report.fell_back) == (made, 3, False)
    assert three.resumed().id == made
    assert restored_files(three) == payload(320)
    assert [one.next_update for one in place.live()] == [320, 300, 200, 100]


def test_a_deliberate_rollback_is_the_newest_although_its_updates_are_fewer(place: Place, machine: Make) -> None:
    one = machine("one", place)
    _, middle, last = one.push(100, 200, 500)
    one.restore(generation=middle)
    assert one.resumed().id == middle, "a store that has a newer one goes on from the one that was chosen"
    assert last in {generation.id for generation in one.store.generations()}
    assert restored_files(one) == payload(200)
    (made,) = one.push(220)
    assert (made.attempt, made.sequence) == (2, 4)
    two = machine("two", place)
    report = two.restore()
    assert report.generation == made
    assert two.resumed().id == made
    assert restored_files(two) == payload(220)
    assert two.resumed().record.parent == str(middle)
    (after,) = two.push(240)
    assert machine("three", place).restore(if_absent=True).generation == after


def test_the_same_machine_may_lose_its_disk_again_and_again(volume: Place, machine: Make) -> None:
    one = machine("one", volume)
    one.push(10)
    for update in (20, 30, 40):
        shutil.rmtree(one.folder / "runs")
        one.restore()
        one.push(update)
    assert [(each.attempt, each.next_update) for each in volume.live()] == [(4, 40), (3, 30), (2, 20), (1, 10)]
    assert one.engine.safe_to_terminate(()).safe


def test_a_rollback_that_was_never_continued_still_comes_back_as_chosen(volume: Place, machine: Make) -> None:
    """The choice is in the store; what the tier has is the history, and its newest is the last committed."""
    one = machine("one", volume)
    first, _ = one.push(100, 200)
    one.restore(generation=first)
    assert one.replicate().exit_code == 0, "nothing new, and nothing forgotten"
    assert one.resumed().id == first
    assert machine("two", volume).restore().generation == volume.live()[0]


def test_a_machine_lost_in_its_very_first_upload_does_not_bar_the_name(place: Place, machine: Make) -> None:
    """Its claim is all that is there: nothing to restore, a fresh start, and the first to commit has the name."""
    lost = machine("one", place)
    lost.publish(100)
    place.hook = payload_never_arrives
    assert lost.replicate().exit_code == ExitCode.UNREACHABLE
    place.hook = lambda tier: tier
    assert place.log().state is not None
    assert place.live() == []

    fresh = machine("two", place)
    assert fresh.restore(if_absent=True, fresh_ok=True).outcome is Outcome.FRESH
    (made,) = fresh.push(50)
    assert place.live() == [made]
    third = machine("three", place)
    assert third.restore().generation == made

    (late,) = lost.replicate().results
    assert late.failure is not None
    assert late.failure.exit_code in (ExitCode.FENCED, ExitCode.TRUST)
    assert not lost.engine.safe_to_terminate(()).safe
    assert place.live() == [made]


def payload_never_arrives(tier: Tier) -> Tier:
    return FaultyTier(tier, [Fault(verb="put", key="*model.bin", times=99)])
