"""From a generation to a prepared release: what is in the tree, what never is, and that it is the same every time."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from release.prepare_stage import Tiny, architectures_at_hand, contents, run
from safetensors.torch import load_file
from support.releases import BASE_MODEL, BASE_REVISION, BUILDERS, expected_of, logits, variant

from replicate.release import preparing
from replicate.release.bundle import Kind
from replicate.release.documents import read
from replicate.release.findings import Rule, Waiver
from replicate.release.provenance import Provenance
from replicate.release.subject import observe

GENERATED = {".gitattributes", "README.md", "provenance.json", "export-manifest.json"}
TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "LICENSE"}


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tiny: Tiny) -> None:
    """Do without processes apart, but where a test is about the whole."""
    if "whole" not in request.node.name:
        architectures_at_hand(monkeypatch, tiny)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("gpt2", {"model.safetensors", "config.json", "generation_config.json"}),
        ("moe", {"model.safetensors", "config.json", "generation_config.json"}),
        ("adapter", {"adapter_model.safetensors", "adapter_config.json"}),
        ("custom", {"model.safetensors", "config.json"}),
        (
            "llama",
            {f"model-0000{number}-of-00005.safetensors" for number in range(1, 6)}
            | {"model.safetensors.index.json", "config.json", "generation_config.json"},
        ),
    ],
)
def test_the_tree_holds_what_was_described_and_nothing_else(
    tiny: Tiny, tmp_path: Path, name: str, weights: set[str]
) -> None:
    report = run(tiny(name), tmp_path / "out")

    assert set(contents(report.prepared.tree)) == weights | TOKENIZER | GENERATED
    assert {path.name for path in report.prepared.root.iterdir()} == {"tree", "description.json", "scan-report.json"}
    assert report.scan.blocking == ()
    observed = observe(report.prepared)  # everything recomputed from the bytes
    assert observed.manifest == report.manifest
    assert observed.subject.source_generation == str(tiny(name).generation)


@pytest.mark.parametrize("name", BUILDERS)
def test_the_tensors_are_those_that_were_trained(tiny: Tiny, tmp_path: Path, name: str) -> None:
    built = tiny(name)

    tree = run(built, tmp_path / "out").prepared.tree

    found = {key: value for path in tree.glob("*.safetensors") for key, value in load_file(path).items()}
    expected = expected_of(built)
    assert set(found) == set(expected.shapes) - expected.droppable
    trained = {key.replace(".default.", "."): value for key, value in built.model.state_dict().items()}
    assert all(torch.equal(value, trained[key]) for key, value in found.items())


def test_the_whole_way_with_real_architectures_and_processes(tiny: Tiny, tmp_path: Path) -> None:
    """Nothing stands in here: the payload is checked and the architecture built in processes of their own."""
    from transformers import AutoTokenizer, GPT2LMHeadModel  # noqa: PLC0415 - for this test alone

    built = tiny("gpt2")

    report = run(built, tmp_path / "out")

    assert report.scan.blocking == ()
    loaded: Any = GPT2LMHeadModel.from_pretrained(report.prepared.tree, output_loading_info=True)
    model, info = loaded
    assert {key: len(value) for key, value in info.items() if value} == {}
    assert torch.equal(logits(model), built.logits())
    tokenizer = AutoTokenizer.from_pretrained(report.prepared.tree)
    assert tokenizer.decode(tokenizer("a tiny model").input_ids) == "a tiny model"


def test_two_prepares_on_two_days_from_two_places_give_the_same_bytes_whole(tiny: Tiny, tmp_path: Path) -> None:
    """Another day, umask, hash seed, user environment, working directory and target, in another process."""
    built = tiny("llama")
    first = run(built, tmp_path / "first")
    code = (
        "import os, sys; os.umask(0o077); sys.path.insert(0, sys.argv[1])\n"
        "from datetime import UTC, datetime; from pathlib import Path\n"
        "from replicate.layout import LocalRun; from replicate.release.description import load_description\n"
        "from replicate.release.preparing import prepare; from replicate.release.scan.inputs import Identities\n"
        "from replicate.release.source import open_local; from tiers.testing.manual_clock import ManualClock\n"
        "folder, out = Path(sys.argv[2]), Path(sys.argv[4])\n"
        "prepare(load_description(folder / 'release.toml'), folder, open_local(LocalRun(Path(sys.argv[3])), None),\n"
        "    out, identities=Identities(user='zyxwvut', host='node-seventeen', run='run-of-nobody',\n"
        "    run_uid='f' * 32), waivers=(), clock=ManualClock(datetime(2027, 6, 5, tzinfo=UTC)))\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = str(Path(preparing.__file__).parents[2])
    arguments = [root, str(built.folder), str(built.run), "deep/second"]
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=elsewhere, env=environment, check=True, timeout=200)

    second = elsewhere / "deep" / "second"
    assert contents(second) == contents(first.prepared.root)
    for path in (second, *second.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files_and_folders_have_normal_modes_whatever_the_umask(tiny: Tiny, tmp_path: Path, mask: int) -> None:
    previous = os.umask(mask)
    try:
        root = run(tiny("custom"), tmp_path / "out").prepared.root
    finally:
        os.umask(previous)

    modes = {path.relative_to(root): path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}
    assert set(modes.values()) == {0o644, 0o755}
    assert all(mode == (0o755 if (root / path).is_dir() else 0o644) for path, mode in modes.items())


CANARY = "CANARY-7f3a-KITTIWAKE"


def test_canaries_in_all_that_is_not_weights_are_in_no_byte_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTIER_TEST_SECRET", CANARY)
    where = tmp_path / f"folder-of-{CANARY}"
    built = BUILDERS["gpt2"](where, plant=CANARY)
    generation = built.local.generation(built.generation)
    payload = (generation / "files" / "payload.pt").read_bytes()
    record = json.loads((generation / "generation.json").read_text())
    moments = torch.load(generation / "files" / "payload.pt", weights_only=True)["optimizer"]["state"]
    assert any(CANARY.encode() in one["exp_avg"].numpy().tobytes() for one in moments.values())
    assert payload.count(CANARY.encode()) >= 2  # in a moment, and among the extra state
    assert CANARY in record["experiment"]["run_id"]
    assert CANARY in record["contract"]["data"]
    assert CANARY in record["environment"]["node"]

    root = run(built, where / "out").prepared.root

    secrets = [CANARY, record["run_uid"], record["attempt_id"], str(where), os.uname().nodename]
    for path, data in contents(root / "tree").items():
        assert not [one for one in secrets if one.encode() in data], path
        assert CANARY.encode().hex().encode() not in data


def test_of_a_contract_that_is_no_digest_only_a_digest_is_published(tmp_path: Path) -> None:
    built = BUILDERS["llama"](tmp_path, plant="corpus-of-secrets")

    contract = observe(run(built, tmp_path / "out").prepared).manifest.source.contract

    assert contract["config"] == built.source().record.contract["config"]
    assert contract["data"].startswith("sha256:")


# --- what is written beside the weights


def test_a_cast_is_said_alike_by_weights_config_card_and_manifest(tiny: Tiny, tmp_path: Path) -> None:
    cast = {"dtype": "bfloat16", "allow": ["*"], "keep": ["*norm*"]}
    built = variant(tiny("llama"), tmp_path / "cast", {"weights.cast": cast})

    report = run(built, tmp_path / "out")

    assert report.scan.blocking == ()
    dtypes = {one.name: one.dtype for one in report.manifest.tensors}
    assert {dtypes[name] for name in dtypes if "norm" in name} == {"F32"}
    assert {dtypes[name] for name in dtypes if "norm" not in name} == {"BF16"}
    assert json.loads((report.prepared.tree / "config.json").read_text())["dtype"] == "bfloat16"
    cast_ones = [one for one in report.manifest.transforms if one.to_dtype == "BF16"]
    assert all(one.max_abs_error is not None and one.max_rel_error is not None for one in cast_ones)
    index = json.loads((report.prepared.tree / "model.safetensors.index.json").read_text())
    widths = {"F32": 4, "BF16": 2}
    assert index["metadata"]["total_size"] == sum(
        prod(one.shape) * widths[one.dtype] for one in report.manifest.tensors
    )
    assert b"BF16" in (report.prepared.tree / "README.md").read_bytes()


def test_an_adapter_names_its_base_and_commit_and_no_folder_of_this_machine(tiny: Tiny, tmp_path: Path) -> None:
    built = tiny("adapter")
    before = json.loads((built.folder / "adapter_config.json").read_text())
    assert before["base_model_name_or_path"].startswith("/")

    tree = run(built, tmp_path / "out").prepared.tree

    after = json.loads((tree / "adapter_config.json").read_text())
    assert (after["base_model_name_or_path"], after["revision"]) == (BASE_MODEL, BASE_REVISION)
    assert (after["r"], sorted(after["target_modules"])) == (2, ["q_proj", "v_proj"])
    assert before["base_model_name_or_path"].encode() not in b"".join(contents(tree).values())


def test_an_adapter_without_its_base_at_hand_is_noted_as_not_compared(tiny: Tiny, tmp_path: Path) -> None:
    built = variant(tiny("adapter"), tmp_path / "alone", {"adapter.base_path": None})

    report = run(built, tmp_path / "out")

    assert any("architecture is unknown" in note for note in report.notes)


def test_provenance_says_where_the_weights_come_from(tiny: Tiny, tmp_path: Path) -> None:
    built = tiny("adapter")
    source = built.source()

    report = run(built, tmp_path / "out")

    said = read(Provenance, report.prepared.tree / "provenance.json", what="provenance.json")
    assert said.source == report.manifest.source
    assert (said.source.generation, said.source.sealed_at) == (str(source.id), source.record.sealed_at)
    assert (said.kind, said.code_version) == (Kind.ADAPTER, "trainer 3.1.4")
    assert (said.transforms.kept, said.transforms.omitted) == (8, 21)
    assert said.base_model is not None
    assert said.base_model.revision == BASE_REVISION
    assert set(said.exporter.libraries) == {"torch", "safetensors", "huggingface_hub"}
    assert said.content_sha256 == report.manifest.content_sha256


def test_a_finding_blocks_and_a_waiver_is_kept_beside_the_report(tiny: Tiny, tmp_path: Path) -> None:
    built = variant(tiny("custom"), tmp_path / "changed", {})
    config = json.loads((built.folder / "config.json").read_text())
    (built.folder / "config.json").write_text(json.dumps({**config, "corpus": "/mnt/corpora/web"}))

    blocked = run(built, tmp_path / "blocked")

    assert {(one.rule, one.path) for one in blocked.scan.blocking} == {(Rule.ABSOLUTE_PATH, "config.json")}
    assert not blocked.prepared.waivers.exists()
    waiver = Waiver(
        rule=Rule.ABSOLUTE_PATH,
        path="config.json",
        reason="the path is the public name of a corpus",
        author="the data steward",
        expires=datetime(2026, 3, 1, tzinfo=UTC),
    )
    waived = run(built, tmp_path / "waived", waivers=(waiver,))
    assert waived.scan.blocking == ()
    assert waived.prepared.waivers.exists()
    assert observe(waived.prepared).subject.waivers == (waiver,)
    assert contents(waived.prepared.tree) == contents(blocked.prepared.tree)
