"""A run that is lost and goes on, more than once: its last line of descent is the newest."""

import shutil
from collections.abc import Callable

from flows.machines import Machine, Place, payload
from support.commits import tree

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
