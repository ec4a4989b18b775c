"""A card checked offline: each field, against the description and the files, before the Hub or a reader sees it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from release.scan_stage import Stage, bf16, normal

from replicate.release.carding import check_card
from replicate.release.findings import Rule

Change = Callable[[str], str]


def told(stage: Stage, change: Change = lambda card: card) -> set[tuple[str, str]]:
    """Return (rule, place) of what is wrong with the card of a stage after a change."""
    manifest = stage.write()
    card = change(stage.card().decode()).encode()
    return {(one.rule.value, one.place) for one in check_card(card, stage.described, manifest)}


def replaced(old: str, new: str) -> Change:
    def change(card: str) -> str:
        assert old in card
        return card.replace(old, new)

    return change


def added(line: str) -> Change:
    """Put a line into the front matter."""
    return replaced("---\nlicense:", f"---\n{line}\nlicense:")


def below(text: str) -> Change:
    return lambda card: f"{card}\n{text}\n"


def test_the_card_as_it_is_rendered(tmp_path: Path) -> None:
    assert told(Stage(tmp_path)) == set()


@pytest.mark.parametrize(
    ("change", "rule", "place"),
    [
        (replaced("license: apache-2.0\n", ""), Rule.CARD_INCOMPLETE, "license"),
        (replaced("license: apache-2.0", "license: mit"), Rule.LICENSE, "license"),
        (replaced("library_name: transformers\n", ""), Rule.CARD_INCOMPLETE, "library_name"),
        (replaced("library_name: transformers", "library_name: mlx"), Rule.CARD_DISAGREES, "library_name"),
        (replaced("pipeline_tag: text-generation\n", ""), Rule.CARD_DISAGREES, "pipeline_tag"),
        (replaced("- acme/four-sentences\n", "- acme/others\n"), Rule.CARD_DISAGREES, "datasets"),
        (replaced("- acme/four-sentences\n", "- ../data/four\n"), Rule.CARD_INCOMPLETE, "datasets"),
        (replaced("- acme/four-sentences\n", "- https://a.b/c\n"), Rule.CARD_INCOMPLETE, "datasets"),
        (replaced("- en\n", "- English\n"), Rule.CARD_INCOMPLETE, "language"),
        (added("base_model: acme/base"), Rule.CARD_DISAGREES, "base_model"),
        (added("base_model: base"), Rule.CARD_INCOMPLETE, "base_model"),
        (added("base_model_relation: finetune"), Rule.CARD_INCOMPLETE, "base_model"),
        (replaced("emissions: 0.2", "emissions: a little"), Rule.CARD_INCOMPLETE, "co2_eq_emissions"),
        (replaced("emissions: 0.2", "emissions: -1"), Rule.CARD_INCOMPLETE, "co2_eq_emissions"),
        (replaced("emissions: 0.2", "emissions: .nan"), Rule.CARD_INCOMPLETE, "co2_eq_emissions"),
        (replaced("  source: estimated", "  note: estimated"), Rule.CARD_INCOMPLETE, "co2_eq_emissions"),
        (added("license: apache-2.0"), Rule.CARD_INCOMPLETE, "front matter"),
        (added("a: [1"), Rule.CARD_INCOMPLETE, "front matter"),
        (added("a: &x 1\nb: *x"), Rule.CARD_INCOMPLETE, "front matter"),
        (added("a: !!python/object:os.system {}"), Rule.CARD_INCOMPLETE, "front matter"),
        (replaced("| Parameters | 544 |", "| Parameters | 545 |"), Rule.CARD_DISAGREES, "Parameters"),
        (replaced("| Parameters | 544 |\n", ""), Rule.CARD_INCOMPLETE, "Parameters"),
        (replaced("BF16 (528)", "F16 (528)"), Rule.CARD_DISAGREES, "Data types"),
    ],
)
def test_a_field_that_is_wrong(tmp_path: Path, change: Change, rule: Rule, place: str) -> None:
    assert (rule.value, place) in told(Stage(tmp_path), change)


def test_no_front_matter_and_no_body(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert (Rule.CARD_INCOMPLETE.value, "front matter") in told(stage, lambda card: card.split("---\n", 2)[2])
    assert (Rule.CARD_INCOMPLETE.value, "Parameters") in told(stage, lambda card: card.split("\n\n#", maxsplit=1)[0])
    assert (Rule.CARD_INCOMPLETE.value, "front matter") in told(stage, lambda _: "---\nnever closed\n")
    assert (Rule.CARD_INCOMPLETE.value, "front matter") in told(stage, lambda _: "")


def test_a_card_that_is_no_text(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    (finding,) = check_card(b"---\n\xff", stage.described, manifest)
    assert "UTF-8" in finding.detail


LATER = "TO" + "DO"
"""Not spelled out: this tree holds no such note."""
PLACEHOLDERS = [
    "[More Information Needed]", "More information needed", f"{LATER}: write this", "TBD", "Lorem ipsum dolor",
    "FIX" + "ME", 'name = "your-username/model"', "your_token", "YOUR-TOKEN", "use <your name>", "<model_id>",
    "<insert link>", "{{ model }}", "(insert text here)", "XX" + "X", "[optional]",
]  # fmt: skip


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_named_by_its_line(tmp_path: Path, text: str) -> None:
    stage = Stage(tmp_path)
    lines = stage.write() and stage.card().decode().count("\n") + 2
    assert told(stage, below(text)) == {(Rule.CARD_PLACEHOLDER.value, f"line {lines}")}


@pytest.mark.parametrize(
    "text",
    ["<br>", "see <https://example.org>", "the token <|im_end|>", "`</s>` and <s>", "a List<String> of them",
     "1 < 2 > 0", "<details><summary>more</summary></details>", "it is your own", "todos", "<pad>",
     '<img src="x.png">'],
)  # fmt: skip
def test_what_is_no_placeholder(tmp_path: Path, text: str) -> None:
    assert told(Stage(tmp_path), below(text)) == set()


@pytest.mark.parametrize(
    "text", ["[a](config.json)", "[a](https://example.org/x)", "[a](#license)", "[m](export-manifest.json)"]
)
def test_links_that_hold(tmp_path: Path, text: str) -> None:
    assert told(Stage(tmp_path), below(text)) == set()


@pytest.mark.parametrize("text", ["[a](notes.md)", "![p](images/loss.png)", "[a](../x)", "[a](notes.md#part)"])
def test_links_to_what_is_not_published(tmp_path: Path, text: str) -> None:
    assert {rule for rule, _ in told(Stage(tmp_path), below(text))} == {Rule.CARD_DISAGREES.value}


@pytest.mark.parametrize(
    ("text", "holds"), [("a 0.54K parameters model", True), ("7B parameters", False), ("3B-params", False)]
)
def test_how_many_parameters_the_prose_claims(tmp_path: Path, text: str, holds: bool) -> None:
    assert (told(Stage(tmp_path), below(text)) == set()) is holds


def test_an_adapter_may_speak_of_its_base(tmp_path: Path) -> None:
    assert told(Stage.adapter(tmp_path), below("It sits on 7B parameters.")) == set()


@pytest.mark.parametrize("field", ["base_model:\n- acme/base\n", "base_model_relation: adapter\n"])
def test_an_adapter_says_its_base(tmp_path: Path, field: str) -> None:
    place = field.partition(":")[0]
    assert (Rule.CARD_INCOMPLETE.value, place) in told(Stage.adapter(tmp_path), replaced(field, ""))


def test_a_custom_architecture_is_no_library_s(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description |= {"kind": "custom", "architecture": {"factory": "decoder:build", "code": "code"}}
    stage.description["card"]["library_name"] = "pytorch"
    wrong = told(stage, replaced("library_name: pytorch", "library_name: transformers"))
    assert (Rule.CARD_DISAGREES.value, "library_name") in wrong


def test_the_text_of_the_license_is_published(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    del stage.files["LICENSE"]
    assert told(stage) == {(Rule.LICENSE.value, "license")}


def test_a_license_that_is_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    card = stage.card()
    stage.description["license"]["id"] = "apache-2"
    (finding,) = check_card(card, stage.described, manifest)
    assert finding.rule is Rule.LICENSE
    assert "did you mean 'apache-2.0'" in finding.detail


def test_the_license_of_the_manifest_is_the_same(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write().model_copy(update={"license": "mit"})
    (finding,) = check_card(stage.card(), stage.described, manifest)
    assert (finding.rule, finding.place) == (Rule.LICENSE, "license")


def test_a_link_to_a_license_that_is_not_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["license"] = {"id": "other", "name": "acme-1.0", "link": "LICENSE-ACME"}
    assert told(stage, replaced("[text](LICENSE-ACME)", "text")) == {(Rule.LICENSE.value, "license_link")}


def test_the_license_of_the_base_model_binds_an_adapter(tmp_path: Path) -> None:
    stage = Stage.adapter(tmp_path)
    stage.description["adapter"]["base_license"] = "gemma"
    assert told(stage) == {(Rule.LICENSE.value, "base_model")}
    stage.description["license"]["id"] = "gemma"
    assert told(stage) == set()


def test_and_a_finetune_of_a_well_known_model(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["card"] |= {"base_model": ["meta-llama/Llama-3.1-8B"], "base_model_relation": "finetune"}
    manifest = stage.write()
    findings = check_card(stage.card(), stage.described, manifest)
    assert {one.place for one in findings} == {"base_model"}
    assert any("expected llama3.1 or other" in one.detail for one in findings)
    assert any("has to begin with 'Llama'" in one.detail for one in findings)


def test_the_card_says_one_dtype_and_the_weights_another(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write()
    stage.files["README.md"] = stage.card()
    stage.shards["model-00002-of-00002.safetensors"]["model.norm.weight"] = bf16(normal(4, 8))
    assert {(one.rule, one.place) for one in stage.scan().blocking} == {(Rule.CARD_DISAGREES, "Data types")}


def test_no_card_at_all(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write()
    (stage.tree / "README.md").unlink()
    report = stage.scan(write=False)
    assert (Rule.CARD_INCOMPLETE, "README.md") in {(one.rule, one.path) for one in report.blocking}
