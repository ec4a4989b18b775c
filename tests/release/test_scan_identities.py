"""Text that tells of a machine, a person, a run or a place: found where it tells, not where words are only words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from release.scan_stage import IDENTITIES, Stage, found, tokenizer_json

from replicate.release.documents import encode
from replicate.release.findings import Rule
from replicate.release.scan.scanning import Identities

HOME = "/" + "root" + "/"
"""Not spelled out: this tree holds no place of a machine."""


def with_note(tmp_path: Path, text: str) -> Stage:
    """Put a text into a config."""
    stage = Stage(tmp_path)
    stage.edit("config.json", note=text)
    return stage


def with_line(tmp_path: Path, text: str) -> Stage:
    """Put a line into the card."""
    stage = Stage(tmp_path)
    stage.write()
    stage.files["README.md"] = stage.card().replace(b"## Limitations", f"{text}\n\n## Limitations".encode())
    return stage


PATHS = [
    "/home/someone/data", "/mnt/nvme1/run/x.pt", f"{HOME}.cache/huggingface", "/Users/me/models/a", "/scratch/a/b",
    "see /data/corpus/train.bin for it", "(/workspace/out)", "file:///opt/x", "FILE:/etc/x", "C:\\Users\\me\\x",
    "D:/models/x", "\\\\nas\\share\\x", "~someone/x", "$HOME/data", "${HOME}/data", "%USERPROFILE%\\x",
    '"/tmp/a/b"', "path=/var/lib/x",
]  # fmt: skip


@pytest.mark.parametrize("text", PATHS)
def test_absolute_paths(tmp_path: Path, text: str) -> None:
    assert found(with_note(tmp_path / "json", text).scan()) == {(Rule.ABSOLUTE_PATH.value, "config.json", "note")}
    assert any(
        path == "README.md" for _, path, _ in found(with_line(tmp_path / "card", text).scan(), Rule.ABSOLUTE_PATH)
    )


@pytest.mark.parametrize("text", ["/any/where/else", "~/x", "/opt2/x/y/"])
def test_a_value_that_is_nothing_but_a_path(tmp_path: Path, text: str) -> None:
    assert found(with_note(tmp_path, text).scan()) == {(Rule.ABSOLUTE_PATH.value, "config.json", "note")}


@pytest.mark.parametrize(
    "text",
    [
        "POST /v1/chat/completions", "and/or/home/x", "https://example.org/home/a/b", "a/b", "~/.cache", "12/31/2026",
        "http://www.apache.org/licenses/", "a ratio of 1:2", "\\frac{a}{b}", "(?i:'s|'t)\\p{L}+", "m: \\n", "/home",
        "std::vector", "10:30", "//comment",
    ],
)  # fmt: skip
def test_what_is_no_path(tmp_path: Path, text: str) -> None:
    assert with_line(tmp_path, text).scan().blocking == ()


ADDRESSES = [
    "10.1.2.3", "http://192.168.1.10:8080/x", "172.16.0.9", "127.0.0.1", "169.254.169.254", "[::1]:80", "fe80::1",
    "fd12:3456::1", "vault.prod.internal", "db.corp", "printer.local", "api.default.svc.cluster.local", "nas.lan",
    "localhost:8000", "s3://some-bucket/x", "gs://b/x", "S3://Bucket", "hdfs://name/x", "az://c/x",
    "https://b.s3.eu-west-1.amazonaws.com/x", "https://a.r2.cloudflarestorage.com", "acc.blob.core.windows.net",
]  # fmt: skip


@pytest.mark.parametrize("text", ADDRESSES)
def test_internal_addresses(tmp_path: Path, text: str) -> None:
    assert found(with_note(tmp_path, text).scan()) == {(Rule.INTERNAL_ADDRESS.value, "config.json", "note")}


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "192.0.2.7", "1.2.3.4.5", "version 12.8.0", "huggingface.co", "config.local.json", "std::string",
     "a::b", "::", "localhosts", "internal", "hf://acme/x", "the local.", "1.10.2.3-rc1", "0.0.0.0"],
)  # fmt: skip
def test_what_is_no_internal_address(tmp_path: Path, text: str) -> None:
    assert with_note(tmp_path, text).scan().blocking == ()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("trained by marthe-q", Rule.USER_OR_HOST),
        ("trained by Marthe-Q.", Rule.USER_OR_HOST),
        ("on gpu-node-17", Rule.USER_OR_HOST),
        ("on gpu-node-17.cluster-a", Rule.USER_OR_HOST),
        ("run llm-7b-draft_2", Rule.RUN_IDENTITY),
        ("uid 9f1c2b7a55d04e1c", Rule.RUN_IDENTITY),
        ("in ckpt-bucket-tiny", Rule.INTERNAL_ADDRESS),
        ("at /mnt/volume-x/ckptier/generations", Rule.ABSOLUTE_PATH),
    ],
)
def test_words_of_this_machine(tmp_path: Path, text: str, rule: Rule) -> None:
    report = with_note(tmp_path, text).scan()
    assert {one for one, _, _ in found(report)} >= {rule.value}
    for word in ("marthe", "gpu-node", "9f1c2b7a", "ckpt-bucket-tiny"):
        assert word.encode() not in encode(report).lower()


@pytest.mark.parametrize("text", ["marthe-quest", "xgpu-node-17", "llm-7b-drafts", "9f1c2b7a55d04e1c0"])
def test_a_word_is_whole(tmp_path: Path, text: str) -> None:
    assert with_note(tmp_path, text).scan().blocking == ()


@pytest.mark.parametrize("user", ["root", "a", "ubuntu", "admin"])
def test_names_that_many_machines_share_do_not_drown_the_report(tmp_path: Path, user: str) -> None:
    stage = with_line(tmp_path, f"A {user} node: the {user} of all evil, {user}s.")
    stage.identities = replace(IDENTITIES, user=user, host="localhost", run="train")
    assert stage.scan().blocking == ()


def test_they_are_found_beside_an_at_sign(tmp_path: Path) -> None:
    stage = with_note(tmp_path, "made by root@buildbox")
    stage.identities = replace(IDENTITIES, user="root")
    assert found(stage.scan()) == {(Rule.USER_OR_HOST.value, "config.json", "note")}


def test_a_word_that_the_description_says_openly_is_no_leak(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.identities = Identities(user="acme", host="decoder", run="tiny-decoder", run_uid="none-of-it-0", places=())
    assert stage.scan().blocking == ()


def test_the_uid_of_a_run_is_one_always(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.identities = replace(IDENTITIES, run_uid="tiny-decoder")
    assert any(path == "README.md" for _, path, _ in found(stage.scan(), Rule.RUN_IDENTITY))


def test_a_vocabulary_may_hold_common_words_and_no_distinctive_ones(tmp_path: Path) -> None:
    document = json.loads(tokenizer_json())
    document["model"]["vocab"] |= {"Ġsophia": 900, "localhost": 901, "sophia": 902}
    stage = Stage(tmp_path)
    stage.identities = replace(IDENTITIES, user="sophia")
    stage.files["tokenizer.json"] = json.dumps(document).encode()
    assert stage.scan().blocking == ()
    document["model"]["vocab"] |= {"Ġgpu-node-17": 903}
    document["added_tokens"].append({"id": 904, "content": "<sophia>"})
    stage.files["tokenizer.json"] = json.dumps(document).encode()
    report = stage.scan()
    assert len(found(report, Rule.USER_OR_HOST)) == 2
    assert all(path == "tokenizer.json" for _, path, _ in found(report))


def test_the_path_of_the_corpus_in_a_compiled_tokenizer(tmp_path: Path) -> None:
    """What SentencePiece leaves in its trainer's settings."""
    stage = Stage(tmp_path)
    stage.files["tokenizer.model"] = b"\x0a\x00\x12\x1d/home/someone/corpus/train.txt\x18\x01"
    assert found(stage.scan()) == {(Rule.ABSOLUTE_PATH.value, "tokenizer.model", "")}


