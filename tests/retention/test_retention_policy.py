"""Which generations stay: examples first, then what holds for any history."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicate.layout import GenerationId
from replicate.retention import Member, Policy, Reason, RetentionPlan, Rule, apply_policy


def gen(sequence: int, update: int, attempt: int = 1) -> GenerationId:
    return GenerationId(attempt, sequence, update, f"{sequence:08x}")


def chain(*updates: int, attempt: int = 1, first: int = 1, parent: GenerationId | None = None) -> list[Member]:
    members: list[Member] = []
    for sequence, update in enumerate(updates, first):
        members.append(Member(id=gen(sequence, update, attempt), parent=parent))
        parent = members[-1].id
    return members


def kept(plan: RetentionPlan) -> list[int]:
    return sorted(one.id.next_update for one in plan.kept)


def rules(plan: RetentionPlan, generation: GenerationId) -> set[Rule]:
    return {reason.rule for one in plan.verdicts if one.id == generation for reason in one.reasons}


def test_without_keep_last_everything_stays_with_a_reason() -> None:
    plan = apply_policy(chain(100, 200, 300), Policy(keep_every=100))
    assert kept(plan) == [100, 200, 300]
    assert all(Rule.EVERYTHING in rules(plan, one.id) for one in plan.verdicts)


def test_the_newest_so_many_stay_and_each_of_the_others_says_why_it_goes() -> None:
    plan = apply_policy(chain(100, 200, 300, 400), Policy(keep_last=2))
    assert kept(plan) == [300, 400]
    assert [one.id.next_update for one in plan.removed] == [100, 200]
    assert [reason.text for one in plan.removed for reason in one.reasons] == [
        "older than the newest 2 of its line"
    ] * 2


def test_milestones_are_the_first_at_or_after_each_multiple() -> None:
    """The brief's own example: saving every 300, milestones of 2,500 are 2,700, 5,100 and 7,500."""
    plan = apply_policy(chain(*range(300, 8101, 300)), Policy(keep_last=1, keep_every=2500))
    assert kept(plan) == [2700, 5100, 7500, 8100]
    assert Rule.MILESTONE in rules(plan, gen(9, 2700))


def test_a_milestone_that_never_arrived_is_stood_in_for_by_the_next() -> None:
    members = [member for member in chain(*range(300, 3301, 300)) if member.id.next_update != 2700]
    assert kept(apply_policy(members, Policy(keep_last=1, keep_every=2500))) == [3000, 3300]


def test_update_zero_is_no_milestone() -> None:
    assert kept(apply_policy(chain(0, 100, 200), Policy(keep_last=1, keep_every=1000))) == [200]


ROLLED_BACK = chain(100, 200, 300, 400, 500)
"""Attempt 1, before somebody went back to update 200."""
BRANCH = gen(2, 200)


def after_rollback(*updates: int) -> list[Member]:
    return [*ROLLED_BACK, *chain(*updates, attempt=2, first=6, parent=BRANCH)]


def test_what_a_rollback_left_pushes_out_nothing_that_training_stands_on() -> None:
    """By number alone 500 and 400 would be among the newest three, and 200 would go."""
    plan = apply_policy(after_rollback(220, 240), Policy(keep_last=3))
    assert kept(plan) == [200, 220, 240, 500]
    assert Rule.LAST in rules(plan, BRANCH)
    assert rules(plan, gen(5, 500)) == {Rule.LEFT_TIP}


def test_the_tip_that_was_left_goes_once_the_new_line_has_got_as_far() -> None:
    """Until then it may be the most that the run has: a restore to look at something must not delete it."""
    assert 500 in kept(apply_policy(after_rollback(300, 400, 490), Policy(keep_last=2)))
    plan = apply_policy(after_rollback(300, 400, 500), Policy(keep_last=2))
    assert kept(plan) == [400, 500]
    assert max(one.id for one in plan.kept) == gen(8, 500, 2)
    assert rules(plan, gen(5, 500)) == {Rule.OVERTAKEN}


def test_one_generation_that_jumps_ahead_does_not_end_what_was_left() -> None:
    """The new line has to have its own keep_last first."""
    assert 500 in kept(apply_policy(after_rollback(600), Policy(keep_last=2)))
    assert [one.id for one in apply_policy(after_rollback(600, 700), Policy(keep_last=2)).kept] == [
        gen(7, 700, 2),
        gen(6, 600, 2),
    ]


def test_milestones_of_a_line_that_was_left_stay_until_it_is_overtaken() -> None:
    policy = Policy(keep_last=1, keep_every=200)
    assert kept(apply_policy(after_rollback(250), policy)) == [200, 250, 400, 500]
    assert kept(apply_policy(after_rollback(250, 450, 650), policy)) == [200, 450, 650]


def test_where_an_attempt_began_is_known_from_outside_once_its_first_generation_is_gone() -> None:
    rest = [member for member in after_rollback(300, 310, 320) if member.id != gen(6, 300, 2)]
    assert 500 in kept(apply_policy(rest, Policy(keep_last=2), starts={2: BRANCH}))


def test_an_attempt_that_went_on_from_the_newest_is_one_line_with_it() -> None:
    members = [*chain(100, 200), *chain(300, attempt=2, first=3, parent=gen(2, 200))]
    plan = apply_policy(members, Policy(keep_last=2))
    assert kept(plan) == [200, 300]


