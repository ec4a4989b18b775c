"""What a rehearsal comes to, whatever the user's function does; and what of it is evidence."""

import json
from pathlib import Path

import pytest
from cli.driver import Project
from rehearsing.rehearsals import Stage, alive, configure, expected, staged
from support.commits import tree

from replicate.causal import first_difference
from replicate.config import load_config
from replicate.errors import ConfigInvalid, ExitCode, IntegrityFailure, UsageError
from replicate.generation.evidence import Level
from replicate.generation.proofs import Proof, record_proof
from replicate.rehearsing.observations import compare_observations, read_expected


def test_one_that_goes_well_is_evidence_of_that_copy(stage: Stage) -> None:
    """Also: fresh objects each time, and nothing left behind."""
    before = tree(stage.project.folder / "vol")
    done = stage.command()
    assert done.code == 0, done
    done.says(f"{stage.generation} from vol: rehearsed", "loss: 2.5", "the newest committed, and vol is the first")
    assert stage.level() is Level.REHEARSED
    record = stage.record()
    assert record is not None
    assert record.passed is not None
    assert record.passed.observed == {
        "loss": 2.5,
        "batch": {"id": "b7", "starts": [1, 2]},
        "clocks.next_update": 100,
        "calls": 1,
        "generation": str(stage.generation),
    }
    assert stage.command().code == 0, "module state of the first call would have been seen as a difference"
    assert stage.leftovers() == []
    assert tree(stage.project.folder / "vol") == before
    explained = stage.project("explain")
    explained.says("on vol: rehearsed", "rehearsed on vol: ", "by mine:good")
    (proof,) = stage.project.local.evidence.glob("*@vol.json")
    assert 'mine:good: {"loss": 2.5' in json.loads(proof.read_text())["detail"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("raising", "ValueError: loss is nan"),
        ("leaving", "its process ended with status 3"),
        ("leaving_well", "its process ended without an answer"),
        ("killed", "its process was ended by SIGKILL"),
        ("vanishing", "its process ended without an answer"),
        ("answering_and_failing", "its process ended with status 4"),
        ("returning_objects", "TypeError: observation 'model.head' is of type object: return numbers, text"),
        ("returning_much", "ValueError: the observations take 100015 bytes, at most 65536 may be: return digests"),
        ("returning_a_list", "TypeError: the function returned a list: return a mapping of observations, or None"),
    ],
)  # fmt: skip
def test_one_that_fails_is_told_and_proves_nothing(shared: Stage, function: str, reason: str) -> None:
    """It says nothing of the bytes either: neither quarantined nor lifted."""
    before = shared.level()
    report = shared.rehearse(function)
    assert not report.passed
    assert report.reason.startswith(reason)
    assert shared.level() is before
    record = shared.record()
    assert record is not None
    assert record.failed is not None
    assert record.failed.reason == report.reason
    assert shared.leftovers() == []


def test_the_command_tells_a_failure_with_the_end_of_the_output(shared: Stage) -> None:
    done = shared.command("--function", "mine:raising")
    assert done.code == ExitCode.INTEGRITY
    done.says("REHEARSAL FAILED", "    on the way", "Traceback", "  ValueError: loss is nan", "next: ")
    found = shared.command("--function", "mine:raising", "--json").result()
    assert found["passed"] is False
    assert found["output"].startswith("on the way\n")
    shared.project("explain").says("rehearsal FAILED on vol: ", "by mine:raising", "ValueError: loss is nan")


def test_a_failure_after_a_success_takes_nothing_back_and_is_shown(shared: Stage) -> None:
    shared.rehearse("silent")
    shared.rehearse("raising")
    assert shared.level() is Level.REHEARSED
    shared.project("explain").says("rehearsed on vol: ", "rehearsal FAILED on vol: ")
    shared.rehearse("silent")
    assert "FAILED" not in shared.project("explain").out, "what succeeded since answers it"


