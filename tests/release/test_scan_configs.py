"""Configs, templates and JSON: nothing that points outside or runs code, settings that mean something."""

import json
from pathlib import Path

import pytest
from release.scan_stage import Stage, found, only

from replicate.release.findings import Rule


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("_name_or_path", "out/checkpoint-500", Rule.POINTS_OUTSIDE),
        ("_name_or_path", "someone/else", Rule.POINTS_OUTSIDE),
        ("vocab_file", ".env", Rule.POINTS_OUTSIDE),
        ("vocab_file", "../vocab.json", Rule.POINTS_OUTSIDE),
        ("vocab_file", "sub/vocab.json", Rule.POINTS_OUTSIDE),
        ("vocab_file", "..\\vocab.json", Rule.POINTS_OUTSIDE),
        ("merges_file", "merges.txt", Rule.POINTS_OUTSIDE),
        ("tokenizer_files", ["tokenizer.json", "other.json"], Rule.POINTS_OUTSIDE),
        ("cache_dir", "cache", Rule.POINTS_OUTSIDE),
        ("dataset_path", "corpus", Rule.POINTS_OUTSIDE),
        ("base_model_name_or_path", "out/base", Rule.POINTS_OUTSIDE),
        ("quantization_config", {"modules": {"calibration": "data/c4.json"}}, Rule.POINTS_OUTSIDE),
        ("auto_map", {"AutoModel": "modeling.Tiny"}, Rule.REMOTE_CODE),
        ("custom_pipelines", {"x": {"impl": "p.P"}}, Rule.REMOTE_CODE),
        ("trust_remote_code", True, Rule.REMOTE_CODE),
        ("wandb_run_id", "a1b2c3d4", Rule.RUN_IDENTITY),
        ("run_name", "the-third-try", Rule.RUN_IDENTITY),
        ("slurm_job_id", 1234, Rule.RUN_IDENTITY),
    ],
)
def test_fields_that_lead_elsewhere(tmp_path: Path, name: str, value: object, rule: Rule) -> None:
    stage = Stage(tmp_path)
    stage.edit("tokenizer_config.json", outer={name: value})
    report = stage.scan()
    assert {(one, path) for one, path, _ in found(report)} == {(rule.value, "tokenizer_config.json")}
    assert all(place.startswith("outer/") for _, _, place in found(report))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_name_or_path", ""),
        ("_name_or_path", "acme/tiny-decoder"),
        ("vocab_file", None),
        ("tokenizer_file", "tokenizer.json"),
        ("trust_remote_code", False),
        ("auto_map", {}),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("report_to", []),
        ("max_position_embeddings", 64),
    ],
)
def test_fields_that_do_not(tmp_path: Path, name: str, value: object) -> None:
    stage = Stage(tmp_path)
    document = json.loads(stage.files["tokenizer_config.json"])
    stage.files["tokenizer_config.json"] = json.dumps(document | {name: value}).encode()
    assert stage.scan().blocking == ()


@pytest.mark.parametrize("base", ["acme/other", "out/base-model", "/data/models/base", ""])
def test_an_adapter_names_its_base(tmp_path: Path, base: str) -> None:
    stage = Stage.adapter(tmp_path)
    stage.edit("adapter_config.json", base_model_name_or_path=base)
    assert (Rule.POINTS_OUTSIDE.value, "adapter_config.json", "base_model_name_or_path") in found(stage.scan())


def test_an_adapter_is_of_its_revision(tmp_path: Path) -> None:
    stage = Stage.adapter(tmp_path)
    stage.edit("adapter_config.json", revision="main")
    assert found(stage.scan()) == {(Rule.CONFIG_INVALID.value, "adapter_config.json", "revision")}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"do_sample": False}, "temperature"),
        ({"do_sample": None}, "top_p"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": "0.7"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 4.5}, "max_new_tokens"),
        ({"eos_token_id": ["</s>"]}, "eos_token_id"),
        ({"eos_token_id": 40}, "eos_token_id"),
        ({"do_sample": "yes"}, "do_sample"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"do_sample": False, "temperature": None, "top_p": None, "num_return_sequences": 3}, "num_return_sequences"),
    ],
)
def test_a_generation_config_that_means_nothing(tmp_path: Path, changes: dict[str, object], place: str) -> None:
    stage = Stage(tmp_path)
    stage.edit("generation_config.json", **changes)
    assert (Rule.CONFIG_INVALID.value, "generation_config.json", place) in found(stage.scan())


