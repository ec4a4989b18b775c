"""The card: front matter that the Hub's own library reads back, a body that is right for the kind, the same bytes."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from release.scan_stage import Stage, only

from replicate.release.carding import check_card, render_card
from replicate.release.description import ReleaseDescription


def rendered(stage: Stage) -> str:
    stage.write()
    return stage.card().decode()


def snippet(card: str) -> str:
    """Return the code of the card, which must be Python."""
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code is not None
    ast.parse(code[1])
    return code[1]


def custom(stage: Stage) -> Stage:
    stage.description |= {"kind": "custom", "architecture": {"factory": "decoder:build", "code": "code"}}
    stage.description["card"]["library_name"] = "pytorch"
    stage.files["config.json"] = b'{"width": 8}'
    return stage


def test_the_hub_reads_the_front_matter_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["license"] = {"id": "other", "name": "acme-1.0", "link": "LICENSE"}
    data: Any = ModelCard(rendered(stage)).data
    assert data["license"] == "other"
    assert (data["license_name"], data["license_link"]) == ("acme-1.0", "LICENSE")
    assert (data["library_name"], data["pipeline_tag"], data["language"]) == ("transformers", "text-generation", ["en"])
    assert data["datasets"] == ["acme/four-sentences"]
    assert data["co2_eq_emissions"] == {"emissions": 0.2, "source": "estimated from the running time"}
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_split) == ("perplexity", 12.5, "test")
    assert result.dataset_revision == "c51e7b1f0ad0d0d3a1c1b9a3c5f7e6d8b2a49f03"


def test_two_cards_are_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write()
    again = ReleaseDescription.model_validate_json(stage.described.model_dump_json())
    assert render_card(stage.described, stage.facts()) == render_card(again, stage.facts())


def test_the_order_of_keys_in_the_description_does_not_matter(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first = rendered(stage)
    stage.description["card"] = dict(reversed(stage.description["card"].items()))
    assert stage.card().decode() == first


def test_a_full_model_loads_by_its_auto_class_at_its_tag(tmp_path: Path) -> None:
    code = snippet(rendered(Stage(tmp_path)))
    assert 'AutoModelForCausalLM.from_pretrained(name, revision="v1.0", dtype="auto")' in code
    assert 'name = "acme/tiny-decoder"' in code
    assert "AutoTokenizer" in code


def test_a_class_without_an_auto_class_loads_by_its_name(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["architecture"] = {"model_class": "T5EncoderModel"}
    assert "from transformers import T5EncoderModel" in snippet(rendered(stage))


def test_an_adapter_loads_over_its_pinned_base(tmp_path: Path) -> None:
    stage = Stage.adapter(tmp_path)
    card = rendered(stage)
    code = snippet(card)
    assert f'AutoModelForCausalLM.from_pretrained("acme/base", revision="{"c0ffee00" * 5}"' in code
    assert "PeftModel.from_pretrained(base, name" in code
    assert ModelCard(card).data["base_model_relation"] == "adapter"


def test_a_custom_architecture_is_never_labelled_as_loadable(tmp_path: Path) -> None:
    stage = custom(Stage(tmp_path))
    card = rendered(stage)
    code = snippet(card)
    assert "AutoModel" not in card
    assert "from_pretrained" not in card
    assert "from decoder import build" in code
    assert 'state["lm_head.weight"] = state["model.embed_tokens.weight"]' in code
    assert "is not part of this release" in card
    assert stage.scan().blocking == ()


def test_the_card_of_a_folder_names_no_folder(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["destination"] = {"url": "file:///mnt/shelf/tiny", "visibility": "unmanaged"}
    assert "shelf" not in rendered(stage)
    assert stage.scan().blocking == ()


def test_the_body_says_all_there_is_to_say(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    card = rendered(stage)
    facts = stage.facts()
    assert f"| Parameters | {facts.parameters:,} |" in card
    assert "| Data types | BF16 (528), F32 (8), I64 (8) |" in card
    assert "| perplexity | 12.5 | Mean over the four sentences, one pass, no prompt. |" in card
    assert facts.generation in card
    assert "export-manifest.json" in card
    for heading in ("Intended use", "Limitations", "Training", "Compute and environment", "Evaluation", "License"):
        assert f"\n## {heading}\n" in card


def test_a_table_survives_what_is_written_into_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["card"]["evaluation"][0]["protocol"] = "one | two\nthree, all of them"
    assert "one \\| two three, all of them" in rendered(stage)


@pytest.mark.parametrize(
    ("key", "value"),
    [("title", "a: b # c"), ("language", ["no"]), ("tags", ["1.0", "yes", "- x", "a: b"]), ("pipeline_tag", "off")],
)
def test_yaml_keeps_strings_what_they_are(tmp_path: Path, key: str, value: Any) -> None:
    stage = Stage(tmp_path)
    stage.description["card"][key] = value
    data = ModelCard(rendered(stage)).data
    assert key == "title" or data[key][: len(value)] == value


def test_a_card_of_a_release_without_evaluation_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["card"] |= {"evaluation": [], "emissions": None}
    card = rendered(stage)
    assert "model-index" not in card
    assert "No evaluation was measured" in card
    assert stage.scan().blocking == ()


def test_the_check_of_the_card_is_part_of_the_scan(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    stage.files["README.md"] = stage.card().replace(b"| Parameters | ", b"| Parameters | 9")
    report = stage.scan(manifest=manifest)
    told = check_card(stage.files["README.md"], stage.described, manifest)
    assert told == (next(one for one in report.blocking if one.place == "Parameters"),)
    assert only(stage.scan()) == told[0]
