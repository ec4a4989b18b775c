"""What is copied instead of sent, from values alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from core.builders import LEAF, generation_record, sealed_bytes

from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogState
from replicate.manifest import GenerationRecord, SealedFile
from replicate.plan import CopySource, UploadPlan, plan_upload
from replicate.requests import Held, data_requests
from replicate.reuse import NOTHING, USUAL, Begun, Least, Stock, reusing, source_commit
from tiers.memory import MEMORY_CAPABILITIES
from tiers.protocol import Capabilities, Key
from tiers.testing import content

PARTS = replace(MEMORY_CAPABILITIES, copy=False)
"""As SeaweedFS and AWS are: parts can be copied and proved, whole objects not."""
ALL = Least(part=1, alone=1)
PREFIX = RemoteRun.of("llm-7b").prefix(GenerationId(1, 2, 600, "0" * 8), 1, "0" * 16)


def stock(*files: SealedFile, least: Least = ALL) -> Stock:
    keys = {file.path: Key(f"old/{file.path}") for file in files}
    return Stock.of("a1-g1", files, keys, least)


def planned(
    record: GenerationRecord,
    held: Stock,
    can: Capabilities = MEMORY_CAPABILITIES,
    *,
    least: Least = ALL,
    part_size: int | None = None,
    begun: Begun | None = None,
) -> UploadPlan:
    return reusing(plan_upload(record, PREFIX, can, part_size=part_size), held, can, begun, least)


def sources(plan: UploadPlan) -> Mapping[str, list[CopySource | None]]:
    return {item.path: [part.source for part in item.parts] for item in plan.objects}


def old(path: str, start: int = 0) -> CopySource:
    return CopySource(key=Key(f"old/{path}"), start=start)


A, B, C, D = (content(LEAF, seed=seed) for seed in (1, 2, 3, 4))


def test_leaves_are_found_wherever_they_stood() -> None:
    """In another file, at another place, under another name; the changed one is sent."""
    before = [sealed_bytes("model.bin", A + B + C[:9])]
    record = generation_record([sealed_bytes("renamed.bin", C + B + A), sealed_bytes("model.bin", A + C + C[:9])])
    assert sources(planned(record, stock(*before))) == {
        "renamed.bin": [None, old("model.bin", LEAF), old("model.bin")],
        "model.bin": [old("model.bin"), None, old("model.bin", 2 * LEAF)],
    }


def test_a_short_leaf_is_another_than_a_long_one() -> None:
    """Digests are of bytes, and a tail that another leaf begins with is not that leaf."""
    record = generation_record([sealed_bytes("m", A + B[:9])])
    assert sources(planned(record, stock(sealed_bytes("m", A + B)))) == {"m": [old("m"), None]}


def test_a_whole_file_is_copied_in_one_request_where_the_tier_can() -> None:
    record = generation_record([sealed_bytes("b", A), sealed_bytes("c", C)])
    plan = planned(record, stock(sealed_bytes("a", A)))
    assert sources(plan) == {"b": [old("a")], "c": [None]}
    assert [item.part_size for item in plan.objects] == [0, 0]


def test_else_it_is_copied_as_an_upload_of_one_part() -> None:
    record = generation_record([sealed_bytes("b", A[:40]), sealed_bytes("c", C)])
    plan = planned(record, stock(sealed_bytes("a", A[:40])), PARTS)
    assert sources(plan) == {"b": [old("a")], "c": [None]}
    assert [item.part_size for item in plan.objects] == [LEAF, 0]
    assert plan.objects[0].stored_sha256 != plan.objects[0].file.sha256, "a store reports the digest over one part's"


def test_an_upload_of_one_part_has_to_fit_the_tier() -> None:
    """Its part size is the leaf size, so that the manifest's digests are the sealed ones."""
    held, record = stock(sealed_bytes("a", A[:40])), generation_record([sealed_bytes("a", A[:40])])
    assert sources(planned(record, held, replace(PARTS, max_part=LEAF - 1))) == {"a": [None]}
    assert sources(planned(record, held, replace(PARTS, max_part=LEAF))) == {"a": [old("a")]}


def test_a_single_leaf_may_stand_inside_a_larger_object() -> None:
    """Only a part can be cut out of it: ``copy`` takes whole objects."""
    held = stock(sealed_bytes("big", B + A))
    record = generation_record([sealed_bytes("small", A)])
    whole = planned(record, held, replace(MEMORY_CAPABILITIES, copy_part=False))
    assert sources(whole) == {"small": [None]}
    assert sources(planned(record, held)) == {"small": [old("big", LEAF)]}


@pytest.mark.parametrize("can", [replace(PARTS, copy_part=False), replace(PARTS, multipart=False, copy_part=False)])
def test_a_tier_that_cannot_gets_everything_sent(can: Capabilities) -> None:
    files = [sealed_bytes("m", A + B)]
    if not can.multipart:
        files = [sealed_bytes("m", A)]
    plan = planned(generation_record(files), stock(*files), can)
    assert plan.sources == frozenset()
    assert plan == plan_upload(generation_record(files), PREFIX, can)