def test_what_is_held_for_another_reason_stays_and_says_so() -> None:
    why = Reason(rule=Rule.PINNED, text="pinned in the tier's log")
    plan = apply_policy(chain(100, 200, 300), Policy(keep_last=1), holds={gen(1, 100): [why], gen(9, 9): [why]})
    assert kept(plan) == [100, 300]
    assert rules(plan, gen(1, 100)) == {Rule.PINNED}


def test_the_newest_stays_whatever_the_policy_says() -> None:
    """No configuration can ask for this; a caller that does gets it all the same."""
    assert kept(apply_policy(chain(100, 200), Policy(keep_last=0, min_generations=0))) == [200]


def test_a_minimum_stays_whatever_else_is_said() -> None:
    assert kept(apply_policy(chain(100, 200, 300), Policy(keep_last=1, min_generations=2))) == [200, 300]


@pytest.mark.parametrize(("count", "refused"), [(2, False), (4, False), (5, True), (40, True)])
def test_most_of_a_place_never_goes_at_once(count: int, refused: bool) -> None:
    """A half and one more: the last line before a setting with a typing error."""
    plan = apply_policy(chain(*range(100, 100 * count + 1, 100)), Policy(keep_last=1))
    assert (plan.too_many is not None) is refused
    if refused:
        assert plan.too_many is not None
        assert f"{count - 1} of {count}" in plan.too_many


def test_nothing_gives_an_empty_plan() -> None:
    assert apply_policy([], Policy(keep_last=1)) == RetentionPlan()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Member], dict[int, GenerationId]]:
    """Draw a run of up to four attempts, each going on from any generation before it."""
    members: list[Member] = []
    starts: dict[int, GenerationId] = {}
    sequence = 0
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        parent = draw(st.sampled_from([member.id for member in members])) if members else None
        if parent is not None:
            starts[attempt] = parent
        update = parent.next_update if parent else 0
        for _ in range(draw(st.integers(1, 6))):
            sequence += 1
            update += draw(st.integers(1, 400))
            members.append(Member(id=gen(sequence, update, attempt), parent=parent))
            parent = members[-1].id
    return members, starts


POLICIES = st.builds(
    Policy,
    keep_last=st.integers(1, 5),
    keep_every=st.none() | st.integers(1, 900),
    min_generations=st.integers(1, 4),
    share=st.just(Fraction(1)),
)


@given(histories(), POLICIES, st.sets(st.integers(0, 23)))
def test_for_any_history_the_newest_and_the_held_stay_and_enough_of_the_line(
    history: tuple[list[Member], dict[int, GenerationId]], policy: Policy, held: set[int]
) -> None:
    members, starts = history
    pinned = {members[index].id for index in held if index < len(members)}
    why = {one: [Reason(rule=Rule.PINNED, text="pinned")] for one in pinned}
    plan = apply_policy(members, policy, starts=starts, holds=why)
    stays = {one.id for one in plan.kept}
    newest = max(member.id for member in members)
    assert newest in stays
    assert pinned <= stays
    assert len(stays) >= min(policy.min_generations, len(members))
    assert {one.id for one in plan.verdicts} == {member.id for member in members}
    assert all(one.reasons for one in plan.verdicts)
    line = own_line(newest, {member.id: member.parent for member in members})
    assert set(line[: policy.keep_last]) <= stays
    furthest = max(members, key=lambda member: member.id.next_update).id
    assert any(one.next_update >= furthest.next_update for one in stays), "the most trained state is lost"


def own_line(newest: GenerationId, parents: dict[GenerationId, GenerationId | None]) -> list[GenerationId]:
    """Follow the parents: another way to the same line, since here every one of them is known."""
    line = [newest]
    while (parent := parents[line[-1]]) is not None:
        line.append(parent)
    return line


@given(histories(), POLICIES)
def test_pruning_what_was_pruned_removes_nothing_more(
    history: tuple[list[Member], dict[int, GenerationId]], policy: Policy
) -> None:
    """I17: also where the first generations of an attempt are gone, so that only ``starts`` tells where it began."""
    members, starts = history
    once = {one.id for one in apply_policy(members, policy, starts=starts).kept}
    left = [member for member in members if member.id in once]
    assert apply_policy(left, policy, starts=starts).removed == ()


@given(histories(), POLICIES)
def test_pruning_after_each_commit_ends_where_pruning_at_the_end_does_not_fall_short(
    history: tuple[list[Member], dict[int, GenerationId]], policy: Policy
) -> None:
    """One at a time, as a daemon does it: nothing that the policy keeps now was removed on the way."""
    members, starts = history
    here: list[Member] = []
    for member in members:
        here.append(member)
        known = {attempt: start for attempt, start in starts.items() if attempt <= member.id.attempt}
        gone = {one.id for one in apply_policy(here, policy, starts=known).removed}
        here = [one for one in here if one.id not in gone]
    newest = max(member.id for member in members)
    line = own_line(newest, {member.id: member.parent for member in members})
    own = [one for one in line if one.attempt == newest.attempt]
    assert set(own[: policy.keep_last]) <= {member.id for member in here}
