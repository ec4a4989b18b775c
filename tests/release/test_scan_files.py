"""Files: an allow-list of names, one regular file a name, and nothing that is something else inside."""

import json
import os
import pickle
import socket
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from release.scan_stage import Stage, found, only

from replicate.errors import LocalDisk
from replicate.release.bundle import MANIFEST
from replicate.release.findings import Rule

TRAINING = [
    "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin", "trainer_state.json", "train.log",
    "events.out.tfevents.1700000000.host.1.0", ".env", "scaler.pt", "generation.json", "wandb/run.json",
    ".git/config", ".cache/huggingface/x.lock", "checkpoint-500/config.json", "mlruns/0.txt", "tracker.sqlite",
]  # fmt: skip


def test_every_allowed_name_is_taken(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files |= {
        "NOTICE": b"Made of nothing else.\n",
        "vocab.json": b'{"a": 0}',
        "merges.txt": b"#version: 0.2\na b\n",
        "added_tokens.json": b"{}",
        "preprocessor_config.json": b"{}",
        "additional_chat_templates/short.jinja": b"{{ messages[0].content }}",
        ".eval_results/perplexity.yaml": b"- value: 12.5\n",
        "qwen.tiktoken": b"YQ== 0\n",
        "tokenizer.model": b"\x0a\x07\x0a\x03abc\x15\x00\x00",
    }
    assert stage.scan().blocking == ()


@pytest.mark.parametrize("name", TRAINING)
def test_training_state_is_named(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.files[name] = b"{}"
    assert (Rule.TRAINING_STATE.value, name, "") in found(stage.scan())


@pytest.mark.parametrize("name", ["modeling_tiny.py", "run.sh", "kernel.so", "demo.ipynb", "load.js"])
def test_code_is_named(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.files[name] = b"1"
    assert (Rule.CODE_FILE.value, name, "") in found(stage.scan())


@pytest.mark.parametrize("name", ["model.bin", "weights.pt", "a.pkl", "b.npz", "x.joblib"])
def test_files_of_pickles_are_named(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.files[name] = b"1"
    assert (Rule.PICKLE.value, name, "") in found(stage.scan())


@pytest.mark.parametrize(
    "name", ["notes.md", "picture.png", ".hidden", "folder/config.json", "adapter_model.safetensors"]
)
def test_what_is_not_on_the_list_is_refused(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.files[name] = b"x"
    assert (Rule.FILE_NOT_ALLOWED.value, name, "") in found(stage.scan())


def test_a_further_text_file_that_is_described_is_taken(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["notes.md"] = b"# Notes\n"
    stage.description["files"]["other"] = ["docs/notes.md"]
    assert stage.scan().blocking == ()


@pytest.mark.parametrize("name", ["photo.png", "data.csv", ".netrc"])
def test_a_further_file_of_another_type_is_not(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.files[name] = b"x"
    stage.description["files"]["other"] = [name]
    assert any(path == name for _, path, _ in found(stage.scan()))


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write()
    (tmp_path / "outside").write_bytes(b"x")
    (stage.tree / "NOTICE").symlink_to(tmp_path / "outside")
    os.link(stage.tree / "LICENSE", tmp_path / "second-name")
    os.mkfifo(stage.tree / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(stage.tree)  # the name of a socket is bounded at about a hundred bytes
        try:
            bound.bind("sock")
        finally:
            os.chdir(here)
        report = stage.scan(write=False)
    assert {path for _, path, _ in found(report, Rule.LINK_OR_DEVICE)} == {"NOTICE", "LICENSE", "pipe", "sock"}


def test_a_tree_that_is_a_link_is_no_tree(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    stage.tree.rename(tmp_path / "real")
    stage.tree.symlink_to(tmp_path / "real")
    with pytest.raises(LocalDisk, match="is no folder"):
        stage.scan(write=False, manifest=manifest)


def test_the_tree_is_what_the_manifest_names(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    (stage.tree / "NOTICE").write_bytes(b"later\n")
    (stage.tree / "special_tokens_map.json").unlink()
    (stage.tree / "LICENSE").write_bytes(b"another length\n")
    (stage.tree / MANIFEST).write_bytes(b"{}")
    report = stage.scan(write=False, manifest=manifest)
    assert found(report) == {
        (Rule.FILE_NOT_ALLOWED.value, "NOTICE", ""),
        (Rule.CONTAINER.value, "special_tokens_map.json", ""),
        (Rule.CONTAINER.value, "LICENSE", ""),
        (Rule.CONTAINER.value, MANIFEST, ""),
    }


def test_a_manifest_that_is_not_written_yet_is_looked_at_as_well(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.contract = {"data": "/mnt/data/private-corpus/shard-0"}
    stage.write()
    (stage.tree / MANIFEST).unlink()
    assert only(stage.scan(write=False)).path == MANIFEST


def torch_zip() -> bytes:
    data = BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}))
    return data.getvalue()


def old_torch() -> bytes:
    return pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)


def array() -> bytes:
    data = BytesIO()
    np.save(data, np.arange(3))
    return data.getvalue()


PICKLES = {
    "protocol 4": pickle.dumps({"a": [1, 2]}, protocol=4),
    "protocol 2": pickle.dumps({"a": [1, 2]}, protocol=2),
    "protocol 0": pickle.dumps({"a": [1, 2]}, protocol=0),
    "call": b"cposix\nsystem\n(S'true'\ntR.",
    "torch": torch_zip(),
    "old torch": old_torch(),
    "archive behind text": b'{"a": 1}\n' + torch_zip(),
    "array": array(),
}


@pytest.mark.parametrize("name", ["config.json", "NOTICE.txt", "chat_template.jinja", "tokenizer.model", "README.md"])
@pytest.mark.parametrize("what", sorted(PICKLES))
def test_a_pickle_under_another_name_is_found(tmp_path: Path, name: str, what: str) -> None:
    stage = Stage(tmp_path)
    stage.files[name] = PICKLES[what]
    assert (Rule.PICKLE.value, name, "") in found(stage.scan())


def test_a_shard_that_is_an_archive_as_well_is_found(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    shard = stage.tree / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes() + torch_zip())
    rules = {rule for rule, path, _ in found(stage.scan(write=False, manifest=manifest)) if path == shard.name}
    assert rules >= {Rule.PICKLE.value, Rule.CONTAINER.value}


@pytest.mark.parametrize(
    ("start", "rule"),
    [
        (b"\x7fELF\x02\x01", Rule.CODE_FILE),
        (b"#!/bin/sh\n", Rule.CODE_FILE),
        (b"\x1f\x8b\x08", Rule.FILE_NOT_ALLOWED),
        (b"SQLite format 3\0", Rule.TRAINING_STATE),
        (b"\x89HDF\r\n", Rule.PICKLE),
    ],
)
def test_what_a_file_really_is(tmp_path: Path, start: bytes, rule: Rule) -> None:
    stage = Stage(tmp_path)
    stage.files["NOTICE"] = start + b"rest"
    assert (rule.value, "NOTICE", "") in found(stage.scan())


@pytest.mark.parametrize(
    "prose", [b"I.", b"No warranty.", b"(c) 2026 the authors.", b"0.", b"carried\nalong\nhere.", b"."]
)
def test_prose_is_no_pickle(tmp_path: Path, prose: bytes) -> None:
    stage = Stage(tmp_path)
    stage.files["NOTICE"] = prose
    assert stage.scan().blocking == ()


def test_text_that_is_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["NOTICE"] = "größe".encode("latin-1")
    stage.files["NOTICE.txt"] = b"a\0b"
    assert found(stage.scan()) == {
        (Rule.FILE_NOT_ALLOWED.value, "NOTICE", ""),
        (Rule.FILE_NOT_ALLOWED.value, "NOTICE.txt", ""),
    }


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    (stage.tree / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"x")
    report = stage.scan(write=False, manifest=manifest)
    assert {finding.rule for finding in report.blocking} == {Rule.FILE_NOT_ALLOWED}
    assert json.loads(report.model_dump_json())


def test_a_text_that_is_too_long_is_not_taken_on_trust(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["chat_template.jinja"] = b"{{ messages }}" + b" " * (1024 * 1024)
    finding = only(stage.scan())
    assert (finding.rule, finding.path) == (Rule.FILE_NOT_ALLOWED, "chat_template.jinja")
    assert "1048576" in finding.detail