@pytest.mark.parametrize(
    "document",
    [
        {"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
        {"do_sample": True, "top_k": 0, "min_p": 0.05, "eos_token_id": [1, 2], "pad_token_id": None},
        {"num_beams": 4, "early_stopping": "never", "num_return_sequences": 4},
        {},
    ],
)
def test_a_generation_config_that_holds(tmp_path: Path, document: dict[str, object]) -> None:
    stage = Stage(tmp_path)
    stage.files["generation_config.json"] = json.dumps(document).encode()
    assert stage.scan().blocking == ()


def test_the_config_names_the_class_that_the_description_does(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.edit("config.json", architectures=["GPT2LMHeadModel"])
    assert found(stage.scan()) == {(Rule.CONFIG_INVALID.value, "config.json", "architectures")}


@pytest.mark.parametrize(
    "text",
    [b'{"a": 1', b'{"a": NaN}', b'{"a": 1, "a": 2}', b'{"b": {"a": 1, "a": 2}}', b"[" * 100_000, b"",
     b"\xef\xbb\xbf{}", b"{'a': 1}", b'{"a": ' + b"9" * 5_000 + b"}"],
    ids=["cut", "nan", "twice", "twice below", "deep", "empty", "byte order mark", "quotes", "long number"],
)  # fmt: skip
def test_json_that_readers_take_differently(tmp_path: Path, text: bytes) -> None:
    stage = Stage(tmp_path)
    stage.files["preprocessor_config.json"] = text
    assert found(stage.scan()) == {(Rule.CONFIG_INVALID.value, "preprocessor_config.json", "")}


def test_a_config_that_is_no_object(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files["generation_config.json"] = b"[1]"
    assert only(stage.scan()).rule is Rule.CONFIG_INVALID


@pytest.mark.parametrize("change", [{"name": "tiny-chat"}, {"name": "tiny-1b-it"}, {}])
def test_a_model_that_is_talked_to_has_a_template(tmp_path: Path, change: dict[str, str]) -> None:
    stage = Stage(tmp_path)
    stage.description |= change
    del stage.files["chat_template.jinja"]
    assert found(stage.scan()) == {(Rule.CHAT_TEMPLATE.value, "chat_template.jinja", "")}


def test_a_template_in_the_tokenizer_config_will_do(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    del stage.files["chat_template.jinja"]
    stage.edit("tokenizer_config.json", chat_template=[{"name": "default", "template": "{{ messages }}"}])
    assert stage.scan().blocking == ()


def test_a_base_model_needs_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    del stage.files["chat_template.jinja"]
    stage.description["card"] |= {"title": "Tiny decoder", "tags": []}
    assert stage.scan().blocking == ()


@pytest.mark.parametrize(
    "template",
    ["{% for m in messages %}", "{{ a b }}", "{% unknown %}", "{{ x | no_such_filter }}", "", "{{ '" + "a",
     "{% if " * 3_000],
    ids=["open", "syntax", "tag", "filter", "empty", "string", "deep"],
)  # fmt: skip
def test_a_template_that_does_not_compile(tmp_path: Path, template: str) -> None:
    stage = Stage(tmp_path)
    stage.files["chat_template.jinja"] = template.encode()
    finding = only(stage.scan())
    assert (finding.rule, finding.path) == (Rule.CHAT_TEMPLATE, "chat_template.jinja")


def test_a_template_that_loads_another(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.edit("tokenizer_config.json", chat_template="{% include 'other' %}{{ messages }}")
    assert found(stage.scan()) == {(Rule.POINTS_OUTSIDE.value, "tokenizer_config.json", "chat_template")}


def test_a_template_that_would_run_for_ever_is_not_rendered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    loops = "".join(f"{{% for a{number} in range(100000) %}}" for number in range(8)) + "{% endfor %}" * 8
    stage.files["chat_template.jinja"] = loops.encode()
    assert stage.scan().blocking == ()