def test_a_hanging_one_is_ended_with_all_that_it_started(shared: Stage) -> None:
    report = shared.rehearse("hanging", bounds={"timeout_seconds": 1.0})
    assert report.reason == "it took longer than 1 s (timeout_seconds), and was ended"
    assert report.output == "hanging now\n"
    pids = (shared.project.folder / "pids").read_text().split()
    assert len(pids) == 2
    assert not any(alive(int(pid)) for pid in pids)


def test_a_hungry_one_meets_its_limit(shared: Stage) -> None:
    report = shared.rehearse("hungry", bounds={"memory_bytes": 256 << 20})
    assert report.reason == "MemoryError: it took more memory than it may (memory_bytes)"


def test_much_output_is_kept_to_its_end(shared: Stage) -> None:
    report = shared.rehearse("loud")
    assert report.reason == "RuntimeError: after much ado"
    assert len(report.output) <= 16 * 1024
    assert "the last line\n" in report.output


def test_what_it_does_to_the_files_changes_no_copy(shared: Stage) -> None:
    copies = {name: tree(shared.project.folder / name) for name in ("vol", "runs/toy/generations")}
    assert shared.rehearse("tampering").passed
    assert {name: tree(shared.project.folder / name) for name in copies} == copies
    assert shared.leftovers() == []
    assert shared.rehearse("good").passed, "the next one is given what was sealed"


def test_it_inherits_the_environment_and_no_argument_holds_the_configuration(
    shared: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINER_TOKEN", "hf_secret")
    found = shared.rehearse("telling").observations
    assert found["token"] == "hf_secret"
    assert found["cwd"] == str(shared.project.folder)
    assert found["isatty"] == ""
    assert found["nan"] == "nan"
    (request,) = found["argv"]
    assert request.endswith("/request.json")
    command = found["command"].split("\0")
    assert command[1] == "-P"
    assert not any(word in found["command"] for word in ("file://", "hf_secret", "vol", "mine"))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("nowhere:good", "there is no module 'nowhere'"),
        ("mine.deeper:good", "there is no module 'mine.deeper'"),
        ("mine:absent", "mine has no function 'absent'"),
        ("mine:NOTHING", "mine has no function 'NOTHING'"),
        ("mine", "is no function"),
        ("mine:a b", "is no function"),
    ],
)
def test_a_function_that_is_none_is_a_fault_of_the_configuration(shared: Stage, function: str, words: str) -> None:
    before = shared.record()
    done = shared.project.refused(ExitCode.CONFIG, "rehearse", "--function", function)
    done.says(words)
    assert shared.record() == before


def test_without_a_function_it_says_what_to_write(tmp_path: Path) -> None:
    project = Project(folder=tmp_path).write(extra='local_requires = "rehearsed"\n')
    done = project.refused(ExitCode.CONFIG, "rehearse")
    done.says("keeps every local generation until then", "[rehearse], or --function")


@pytest.mark.parametrize(
    "section",
    ["functoin = 'a:b'", "function = 'nothing'", "timeout_seconds = 0", "memory_bytes = 5", "python_path = 3"],
)
def test_a_section_that_is_wrong_is_refused(tmp_path: Path, section: str) -> None:
    path = tmp_path / "ckptier.toml"
    path.write_text(f'run = "toy"\nstore = "runs"\n[rehearse]\n{section}\n')
    with pytest.raises(ConfigInvalid, match=r"rehearse\."):
        load_config(path)


def test_a_module_is_found_where_python_path_says(stage: Stage) -> None:
    (stage.project.folder / "code" / "deep").mkdir(parents=True)
    (stage.project.folder / "mine.py").rename(stage.project.folder / "code" / "deep" / "theirs.py")
    configure(stage.project, section='function = "deep.theirs:good"\npython_path = ["code"]')
    assert stage.command().code == 0


