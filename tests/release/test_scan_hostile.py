"""Hostile input costs time in proportion to its size, and is refused by name."""

import gc
import json
import time
from pathlib import Path

import pytest
from release.scan_stage import Stage, found, only, tokenizer_json

from replicate.release.documents import encode
from replicate.release.findings import Rule
from replicate.release.scan.texts import MAX_HITS

BOMBS = [
    "eyJ", "eyJaaaaaaaaa.", "://a:", "aws_secret_access_key ", '"', "`", "\\", "~a/", "/home/a", "a.", "a-", "a@",
    "1.1.", "::", "f:", "sk-", "password=`", "secret: ", "wandb0", "-----BEGIN ", "bearer a", "+1 1", "(111) ", "<a",
    "{{", "[a](", "| a ", "A:\\", "\\\\a\\", "s3://", "hf_a", "xoxb-1-", "//a/:_authToken=npm_", "ibm_api_key=", "a1B2",
    "sk-T3BlbkFJ", "1B parameters ", "gpu-node-17.", "a.amazonaws.", "é",
]  # fmt: skip
SIZES = (16 * 1024, 96 * 1024)
"""Characters.  A rule that is quadratic takes 36 times as long for the second as for the first, a linear one 6."""


def seconds(stage: Stage, text: str) -> float:
    """Return the CPU time of a scan of a tree that holds a text three times."""
    stage.write()
    stage.files["README.md"] = stage.card() + text.encode()
    stage.files["chat_template.jinja"] = b"{# " + text.replace("#}", "").encode() + b" #}"
    stage.edit("config.json", note=text)
    stage.write()
    gc.collect()
    before = time.process_time()
    stage.scan(write=False)
    return time.process_time() - before


@pytest.mark.parametrize("bomb", BOMBS)
def test_time_is_linear(tmp_path: Path, bomb: str) -> None:
    small, large = (bomb * (size // len(bomb)) for size in SIZES)
    first = seconds(Stage(tmp_path / "small"), small)
    second = seconds(Stage(tmp_path / "large"), large)
    assert second < 20 * max(first, 0.05)


def test_a_text_made_of_findings_is_not_looked_through_to_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["NOTICE"] = b"10.0.0.1\n" * (MAX_HITS * 2)
    report = stage.scan()
    assert any("not looked through" in finding.detail for finding in report.blocking)
    assert len(report.blocking) < 100


def test_deep_documents(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["preprocessor_config.json"] = b'{"a":' * 500 + b"1" + b"}" * 500
    stage.files[".eval_results/a.yaml"] = b"[" * 20_000
    stage.write()
    stage.files["README.md"] = stage.card().replace(b"---\n", b"---\nx: " + b"[" * 10_000 + b"\n", 1)
    report = stage.scan()
    assert {path for _, path, _ in found(report)} == {".eval_results/a.yaml", "README.md"}


def test_a_card_that_unfolds(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write()
    laughs = "\n".join(f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 9))
    stage.files["README.md"] = stage.card().replace(b"---\n", f"---\na0: &a0 [x]\n{laughs}\n".encode(), 1)
    report = stage.scan()
    assert (Rule.CARD_INCOMPLETE.value, "README.md", "front matter") in found(report)


def test_a_front_matter_that_is_too_long(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write()
    stage.files["README.md"] = stage.card().replace(b"---\n", b"---\nx: " + b"y" * 100_000 + b"\n", 1)
    assert (Rule.CARD_INCOMPLETE.value, "README.md", "front matter") in found(stage.scan())


def test_what_a_report_cannot_hold(tmp_path: Path) -> None:
    """Lone surrogates, control characters and long keys get into places and details only as what they can be."""
    stage = Stage(tmp_path)
    stage.files["config.json"] = stage.files["config.json"].replace(
        b"{", b'{"\\ud800": "10.0.0.1", "\\u0000\\u001b[31m": "10.0.0.2", "' + b"k" * 5_000 + b'": "10.0.0.3",', 1
    )
    report = stage.scan()
    assert len(found(report, Rule.INTERNAL_ADDRESS)) == 3
    assert json.loads(encode(report))
    assert b"\x1b" not in encode(report)


def test_a_tokenizer_of_two_hundred_thousand_words(tmp_path: Path) -> None:
    """Ten megabytes; a call of each rule for each word would take minutes."""
    document = json.loads(tokenizer_json())
    words = [f"Ġ{'abcdefghijklmnop'[: number % 13 + 2]}{number:x}" for number in range(200_000)]
    document["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    document["model"]["merges"] = [[word[:3], word[3:]] for word in words]
    document["model"]["vocab"]["hf" + "_" + "aB3" * 12] = 200_001
    stage = Stage(tmp_path)
    stage.files["tokenizer.json"] = json.dumps(document, ensure_ascii=False, indent=1).encode()
    stage.write()
    before = time.process_time()
    finding = only(stage.scan(write=False))
    assert time.process_time() - before < 30
    assert (finding.rule, finding.path) == (Rule.SECRET, "tokenizer.json")
    assert finding.place.startswith("model/vocab/(from ")
