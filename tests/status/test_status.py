"""What is said of a run: newest, lag, risk and why, from values alone."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support.commits import AT, RUN, RUN_UID, Made, Writer, generation, make

from replicate.errors import Unreachable
from replicate.explaining import explain
from replicate.generation.evidence import Level
from replicate.jsonable import jsonable
from replicate.log import Damage, LogView, Pin
from replicate.status import (
    Known,
    Lag,
    LocalEntry,
    Mark,
    Progress,
    RunStatus,
    TierInput,
    Transfer,
    assemble,
    assess_termination,
    list_generations,
    progress_from,
)
from replicate.statusfile import Failure, Replica, StatusFile, TierStatus, UnderWay
from tiers.memory import MemoryTier

LATER = "2026-01-02T00:00:00.000Z"
G1, G2, G3 = generation(1), generation(2), generation(3)


def entry(made: Made, level: Level = Level.VALIDATED, reason: str = "") -> LocalEntry:
    return LocalEntry(
        generation=made.id,
        level=level,
        at=LATER,
        reason=reason,
        sealed_at=AT,
        total_bytes=made.record.total_bytes,
        objects=len(made.record.files),
        attempt_id=made.record.attempt_id,
        parent=made.record.parent,
    )


def log_of(*generations: Made, pins: tuple[Made, ...] = (), run_uid: str = RUN_UID) -> LogView:
    writer = Writer(MemoryTier("x"), run_uid=run_uid)
    for made in generations:
        writer.commit(made)
    for made in pins:
        writer.append(Pin(generation=str(made.id), reason="keep"), attempt=1, attempt_id="attempt-1")
    return writer.view


def tier(name: str, *generations: Made, **more: Any) -> TierInput:
    view = log_of(*generations) if generations else LogView(state=None)
    return TierInput(tier=name, view=view, **more)


def down(name: str, progress: Progress | None = None) -> TierInput:
    return TierInput(tier=name, failure=Unreachable("no route", hint="look at the cable"), progress=progress)


def status(local: list[LocalEntry], *tiers: TierInput) -> RunStatus:
    return assemble(RUN, RUN_UID, local, tiers)


def test_newest_sealed_and_validated_are_told_apart_and_quarantined_ones_do_not_count() -> None:
    local = [entry(G1), entry(G2, Level.SEALED), entry(G3, Level.QUARANTINED, "NaN")]
    found = status(local)
    assert found.newest_sealed == local[1]
    assert found.newest_validated == local[0]
    assert found.quarantined == (local[2],)


def test_a_tier_is_behind_by_generations_updates_and_bytes() -> None:
    found = status([entry(G1), entry(G2), entry(G3)], tier("a", G1), tier("b", G1, G3), tier("c"))
    size = G1.record.total_bytes
    assert [view.lag for view in found.tiers] == [
        Lag(generations=2, updates=200, bytes=2 * size),
        Lag(generations=0, updates=0, bytes=0),
        Lag(generations=3, updates=300, bytes=3 * size),
    ]
    newest = found.tiers[1].newest
    assert newest is not None
    assert (newest.generation, newest.slot, newest.at) == (G3.id, 2, AT)
    assert [view.live for view in found.tiers] == [1, 2, 0]
    assert [view.evidence for view in found.tiers] == [Level.REPLICATED, Level.REPLICATED, None]


def test_after_a_rollback_the_lag_is_in_generations_and_never_negative() -> None:
    back = make({"f": b"x"}, attempt=2, sequence=4, update=120)
    found = status([entry(back), entry(G3)], tier("a", G3)).tiers[0]
    assert found.lag == Lag(generations=1, updates=0, bytes=1)


def test_a_tier_that_does_not_answer_is_known_by_the_tracker() -> None:
    progress = Progress(
        completed=Mark(generation=G1.id, slot=4, at=AT),
        under_way=Transfer(generation=str(G2.id), done_bytes=10, total_bytes=20),
        backlog=2,
        skipped=1,
    )
    found = status([entry(G2)], down("a", progress), down("b"))
    a, b = found.tiers
    assert (a.known_by, a.newest, a.backlog, a.skipped) == (Known.TRACKER, progress.completed, 2, 1)
    assert (a.error, a.hint, a.live) == ("no route", "look at the cable", None)
    assert (b.known_by, b.newest, b.lag) == (Known.NOTHING, None, None)
    assert found.tier("a") is a
    assert found.tier("nowhere") is None


def test_forks_damage_and_unrelated_history_are_named() -> None:
    left, right = generation(1, attempt_id="left"), generation(2, attempt_id="right")
    damaged = replace(log_of(right), damaged=(Damage(slot=3, reason="torn", sha256="0" * 64),))
    foreign = log_of(generation(1, run_uid="f" * 32), run_uid="f" * 32)
    found = status([entry(left)], TierInput(tier="a", view=damaged), TierInput(tier="b", view=foreign))
    assert str(found.forks[0]).startswith("attempt 1 was opened twice: ")
    assert found.tiers[0].damaged_slots == (3,)
    assert (found.tiers[1].unrelated, found.tiers[1].newest) == (True, None)


def test_terminating_is_safe_only_where_every_tier_has_the_newest() -> None:
    local = [entry(G1), entry(G2)]
    safe = assess_termination(status(local, tier("a", G1, G2), tier("b", G2)), ["a", "b"])
    assert (safe.safe, safe.risks, safe.newest, safe.restart_from) == (True, (), G2.id, G2.id)
    at_risk = assess_termination(status(local, tier("a", G1, G2), tier("b", G1)), ["a", "b"])
    assert not at_risk.safe
    assert at_risk.restart_from == G1.id
    assert [(risk.tier, risk.generation, risk.updates) for risk in at_risk.risks] == [("b", G2.id, 100)]
    assert str(G1.id) in at_risk.risks[0].reason
    assert assess_termination(status(local, tier("a", G1, G2), tier("b", G1)), ["a"]).safe


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (tier("a"), "holds nothing yet"),
        (down("a"), "unknown: no route"),
        (TierInput(tier="a"), "was not asked"),
        (TierInput(tier="a", view=log_of(generation(1, run_uid="f" * 32), run_uid="f" * 32)), "another run"),
        (
            tier(
                "a",
                G1,
                progress=Progress(
                    failure="403", under_way=Transfer(generation=str(G2.id), done_bytes=1, total_bytes=2)
                ),
            ),
            f"{G2.id} is under way; last error: 403",
        ),
    ],
)
def test_every_risk_says_why(there: TierInput, words: str) -> None:
    found = assess_termination(status([entry(G2)], there), ["a"])
    assert not found.safe
    assert words in found.risks[0].reason


def test_the_trackers_completed_mark_is_proof_enough() -> None:
    """It never runs ahead of the log, so a tier that is silent now still has what was completed."""
    progress = Progress(completed=Mark(generation=G2.id, slot=1, at=AT))
    assert assess_termination(status([entry(G2)], down("a", progress)), ["a"]).safe


def test_without_tiers_whatever_is_here_is_at_risk_and_without_generations_nothing_is() -> None:
    assert [risk.reason for risk in assess_termination(status([entry(G1)]), []).risks] == ["no tier is configured"]
    assert assess_termination(status([], tier("a")), ["a"]).safe


def test_the_list_has_every_generation_of_every_place_newest_first() -> None:
    tiers = [TierInput(tier="a", view=log_of(G1, G2, pins=(G1,))), tier("b", G2), down("c")]
    listed = list_generations([entry(G3, Level.SEALED), entry(G1)], tiers)
    assert [(one.generation, one.newest) for one in listed] == [(G3.id, True), (G2.id, False), (G1.id, False)]
    assert [[place.place for place in one.places] for one in listed] == [["local"], ["a", "b"], ["local", "a"]]
    local, remote = listed[2].places
    assert (local.level, local.at, local.slot) == (Level.VALIDATED, LATER, None)
    assert (remote.level, remote.at, remote.slot, remote.pinned) == (Level.REPLICATED, AT, 1, True)


def test_a_quarantined_generation_is_listed_and_never_the_newest() -> None:
    listed = list_generations([entry(G3, Level.QUARANTINED, "NaN"), entry(G1)], [])
    assert [(one.generation, one.newest) for one in listed] == [(G3.id, False), (G1.id, True)]
    found = explain(G3.id, [entry(G3, Level.QUARANTINED, "NaN")], [])
    assert found is not None
    assert "quarantined (NaN)" in found.newest_because
    assert found.when_restored == ("nothing: no copy that counts is known",)


def test_explain_says_where_it_comes_from_and_what_restoring_it_would_do() -> None:
    one = make({"f": b"1"}, sequence=1)
    two = make({"f": b"2"}, sequence=2, parent=str(one.id))
    three = make({"f": b"3"}, attempt=2, sequence=3, parent=str(two.id))
    tiers = [tier("a", one, three), tier("b", two), down("c")]
    found = explain(two.id, [entry(two)], tiers)
    assert found is not None
    assert found.lineage[0].generation == str(one.id)
    assert found.lineage[0].places == ("a",)
    assert found.newest_because == f"it is not the newest: {three.id} has the higher attempt"
    assert found.when_restored == (
        "its bytes would come from local, then b",
        "a new attempt, 3 or higher, would go on at update 200",
        f"1 newer would be left behind, not deleted: {three.id}",
    )
    assert found.unanswered == ("c",)
    newest = explain(three.id, [entry(two)], tiers)
    assert newest is not None
    assert newest.newest_because.startswith("it is the newest")
    assert [step.places for step in newest.lineage] == [("local", "b"), ("a",)]
    assert explain(generation(9).id, [], tiers) is None


def test_a_loop_of_parents_ends() -> None:
    looped = make({"f": b"1"}, sequence=1)
    mine = replace(entry(looped), parent=str(looped.id))
    found = explain(looped.id, [mine], [])
    assert found is not None
    assert [step.generation for step in found.lineage] == [str(looped.id)]


def test_the_view_that_the_replicating_process_left_becomes_progress() -> None:
    assert progress_from(None) == {}
    view = StatusFile(
        run=RUN,
        pid=1,
        host="h",
        phase="uploading",
        started_at=AT,
        updated_at=AT,
        quarantined={},
        tiers=(
            TierStatus(
                name="a",
                url="memory://a",
                newest=Replica(generation=str(G1.id), slot=3, at=AT, total_bytes=9),
                under_way=UnderWay(generation=str(G2.id), done_bytes=1, total_bytes=2, started_at=AT),
                waiting=(str(G2.id), str(G3.id)),
                skipped=4,
                requests={},
                failure=Failure(at=LATER, since=AT, exit_code=9, message="no route", hint="", count=3),
            ),
            TierStatus(name="b", url="memory://b", requests={}),
        ),
    )
    assert progress_from(view) == {
        "a": Progress(
            completed=Mark(generation=G1.id, slot=3, at=AT),
            under_way=Transfer(generation=str(G2.id), done_bytes=1, total_bytes=2),
            failure="no route",
            failing_since=AT,
            backlog=2,
            skipped=4,
        ),
        "b": Progress(),
    }


def test_all_of_it_becomes_json() -> None:
    tiers = [tier("a", G1), down("b")]
    found = status([entry(G2)], *tiers)
    document = json.loads(json.dumps(jsonable(found)))
    assert document["newest_sealed"]["generation"] == str(G2.id)
    assert document["tiers"][0]["lag"]["bytes"] == G2.record.total_bytes
    for value in (assess_termination(found, ["a"]), list_generations([], tiers), explain(G1.id, [], tiers)):
        json.dumps(jsonable(value))
