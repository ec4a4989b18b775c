"""What is written: everything that was measured, what was written by hand, no place of this machine."""

from pathlib import Path

from benchmarks.sidebyside.document import whole
from benchmarks.sidebyside.facts import machine, medium, without_paths
from benchmarks.sidebyside.figures import Figure, Finding, Verdict
from benchmarks.sidebyside.peers import BOTO3_DEFAULT, DOWN, S5CMD, UP
from benchmarks.sidebyside.running import OURS, SEALING, Cell, Results
from benchmarks.sidebyside.workloads import ONE, SIXTEEN
from benchmarks.sidebyside.writing import FSYNC, MISSES, MISSES_END, rows_of, tables, terminal

FIGURE = Figure(wall=3.0, cpu=2.5, peak_mib=60.0, operation_wall=2.0, operation_cpu=1.5)
FINDING = Finding(target="upload", bound="at most 1", shown="0.9", verdict=Verdict.MET)
WHY = "exit 1: no such file /home/somebody/bench/place/file.bin"


def measured() -> Results:
    found = Results(workloads={"memory/one": ONE, "sink/one": ONE, "seaweedfs/sixteen": SIXTEEN})
    for server, workload in (("sink", "one"), ("seaweedfs", "sixteen")):
        for action in (UP, DOWN):
            found.figures[Cell(server, workload, action, OURS)] = [FIGURE] * 3
            found.figures[Cell(server, workload, action, S5CMD.name)] = [FIGURE]
    found.figures[Cell("memory", "one", "seal", SEALING)] = [FIGURE] * 3
    found.failures[Cell("sink", "one", UP, BOTO3_DEFAULT.name)] = WHY
    return found


def written(before: str = "") -> str:
    facts = {"cores": "2"}
    return whole(measured(), [FINDING], facts=facts, versions={"boto3": "1"}, before=before, repeated="Said twice.")


def test_all_of_it_is_there() -> None:
    text = written()
    for expected in (
        "| upload | at most 1 | 0.9 | met |",
        "Said twice.",
        "### Raw sink, 1",
        "### SeaweedFS, 16",
        "boto3 1",
    ):
        assert expected in text


def test_what_was_written_by_hand_is_kept() -> None:
    mine = "\nThe link is missed by 2 %, because of this.\n\n- tried: that\n"
    first = written()
    changed = first.replace(first.partition(MISSES)[2].partition(MISSES_END)[0], mine)
    assert mine in changed
    again = written(changed)
    assert f"{MISSES}{mine}{MISSES_END}" in again
    assert again == written(again)


def test_ours_is_there_twice_and_sealing_is_added() -> None:
    rows = rows_of(measured(), "sink", "one")
    assert [row.client for row in rows[:2]] == ["ckptier", "ckptier, sealing too"]
    assert rows[0].up == "2.00 (2.00-2.00)"
    assert rows[1].up == "4.00 (4.00-4.00)"
    assert [row.client for row in rows_of(measured(), "seaweedfs", "sixteen")] == ["ckptier", "s5cmd"]


def test_the_disk_s_table_says_who_fsyncs_and_has_no_uploads() -> None:
    found = Results(workloads={"disk/one": ONE})
    for client in (OURS, "ckptier, no fsync", S5CMD.name, f"{S5CMD.name}{FSYNC}"):
        found.figures[Cell("disk", "one", DOWN, client)] = [FIGURE]
    proofs = {row.client: row.down_proof for row in rows_of(found, "disk", "one")}
    fsyncs = {client for client, proof in proofs.items() if "fsync" in proof}
    assert fsyncs == {OURS, f"{S5CMD.name}{FSYNC}"}
    assert "up: wall" not in tables(found)
    assert "down: wall" in tables(found)


def test_who_failed_is_shown_and_says_why_without_a_path() -> None:
    row = next(row for row in rows_of(measured(), "sink", "one") if row.client == BOTO3_DEFAULT.name)
    assert row.up == "failed"
    text = written()
    assert "boto3-default, sink, one up: exit 1: no such file …" in text
    assert "/home" not in text


def test_the_terminal_has_the_targets_too() -> None:
    text = terminal(measured(), [FINDING])
    assert "upload" in text.splitlines()[-1]
    assert max(map(len, text.splitlines())) <= 100


def test_facts_name_no_place() -> None:
    said = " ".join(machine().values())
    assert without_paths(said) == said
    assert medium(Path("/proc/self")) == "proc"
