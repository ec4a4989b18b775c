"""What goes wrong most when weights are published: one test an item, each by what a person does and is told.

Every item is held against all who could notice: preparing, the scan, the verification of a tree
that somebody made otherwise, the decision, and the place itself.
"""

import inspect
import pickle
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from release import checklist_stage as checklist
from release.authorized_by_hand import APPROVERS, Scene, sealed_again
from release.checklist_stage import WEIGHTS, faults_of, nothing_sent, told
from release.prepare_stage import Tiny, refusal, run
from release.publish_hub_stage import LIBRARY_WARNING, OLD, HubStage, hub_stage
from release.publish_stage import carry, released, tree_of
from release.scan_stage import Stage, found, only
from release.verifying_by_hand import Maker, contents, edit, in_this_process, read_manifest, reseal, write_index
from safetensors.torch import load_file, save_file
from support.hub import Action, Fault, Operation
from support.hub import Visibility as Seen
from support.releases import BASE_MODEL, custom, tweak, variant

from replicate.errors import CkptierError, ConfigInvalid, IntegrityFailure, Unreachable
from replicate.formats.safetensors import read_header
from replicate.release.bundle import Kind
from replicate.release.description import load_description
from replicate.release.destination import Visibility
from replicate.release.documents import encode
from replicate.release.findings import Rule
from replicate.release.subject import observe
from replicate.release.verifying.signing import sign_tree, verify_signature
from replicate.release.weights.casting import cast_tensor

pytestmark = pytest.mark.filterwarnings(LIBRARY_WARNING)
CHECKLIST = (
    "tied key missing or wrong one kept",
    "index references absent tensor or shard",
    "stale index after re-shard",
    "total_size from storages",
    "int or bool buffer cast",
    "bf16 to fp16 overflow",
    "_orig_mod. and module. nested",
    "adapter released as full model",
    "missing format metadata",
    "local absolute paths in config, adapter, tokenizer",
    "tokens in args",
    "optimizer shipped",
    "pickle shipped",
    "public by default",
    "non-atomic multi-commit upload observed mid-way",
    "mode 0600 files",
    "non-reproducible digests",
    "license or base_model missing",
    "card says one dtype, weights another",
    "chat template absent",
    "generation_config invalid",
    "signature does not cover extra file",
    "signed folder includes cache",
    "approval covers digest but not destination or visibility",
    "expired or reused approval",
)
"""In the order in which they are listed; each test is called after its item."""
INDEX, CARD = "model.safetensors.index.json", "README.md"
WTE, HEAD_WEIGHT = "transformer.wte.weight", "lm_head.weight"
LONG_TOKEN = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNm123456"


def named_after(item: str) -> str:
    return "test_" + re.sub(r"\W+", "_", item).strip("_")


