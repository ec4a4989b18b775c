"""Waivers: an answer counts for what it names, while it lasts, and never for what nobody can answer for."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from release.scan_stage import NOW, Stage, found, normal, only

from replicate.release.documents import decode, encode
from replicate.release.findings import Rule, ScanReport, Waiver
from replicate.release.scan.hits import MAX_OF_A_KIND

SHARD = "model-00002-of-00002.safetensors"


def waiver(rule: Rule, path: str, place: str = "", *, days: int = 30) -> Waiver:
    return Waiver(
        rule=rule,
        path=path,
        place=place,
        reason="a mask that is infinite by design",
        author="approver-1",
        expires=NOW + timedelta(days=days),
    )


@pytest.fixture
def masked(tmp_path: Path) -> Stage:
    """Return a release with two tensors that hold infinities on purpose."""
    stage = Stage(tmp_path)
    for name in ("mask", "other_mask"):
        stage.shards[SHARD][name] = np.array([0, -np.inf], np.float32)
    return stage


def test_a_waiver_answers_for_a_place(masked: Stage) -> None:
    report = masked.scan(waivers=(waiver(Rule.TENSOR_NOT_FINITE, SHARD, "mask"),))
    assert found(report) == {(Rule.TENSOR_NOT_FINITE.value, SHARD, "other_mask")}
    assert [finding.place for finding in report.waived] == ["mask"]
    assert report.waivers[0].author == "approver-1"


def test_a_waiver_without_a_place_answers_for_a_file(masked: Stage) -> None:
    report = masked.scan(waivers=(waiver(Rule.TENSOR_NOT_FINITE, SHARD),))
    assert report.blocking == ()
    assert [finding.place for finding in report.waived] == ["mask", "other_mask"]
    assert decode(ScanReport, encode(report), what="report") == report


@pytest.mark.parametrize(
    "wrong",
    [
        waiver(Rule.TENSOR_CONSTANT, SHARD),
        waiver(Rule.TENSOR_NOT_FINITE, "model-00001-of-00002.safetensors"),
        waiver(Rule.TENSOR_NOT_FINITE, SHARD, "masks"),
    ],
    ids=["rule", "path", "place"],
)
def test_a_waiver_that_answers_for_nothing_blocks(masked: Stage, wrong: Waiver) -> None:
    report = masked.scan(waivers=(wrong,))
    assert (wrong.rule.value, wrong.path, wrong.place) in found(report)
    assert any("answers for nothing" in finding.detail for finding in report.blocking)
    assert len(found(report, Rule.TENSOR_NOT_FINITE)) >= 2


def test_an_expired_waiver_blocks_and_is_named(masked: Stage) -> None:
    report = masked.scan(waivers=(waiver(Rule.TENSOR_NOT_FINITE, SHARD, days=0),))
    assert len(report.blocking) == 2
    assert all("expired" in one.detail and "approver-1" in one.detail for one in report.blocking)
    assert all(NOW.isoformat() in one.detail for one in report.blocking)


def test_one_that_lasts_counts_beside_one_that_has_expired(masked: Stage) -> None:
    both = tuple(waiver(Rule.TENSOR_NOT_FINITE, SHARD, days=days) for days in (0, 1))
    assert masked.scan(waivers=both).blocking == ()


def test_a_waiver_ends_at_its_time(masked: Stage) -> None:
    given = (waiver(Rule.TENSOR_NOT_FINITE, SHARD, days=1),)
    assert masked.scan(waivers=given, now=NOW + timedelta(days=1, seconds=-1)).blocking == ()
    assert len(masked.scan(waivers=given, now=NOW + timedelta(days=1)).blocking) == 2


NEVER = {
    "optimizer.pt": (b"1", Rule.TRAINING_STATE),
    "model.bin": (b"1", Rule.PICKLE),
    "modeling.py": (b"1", Rule.CODE_FILE),
    "data.dat": (b"1", Rule.FILE_NOT_ALLOWED),
    "special_tokens_map.json": (b'{"a": "' + b"ghp" + b"_" + b"aB3" * 12 + b'"}', Rule.SECRET),
}


@pytest.mark.parametrize("name", sorted(NEVER))
def test_nobody_can_answer_for_it(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    content, rule = NEVER[name]
    stage.files[name] = content
    report = stage.scan(waivers=(waiver(rule, name),))
    assert report.waived == ()
    named = [finding for finding in report.blocking if finding.rule is rule]
    assert named
    assert all("cannot be waived" in finding.detail and "approver-1" in finding.detail for finding in named)


def test_links_and_containers_can_never_be_waived(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    (stage.tree / "NOTICE").symlink_to("LICENSE")
    (stage.tree / SHARD).write_bytes(b"")
    given = (waiver(Rule.LINK_OR_DEVICE, "NOTICE"), waiver(Rule.CONTAINER, SHARD))
    report = stage.scan(write=False, manifest=manifest, waivers=given)
    assert report.waived == ()
    assert {(Rule.LINK_OR_DEVICE.value, "NOTICE", ""), (Rule.CONTAINER.value, SHARD, "")} <= found(report)


def test_what_only_looks_like_a_secret_can_be(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.edit("config.json", note="kQ7zW2xV9bN4mL1pR8sT5uY3aC6dE0fG")
    finding = only(stage.scan())
    assert finding.rule is Rule.SECRET
    assert stage.scan(waivers=(waiver(Rule.SECRET, "config.json", finding.place),)).blocking == ()


def test_many_findings_of_a_kind_are_counted_in_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for number in range(MAX_OF_A_KIND + 7):
        stage.shards[SHARD][f"layers.{number}.mask"] = np.array([number, -np.inf], np.float32)
    report = stage.scan()
    assert len(report.blocking) == MAX_OF_A_KIND + 1
    assert [finding.detail for finding in report.blocking if finding.place == "more"] == ["7 more of this kind"]
    assert stage.scan(waivers=(waiver(Rule.TENSOR_NOT_FINITE, SHARD),)).blocking == ()


def test_waivers_do_not_change_what_was_found(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards[SHARD]["b"] = np.zeros((2, 2), np.float32)
    stage.shards[SHARD]["a"] = normal(1, 2) * np.nan
    plain = stage.scan()
    waived = stage.scan(waivers=(waiver(Rule.TENSOR_CONSTANT, SHARD),))
    assert sorted(one.detail for one in (*waived.blocking, *waived.waived)) == sorted(
        one.detail for one in plain.blocking
    )