def test_parts_that_are_no_leaves_are_found_in_one_piece() -> None:
    """A part of two leaves, of half a leaf, and of an unchanged file whose leaves repeat."""
    twice = sealed_bytes("twice", A + A + A)
    record = generation_record([sealed_bytes("m", A + B + C + A), twice])
    plan = planned(record, stock(sealed_bytes("m", A + B + B + A), twice), part_size=2 * LEAF)
    assert sources(plan) == {"m": [old("m"), None], "twice": [old("twice"), old("twice", 2 * LEAF)]}
    assert all(item.second_hash for item in plan.objects), "what is copied is compared with what the files are now"
    halves = planned(record, stock(sealed_bytes("m", A + B + B + A)), part_size=LEAF // 2)
    starts = (0, 32, 64, 96, None, None, 0, 32)
    assert sources(halves)["m"] == [None if start is None else old("m", start) for start in starts]


def test_two_leaves_that_stand_apart_are_no_source_of_one_part() -> None:
    plan = planned(
        generation_record([sealed_bytes("m", A + B)]),
        stock(sealed_bytes("a", A + C), sealed_bytes("b", C + B)),
        part_size=2 * LEAF,
    )
    assert sources(plan)["m"] == [None]


def test_what_is_small_is_sent() -> None:
    """A copy is a request too; the index does not even hold it."""
    least = Least(part=LEAF, alone=LEAF + 1)
    files = [sealed_bytes("m", A + B[: LEAF - 1]), sealed_bytes("tiny", C[:5]), sealed_bytes("one", C)]
    held = stock(*files, least=least)
    assert set(held.files.values()) == {Key("old/m"), Key("old/one")}
    assert len(held.leaves) == 2
    record = generation_record(files)
    assert sources(planned(record, held, least=least)) == {"m": [old("m"), None], "tiny": [None], "one": [old("one")]}
    assert sources(planned(record, held, PARTS, least=least))["one"] == [None], "two requests more are not worth it"
    assert USUAL.part == 1 << 20


def test_what_an_interrupted_upload_settled_stays() -> None:
    """The manifest's bytes follow from the plan: a repeat that finds another stock must write the same."""
    files = [sealed_bytes("parts", A), sealed_bytes("one", B), sealed_bytes("open", C)]
    record = generation_record(files)
    begun = Begun(in_parts={"parts"}, verified={"parts", "one"})
    shapes = {"parts": LEAF, "one": 0}
    for held in (NOTHING, stock(*files)):
        plan = planned(record, held, PARTS, begun=begun)
        found = {item.path: item.part_size for item in plan.objects}
        assert {path: found[path] for path in shapes} == shapes
    assert found["open"] == LEAF, "what is not settled goes the cheaper way"


def test_requests_and_bytes_follow_from_the_plan() -> None:
    before = [sealed_bytes("m", A + B + C), sealed_bytes("t", A)]
    record = generation_record([sealed_bytes("m", A + D + C), sealed_bytes("t", A), sealed_bytes("u", B[:20])])
    plan = planned(record, stock(*before))
    assert plan.copied_bytes == 3 * LEAF
    asked = data_requests(plan)
    assert asked.count == plan.requests
    assert asked.up == LEAF + 20
    assert {one.verb: one.count for one in asked.asked} == {
        "stat": 2, "copy": 1, "put": 1, "begin_upload": 1, "copy_part": 2, "put_part": 1, "complete": 1
    }  # fmt: skip
    held = {"m": Held(upload=True, accepted=frozenset({1, 3})), "t": Held(complete=True), "u": Held()}
    resumed = data_requests(plan, held)
    assert {one.verb: one.count for one in resumed.asked if one.outcome == "ok"} == {
        "stat": 1, "put": 1, "list_parts": 1, "put_part": 1, "complete": 1
    }  # fmt: skip


def commit(record: GenerationRecord, slot: int) -> LiveCommit:
    return LiveCommit(
        generation=record.id, parent=record.parent, slot=slot, term=1, manifest_key=f"k{slot}", manifest_size=1,
        manifest_sha256="0" * 64, total_bytes=1, objects=1, at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip


def test_the_parent_is_compared_with_or_else_the_newest_that_stands() -> None:
    files = [sealed_bytes("m", A)]
    first = generation_record(files)
    second = generation_record([sealed_bytes("m", B)], sequence=2, parent=first.generation)
    third = generation_record([sealed_bytes("m", C)], sequence=3, parent=second.generation)
    state = LogState(
        run_uid="uid", term=1, writer="w", claim_nonce="0" * 16, live=(commit(first, 1), commit(second, 2))
    )

    def chosen(record: GenerationRecord, hurt: set[str] | None = None, state: LogState | None = state) -> str | None:
        found = source_commit(state, record, hurt or set())
        return found.generation if found else None

    assert chosen(third) == second.id
    branch = generation_record([sealed_bytes("m", C)], sequence=3, parent=first.generation)
    assert chosen(branch) == first.id, "a branch is compared with what it went on from"
    assert chosen(third, {second.id}) == first.id, "what is known to be hurt is not copied"
    assert chosen(second, {first.id}) is None, "nor what it takes the place of"
    assert chosen(third, state=None) is None
    retired = state.without(state.live[1])
    assert chosen(third, state=retired) == first.id


def test_an_index_takes_no_room_for_what_it_cannot_use(tmp_path: Path) -> None:
    files = [sealed_bytes(f"f{n:05d}", content(10, seed=n)) for n in range(200)]
    assert stock(*files, least=USUAL) == replace(NOTHING, generation="a1-g1")
