"""A run goes back from 500 to 200 and on from there: what is newest, what stays, and what another machine gets."""

from collections.abc import Callable

from flows.machines import Machine, Place, payload
from support.commits import tree

from replicate.generation.local import LocalGeneration

Make = Callable[..., Machine]


def keeping(place: Place, keep: int) -> Place:
    return Place(place.settings.model_copy(update={"keep_last": keep, "retire_delay_seconds": 0.0}))


def updates(place: Place) -> list[int]:
    return [one.next_update for one in place.live()]


def files_of(found: LocalGeneration) -> dict[str, bytes]:
    return {path: data for path, data in tree(found.files).items() if data is not None}


def test_the_branch_is_newest_by_attempt_and_sequence_everywhere(volume: Place, machine: Make) -> None:
    """Not by its update, nor by the time of its files: on the tier, in the store, and for every reader."""
    one = machine("one", volume)
    made = one.push(100, 200, 300, 400, 500)
    report = one.restore(generation=made[1])
    assert (report.generation, report.attempt) == (made[1], 2)
    assert one.resumed().id == made[1], "training goes on from what was chosen, though newer ones lie beside it"
    (branch,) = one.push(220)
    assert (branch.attempt, branch.sequence, branch.next_update) == (2, 6, 220)
    assert one.resumed().id == branch
    assert one.resumed().record.parent == str(made[1])
    assert volume.live()[0] == branch
    two = machine("two", volume)
    assert two.restore().generation == branch
    assert files_of(two.resumed()) == payload(220)
    named = machine("three", volume).restore(generation=made[4])
    assert named.generation == made[4], "what was left is still there by name"


def test_retention_keeps_the_tip_that_was_left_until_the_branch_has_overtaken_it(volume: Place, machine: Make) -> None:
    """The furthest state of the run survives, and pushes out nothing on the new line."""
    one = machine("one", keeping(volume, 2))
    made = [one.push(update)[0] for update in (100, 200, 300, 400, 500)]
    assert updates(volume) == [500, 400]
    one.restore(generation=made[3])
    seen = {}
    for update in (420, 440, 480, 520, 540, 560):
        one.push(update)
        seen[update] = sorted(updates(volume))
    assert seen[420] == [400, 420, 500], "the tip stays, and so does what the attempt began from"
    assert seen[440] == [400, 420, 440, 500]
    assert seen[480] == [400, 440, 480, 500], "two of the new line, whatever was left beside it"
    assert seen[520] == [400, 480, 520], "overtaken: the branch that was left is over"
    assert seen[560] == [400, 540, 560]
    assert machine("two", volume).restore().generation == volume.live()[0]


def test_a_second_rollback_from_the_branch_forgets_neither(volume: Place, machine: Make) -> None:
    """Back from 500 to 200, on to 220, and back from there to 100: attempts count up, and every tip is kept."""
    one = machine("one", keeping(volume, 1))
    one.push(100)
    one.push(500)
    one.restore(generation=one.store.generations()[-1].id)
    one.push(220)
    one.restore(generation=one.store.generations()[-1].id)
    (last,) = one.push(120)
    assert (last.attempt, last.next_update) == (3, 120)
    assert {120, 220, 500} <= set(updates(volume))
    assert one.resumed().id == last
    assert machine("two", volume).restore().generation == last
    assert one.engine.safe_to_terminate(()).safe