@pytest.mark.parametrize(
    "text", ["write to marthe@acme.io", "call +49 30 1234567 now", "(555) 123-4567", "a.b-c@x.co.uk"]
)
def test_personal_data_in_the_card_and_in_templates(tmp_path: Path, text: str) -> None:
    assert any(path == "README.md" for _, path, _ in found(with_line(tmp_path / "a", text).scan(), Rule.PERSONAL_DATA))
    stage = Stage(tmp_path / "b")
    stage.files["chat_template.jinja"] += f"{{# {text} #}}".encode()
    assert {path for _, path, _ in found(stage.scan(), Rule.PERSONAL_DATA)} == {"chat_template.jinja"}
    stage = Stage(tmp_path / "c")
    stage.edit("tokenizer_config.json", chat_template=f"a\n{text}")
    assert found(stage.scan()) == {(Rule.PERSONAL_DATA.value, "tokenizer_config.json", "chat_template line 2")}


@pytest.mark.parametrize(
    "text", ["git@github.com:acme/x", "someone@example.com", "1,234,567 tokens", "+1.25 points", "a @ b"]
)
def test_what_is_no_personal_data(tmp_path: Path, text: str) -> None:
    assert with_line(tmp_path, text).scan().blocking == ()


def test_the_author_of_a_license_may_have_an_address(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["LICENSE"] += b"Copyright the authors, authors@acme.io\n"
    assert stage.scan().blocking == ()