def test_observations_are_compared_with_those_of_an_earlier_rehearsal(shared: Stage) -> None:
    """The first difference in causal order is named: weights come before the loss, which comes before the update."""
    assert shared.rehearse("drifting").passed
    report = shared.rehearse("drifting")
    assert not report.passed
    assert report.difference == "weights and buffers: weights"
    assert report.reason.startswith("not as in the rehearsal of the copy on vol at 2")
    assert report.reason.endswith('weights and buffers: weights: "w0" is expected, "w1" was observed')
    assert shared.rehearse("silent").passed, "another function observes something else"
    assert shared.rehearse("drifting", compare=False).passed


def test_observations_are_compared_across_tiers(tmp_path: Path) -> None:
    stage = staged(tmp_path / "project", "vol", "other")
    assert stage.rehearse("drifting", tier="vol").passed
    assert (stage.level("vol"), stage.level("other")) == (Level.REHEARSED, Level.REPLICATED)
    report = stage.rehearse("drifting", tier="other")
    assert report.reason.startswith("not as in the rehearsal of the copy on vol")
    assert stage.level("other") is Level.REPLICATED
    assert stage.rehearse("good").tier == "vol", "the first in declared order"


@pytest.mark.parametrize(
    ("due", "difference"),
    [
        ({"loss": 2.5}, None),
        ({"clocks": {"next_update": 100}, "batch": {"id": "b7"}}, None),
        ({"loss": 2.5000000000000004}, "loss: loss"),
        ({"calls": 1.0}, "other: calls"),
        ({"loss": 9, "batch.id": "b8"}, "next batch: batch.id"),
        ({"gradients": "g", "loss": 2.5}, "gradients: gradients"),
    ],
)
def test_observations_are_compared_with_what_is_expected(due: dict[str, object], difference: str | None) -> None:
    observed = {"loss": 2.5, "batch": {"id": "b7", "starts": [1, 2]}, "clocks.next_update": 100, "calls": 1}
    found = first_difference(compare_observations(due, observed))
    assert (f"{found.stage}: {found.name}" if found else None) == difference


def test_a_rehearsal_that_sees_something_else_than_expected_has_failed(shared: Stage, tmp_path: Path) -> None:
    report = shared.rehearse("good", expect=expected(tmp_path, loss=9, batch={"id": "b8"}))
    assert report.compared_with == "expected.json"
    assert report.reason == 'not as in expected.json: next batch: batch.id: "b8" is expected, "b7" was observed'
    assert not report.passed
    assert shared.rehearse("good", expect=expected(tmp_path, loss=2.5)).passed


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000], ids=["empty", "list", "cut", "deep"])
def test_a_file_that_holds_no_observations_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(UsageError, match="holds no observations"):
        read_expected(tmp_path / "e.json")
    with pytest.raises(UsageError, match="does not exist"):
        read_expected(tmp_path / "absent.json")


def test_a_copy_that_is_hurt_is_no_rehearsal(stage: Stage) -> None:
    """The bytes have to come from the tier: the good copy here must not stand in for it."""
    (hurt,) = (stage.project.folder / "vol").glob("toy/generations/*/files/model.bin")
    hurt.write_bytes(b"x" * hurt.stat().st_size)
    with pytest.raises(IntegrityFailure, match="cannot be proved"):
        stage.rehearse()
    assert stage.record() is None
    assert stage.leftovers() == []


def test_a_rehearsal_lifts_a_copy_that_was_found_hurt_and_is_whole_again(shared: Stage) -> None:
    """Every byte of it was proved on the way."""
    proof = Proof(
        generation=str(shared.generation),
        tier="vol",
        manifest_sha256=shared.digest(),
        level=Level.QUARANTINED,
        at="then",
    )
    record_proof(shared.project.local, proof)
    shared.rehearse("raising")
    assert shared.level() is Level.QUARANTINED
    shared.rehearse("good")
    assert shared.level() is Level.REHEARSED


def test_without_a_store_it_is_rehearsed_and_not_recorded(stage: Stage) -> None:
    stage.project.local.root.rename(stage.project.folder / "gone")
    done = stage.command()
    assert done.code == 0
    done.says("NOT recorded: there is no store of this run")
    assert not stage.project.local.root.exists()
