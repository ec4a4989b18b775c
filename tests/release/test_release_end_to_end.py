"""Each kind of release by the command line, from a generation to a fresh download with the same logits."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from cli.driver import Done, run_command
from peft import PeftModel
from safetensors.torch import load_file
from support.hub import HubServer, OrgRole
from support.hub.client import CLASSIC_LFS_WARNING, isolate_library
from support.releases import PROMPT, Built, load_factory, logits, variant
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = [
    pytest.mark.filterwarnings(CLASSIC_LFS_WARNING),
    pytest.mark.filterwarnings("ignore:Cannot enable progress bars:UserWarning"),  # transformers tries, after a test
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # peft 0.21.2 still asks for it
]

KINDS = ("gpt2", "llama", "moe", "adapter", "custom")
DEEP = "gpt2"
"""Is loaded by the command in processes of its own, too; test_verify_release_models.py does that for every kind."""
PEOPLE = {
    "requester": ["request"],
    "approver-a": ["approve", "revoke"],
    "approver-b": ["approve"],
    "publisher": ["publish"],
}


@dataclass(frozen=True, kw_only=True)
class Office:
    """A project folder with a policy and keys, a model to release, and the Hub."""

    root: Path
    built: Built
    hub: HubServer
    token: Path

    @property
    def prepared(self) -> Path:
        return self.root / "prepared"

    def run(self, command: str, *arguments: str | Path, code: int = 0) -> Done:
        done = run_command("release", command, *map(str, arguments))
        assert done.code == code, done
        return done

    def sign(self, person: str) -> tuple[str, ...]:
        return ("--policy", str(self.root / "policy.toml"), "--as", person, "--key", str(self.root / f"{person}.pem"))

    def configured(self) -> tuple[str, ...]:
        return ("--config", str(self.root / "ckptier.toml"))

    def prepare(self) -> str:
        done = self.run("prepare", self.built.description, "--out", self.prepared, "--json", *self.configured())
        return str(done.result()["export_manifest_sha256"])

    def authorize(self, name: str, *wish: str) -> Path:
        """Ask, and have two people approve."""
        path = self.root / name
        self.run("authorize", self.prepared, *self.sign("requester"), "--out", path, "--token-file", self.token, *wish)
        for approver in ("approver-a", "approver-b"):
            self.run("approve", path, self.prepared, *self.sign(approver))
        return path

    def publish(self, authorization: Path, *, code: int = 0) -> dict[str, Any]:
        done = self.run(
            "publish", self.prepared, "--authorization", authorization, *self.sign("publisher"),
            "--token-file", self.token, "--json", code=code,
        )  # fmt: skip
        found: dict[str, Any] = done.document()
        return found

    def download(self, commit: str) -> Path:
        """Fetch a commit into a new folder, with a cache that holds nothing."""
        repo = f"acme/{self.built.name}"
        return Path(
            huggingface_hub.snapshot_download(
                repo, revision=commit, local_dir=self.root / "download", cache_dir=self.root / "cache",
                endpoint=self.hub.url,
                token=self.token.read_text().strip(),
            )
        )  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server, pytest.MonkeyPatch.context() as patch:
        server.add_org("acme", {"writer": OrgRole.WRITE})
        isolate_library(patch, tmp_path / "hf-home", endpoint=server.url)
        yield server
        huggingface_hub.close_session()


@pytest.fixture
def office(hub: HubServer, tiny: Callable[[str], Built], tmp_path: Path) -> Callable[[str], Office]:
    def furnish(kind: str) -> Office:
        built = variant(tiny(kind), tmp_path / "release", {"destination.endpoint": hub.url})
        token = tmp_path / "token"
        token.write_text(hub.add_token("writer", user="writer"))
        furnished = Office(root=tmp_path, built=built, hub=hub, token=token)
        people = [
            f'[[person]]\nname = "{person}"\nmay = {json.dumps(may)}\n'
            + furnished.run("keygen", tmp_path / f"{person}.pem", "--no-passphrase").out
            for person, may in PEOPLE.items()
        ]
        (tmp_path / "policy.toml").write_text(
            f'format = 1\nlog = "file://{tmp_path}/release-log"\n'
            + "\n".join(people)
            + f'\n[[destination]]\nurl = "hf://acme/*"\nendpoint = "{hub.url}"\nvisibility = ["private", "public"]\n'
        )
        (tmp_path / "release-log").mkdir()
        (tmp_path / "ckptier.toml").write_text(f'run = "{built.run.name}"\nstore = "{built.run.parent}"\n')
        return furnished

    return furnish


def load(built: Built, tree: Path) -> torch.nn.Module:
    """Load a download as its users would."""
    if built.name == "tiny-custom":
        model = load_factory(built.folder / "code", "decoder:build")(json.loads((tree / "config.json").read_text()))
        model.load_state_dict(load_file(tree / "model.safetensors"))
        return model
    if built.name == "tiny-adapter":
        base = AutoModelForCausalLM.from_pretrained(built.folder / "base")
        return PeftModel.from_pretrained(base, str(tree))
    model = AutoModelForCausalLM.from_pretrained(tree)
    assert isinstance(model, torch.nn.Module)
    return model


def becomes_public(at: Office, permitted: Path, commit: str) -> None:
    """Private becomes public under an authorization of its own, and the first one is used up."""
    shown = at.run("show", permitted, "--policy", at.root / "policy.toml").out
    for words in ("hf://acme/tiny-gpt2", "private", "apache-2.0", "v1.0.0", "2 of 2 needed", "requester"):
        assert words in shown
    at.hub.forget_requests()
    assert "nonce" in at.publish(permitted, code=6)["error"]["message"]
    assert at.hub.writes == []
    changed = at.publish(at.authorize("show.json", "--set-visibility", "public", "--commit", commit))["result"]
    assert changed["visibility"] == "public"
    assert at.hub.repos["acme/tiny-gpt2"].visibility == "public"
    log = at.run("log", "--policy", at.root / "policy.toml").out
    assert "published" in log
    assert "visibility-changed" in log


def is_taken_back(at: Office, _permitted: Path, _commit: str) -> None:
    """Refuse to publish again what was revoked or withdrawn."""
    revoked = at.authorize("second.json")
    at.run("revoke", revoked, *at.sign("approver-a"), "--reason", "the wrong checkpoint")
    assert "revoked" in at.publish(revoked, code=6)["error"]["message"]
    still_valid = at.authorize("third.json")
    at.run("withdraw", at.prepared, *at.sign("approver-a"), "--reason", "a dataset had to go", "--token-file", at.token)
    assert "withdrawn" in at.publish(still_valid, code=6)["error"]["message"]
    assert at.hub.repos["acme/tiny-custom"].visibility == "private"


AFTERWARDS = {"gpt2": becomes_public, "custom": is_taken_back}
"""What one kind goes through besides: making a release takes long."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_from_a_generation_to_a_fresh_download_with_the_same_logits(kind: str, office: Callable[[str], Office]) -> None:
    at = office(kind)
    known = ("--description", str(at.built.description), "--manifest-sha256", at.prepare(), "--strict")
    if kind == DEEP:
        assert "FAIL" not in at.run("verify", at.prepared, *known, *at.configured()).out
    permitted = at.authorize("auth.json")
    published = at.publish(permitted)["result"]
    repo = at.hub.repos[f"acme/{at.built.name}"]
    assert repo.visibility == "private"
    assert repo.head("main") == published["commit"] == repo.tags["v1.0.0"]
    tree = at.download(published["commit"])
    assert "FAIL" not in at.run("verify", tree, *known, "--no-deep", *at.configured(), code=3).out
    model = load(at.built, tree)
    assert torch.equal(logits(model), at.built.logits())
    assert AutoTokenizer.from_pretrained(tree).decode([40, 41]) == AutoTokenizer.from_pretrained(
        at.built.folder
    ).decode([40, 41])
    assert int(PROMPT.max()) < len(AutoTokenizer.from_pretrained(tree))
    if kind in AFTERWARDS:
        AFTERWARDS[kind](at, permitted, published["commit"])
