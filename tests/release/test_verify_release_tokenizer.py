"""The tokenizer of a release against its model: ids, texts that come back, a chat template that renders."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from release.verifying_by_hand import Maker, detail, edit, in_this_process, reseal, verdicts
from support.releases import Built

from replicate.release.verifying.checks import Verdict

WTE = "transformer.wte.weight"


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def maker(tiny: Callable[[str], Built], here: None, tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tiny=tiny, root=tmp_path_factory.mktemp("prepared"))


def test_an_id_beyond_the_embedding(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    token = {"id": 260, "content": "<new>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    edit(made.tree / "tokenizer.json", lambda document: document["added_tokens"].append({**token, **flags}))
    reseal(made.tree)
    found = detail(made.verify(deep=False), "tokenizer")
    assert f"outside of the 260 rows of the embedding ({WTE}): '<new>' is 260" in found


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_special_ids_agree(maker: Maker, tmp_path: Path, file: str) -> None:
    made = maker.copy(tmp_path, "gpt2")
    edit(made.tree / file, lambda config: config.update({"eos_token_id": 7, "pad_token_id": 50256}))
    reseal(made.tree)
    found = detail(made.verify(deep=False), "tokenizer")
    assert f"{file}: eos_token_id is 7, the tokenizer's is 1" in found
    assert f"{file}: pad_token_id 50256 is outside of the 260 rows" in found


def test_one_of_several_ends_is_enough(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    edit(made.tree / "generation_config.json", lambda config: config.update({"eos_token_id": [7, 1]}))
    reseal(made.tree)
    assert verdicts(made.verify(deep=False))["tokenizer"] is Verdict.PASSED


def test_text_comes_back(maker: Maker, tmp_path: Path) -> None:
    """Without its decoder a byte-level tokenizer gives back letters that stand for bytes."""
    made = maker.copy(tmp_path, "gpt2")
    edit(made.tree / "tokenizer.json", lambda document: document.update({"decoder": None}))
    reseal(made.tree)
    assert "comes back as" in detail(made.verify(deep=False), "tokenizer")


def test_a_tokenizer_that_cannot_be_loaded(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    (made.tree / "tokenizer.json").write_text("{}")
    reseal(made.tree)
    report = made.verify(deep=False)
    assert "AutoTokenizer cannot load it" in detail(report, "tokenizer")
    assert "AutoTokenizer cannot load it" in detail(report, "chat-template")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for message in messages %}{{ message.content }}", "does not render"),
        ("{{ messages[0].content }}", "lacks 'Six of them.'"),
        ("{% for message in messages|reverse %}{{ message.content }}\n{% endfor %}", "in another order"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "does not render: SecurityError"),
        ("{{ messages.append('x') }}", "does not render: SecurityError"),
    ],
)
def test_a_chat_template_that_is_broken(maker: Maker, tmp_path: Path, template: str, words: str) -> None:
    made = maker.copy(tmp_path, "gpt2")
    (made.tree / "chat_template.jinja").write_text(template)
    reseal(made.tree)
    assert words in detail(made.verify(deep=False), "chat-template")


def test_a_chat_template_that_is_promised(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    (made.tree / "chat_template.jinja").unlink()
    edit(made.tree / "tokenizer_config.json", lambda config: config.pop("chat_template", None))
    reseal(made.tree)
    assert "the tokenizer loads none" in detail(made.verify(deep=False), "chat-template")


def test_a_release_without_a_tokenizer_says_so(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        (made.tree / name).unlink()
    reseal(made.tree)
    found = next(check for check in made.verify(deep=False).checks if check.name == "tokenizer")
    assert (found.verdict, found.detail) == (Verdict.PASSED, "the release has no tokenizer: nothing to check")
