"""What rounds amount to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from benchmarks.sidebyside.figures import (
    Figure,
    Finding,
    Spread,
    Verdict,
    disagreements,
    fastest,
    ratio,
    verdict,
    worst,
)
from benchmarks.sidebyside.peers import BOTO3_SHA256, BOTO3_UNSIGNED, DOWN, OBSTORE, UP
from benchmarks.sidebyside.running import OURS, SEALING, Cell, Results
from benchmarks.sidebyside.targets.beside import Beside, beside_findings
from benchmarks.sidebyside.targets.killing import Killed, kill_findings
from benchmarks.sidebyside.targets.links import LinkFigures, link_findings
from benchmarks.sidebyside.targets.transfers import memory, restores, sealing, uploads
from benchmarks.sidebyside.workloads import ONE

GIB = 1 << 30
WORKLOAD = replace(ONE, size=GIB)


def figure(wall: float, cpu: float = 0.1, peak: float = 50.0) -> Figure:
    return Figure(wall=wall + 1, cpu=cpu + 1, peak_mib=peak, operation_wall=wall, operation_cpu=cpu)


def results(**cells: list[Figure]) -> Results:
    """Cells are named server_action_client, with the client's dashes left out."""
    found = Results()
    names = {"ours": OURS, "unsigned": BOTO3_UNSIGNED.name, "sha": BOTO3_SHA256.name, "obstore": OBSTORE.name}
    for name, figures in cells.items():
        server, action, client = name.split("_")
        found.workloads[f"{server}/one"] = WORKLOAD
        found.figures[Cell(server, "one", action, names[client])] = figures
    return found


def test_an_operation_is_compared_where_a_client_tells_it() -> None:
    assert figure(2.0).compared_wall == 2.0
    assert Figure(wall=3.0, cpu=1.0, peak_mib=1.0).compared_wall == 3.0
    assert Figure(wall=3.0, cpu=1.0, peak_mib=1.0).compared_cpu == 1.0


def test_a_ratio_is_that_of_the_rounds_and_not_of_the_medians() -> None:
    """A round that was slow for both says nothing of either."""
    assert ratio([1.0, 10.0, 2.0], [2.0, 20.0, 4.0]) == 0.5
    assert ratio([1.0, 30.0, 3.0], [1.0, 10.0, 9.0]) == 1.0


@given(some.lists(some.floats(0.01, 100), min_size=1, max_size=7))
def test_a_median_lies_between_both_ends(values: list[float]) -> None:
    found = Spread.of(values)
    assert found.low <= found.median <= found.high
    assert ratio(values, values) == 1.0


def test_the_fastest_is_the_one_of_the_lowest_median() -> None:
    assert fastest({"a": [3.0, 1.0, 3.0], "b": [2.0, 2.0, 9.0], "c": []}) == "b"
    assert fastest({"a": []}) is None


@pytest.mark.parametrize(
    ("value", "bound", "at_least", "expected"),
    [
        (1.0, 1.0, False, Verdict.MET),
        (1.01, 1.0, False, Verdict.MISSED),
        (0.97, 0.97, True, Verdict.MET),
        (0.96, 0.97, True, Verdict.MISSED),
        (0.0, 0, False, Verdict.MET),
        (None, 1.0, False, Verdict.UNMEASURED),
    ],
)
def test_a_verdict(value: float | None, bound: float, at_least: bool, expected: Verdict) -> None:
    assert verdict(value, bound, at_least=at_least) is expected


def test_one_miss_of_several_is_a_miss() -> None:
    assert worst([Verdict.MET, Verdict.UNMEASURED, Verdict.MISSED]) is Verdict.MISSED
    assert worst([Verdict.MET, Verdict.UNMEASURED]) is Verdict.UNMEASURED
    assert worst([Verdict.MET]) is Verdict.MET
    assert worst([]) is Verdict.UNMEASURED


def test_two_runs_are_compared_by_verdict_alone() -> None:
    def run(**verdicts: str) -> list[dict[str, str]]:
        return [{"target": target, "verdict": found, "shown": "any"} for target, found in verdicts.items()]

    assert disagreements(run(a="met", b="MISSED"), run(b="MISSED", a="met")) == []
    assert disagreements(run(a="met", b="met"), run(a="MISSED", c="met")) == [
        "a: met, then MISSED",
        "b: met, then absent",
        "c: absent, then met",
    ]


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {one.target.rpartition(", ")[2]: one.verdict for one in findings}