def test_every_item_has_its_test() -> None:
    mine = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    tests = {name: function.__code__.co_firstlineno for name, function in mine if name.startswith("test_")}
    del tests["test_every_item_has_its_test"]
    assert sorted(tests, key=tests.__getitem__) == [named_after(item) for item in CHECKLIST]


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def maker(tiny: Tiny, here: None, tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tiny=tiny, root=tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a release written by hand that the scan has nothing against."""
    return Stage(tmp_path / "by-hand")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubStage]:
    with hub_stage(tmp_path / "hub") as running:
        yield running


def test_tied_key_missing_or_wrong_one_kept(maker: Maker, tiny: Tiny, tmp_path: Path) -> None:
    undeclared = variant(tiny("gpt2"), tmp_path / "undeclared", {"weights.tied": None})
    assert f"ties {HEAD_WEIGHT} to {WTE}" in refusal(undeclared, tmp_path / "out").message
    wrong = [{"keep": HEAD_WEIGHT, "drop": [WTE]}]
    kept = refusal(variant(tiny("gpt2"), tmp_path / "wrong", {"weights.tied": wrong}), tmp_path / "out")
    assert f"does not tie {WTE}: loaders would leave it random" in kept.message
    made = maker.copy(tmp_path, "gpt2")
    assert set(contents(made.tree / WEIGHTS)) & {WTE, HEAD_WEIGHT} == {WTE}
    checklist.rename_tensor(made.tree, WTE, HEAD_WEIGHT)
    assert f"needs {WTE}" in faults_of(made, "structural-load", deep=True)
    checklist.rename_tensor(made.tree, HEAD_WEIGHT, None)
    assert f"needs {WTE}" in faults_of(made, "structural-load", deep=True)


def test_index_references_absent_tensor_or_shard(maker: Maker, stage: Stage, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "llama")
    shards = sorted(path.name for path in made.tree.glob("*.safetensors"))
    write_index(made.tree, {"gone.weight": shards[0]})
    assert f"gone.weight is said to be in {shards[0]}, which does not hold it" in faults_of(made, "shards")
    write_index(made.tree, {"lm_head.weight": "model-00009-of-00009.safetensors"})
    assert "model-00009-of-00009.safetensors, which is missing" in faults_of(made, "shards")
    first = min(stage.shards)
    stale = checklist.with_index(stage, INDEX, lambda index: index["weight_map"].update({"gone.weight": first}))
    finding = only(stale.scan())
    assert (finding.rule, finding.place) == (Rule.CONTAINER, "gone.weight")
    assert finding.detail == "is in the index and in no shard"


def test_stale_index_after_re_shard(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "llama", {"weights.max_shard_size": "60KB"})
    before = maker.whole("llama").tree
    assert len(list(made.tree.glob("*.safetensors"))) < len(list(before.glob("*.safetensors")))
    assert made.verify(deep=False).ok
    shutil.copy(before / INDEX, made.tree / INDEX)
    assert "-of-00005.safetensors, which is missing" in faults_of(made, "shards")
    shutil.copy(max(before.glob("*.safetensors")), made.tree)
    write_index(made.tree)  # also of what is left over from before
    assert "shards say that there are" in faults_of(made, "shards")


def test_total_size_from_storages(maker: Maker, stage: Stage, tmp_path: Path) -> None:
    """One buffer of the source is a view of something eight times its size."""
    made = maker.copy(tmp_path, "custom", {"weights.max_shard_size": "8KB"})
    headers = [read_header(path) for path in made.tree.glob("*.safetensors")]
    data = sum(header.data_size for header in headers)
    index = made.tree / INDEX
    assert f'"total_size": {data}' in index.read_text()
    assert data < sum(header.file_size for header in headers)
    write_index(made.tree, total=data + 7 * 64 * 16 * 4)
    assert f"total_size is {data + 7 * 64 * 16 * 4}, the headers add up to {data}" in faults_of(made, "shards")
    stored = checklist.with_index(stage, INDEX, lambda index: index["metadata"].update({"total_size": 128_020}))
    assert "is 128020, and the tensors have" in only(stored.scan()).detail


def test_int_or_bool_buffer_cast(maker: Maker, tiny: Tiny, tmp_path: Path) -> None:
    everything = {"weights.cast": {"dtype": "bfloat16", "allow": ["*"]}}
    made = maker.copy(tmp_path, "custom", everything)
    kept = {name: dtype for name, (dtype, _, _) in contents(made.tree / WEIGHTS).items() if dtype != "BF16"}
    assert kept == {"order": "I64", "allowed": "BOOL"}
    assert made.verify(deep=False).ok
    by_name = {"weights.cast": {"dtype": "bfloat16", "allow": ["order"]}}
    asked = refusal(variant(tiny("custom"), tmp_path / "asked", by_name), tmp_path / "out")
    assert "order is I64, and only floating tensors are cast" in asked.message
    checklist.cast_silently(made.tree, "order", "BF16")
    assert "order: cast from I64 to BF16; only floating" in faults_of(made, "source-comparison")


def test_bf16_to_fp16_overflow(tmp_path: Path) -> None:
    built = custom(tmp_path / "loud", scale=1e7)
    tweak(built.description, {"weights.cast": {"dtype": "float16", "allow": ["*"]}})
    error = refusal(built, tmp_path / "out")
    assert re.match(r"weights\.cast: head\.weight: .* is finite and does not fit F16", error.message)
    assert "weights.cast.keep, or cast to bfloat16" in error.hint
    with pytest.raises(ConfigInvalid, match=r"70144 is finite and does not fit F16"):
        cast_tensor(torch.tensor([1.0, 70_000.0], dtype=torch.bfloat16), "F16", name="head.weight")


def test_orig_mod_and_module_nested(maker: Maker, stage: Stage, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    sources = [one.source for one in read_manifest(made.tree).transforms]
    assert all(name.startswith("_orig_mod.module.") for name in sources)
    names = set(contents(made.tree / WEIGHTS))
    assert not any(set(name.split(".")) & {"_orig_mod", "module"} for name in names)
    checklist.rename_tensor(made.tree, WTE, f"module._orig_mod.{WTE}")
    said = faults_of(made, "structural-load", deep=True)
    assert f"has no module._orig_mod.{WTE}" in said
    assert f"needs {WTE}" in said
    last = max(stage.shards)
    stage.shards[last]["model.module._orig_mod.norm.weight"] = stage.shards[last].pop("model.norm.weight")
    finding = only(stage.scan())
    assert (finding.rule, finding.place) == (Rule.TENSOR_UNKNOWN, "model.module._orig_mod.norm.weight")
    assert "still has the part of a wrapper" in finding.detail


def test_adapter_released_as_full_model(maker: Maker, tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    error = refusal(variant(tiny("adapter"), tmp_path / "full", checklist.ADAPTER_AS_FULL), tmp_path / "out")
    assert error.message.startswith("kind: base_model.model.")
    assert 'or release it as kind = "adapter"' in error.hint
    made = maker.copy(tmp_path, "adapter")
    (made.tree / "adapter_model.safetensors").rename(made.tree / WEIGHTS)
    reseal(made.tree, kind=Kind.FULL)
    said = faults_of(made, "shards", description=None, source=None)
    assert "released as full, and these are an adapter's tensors" in said
    assert "adapter_config.json is there" in said
    lora = next(iter(Stage.adapter(tmp_path).shards["adapter_model.safetensors"].items()))
    stage.shards[min(stage.shards)].update([lora])
    assert "is a part of an adapter in a release of kind full" in only(stage.scan()).detail


def test_missing_format_metadata(maker: Maker, stage: Stage, tmp_path: Path) -> None:
    for name in ("gpt2", "llama", "adapter", "custom"):
        for path in maker.whole(name).tree.glob("*.safetensors"):
            assert read_header(path).metadata == (("format", "pt"),)
    made = maker.copy(tmp_path, "gpt2")
    checklist.empty_metadata(made.tree / WEIGHTS)
    assert 'its metadata is {}, exactly {"format": "pt"} is due' in faults_of(made, "headers")
    stage.metadata = {}
    assert found(stage.scan()) == {(Rule.METADATA, name, "__metadata__") for name in stage.shards}


def test_local_absolute_paths_in_config_adapter_tokenizer(tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    built = variant(tiny("adapter"), tmp_path / "adapter", {})
    edit(built.folder / "adapter_config.json", lambda one: one.update({"base_model_name_or_path": "/mnt/nvme/base"}))
    report = run(built, tmp_path / "out")
    written = (report.prepared.tree / "adapter_config.json").read_text()
    assert "/mnt/nvme" not in written
    assert f'"base_model_name_or_path": "{BASE_MODEL}"' in written
    assert f"files.adapter_config: base_model_name_or_path was set to {BASE_MODEL}" in report.notes
    stage.edit("config.json", _name_or_path="/home/marthe-q/runs/llm", dataset="/mnt/nvme/corpus.bin")
    stage.edit("tokenizer_config.json", vocab_file="/opt/tokenizer/vocab.json", name_or_path="C:\\models\\tok")
    paths = {(path, place) for rule, path, place in found(stage.scan()) if rule == Rule.ABSOLUTE_PATH}
    assert paths >= {("config.json", "dataset"), ("config.json", "_name_or_path")}
    assert paths >= {("tokenizer_config.json", "vocab_file"), ("tokenizer_config.json", "name_or_path")}
    adapter = Stage.adapter(tmp_path / "adapter-by-hand")
    adapter.edit("adapter_config.json", base_model_name_or_path="/scratch/models/base")
    rules = {rule for rule, path, place in found(adapter.scan()) if place == "base_model_name_or_path"}
    assert rules >= {Rule.ABSOLUTE_PATH, Rule.POINTS_OUTSIDE}


def test_tokens_in_args(tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    """In the arguments of a training that lie in a config; and no command takes a secret as an argument."""
    built = variant(tiny("gpt2"), tmp_path / "args", {"files.other": ["settings.json"]})
    edit(built.folder / "config.json", lambda config: config.update({"hub_token": LONG_TOKEN}))
    (built.folder / "settings.json").write_text(f'{{"args": ["--token", "{LONG_TOKEN}"]}}')
    report = run(built, tmp_path / "out")
    assert LONG_TOKEN not in (report.prepared.tree / "config.json").read_text()
    assert "files.config: hub_token was taken out" in report.notes
    assert found(report.scan, Rule.SECRET) == {(Rule.SECRET, "settings.json", "args/1")}
    assert LONG_TOKEN.encode() not in encode(report.scan)
    stage.edit("config.json", training_args={"push_to_hub_token": "a-short-one"})
    assert found(stage.scan()) == {(Rule.SECRET, "config.json", "training_args/push_to_hub_token")}
    secret = checklist.options_for_secrets()
    assert set(secret) >= {"token_file", "passphrase_file", "key"}
    assert set(secret.values()) == {"FILE"}


def test_optimizer_shipped(tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    for number, entries in enumerate(("", "optimizer")):
        whole = variant(tiny("gpt2"), tmp_path / f"whole-{number}", {"source.entries": entries})
        assert refusal(whole, tmp_path / "out").message.startswith("source.entries: ")
    beside = variant(tiny("llama"), tmp_path / "beside", {"files.other": ["optimizer.pt"]})
    shutil.copy(tiny("llama").source().files / "optimizer.pt", beside.folder)
    waiver = checklist.waiver(Rule.TRAINING_STATE, "optimizer.pt")
    report = run(beside, tmp_path / "out", waivers=(waiver,))
    blocked = next(one for one in report.scan.blocking if one.rule is Rule.TRAINING_STATE)
    assert blocked.path == "optimizer.pt"
    assert "cannot be waived" in blocked.detail
    first = stage.shards[min(stage.shards)]
    first["state.0.exp_avg"] = first.pop("model.layers.0.self_attn.q_proj.weight")
    assert "is named like state of an optimizer" in only(stage.scan()).detail


def test_pickle_shipped(tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    beside = variant(tiny("custom"), tmp_path / "beside", {"files.other": ["pytorch_model.bin", "notes.txt"]})
    for name in ("pytorch_model.bin", "notes.txt"):
        torch.save({"weight": torch.ones(2)}, beside.folder / name)
    report = run(beside, tmp_path / "out")
    blocked = {(one.path, one.rule) for one in report.scan.blocking}
    assert blocked >= {("pytorch_model.bin", Rule.PICKLE), ("notes.txt", Rule.PICKLE)}
    scene = Scene.set(tmp_path, blocking=report.scan.blocking)
    assert "remove their cause" in told(IntegrityFailure, scene.requested, "findings of the scan block this release")
    stage.files["NOTICE"] = pickle.dumps(complex(1, 2), protocol=4)
    assert (Rule.PICKLE, "NOTICE") in {(rule, path) for rule, path, _ in found(stage.scan())}


def test_public_by_default(hub: HubStage, tmp_path: Path) -> None:
    """The organisation's default is public, and so is that of the library."""
    head = carry(hub.scene, hub.scene.authorized(expected_parent=None), hub.place()).commit
    assert hub.hub.writes[0].operation is Operation.CREATE_REPO
    assert hub.repo.visibility is Seen.PRIVATE
    hub.repo.visibility = Seen.PUBLIC
    again = hub.scene.authorized(expected_parent=head)
    nothing_sent(hub, lambda: carry(hub.scene, again, hub.place()), "destination.visibility")
    public = hub.scene.observed.destination.model_copy(update={"visibility": Visibility.PUBLIC, "endpoint": ""})
    scene = Scene.set(tmp_path, destination=public)
    told(CkptierError, scene.requested, "destination.visibility: public: a release is published privately first")
    silent = checklist.described(tmp_path, {"destination.visibility": None})
    told(ConfigInvalid, lambda: load_description(silent), "destination.visibility: missing")


def test_non_atomic_multi_commit_upload_observed_mid_way(hub: HubStage) -> None:
    """Whoever looks at any moment sees all of the old release or all of the new one, also when it breaks off."""
    head = hub.made_before(OLD)
    permitted = hub.scene.authorized(expected_parent=head)
    with checklist.onlooker(hub) as watch:
        hub.hub.inject(Fault(operation="commit", action=Action.STATUS, status=503, body=b"{}"))
        told(Unreachable, lambda: carry(hub.scene, permitted, hub.place(), steps=watch), "503")
        assert len(hub.hub.fired) == 1
        assert watch.seen[-1] == hub.files("main") == OLD
        report = carry(hub.scene, permitted, hub.place(), steps=watch, resume=True)
    assert hub.files(report.commit) == released(hub.scene)
    assert all(one in (OLD, released(hub.scene)) for one in watch.seen)
    assert not any(watch.shown)
    assert [commit.oid for commit in hub.repo.history][:2] == [report.commit, head]


def test_mode_0600_files(maker: Maker, tiny: Tiny, tmp_path: Path) -> None:
    with checklist.umask(0o077):
        report = run(tiny("custom"), tmp_path / "out")
    modes = {path.name: path.stat().st_mode & 0o777 for path in report.prepared.tree.iterdir()}
    assert set(modes.values()) == {0o644}
    assert report.prepared.tree.stat().st_mode & 0o777 == 0o755
    made = maker.copy(tmp_path, "custom")
    (made.tree / WEIGHTS).chmod(0o600)
    assert f"{WEIGHTS} has mode 0600; 0644 is due" in faults_of(made, "files")


def test_non_reproducible_digests(maker: Maker, tiny: Tiny, tmp_path: Path) -> None:
    first, second = (run(tiny("gpt2"), tmp_path / f"day-{day}", day=day).prepared for day in (1, 20))
    assert observe(first) == observe(second)
    assert tree_of(first.root) == tree_of(second.root)
    made = maker.copy(tmp_path, "gpt2")
    save_file(load_file(made.tree / WEIGHTS), made.tree / WEIGHTS, {"format": "pt", HEAD_WEIGHT: WTE})
    (made.tree / WEIGHTS).chmod(0o644)
    assert f"'{HEAD_WEIGHT}': '{WTE}'" in faults_of(made, "headers")


def test_license_or_base_model_missing(maker: Maker, tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    unknown = variant(tiny("gpt2"), tmp_path / "unknown", {"license.id": "apache-22"})
    assert "license.id" in refusal(unknown, tmp_path / "out").message
    for number, key in enumerate(("license", "files.license", "adapter.base_model", "adapter.base_license")):
        silent = variant(tiny("adapter"), tmp_path / f"silent-{number}", {key: None})
        told(ConfigInvalid, silent.described, f"{key}: missing")
    made = maker.copy(tmp_path, "adapter")
    card = (made.tree / CARD).read_text()
    kept = [line for line in card.splitlines() if not line.startswith(("license:", "base_model:", "- acme/tiny-base"))]
    (made.tree / CARD).write_text("\n".join(kept))
    said = faults_of(made, "card")
    assert "card-incomplete: license: is missing in the front matter" in said
    assert "card-incomplete: base_model: is missing in the front matter" in said
    del stage.files["LICENSE"]
    assert any("no file is named LICENSE" in one.detail for one in stage.scan().blocking)


def test_card_says_one_dtype_weights_another(maker: Maker, stage: Stage, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    card = (made.tree / CARD).read_text()
    assert "| Data types | F32 (" in card
    (made.tree / CARD).write_text(card.replace("| F32 (", "| BF16 ("))
    assert "card-disagrees: Data types: is BF16 (" in faults_of(made, "card")
    edit(made.tree / "config.json", lambda config: config.update({"dtype": "bfloat16"}))
    assert "dtype is bfloat16, " in faults_of(made, "config")
    stage.write()
    stage.files[CARD] = stage.card().replace(b"BF16 (", b"F32 (")
    assert (Rule.CARD_DISAGREES, CARD, "Data types") in found(stage.scan())


def test_chat_template_absent(maker: Maker, stage: Stage, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    (made.tree / "chat_template.jinja").unlink()
    edit(made.tree / "tokenizer_config.json", lambda config: config.pop("chat_template", None))
    assert "the release has a chat template, and the tokenizer loads none" in faults_of(made, "chat-template")
    del stage.files["chat_template.jinja"]
    finding = only(stage.scan())
    assert (finding.rule, finding.path) == (Rule.CHAT_TEMPLATE, "chat_template.jinja")
    assert "name it in files.chat_template" in finding.detail


def test_generation_config_invalid(maker: Maker, tiny: Tiny, stage: Stage, tmp_path: Path) -> None:
    built = variant(tiny("gpt2"), tmp_path / "nan", {})
    (built.folder / "generation_config.json").write_text('{"temperature": NaN}')
    assert "files.generation_config: is not valid JSON: NaN" in refusal(built, tmp_path / "out").message
    stage.edit("generation_config.json", do_sample=False, eos_token_id=[1, 40])
    places = {place for rule, _, place in found(stage.scan()) if rule == Rule.CONFIG_INVALID}
    assert places == {"temperature", "top_p", "eos_token_id"}
    made = maker.copy(tmp_path, "gpt2")
    edit(made.tree / "generation_config.json", lambda config: config.update({"eos_token_id": 7}))
    assert "generation_config.json: eos_token_id is 7, the tokenizer's is 1" in faults_of(made, "tokenizer")


def test_signature_does_not_cover_extra_file(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "custom")
    private, public = checklist.key_pair(tmp_path)
    bundle = sign_tree(made.tree, private)
    assert set(verify_signature(made.tree, bundle, public)) == set(tree_of(made.tree))
    (made.tree / "modeling.py").write_text("print('nobody signed this')\n")
    told(IntegrityFailure, lambda: verify_signature(made.tree, bundle, public), "is not what was signed", "modeling.py")


def test_signed_folder_includes_cache(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "custom")
    private, public = checklist.key_pair(tmp_path)
    bundle, second = sign_tree(made.tree, private), tmp_path / "second.sig"
    cache = made.tree / ".cache" / "huggingface" / "download"
    cache.mkdir(parents=True)
    (cache / f"{WEIGHTS}.metadata").write_text("0\n")
    told(IntegrityFailure, lambda: sign_tree(made.tree, private, signature=second), ".cache is no part of a release")
    assert not second.exists()
    told(IntegrityFailure, lambda: verify_signature(made.tree, bundle, public), ".cache is no part of a release")


def test_approval_covers_digest_but_not_destination_or_visibility(hub: HubStage) -> None:
    """The bytes stay what they were: only where they go and who may see them is another."""
    made = hub.scene.authorized(expected_parent=None)
    for field, value in (("url", "hf://acme/other"), ("visibility", Visibility.PUBLIC), ("tag", None)):
        destination = made.record.destination.model_copy(update={field: value})
        changed = made.record.model_copy(update={"destination": destination})
        moved = replace(sealed_again(changed), approvals=made.approvals)
        approved = sealed_again(changed, *APPROVERS)
        named = [f"destination.{field}", "approvals.0.record_sha256"][: 1 if field == "url" else 2]
        nothing_sent(hub, partial(carry, hub.scene, moved, hub.place()), *named)
        nothing_sent(hub, partial(carry, hub.scene, approved, hub.place()), named[0])
    assert not hub.exists


def test_expired_or_reused_approval(hub: HubStage) -> None:
    made = hub.scene.authorized(expected_parent=None)
    carry(hub.scene, made, hub.place())
    nothing_sent(hub, lambda: carry(hub.scene, made, hub.place()), "nonce")
    nothing_sent(hub, lambda: carry(hub.scene, made, hub.place(), resume=True), "nonce")
    late = hub.scene.authorized(expected_parent=hub.repo.head())
    hub.scene.clock.advance(timedelta(days=7, seconds=1).total_seconds())
    nothing_sent(hub, lambda: carry(hub.scene, late, hub.place()), "expires_at")
    assert len(hub.repo.history) == 2
