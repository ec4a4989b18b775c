"""The side by side from end to end, with very few bytes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.sidebyside import reporting
from benchmarks.sidebyside.figures import Verdict
from benchmarks.sidebyside.peers import BOTO3_UNSIGNED, DOWN, S5CMD, UP
from benchmarks.sidebyside.phases import Run
from benchmarks.sidebyside.running import OURS, Cell
from benchmarks.sidebyside.settings import Settings
from benchmarks.sidebyside.workloads import MIB, ONE


def test_a_small_run_measures_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    place.mkdir()
    absent = replace(S5CMD, needs=tmp_path / "nowhere")
    settings = replace(
        Settings.of(only=("sink",), quick=True, place=place, disk=place),
        workloads=(replace(ONE, size=8 * MIB),),
        peers=(BOTO3_UNSIGNED, absent),
    )
    said: list[str] = []
    run = Run(settings, say=said.append)
    run.measure()
    assert "failed" not in run.details, said
    for action in (UP, DOWN):
        for client in (OURS, BOTO3_UNSIGNED.name):
            (figure,) = run.results.figures[Cell("sink", "one", action, client)]
            assert 0 < figure.compared_wall < figure.wall
            assert 0 < figure.compared_cpu < figure.cpu
            assert figure.peak_mib > 10
        assert run.results.failures == {Cell("sink", "one", way, S5CMD.name): "not installed" for way in (UP, DOWN)}
    assert not any(place.iterdir())

    monkeypatch.setattr(reporting, "LAST", tmp_path / "last.json")
    first = reporting.report(run, write=tmp_path, same_as=None, partial=False)
    again = reporting.report(run, write=tmp_path, same_as=None, partial=False)
    assert json.loads((tmp_path / "last.json").read_text(encoding="utf-8")) == again
    assert first["findings"] == again["findings"]
    text = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "came to the same verdicts" in text
    assert "not installed" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "benchmarks.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_phase_that_fails_is_told_and_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def fails(*_args: object) -> None:
        raise RuntimeError("no server")

    monkeypatch.setattr("benchmarks.sidebyside.phases.PHASES", {"one": fails, "two": lambda *_args: ran.append("two")})
    run = Run(Settings.of(only=("one", "two"), quick=True, place=tmp_path, disk=tmp_path), say=ran.append)
    run.measure()
    assert "two" in ran
    assert run.details["failed"] == {"one": "no server"}
    told = run.findings()[-1]
    assert (told.target, told.verdict, told.beside) == ("phase one", Verdict.UNMEASURED, "no server")
