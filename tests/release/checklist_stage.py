"""What the checklist is driven with: trees that are damaged and fit their manifest, a Hub that must see no write."""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import typer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from release.authorized_by_hand import fields
from release.publish_hub_stage import REPO, HubStage
from release.publish_stage import Steps
from release.scan_stage import DESCRIPTION, Stage
from release.verifying_by_hand import Made, detail, read_manifest, reseal, rewrite
from support.hub import OrgRole
from support.releases import tweak
from support.toml_text import toml

from replicate.cli.main import app
from replicate.errors import CkptierError
from replicate.release.bundle import Action
from replicate.release.deciding import NotAuthorized
from replicate.release.findings import Rule, Waiver

WEIGHTS = "model.safetensors"
Contents = dict[str, tuple[str, tuple[int, ...], bytes]]
ADAPTER_AS_FULL: Mapping[str, Any] = {
    "kind": "full", "adapter": None, "architecture": {"model_class": "LlamaForCausalLM"},
    "files.config": "base/config.json", "files.adapter_config": None, "card.library_name": "transformers",
}  # fmt: skip


def told(kind: type[CkptierError], act: Callable[[], object], *words: str) -> str:
    """Expect an error that names what is wrong and says what to do; returns that."""
    with pytest.raises(kind) as caught:
        act()
    assert all(word in caught.value.message for word in words), caught.value.message
    assert caught.value.hint
    return caught.value.hint


def faults_of(made: Made, check: str, *, deep: bool = False, **given: Any) -> str:
    """Verify a tree whose manifest fits it again; return what a check that has to fail says."""
    return detail(replace(made, tree=reseal(made.tree)).verify(deep=deep, **given), check)


def nothing_sent(hub: HubStage, act: Callable[[], object], *named: str) -> None:
    """Expect a refusal that names fields, and no request that would have changed anything."""
    hub.hub.forget_requests()
    with pytest.raises(NotAuthorized) as caught:
        act()
    assert set(named) <= set(fields(caught.value.refusals)), caught.value.message
    assert all(name in caught.value.message for name in named)
    assert caught.value.hint
    assert hub.hub.writes == []


def rename_tensor(tree: Path, old: str, new: str | None) -> None:
    """Give a tensor another name, or take it out."""

    def change(tensors: Contents) -> None:
        taken = tensors.pop(old)
        tensors.update({new: taken} if new else {})

    rewrite(tree / WEIGHTS, change)


def cast_silently(tree: Path, name: str, dtype: str) -> None:
    """Write 16 bits for each element of a tensor, record that as a cast, and let the manifest fit."""

    def change(tensors: Contents) -> None:
        _, shape, data = tensors[name]
        tensors[name] = (dtype, shape, data[: 2 * math.prod(shape)])

    rewrite(tree / WEIGHTS, change)
    changes = {"action": Action.CAST, "to_dtype": dtype}
    recorded = read_manifest(tree).transforms
    reseal(tree, transforms=tuple(one.model_copy(update=changes) if one.target == name else one for one in recorded))


def empty_metadata(path: Path) -> None:
    """Leave a safetensors file as it is, but for what its metadata says."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    path.write_bytes(data[:8] + data[8:end].replace(b'{"format":"pt"}', b"{}").ljust(end - 8) + data[end:])


def options_for_secrets() -> dict[str, str | None]:
    """Return what every release command takes that is called like a secret, and what it says it is."""
    release: Any = typer.main.get_command(app)
    return {
        parameter.name: parameter.metavar
        for command in release.commands["release"].commands.values()
        for parameter in command.params
        if re.search("token|pass|key|secret", parameter.name) and not getattr(parameter, "is_flag", False)
    }


def with_index(stage: Stage, index: str, change: Callable[[Any], object]) -> Stage:
    """Let a release by hand have another index than the one that belongs to it."""
    stage.write()
    document = json.loads((stage.tree / index).read_text())
    change(document)
    stage.files[index] = json.dumps(document).encode()
    return stage


def described(folder: Path, changes: dict[str, object]) -> Path:
    """Write the description of a release by hand, with changes."""
    path = folder / "release.toml"
    path.write_text(toml(dict(DESCRIPTION)))
    return tweak(path, changes)


def waiver(rule: Rule, path: str) -> Waiver:
    """Return somebody's answer to the findings of a rule."""
    expires = datetime(2027, 1, 1, tzinfo=UTC)
    return Waiver(rule=rule, path=path, reason="nobody minds it", author="author", expires=expires)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Let new files be as private as somebody's shell would have it."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def key_pair(folder: Path) -> tuple[Path, Path]:
    """Write an elliptic-curve key; returns the files of its private and its public half."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    private, public = folder / "signer.pem", folder / "signer.pub"
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(pem, form))
    return private, public


@dataclass(slots=True)
class Onlooker(Steps):
    """Looks at the branch whenever a step is told, and asks as a stranger whether there is anything at all."""

    hub: HubStage = field(kw_only=True)
    stranger: huggingface_hub.HfApi = field(kw_only=True)
    seen: list[dict[str, bytes]] = field(default_factory=list)
    shown: list[bool] = field(default_factory=list)

    def __call__(self, what: str) -> None:
        self.told.append(what)
        self.seen.append(self.hub.files("main"))
        self.shown.append(self.stranger.repo_exists(REPO))


@contextmanager
def onlooker(hub: HubStage) -> Iterator[Onlooker]:
    """Let somebody of another organisation look on."""
    hub.hub.add_org("others", {"eve": OrgRole.WRITE})
    token = hub.hub.add_token("eve", user="eve")
    yield Onlooker(hub=hub, stranger=huggingface_hub.HfApi(endpoint=hub.hub.url, token=token))
