"""Words that only a training knows, planted wherever one keeps something: none of them gets out with a release.

Each place has a word of its own, so that what leaks says where it comes from.  They are searched
for as bytes, and as the text that hex or base64 would make of them: in every file that is
published, in what lies beside it, in authorization, log and output, and in what the Hub was sent.
"""

import base64
import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import huggingface_hub
import pytest
import torch
from cli.driver import run_command
from release.prepare_stage import Tiny
from release.publish_stage import tree_of
from release.verifying_by_hand import in_this_process
from support.hub import HubServer, OrgRole
from support.hub.client import CLASSIC_LFS_WARNING, isolate_library
from support.releases import BUILDERS, Built, variant

from replicate import RunStore
from replicate.manifest import Experiment
from tiers.testing.manual_clock import ManualClock

pytestmark = [
    pytest.mark.filterwarnings(CLASSIC_LFS_WARNING),
    pytest.mark.filterwarnings("ignore:Cannot enable progress bars:UserWarning"),  # transformers tries, after a save
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # peft 0.21.2 still asks for it
]
PLACES = (
    "optimizer", "rng", "trainer-state", "path", "run-name", "host", "user", "home", "node", "experiment", "contract",
    "environment", "comment", "code", "local-key",
)  # fmt: skip
CANARIES: Mapping[str, str] = {place: f"canary-{place}-{number:02d}qzx" for number, place in enumerate(PLACES)}
TOKENS: Mapping[str, str] = {
    "HF_TOKEN": "hf_" + "CaNaRyZq" * 4,
    "AWS_ACCESS_KEY_ID": "AKIA" + "CANARYZQ" * 2,
    "AWS_SECRET_ACCESS_KEY": "caNaRy/ZqX" * 4,
    "WANDB_API_KEY": "0ca9a5e7" * 5,
}
PEOPLE = {
    "requester": ["request"], "approver-a": ["approve", "revoke"], "approver-b": ["approve"], "publisher": ["publish"],
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    with in_this_process():
        yield


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server, pytest.MonkeyPatch.context() as patch:
        server.add_org("acme", {"writer": OrgRole.WRITE})
        isolate_library(patch, tmp_path / "hf-home", endpoint=server.url)
        yield server
        huggingface_hub.close_session()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let host, user, home and environment be ones that are known again."""
    monkeypatch.setattr(socket, "gethostname", lambda: CANARIES["host"])
    system, _, *rest = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((system, CANARIES["host"], *rest)))
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, CANARIES["user"])
    monkeypatch.setenv("HOME", str(tmp_path / CANARIES["home"]))
    monkeypatch.setenv("SOME_SETTING", CANARIES["environment"])
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)
    assert getpass.getuser() == CANARIES["user"]


def planted(built: Built, where: Path, endpoint: str) -> Built:
    """Seal a generation once more, with a canary in every place that is not published, and so its description."""
    described = variant(built, where / CANARIES["path"] / "release", {"destination.endpoint": endpoint})
    store = RunStore(where / CANARIES["path"] / "runs" / CANARIES["run-name"], clock=ManualClock())
    source = built.source()
    publication = store.publish(
        next_update=2,
        contract={**source.record.contract, "data": f"/mnt/{CANARIES['contract']}/corpus.bin"},
        environment={"node": CANARIES["node"]},
        experiment=Experiment(system="curves", run_id=CANARIES["experiment"], logging_step=2),
    )
    with publication as directory:
        for path, data in tree_of(source.files).items():
            (directory / path).write_bytes(data)
        _plant_in_files(directory)
    assert publication.generation is not None
    _plant_in_description(described)
    return replace(described, run=store.local.root, generation=publication.generation.id)


def _plant_in_files(directory: Path) -> None:
    """Write the words into moments and random states as the bytes of numbers, and into what a trainer says."""
    for path in sorted(directory.glob("*.pt*")):
        document = torch.load(path, weights_only=False)
        optimizer = document.get("optimizer", document)
        if "state" in optimizer:
            _overwrite(next(one["exp_avg"] for one in optimizer["state"].values()), CANARIES["optimizer"])
        for random in (document.get("rng", {}).get("torch_cpu"), document.get("cpu")):
            if random is not None:
                _overwrite(random, CANARIES["rng"])
        if "extra" in document or "plant" in document:
            document["extra"] = {"plant": {"value": CANARIES["trainer-state"]}}
        torch.save(document, path)


def _overwrite(tensor: torch.Tensor, word: str) -> None:
    data = word.encode()
    data += b"\0" * (-len(data) % tensor.element_size())
    values = torch.frombuffer(bytearray(data), dtype=tensor.dtype)
    tensor.view(-1)[: len(values)] = values


def _plant_in_description(built: Built) -> None:
    (built.folder / "code").mkdir(exist_ok=True)
    (built.folder / "code" / "notes.py").write_text(f'"""{CANARIES["code"]}"""\n')
    text = built.description.read_text()
    built.description.write_text(f"# {CANARIES['comment']}\n{text}\n# see {CANARIES['comment']}\n")
    config = built.folder / ("adapter_config.json" if built.name == "tiny-adapter" else "config.json")
    document = json.loads(config.read_text())
    local = {"_name_or_path": f"/home/{CANARIES['local-key']}", "hub_token": TOKENS["HF_TOKEN"]}
    if "base_model_name_or_path" in document:
        document["base_model_name_or_path"] = str(built.folder / "base")
    config.write_text(json.dumps({**document, **local}))


@dataclass(kw_only=True)
class Office:
    """A project folder, its people and their keys; remembers what every command said."""

    root: Path
    built: Built
    hub: HubServer
    secret: str
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "token").write_text(self.secret)
        (self.root / "release-log").mkdir()
        people = [
            f'[[person]]\nname = "{name}"\nmay = {json.dumps(may)}\n'
            + run_command("release", "keygen", str(self.root / f"{name}.pem"), "--no-passphrase").out
            for name, may in PEOPLE.items()
        ]
        place = f'[[destination]]\nurl = "hf://acme/*"\nendpoint = "{self.hub.url}"\nvisibility = ["private"]\n'
        policy = f'format = 1\nlog = "file://{self.root}/release-log"\n' + "\n".join([*people, place])
        (self.root / "policy.toml").write_text(policy)
        run, store = self.built.run.name, self.built.run.parent
        (self.root / "ckptier.toml").write_text(f'run = "{run}"\nstore = "{store}"\n')

    def run(self, command: str, *arguments: object, code: int = 0) -> str:
        """Run a command; what it says is remembered."""
        done = run_command("release", command, *map(str, arguments))
        assert done.code == code, done
        self.said += [done.out, done.err]
        return done.out

    def sign(self, person: str) -> tuple[object, ...]:
        return ("--policy", self.root / "policy.toml", "--as", person, "--key", self.root / f"{person}.pem")

    def prepare(self, *, code: int = 0) -> Path:
        prepared = self.root / f"prepared-{code}"
        config = ("--config", self.root / "ckptier.toml", "--verbose")
        self.run("prepare", self.built.description, "--out", prepared, *config, code=code)
        return prepared

    def publish(self, prepared: Path) -> str:
        """Do all that it takes, and look at it in every way that there is; returns the commit."""
        authorization, token = self.root / "auth.json", ("--token-file", self.root / "token")
        self.run("authorize", prepared, *self.sign("requester"), "--out", authorization, *token)
        for approver in ("approver-a", "approver-b"):
            self.run("approve", authorization, prepared, *self.sign(approver), "--json")
        carry = (prepared, "--authorization", authorization, *self.sign("publisher"), *token)
        done: str = json.loads(self.run("publish", *carry, "--json"))["result"]["commit"]
        self.run("publish", *carry, "--verbose", code=6)
        for more in ((), ("--json",)):
            self.run("show", authorization, "--policy", self.root / "policy.toml", *more)
            self.run("log", "--policy", self.root / "policy.toml", *more)
            self.run("verify", prepared, "--no-deep", "--config", self.root / "ckptier.toml", *more)
        return done


@pytest.fixture
def office(hub: HubServer, tiny: Tiny, tmp_path: Path) -> Callable[[str], Office]:
    def furnish(kind: str) -> Office:
        built = planted(tiny(kind), tmp_path, hub.url)
        return Office(root=tmp_path, built=built, hub=hub, secret=hub.add_token("writer", user="writer"))

    return furnish


def spellings(word: str) -> Iterator[bytes]:
    """Yield the bytes of a word, and what hex and base64 make of them wherever they begin."""
    data = word.encode()
    yield data
    yield data.hex().encode()
    for start in range(3):
        whole = base64.b64encode(b"\0" * start + data)
        yield whole[4 if start else 0 : len(whole) // 4 * 4 - 4]


def leaks(places: Mapping[str, bytes], words: Mapping[str, str]) -> list[str]:
    """Return which word is found where."""
    return [
        f"{name} in {place}"
        for place, data in places.items()
        for name, word in words.items()
        if any(spelling in data for spelling in spellings(word))
    ]


def known_words(at: Office) -> dict[str, str]:
    """Return all that must not be found; the run's own uid is nobody's to plant."""
    lineage = json.loads((at.built.run / "lineage.json").read_text())
    return {**CANARIES, **TOKENS, "run uid": lineage["run_uid"], "token of the Hub": at.secret}


def test_what_is_searched_for_would_be_found() -> None:
    for word in ("canary-optimizer-00qzx", TOKENS["HF_TOKEN"]):
        data = word.encode()
        for place in (b"x" + data, b"--" + base64.b64encode(b"abcd" + data + b"ef"), data.hex().encode() + b"00"):
            assert leaks({"place": place}, {"word": word}) == ["word in place"]
    assert leaks({"place": b"canary-optimizer-01qzx"}, {"word": "canary-optimizer-00qzx"}) == []


@pytest.mark.parametrize("kind", BUILDERS)
def test_no_canary_leaves_with_a_release(kind: str, office: Callable[[str], Office]) -> None:
    at = office(kind)
    generation = {path: data for path, data in tree_of(at.built.run).items() if "generations" in path}
    beside = {path: data for path, data in tree_of(at.built.folder).items() if not path.startswith("base/")}
    there = {one.partition(" in ")[0] for one in leaks({**generation, **beside}, CANARIES)}
    assert there >= {"optimizer", "rng", "trainer-state", "node", "experiment", "contract", "comment", "code"}

    prepared = at.prepare()
    commit = at.publish(prepared)

    repo = at.hub.repos[f"acme/{at.built.name}"]
    published = {path: repo.read(commit, path) for path in repo.files(commit)}
    assert published == tree_of(prepared / "tree")
    assert sum(map(len, published.values())) > 10_000
    told = {f"output {number}": text.encode() for number, text in enumerate(at.said)}
    sent = {
        f"request {number}": f"{seen.path} {dict(seen.headers)}".replace(at.secret, "").encode()
        for number, seen in enumerate(at.hub.requests)
    }
    commits = {commit.oid: repr(commit).encode() for commit in repo.history}
    records = {**tree_of(prepared), **tree_of(at.root / "release-log"), "auth": (at.root / "auth.json").read_bytes()}
    assert {"scan-report.json", "description.json", "log/000000000002.json"} <= set(records)
    everything = {**published, **records, **told, **sent, **commits}
    assert leaks(everything, known_words(at)) == []


def test_what_the_scan_finds_it_does_not_repeat(office: Callable[[str], Office]) -> None:
    """In a file that is published after all: it blocks, and neither report nor output says the words."""
    at = office("custom")
    said = f"Trained by {CANARIES['user']} on {CANARIES['host']}, run {CANARIES['run-name']}, {TOKENS['HF_TOKEN']}.\n"
    keys = f"{TOKENS['AWS_ACCESS_KEY_ID']} aws_secret_access_key={TOKENS['AWS_SECRET_ACCESS_KEY']}\n"
    (at.built.folder / "LICENSE").write_text(f"Licensed under the Apache License, Version 2.0.\n{said}{keys}")
    prepared = at.prepare(code=1)
    report = (prepared / "scan-report.json").read_bytes()
    found = {(one["rule"], one["path"]) for one in json.loads(report)["blocking"]}
    assert found >= {(rule, "LICENSE") for rule in ("secret", "user-or-host", "run-identity")}
    told = {f"output {number}": text.encode() for number, text in enumerate(at.said)}
    assert "BLOCKS" in "".join(at.said)
    assert leaks({"report": report, **told}, known_words(at)) == []
