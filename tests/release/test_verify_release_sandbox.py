"""The child that loads models: it is a real one here, bounded, offline and kept from doing anything else."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from release.verifying_by_hand import Made, Maker, in_this_process
from support.releases import Built

from replicate.errors import CapabilityMissing, ConfigInvalid
from replicate.release.bundle import Kind
from replicate.release.description import Adapter
from replicate.release.verifying.architecture import expected_tensors
from replicate.release.verifying.checks import Verdict
from replicate.release.verifying.sandbox import Answer, Job, Limits, Task, run_jobs

FOREIGN = """
import os
import socket
import subprocess
from pathlib import Path

import torch


def model(config):
    print('{"checks": [], "data": {"shapes": {"forged": [1]}, "tied": []}}')
    os.write(2, b"x" * 200_000)
    module = torch.nn.Module()
    module.table = torch.nn.Embedding(config["rows"], 2)
    module.head = torch.nn.Linear(2, config["rows"], bias=False)
    module.head.weight = module.table.weight
    module.register_buffer("order", torch.arange(3))
    module.register_buffer("scratch", torch.arange(3), persistent=False)
    return module


def write(config):
    Path(config["target"]).write_text("harm")


def delete(config):
    Path(config["target"]).unlink()


def connect(config):
    with socket.socket() as one:
        one.connect(("127.0.0.1", config["port"]))


def start(config):
    subprocess.run(["true"])


def fill(config):
    return bytearray(64 * 1024**3)


def no_module(config):
    return 3


def leave(config):
    os._exit(0)


def forge(config):
    for number in range(3, 20):
        try:
            os.write(number, b"not a reply\\n[]\\n")
        except OSError:
            pass
    return model(config)


def hang(config):
    while True:
        pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("foreign")
    (base / "code").mkdir()
    (base / "code" / "foreign.py").write_text(FOREIGN)
    (base / "kept.txt").write_text("kept")
    # The port is one that would be connected to, were it allowed: nothing listens on it, which is another error.
    (base / "config.json").write_text(json.dumps({"rows": 5, "target": str(base / "kept.txt"), "port": 9}))
    return base


def calling(folder: Path, function: str) -> Job:
    arguments: dict[str, Any] = {
        "libraries": ["torch"],
        "config": str(folder / "config.json"),
        "factory": f"foreign:{function}",
        "code": str(folder / "code"),
        "names": [],
    }
    return Job(task=Task.DESCRIBE, names=(function,), arguments=arguments, foreign_code=True)


def reason(answer: Answer) -> str:
    (check,) = answer.checks
    assert check.verdict is Verdict.FAILED
    return check.detail


def test_foreign_code_is_described_bounded_and_kept_from_effects(folder: Path) -> None:
    functions = ("model", "write", "delete", "connect", "start", "fill", "no_module", "missing", "leave", "model")
    jobs = [calling(folder, function) for function in functions]
    answers = run_jobs(jobs, limits=Limits(seconds=120), loaded_bytes=0)
    first, *failed, left, after = answers
    assert first.data == {  # what it printed was taken for nothing
        "shapes": {"table.weight": [5, 2], "head.weight": [5, 2], "order": [3]},
        "tied": [["table.weight", ["head.weight"]]],
    }
    said = dict(zip(functions[1:], map(reason, failed), strict=False))
    assert "open of" in said["write"]
    assert "for writing is not allowed while a release is verified" in said["write"]
    assert "os.remove of" in said["delete"]
    assert "socket.connect is not allowed" in said["connect"]
    assert "subprocess.Popen is not allowed" in said["start"]
    assert said["fill"] == "it takes more memory than its size accounts for"
    assert "returned a int, no torch module" in said["no_module"]
    assert "has no attribute 'missing'" in said["missing"]
    assert "ended with status 0 without an answer" in reason(left)
    assert [check.verdict for check in after.checks] == [Verdict.NOT_DONE]
    assert (folder / "kept.txt").read_text() == "kept"
    assert not list((folder / "code").glob("**/*.pyc"))


def test_nonsense_among_the_replies_is_left_out(folder: Path) -> None:
    (answer,) = run_jobs([calling(folder, "forge")], limits=Limits(seconds=60), loaded_bytes=0)
    assert set(answer.data["shapes"]) == {"table.weight", "head.weight", "order"}


def test_what_hangs_is_ended(folder: Path) -> None:
    jobs = [calling(folder, "hang"), calling(folder, "model")]
    first, second = run_jobs(jobs, limits=Limits(seconds=4), loaded_bytes=0)
    assert reason(first) == "took longer than 4 s, and was ended"
    assert second.checks[0].verdict is Verdict.NOT_DONE


def test_a_child_inherits_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    started = subprocess.Popen

    def spy(*arguments: Any, **options: Any) -> Any:
        seen.update(options["env"])
        return started(*arguments, **options)

    monkeypatch.setenv("HF_TOKEN", "canary-5a7c")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-5a7c")
    monkeypatch.setattr(subprocess, "Popen", spy)
    job = Job(task=Task.COMPARE, names=("source-comparison",), arguments={})
    (answer,) = run_jobs([job], limits=Limits(seconds=60), loaded_bytes=0)
    assert reason(answer) == "KeyError: 'source'"
    assert "canary-5a7c" not in seen.values()
    assert seen["HF_HUB_OFFLINE"] == "1"
    assert Path(seen["HF_HOME"]).is_relative_to(seen["TMPDIR"])


@pytest.fixture(scope="module")
def maker(tiny: Callable[[str], Built], tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tiny=tiny, root=tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="module")
def custom(maker: Maker) -> Made:
    with in_this_process():
        return maker.whole("custom")


def test_an_adapter_over_an_unknown_base_has_no_known_tensors(custom: Made) -> None:
    adapter = Adapter(base_model="acme/base", base_revision="0" * 40, base_license="mit")
    description = custom.description.model_copy(update={"kind": Kind.ADAPTER, "adapter": adapter})
    assert expected_tensors(description, custom.base, custom.base / "adapter_config.json") is None


def test_an_architecture_that_cannot_be_built_names_what_went_wrong(
    custom: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigInvalid, match="the architecture cannot be built: KeyError: 'width'"):
        expected_tensors(custom.description, custom.base, tmp_path / "config.json")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "torch.py").write_text("raise ImportError('not here')")
    with pytest.raises(CapabilityMissing, match="torch cannot be imported"):
        expected_tensors(custom.description, custom.base, custom.base / "config.json")


def test_a_release_with_foreign_code_is_verified_by_two_children(custom: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What compares bytes never shares a process with what the user wrote."""
    requests: list[list[dict[str, Any]]] = []
    started = subprocess.Popen

    def spy(command: list[str], **options: Any) -> Any:
        requests.append(json.loads(Path(command[-1]).read_text())["jobs"])
        return started(command, **options)

    monkeypatch.setattr(subprocess, "Popen", spy)
    report = custom.verify()
    assert report.failed == ()
    assert report.complete
    tasks = [sorted(job["task"] for job in jobs) for jobs in requests]
    assert tasks == [["compare", "label", "tokenize"], ["load", "plan"]]


def test_a_model_of_transformers_is_described_and_verified_by_real_children(maker: Maker) -> None:
    with in_this_process():
        made = maker.whole("gpt2")
    expected = expected_tensors(made.description, made.base, made.base / "config.json")
    assert expected is not None
    assert expected.shapes["transformer.wte.weight"] == (260, 16)
    assert expected.tied == (("transformer.wte.weight", ("lm_head.weight",)),)
    assert expected.droppable == {"lm_head.weight"}
    report = made.verify()
    assert report.failed == ()
    assert report.complete
