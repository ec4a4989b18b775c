"""Planning: parts within every limit, milestones, order, and an estimate that comes true."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, REMOTE, RUN_UID, Machine, generation_record, make_source, sealed_bytes
from hypothesis import given
from hypothesis import strategies as st

from replicate.errors import CapabilityMissing
from replicate.layout import GenerationId
from replicate.log import LiveCommit, LogState
from replicate.plan import Choice, Decision, LocalFact, ObjectPlan, choose_part_size, plan_generations, plan_upload
from replicate.upload import Uploader
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore
from tiers.protocol import Capabilities
from tiers.testing import content

PREFIX = "llm-7b/generations/x.t1-n/"


def plan_one(size: int, can: Capabilities = MEMORY_CAPABILITIES, *, part_size: int | None = None) -> ObjectPlan:
    record = generation_record([sealed_bytes("w.bin", content(size))])
    return plan_upload(record, PREFIX, can, part_size=part_size).objects[0]


@pytest.mark.parametrize("size", [0, 1, LEAF - 1, LEAF])
def test_file_of_one_leaf_goes_in_one_request_with_its_seal(size: int) -> None:
    item = plan_one(size)
    assert (item.part_size, item.second_hash) == (0, False)
    assert [part.sha256 for part in item.parts] == [item.file.sha256]
    assert item.stored_sha256 == item.file.sha256


def test_parts_are_leaves_and_need_no_second_hash() -> None:
    item = plan_one(3 * LEAF + 1)
    assert (item.part_size, item.second_hash) == (LEAF, False)
    assert [part.sha256 for part in item.parts] == list(item.file.leaves)
    assert [(part.number, part.start, part.size) for part in item.parts] == [
        (1, 0, 64),
        (2, 64, 64),
        (3, 128, 64),
        (4, 192, 1),
    ]
    assert item.stored_sha256 == item.file.sha256


@pytest.mark.parametrize("part_size", [10, 100, 2 * LEAF])
def test_part_size_that_is_no_leaf_is_hashed_again(part_size: int) -> None:
    item = plan_one(3 * LEAF + 1, part_size=part_size)
    assert (item.part_size, item.second_hash) == (part_size, True)
    assert {part.sha256 for part in item.parts} == {None}
    assert item.stored_sha256 is None


def test_part_size_that_holds_the_whole_file_makes_one_request() -> None:
    item = plan_one(3 * LEAF, part_size=1000)
    assert (item.part_size, item.second_hash, len(item.parts)) == (0, True, 1)


def limits(**changes: int | bool) -> Capabilities:
    return replace(MEMORY_CAPABILITIES, **changes)  # type: ignore[arg-type]


def test_limits_of_the_tier_at_their_borders() -> None:
    assert plan_one(LEAF, limits(max_put=LEAF)).part_size == 0
    assert plan_one(LEAF, limits(max_put=LEAF - 1)).part_size == LEAF
    assert plan_one(10 * LEAF, limits(max_parts=10)).part_size == LEAF
    assert plan_one(10 * LEAF + 1, limits(max_parts=10)).part_size == 2 * LEAF
    assert plan_one(4 * LEAF, limits(min_part=LEAF)).second_hash is False
    assert plan_one(4 * LEAF, limits(min_part=LEAF + 1)).part_size == LEAF + 1
    assert plan_one(4 * LEAF, limits(max_part=LEAF - 1)).part_size == LEAF - 1
    assert plan_one(4 * LEAF, limits(max_object=4 * LEAF)).part_size == LEAF


@pytest.mark.parametrize(
    ("size", "can", "word"),
    [
        (4 * LEAF + 1, limits(max_object=4 * LEAF), "objects of at most 256"),
        (11 * 10, limits(max_parts=10, max_part=10, max_put=10), "10 parts of at most 10"),
        (LEAF, limits(multipart=False, max_put=LEAF - 1), "at most 63 in one request and no parts"),
    ],
)
def test_file_that_the_tier_cannot_hold_is_named(size: int, can: Capabilities, word: str) -> None:
    with pytest.raises(CapabilityMissing, match=r"w\.bin") as caught:
        plan_one(size, can)
    assert word in caught.value.message


def test_tier_without_parts_gets_whole_files() -> None:
    item = plan_one(5 * LEAF, limits(multipart=False))
    assert (item.part_size, len(item.parts), item.second_hash) == (0, 1, True)


def test_upload_of_a_single_part_is_reported_as_composite() -> None:
    """Stores give the digest over one digest, not the digest of the bytes."""
    item = plan_one(LEAF, limits(max_put=1))
    assert len(item.parts) == 1
    assert item.stored_sha256 == hashlib.sha256(bytes.fromhex(item.file.sha256)).hexdigest()


@given(
    size=st.integers(0, 5000),
    wanted=st.none() | st.integers(1, 600),
    min_part=st.integers(1, 100),
    max_part=st.integers(100, 700),
    max_parts=st.integers(1, 60),
    max_put=st.integers(1, 300),
)
def test_every_plan_fits_and_covers(
    size: int, wanted: int | None, min_part: int, max_part: int, max_parts: int, max_put: int
) -> None:
    """Whatever the tier's limits: within all of them and every byte once, or refused by name."""
    can = limits(min_part=min_part, max_part=max_part, max_parts=max_parts, max_put=max_put)
    try:
        item = plan_one(size, can, part_size=wanted)
    except CapabilityMissing:
        assert -(-size // max_part) > max_parts
        return
    position = 0
    for number, part in enumerate(item.parts, start=1):
        assert (part.number, part.start) == (number, position)
        position += part.size
    assert position == size
    if item.part_size == 0:
        assert size <= max_put
        return
    assert len(item.parts) <= max_parts
    assert item.part_size <= max_part
    assert all(part.size == item.part_size for part in item.parts[:-1])
    assert len(item.parts) == 1 or item.part_size >= min_part


def test_part_size_is_a_leaf_where_it_may_be() -> None:
    assert choose_part_size(sealed_bytes("f", content(1000)), MEMORY_CAPABILITIES, None) == LEAF


@pytest.mark.parametrize("can", [MEMORY_CAPABILITIES, READ_BACK])
@pytest.mark.parametrize("part_size", [None, 40])
def test_estimate_is_what_an_upload_asks_for(tmp_path: Path, can: Capabilities, part_size: int | None) -> None:
    """The cost model multiplies these counts by prices."""
    machine = Machine(tmp_path / "m", MemoryStore(), capabilities=can)
    source = make_source(tmp_path, {"empty": b"", "small": content(5), "big": content(300), "two": content(70)})
    plan = plan_upload(source.record, PREFIX, can, part_size=part_size)
    before = machine.meter.snapshot()
    Uploader(machine.tier, machine.tracker, connections=3, stop=machine.stop).upload(plan, source.origin, resumed=False)
    usage = machine.meter.snapshot() - before
    machine.tracker.close()
    assert usage.count() == plan.requests
    assert usage.sent() == plan.total_bytes == 375
    assert usage.bytes_down == (375 if can is READ_BACK else 0)


def line(
    *updates: int, quarantined: frozenset[int] = frozenset(), start: GenerationId | None = None
) -> list[LocalFact]:
    """Return generations that descend from each other, at these updates."""
    facts: list[LocalFact] = []
    parent = start
    for number, update in enumerate(updates, start=1 + (start.sequence if start else 0)):
        attempt = start.attempt + 1 if start else 1
        one = GenerationId(attempt, number, update, "0" * 8)
        facts.append(LocalFact(id=one, parent=parent, validated=True, quarantined=update in quarantined))
        parent = one
    return facts


def chosen(decisions: tuple[Decision, ...], choice: Choice = Choice.UPLOAD) -> list[int]:
    return [one.id.next_update for one in decisions if one.choice is choice]


def decide(
    facts: list[LocalFact],
    state: LogState | None = None,
    *,
    every: int | None = None,
    backlog: int | None = None,
    under_way: frozenset[GenerationId] = frozenset(),
) -> tuple[Decision, ...]:
    return plan_generations(facts, state, replicate_every=every, backlog=backlog, under_way=under_way)


def state_with(facts: list[LocalFact], pins: tuple[str, ...] = ()) -> LogState:
    live = tuple(
        LiveCommit(
            generation=str(fact.id),
            parent=None,
            slot=1,
            term=1,
            manifest_key="k",
            manifest_size=1,
            manifest_sha256="0" * 64,
            total_bytes=1,
            objects=1,
            at="",
        )
        for fact in facts
    )
    return LogState(run_uid=RUN_UID, term=1, writer="", claim_nonce="", live=live, pins=pins)


def test_milestones_of_the_docs() -> None:
    """Saving every 300 with milestones of 2,500."""
    facts = line(*range(300, 8000, 300))
    assert chosen(decide(facts, every=2500)) == [7500, 5100, 2700]
    assert len(chosen(decide(facts, every=2500), Choice.NOT_A_MILESTONE)) == 23


def test_milestones_are_decided_from_descent_so_that_rotation_changes_nothing() -> None:
    facts = line(*range(300, 8000, 300))
    assert chosen(decide(facts[-3:], every=2500)) == [7500]
    assert chosen(decide(facts[8:10], every=2500)) == [2700]


def test_milestone_after_a_rollback() -> None:
    """A new line that passes a multiple again has its own milestone; one that has not yet, has none."""
    first = line(300, 2400, 2700, 3000)
    second = line(2400 + 200, 2900, start=first[1].id)
    assert chosen(decide([*first, *second], every=2500)) == [2600, 2700]
    third = line(900, 1200, start=first[0].id)
    assert chosen(decide([*first, *third], every=2500)) == [2700]


def test_quarantined_milestone_passes_to_the_next_one() -> None:
    facts = line(2400, 2700, 3000, 3300, quarantined=frozenset({2700}))
    assert chosen(decide(facts, every=2500)) == [3000]
    assert chosen(decide(facts, every=2500), Choice.QUARANTINED) == [2700]
    both = line(2400, 2700, 3000, 3300, quarantined=frozenset({2700, 3000}))
    assert chosen(decide(both, every=2500)) == [3300]


def test_first_generation_of_a_run_is_a_milestone_only_past_the_first_multiple() -> None:
    assert chosen(decide(line(300), every=2500)) == []
    assert chosen(decide(line(2500), every=2500)) == [2500]
    assert chosen(decide(line(9000), every=2500)) == [9000]


def test_newest_first_and_under_way_before_it() -> None:
    facts = line(300, 600, 900)
    assert chosen(decide(facts)) == [900, 600, 300]
    assert chosen(decide(facts, under_way=frozenset({facts[0].id}))) == [300, 900, 600]


def test_newest_is_by_attempt_not_by_update() -> None:
    first = line(300, 600)
    assert chosen(decide([*line(400, start=first[0].id), *first])) == [400, 600, 300]


def test_backlog_drops_the_oldest_that_wait() -> None:
    facts = line(300, 600, 900, 1200)
    decisions = decide(facts, backlog=2)
    assert chosen(decisions) == [1200, 900]
    assert chosen(decisions, Choice.SUPERSEDED) == [600, 300]
    assert all(one.reason for one in decisions)


def test_under_way_is_never_dropped_and_takes_no_place() -> None:
    facts = line(300, 600, 900, 1200)
    decisions = decide(facts, backlog=1, under_way=frozenset({facts[0].id}))
    assert chosen(decisions) == [300, 1200]
    assert chosen(decisions, Choice.SUPERSEDED) == [900, 600]


def test_pins_and_milestones_are_never_dropped() -> None:
    facts = line(300, 600, 900, 1200)
    pinned = state_with([], pins=(str(facts[0].id),))
    assert chosen(decide(facts, pinned, backlog=1)) == [1200, 300]
    long = line(*range(300, 12_900, 300))
    assert len(chosen(decide(long, every=2500, backlog=1))) == 5


def test_what_the_log_has_is_committed_whatever_else_is_true_of_it() -> None:
    facts = line(300, 600, quarantined=frozenset({600}))
    decisions = decide(facts, state_with(facts))
    assert chosen(decisions, Choice.COMMITTED) == [600, 300]


def test_only_validated_generations_go_up() -> None:
    facts = [replace(fact, validated=False) for fact in line(300)]
    assert chosen(decide(facts), Choice.NOT_VALIDATED) == [300]


def test_remote_layout_of_a_plan() -> None:
    """Keys lie under the prefix, in the trainer's tree."""
    record = generation_record([sealed_bytes("sub/a b.pt", b"x")])
    prefix = REMOTE.prefix(record.generation, 3, "n")
    plan = plan_upload(record, prefix, MEMORY_CAPABILITIES)
    assert plan.objects[0].key == f"{prefix}files/sub/a%20b.pt"