def test_uploads_are_held_against_who_verifies_nothing_on_the_sink() -> None:
    found = results(
        sink_up_ours=[figure(1.0, 0.3)],
        sink_up_unsigned=[figure(1.1, 0.7)],
        sink_up_sha=[figure(0.5, 0.9)],  # faster, but it verifies
    )
    assert [one.verdict for one in uploads(found, ["one"])] == [Verdict.MET] * 3
    found.figures[Cell("sink", "one", UP, OURS)] = [figure(1.2, 0.36)]
    assert [one.verdict for one in uploads(found, ["one"])] == [Verdict.MISSED] * 3


def test_uploads_are_held_against_the_same_check_on_a_real_server() -> None:
    found = results(
        seaweedfs_up_ours=[figure(1.04)], seaweedfs_up_unsigned=[figure(0.5)], seaweedfs_up_sha=[figure(1.0)]
    )
    (one,) = uploads(found, ["one"])
    assert one.verdict is Verdict.MET
    assert one.beside == "1.04 against 1.00 s (boto3-sha256)"
    found.figures[Cell("seaweedfs", "one", UP, OURS)] = [figure(1.06)]
    assert uploads(found, ["one"])[0].verdict is Verdict.MISSED


def test_who_fails_in_one_round_has_missed() -> None:
    found = results(sink_up_ours=[figure(0.1, 0.01)], sink_up_unsigned=[figure(1.0), figure(1.0)])
    found.failures[Cell("sink", "one", UP, OURS)] = "exit 1: in /somewhere/else"
    assert {(one.verdict, one.shown, one.beside) for one in uploads(found, ["one"])} == {
        (Verdict.MISSED, "failed", "exit 1: in …")
    }


def test_a_target_without_a_peer_is_not_met() -> None:
    found = uploads(results(sink_up_ours=[figure(1.0, 0.1)]), ["one"])
    assert [one.verdict for one in found] == [Verdict.UNMEASURED, Verdict.UNMEASURED, Verdict.MET]


def test_restores_are_held_against_the_fastest_download() -> None:
    found = results(
        sink_down_ours=[figure(1.0, 1.19)], sink_down_unsigned=[figure(1.5, 2.0)], sink_down_obstore=[figure(1.0, 1.0)]
    )
    assert [one.verdict for one in restores(found, ["one"])] == [Verdict.MET, Verdict.MET]
    found.figures[Cell("sink", "one", DOWN, OURS)] = [figure(1.1, 1.3)]
    assert [one.verdict for one in restores(found, ["one"])] == [Verdict.MISSED, Verdict.MISSED]


def test_sealing_is_held_against_the_hash() -> None:
    found = Results(workloads={"memory/one": WORKLOAD})
    found.figures[Cell("memory", "one", "seal", SEALING)] = [figure(1.0)]
    found.figures[Cell("memory", "one", "seal", "hash")] = [figure(0.91)]
    (one,) = sealing(found, ["one"])
    assert (one.verdict, one.beside) == (Verdict.MET, "1.00 of 1.10 GiB/s")
    found.figures[Cell("memory", "one", "seal", "hash")] = [figure(0.8)]
    assert sealing(found, ["one"])[0].verdict is Verdict.MISSED


def test_the_peak_is_that_of_ours_and_of_no_peer() -> None:
    found = results(sink_up_ours=[figure(1.0, peak=199.0)], sink_up_obstore=[figure(1.0, peak=900.0)])
    assert memory(found).verdict is Verdict.MET
    found.figures[Cell("sink", "one", UP, OURS)].append(figure(1.0, peak=201.0))
    assert memory(found).verdict is Verdict.MISSED


def test_a_link_is_held_against_both_ways_and_the_round_trips() -> None:
    figures = LinkFigures(100e6, {(OURS, UP): [0.98], (OURS, DOWN): [0.96], ("obstore", UP): [0.5]}, [5.9])
    found = link_findings(figures)
    assert [one.verdict for one in found] == [Verdict.MET, Verdict.MISSED, Verdict.MET]
    assert found[0].beside == "obstore 50.0%"


def test_the_daemon_is_idle_only_if_it_asks_nothing() -> None:
    quiet = Beside(share=0.04, idle_requests=0, idle_core=0.001, idle_mib=100.0, idle_seconds=20.0)
    assert [one.verdict for one in beside_findings(quiet)] == [Verdict.MET, Verdict.MET]
    assert beside_findings(replace(quiet, idle_requests=1))[1].verdict is Verdict.MISSED
    assert beside_findings(replace(quiet, idle_mib=121.0))[1].verdict is Verdict.MISSED
    assert beside_findings(replace(quiet, share=0.05))[0].verdict is Verdict.MISSED


def test_a_killed_upload_may_send_what_was_in_flight() -> None:
    assert kill_findings(Killed(again=10, flying=10, total=100))[0].verdict is Verdict.MET
    assert kill_findings(Killed(again=11, flying=10, total=100))[0].verdict is Verdict.MISSED
