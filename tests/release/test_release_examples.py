"""What people copy from: the examples, the templates of ``release init`` and the blocks of docs/release.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from replicate.errors import ConfigInvalid
from replicate.release.description import ReleaseDescription, load_description
from replicate.release.findings import Waiver
from replicate.release.licenses import check_license
from replicate.release.policy import Policy, load_policy
from replicate.release.templates import POLICY, POLICY_TEMPLATE, RELEASE, RELEASE_TEMPLATE
from replicate.release.verbs import load_waivers

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "release"
KEY = "ed25519:XhGt3bShfhRd7TEjJItGy+WfqvTpa3eq8GYE7QQLgDE="
ALWAYS_ONE_VALUE = {"repo_type"}
"""Keys that nobody has to write."""
EMPTY_KEY = re.compile(r'^(\w+) = ""', re.MULTILINE)
OPTIONAL_LINE = re.compile(r"^# (\[\[?[\w.]+\]\]?.*|\w+ = .*)$", re.MULTILINE)
PROSE = "words that somebody wrote about this model"
FILLED = {
    "id": "mit",
    "url": "hf://owner/name",
    "log": "file:///srv/release-log",
    "model_class": "GPT2LMHeadModel",
    **dict.fromkeys(("name", "code_version", "title"), "tiny"),
    **dict.fromkeys(("summary", "intended_use", "limitations", "training", "compute"), PROSE),
}


def documented(first: str) -> str:
    """Return the block of docs/release.md that begins with a line."""
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "release.md").read_text(), re.DOTALL)
    (block,) = [one for one in blocks if one.startswith(first)]
    return block


def with_keys(policy: str) -> str:
    """Put a key of its own in for each one that is only hinted at."""
    known = iter(re.findall(r"ed25519:[\w+/]{43}=", (EXAMPLES / POLICY).read_text()))
    return re.sub(r'^key = "(ed25519:…)?"', lambda _: f'key = "{next(known)}"', policy, flags=re.MULTILINE)


def filled(template: str) -> str:
    return EMPTY_KEY.sub(lambda found: f'{found[1]} = "{FILLED[found[1]]}"', with_keys(template))


def described(tmp_path: Path, text: str) -> ReleaseDescription:
    (tmp_path / RELEASE).write_text(text)
    return load_description(tmp_path / RELEASE)


def ruled(tmp_path: Path, text: str) -> Policy:
    (tmp_path / POLICY).write_text(text)
    return load_policy(tmp_path / POLICY)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (tuple, Union, UnionType) or hasattr(annotation, "__metadata__"):
        for part in get_args(annotation):
            yield from models_in(part)


def keys_of(model: type[BaseModel]) -> set[str]:
    """Return every key of a document and of its parts."""
    keys = set(model.model_fields)
    for field in model.model_fields.values():
        for part in models_in(field.annotation):
            keys |= keys_of(part)
    return keys


def test_the_examples_load_and_fit_together() -> None:
    description, policy = load_description(EXAMPLES / RELEASE), load_policy(EXAMPLES / POLICY)
    check_license(description.license)
    assert policy.differing(description.destination) == ""
    assert len({person.key for person in policy.person}) == len(policy.person)


def test_the_blocks_of_the_documentation_load_and_fit_together(tmp_path: Path) -> None:
    description = described(tmp_path, documented("format = 1\nkind"))
    policy = ruled(tmp_path, with_keys(documented("format = 1\nthreshold")))
    check_license(description.license)
    assert policy.differing(description.destination) == ""


def test_the_waiver_of_the_documentation_loads(tmp_path: Path) -> None:
    (tmp_path / "waivers.toml").write_text(documented("[[waiver]]"))
    (waiver,) = load_waivers(tmp_path / "waivers.toml")
    assert isinstance(waiver, Waiver)


def test_a_filled_template_loads(tmp_path: Path) -> None:
    description = described(tmp_path, filled(RELEASE_TEMPLATE))
    policy = ruled(tmp_path, filled(POLICY_TEMPLATE))
    assert policy.differing(description.destination) == ""


@pytest.mark.parametrize("template", [RELEASE_TEMPLATE, POLICY_TEMPLATE], ids=["release", "policy"])
def test_every_key_that_is_left_empty_is_named(template: str, tmp_path: Path) -> None:
    load = described if template is RELEASE_TEMPLATE else ruled
    with pytest.raises(ConfigInvalid) as refused:
        load(tmp_path, template)
    named = re.findall(r"(?:^|; |: )[\w.]*?(\w+): (?:empty|too short|does not fit|a public key)", refused.value.message)
    assert sorted(named) == sorted(EMPTY_KEY.findall(template))


@pytest.mark.parametrize(
    ("template", "model"),
    [(RELEASE_TEMPLATE, ReleaseDescription), (POLICY_TEMPLATE, Policy)],
    ids=["release", "policy"],
)
def test_a_template_has_every_key(template: str, model: type[BaseModel]) -> None:
    shown = set(re.findall(r"^(?:# )?(\w+) = ", template, re.MULTILINE))
    shown |= {
        part for table in re.findall(r"^(?:# )?\[+([\w.]+)\]", template, re.MULTILINE) for part in table.split(".")
    }
    assert keys_of(model) - ALWAYS_ONE_VALUE == shown


def test_what_is_commented_out_in_a_template_is_taken(tmp_path: Path) -> None:
    whole = OPTIONAL_LINE.sub(lambda found: found[1], RELEASE_TEMPLATE).replace("https://…", "https://hub.example")
    of_another_kind = re.compile(r"^\[adapter\].*?(?=^\[files\])", re.MULTILINE | re.DOTALL)
    description = described(tmp_path, filled(of_another_kind.sub("", whole)))
    assert description.weights.cast is not None
    assert description.card.emissions is not None
    assert description.architecture.factory == "decoder:build"
    policy = OPTIONAL_LINE.sub(lambda found: found[1], POLICY_TEMPLATE).replace("https://…", "https://hub.example")
    assert ruled(tmp_path, filled(policy)).requester_may_approve
