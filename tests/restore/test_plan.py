"""The decision alone: values in, a plan or an error with its exit code out."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.commits import RUN_UID, Made, Writer, generation, make

from replicate.errors import (
    CkptierError,
    ConfigInvalid,
    Denied,
    ExitCode,
    IntegrityFailure,
    NothingFound,
    TrustFailure,
    Unreachable,
    UsageError,
)
from replicate.layout import GenerationId
from replicate.log import Attempt, Damage, LogView
from replicate.restore.plan import (
    Held,
    HeldGeneration,
    Outcome,
    RestoreRequest,
    TierAnswer,
    plan_restore,
)
from tiers.memory import MemoryTier

NEWEST = RestoreRequest()
ABSENT = RestoreRequest(if_absent=True, fresh_ok=True)


def log_of(*generations: Made, run_uid: str = RUN_UID) -> LogView:
    writer = Writer(MemoryTier("x"), run_uid=run_uid)
    for made in generations:
        writer.commit(made)
    return writer.view


def answer(name: str, *generations: Made) -> TierAnswer:
    return TierAnswer(tier=name, view=log_of(*generations) if generations else LogView(state=None))


def silent(name: str, error: CkptierError | None = None) -> TierAnswer:
    return TierAnswer(tier=name, failure=error or Unreachable("no route to host", hint="look at the cable"))


def held(*generations: Made, fault: str | None = None, run_uid: str = RUN_UID) -> Held:
    return Held(
        run_uid=run_uid,
        attempt=1,
        sequence=max((made.id.sequence for made in generations), default=0),
        attempts=tuple({Attempt(number=made.id.attempt, id=made.record.attempt_id): None for made in generations}),
        generations=tuple(
            HeldGeneration(id=made.id, total_bytes=made.record.total_bytes, objects=3, fault=fault)
            for made in generations
        ),
    )


def chosen(request: RestoreRequest, *answers: TierAnswer, store: Held | None = None) -> list[GenerationId]:
    plan = plan_restore(request, answers, store or Held())
    assert plan.outcome is Outcome.RESTORE
    return [candidate.generation for candidate in plan.candidates]


def test_newest_is_the_highest_attempt_and_sequence_never_the_highest_update() -> None:
    late = make({"f": b"late"}, attempt=1, sequence=5, update=500)
    rolled_back = make({"f": b"back"}, attempt=2, sequence=6, update=220)
    assert chosen(NEWEST, answer("a", late, rolled_back)) == [rolled_back.id, late.id]


def test_one_generation_lists_its_tiers_in_declared_order() -> None:
    made = generation(1)
    plan = plan_restore(NEWEST, [answer("b", made), answer("a", made)], Held())
    assert [replica.tier for replica in plan.candidates[0].replicas] == ["b", "a"]


def test_what_the_store_has_competes_unless_it_is_faulty_or_a_tier_is_named() -> None:
    old, new = generation(1), generation(2)
    assert chosen(NEWEST, answer("a", old), store=held(new))[0] == new.id
    plan = plan_restore(NEWEST, [answer("a", old)], held(new, fault="quarantined: NaN"))
    assert [candidate.generation for candidate in plan.candidates] == [old.id]
    assert [(skip.generation, skip.place, skip.reason) for skip in plan.skipped] == [
        (new.id, "local", "quarantined: NaN")
    ]
    assert chosen(RestoreRequest(tier="a"), answer("a", old), store=held(new)) == [old.id]


def test_a_tier_that_did_not_answer_may_hold_a_newer_one() -> None:
    known = answer("a", generation(1))
    with pytest.raises(Unreachable, match="no route") as caught:
        plan_restore(NEWEST, [known, silent("b")], Held())
    assert "--accept-older" in caught.value.hint
    assert str(generation(1).id) in caught.value.hint
    assert chosen(RestoreRequest(accept_older=True), known, silent("b")) == [generation(1).id]


def test_a_tier_that_was_not_asked_for_may_be_silent() -> None:
    plan = plan_restore(RestoreRequest(tier="a"), [answer("a", generation(1)), silent("b")], Held())
    assert plan.candidates
    assert any("b did not answer" in warning for warning in plan.warnings)


def test_missing_credentials_are_told_apart_from_a_missing_network() -> None:
    with pytest.raises(Denied):
        plan_restore(NEWEST, [silent("a", Denied("403"))], Held())
    with pytest.raises(Unreachable):
        plan_restore(NEWEST, [silent("a", Denied("403")), silent("b")], Held())


def test_a_named_generation_is_never_replaced_by_another() -> None:
    first, second = generation(1), generation(2)
    assert chosen(RestoreRequest(generation=first.id), answer("a", first, second)) == [first.id]
    with pytest.raises(NothingFound, match=str(generation(3).id)):
        plan_restore(RestoreRequest(generation=generation(3).id), [answer("a", first, second)], Held())


def test_a_named_generation_needs_only_one_tier_that_answers() -> None:
    first = generation(1)
    request = RestoreRequest(generation=first.id)
    assert chosen(request, answer("a", first), silent("b")) == [first.id]
    with pytest.raises(Unreachable, match=str(first.id)):
        plan_restore(request, [answer("a", generation(2)), silent("b")], Held())


def test_a_fork_names_both_lines_and_is_never_chosen_from() -> None:
    one, two = generation(1, attempt_id="left"), generation(2, attempt_id="right")
    with pytest.raises(TrustFailure, match=r"left \(a\) and right \(b\)"):
        plan_restore(NEWEST, [answer("a", one), answer("b", two)], Held())
    plan = plan_restore(RestoreRequest(generation=one.id), [answer("a", one), answer("b", two)], Held())
    assert plan.candidates[0].generation == one.id
    assert "forked" in plan.warnings[0]


def test_a_fork_between_the_store_and_a_tier_is_one_too() -> None:
    with pytest.raises(TrustFailure, match=r"left \(local\) and right \(a\)"):
        plan_restore(NEWEST, [answer("a", generation(2, attempt_id="right"))], held(generation(1, attempt_id="left")))


def test_two_runs_of_one_name_are_never_mixed() -> None:
    foreign = TierAnswer(tier="b", view=log_of(generation(1, run_uid="f" * 32), run_uid="f" * 32))
    with pytest.raises(TrustFailure, match="unrelated") as caught:
        plan_restore(NEWEST, [answer("a", generation(1)), foreign], Held())
    assert RUN_UID in caught.value.message
    assert "f" * 32 in caught.value.message


def test_a_store_of_another_run_is_refused_but_a_folder_may_take_the_files() -> None:
    store = held(generation(9), run_uid="f" * 32)
    with pytest.raises(TrustFailure, match="belongs to another run"):
        plan_restore(NEWEST, [answer("a", generation(1))], store)
    assert chosen(RestoreRequest(to=Path("x")), answer("a", generation(1)), store=store) == [generation(1).id]


def test_nothing_anywhere_is_a_fresh_start_only_where_that_is_proved_and_wanted() -> None:
    empty = answer("a")
    assert plan_restore(ABSENT, [empty], Held()).outcome is Outcome.FRESH
    with pytest.raises(NothingFound):
        plan_restore(RestoreRequest(if_absent=True), [empty], Held())
    with pytest.raises(Unreachable):
        plan_restore(ABSENT, [empty, silent("b")], Held())
    with pytest.raises(Unreachable):
        plan_restore(replace(ABSENT, accept_older=True), [empty, silent("b")], Held())


def test_objects_without_a_log_are_no_fresh_start() -> None:
    stray = TierAnswer(tier="a", view=LogView(state=None), stray="toy/generations/x/manifest.json")
    with pytest.raises(IntegrityFailure, match="not a fresh start") as caught:
        plan_restore(ABSENT, [stray], Held())
    assert "bring the log back" in caught.value.hint


def test_a_log_with_nothing_but_damage_is_no_fresh_start() -> None:
    view = LogView(state=None, next_slot=2, damaged=(Damage(slot=0, reason="torn", sha256="0" * 64),))
    with pytest.raises(IntegrityFailure, match="slot 0"):
        plan_restore(ABSENT, [TierAnswer(tier="a", view=view)], Held())


def test_if_absent_is_content_with_the_newest_in_the_store_and_with_nothing_older() -> None:
    old, new = generation(1), generation(2)
    assert plan_restore(ABSENT, [answer("a", old)], held(new)).outcome is Outcome.ALREADY_HERE
    assert plan_restore(ABSENT, [answer("a", old, new)], held(new)).outcome is Outcome.ALREADY_HERE
    assert chosen(ABSENT, answer("a", old, new), store=held(old))[0] == new.id
    with pytest.raises(Unreachable):
        plan_restore(ABSENT, [silent("a")], held(new))
    named = replace(ABSENT, generation=new.id)
    assert plan_restore(named, [silent("a")], held(new)).outcome is Outcome.ALREADY_HERE


def test_damage_after_the_newest_commit_may_hide_a_newer_one() -> None:
    view = log_of(generation(1))
    after = replace(view, next_slot=3, damaged=(Damage(slot=2, reason="torn", sha256="0" * 64),))
    before = replace(view, damaged=(Damage(slot=0, reason="torn", sha256="0" * 64),))
    plan = plan_restore(NEWEST, [TierAnswer(tier="a", view=after), TierAnswer(tier="b", view=before)], Held())
    assert plan.hidden == ("a",)
    assert [skip.place for skip in plan.skipped] == ["a", "b"]


def test_the_new_attempt_is_above_all_that_were_seen_anywhere() -> None:
    store = replace(held(generation(7)), attempt=4, sequence=9)
    plan = plan_restore(NEWEST, [answer("a", generation(2, attempt=3))], store)
    assert (plan.seen_attempt, plan.seen_sequence) == (4, 9)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (RestoreRequest(tier="nowhere"), ConfigInvalid),
        (RestoreRequest(paths=("*.bin",)), UsageError),
    ],
)
def test_what_cannot_be_meant_is_refused(request_: RestoreRequest, error: type[CkptierError]) -> None:
    with pytest.raises(error) as caught:
        plan_restore(request_, [answer("a", generation(1))], Held())
    assert caught.value.hint
    assert caught.value.exit_code in (ExitCode.CONFIG, ExitCode.USAGE)


def test_a_log_that_is_shorter_than_remembered_stops_only_those_who_would_use_it() -> None:
    made = generation(1)
    store = replace(held(), remembered=(("a", 5),))
    with pytest.raises(TrustFailure, match="slot 5"):
        plan_restore(NEWEST, [answer("a", made), answer("b", made)], store)
    assert chosen(RestoreRequest(tier="b"), answer("a", made), answer("b", made), store=store) == [made.id]
    plan = plan_restore(RestoreRequest(generation=made.id), [answer("a", made)], store)
    assert "slot 5" in plan.warnings[0]
