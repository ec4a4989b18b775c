"""The form of a release from its bytes alone; every kind of damage has a manifest that fits it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from release.prepared_by_hand import safetensors_bytes
from release.verifying_by_hand import (
    CONFIG,
    FIRST,
    INDEX,
    SECOND,
    contents,
    detail,
    digest_of,
    link,
    quick,
    read_manifest,
    reseal,
    rewrite,
    sharded,
    verdicts,
    write_index,
)

from replicate.release.bundle import MANIFEST, Kind
from replicate.release.documents import encode
from replicate.release.verifying.checks import Verdict

Damage = Callable[[Path], None]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return sharded(tmp_path)


def test_a_whole_release_passes_and_says_what_was_not_done(tree: Path) -> None:
    report = quick(tree, manifest_sha256=digest_of(tree))
    assert (report.ok, report.complete) == (True, False)
    done = [name for name, verdict in verdicts(report).items() if verdict is Verdict.PASSED]
    assert {"manifest", "manifest-digest", "files", "headers", "shards", "tensors", "config"} <= set(done)
    reasons = {check.name: check.detail for check in report.checks if check.verdict is Verdict.NOT_DONE}
    assert set(reasons) == {
        "card", "source", "source-comparison", "transforms", "structural-load", "second-loader", "forward-pass",
    }  # fmt: skip
    assert all(reasons.values())
    assert "--deep" in reasons["forward-pass"]


def test_without_a_pinned_digest_that_check_is_not_done(tree: Path) -> None:
    report = quick(tree)
    assert verdicts(report)["manifest-digest"] is Verdict.NOT_DONE
    assert report.ok


def test_another_manifest_than_the_pinned_one_fails(tree: Path) -> None:
    report = quick(tree, manifest_sha256="0" * 64)
    assert "expected was 000" in detail(report, "manifest-digest")


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    tree = sharded(tmp_path)
    tensors = contents(tree / FIRST) | contents(tree / SECOND)
    for name in (FIRST, SECOND, INDEX):
        (tree / name).unlink()
    (tree / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    assert quick(reseal(tree)).ok


def _delete(name: str) -> Damage:
    return lambda tree: (tree / name).unlink()


def _truncate(tree: Path) -> None:
    (tree / SECOND).write_bytes((tree / SECOND).read_bytes()[:-5])


def _extend(tree: Path) -> None:
    (tree / SECOND).write_bytes((tree / SECOND).read_bytes() + b"\0" * 8)


def _twice(tree: Path) -> None:
    rewrite(tree / SECOND, lambda tensors: tensors.update(contents(tree / FIRST)))


def _extra_shard(tree: Path) -> None:
    (tree / "old.safetensors").write_bytes(safetensors_bytes({"old.weight": ("F32", (1,), b"\0" * 4)}))


def _renumber(tree: Path) -> None:
    (tree / SECOND).rename(tree / "model-00003-of-00002.safetensors")
    write_index(tree)


def _recount(tree: Path) -> None:
    (tree / SECOND).rename(tree / "model-00002-of-00003.safetensors")
    write_index(tree)


def _metadata(text: bytes) -> Damage:
    def change(tree: Path) -> None:
        data = (tree / FIRST).read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header = data[8:end].replace(b'"__metadata__":{"format":"pt"},', text)
        (tree / FIRST).write_bytes(len(header).to_bytes(8, "little") + header + data[end:])

    return change


def _as_adapter(tree: Path) -> None:
    rewrite(
        tree / SECOND, lambda tensors: tensors.update({"base_model.model.q.lora_A.weight": tensors["layer.weight"]})
    )
    write_index(tree)


def _second_index(tree: Path) -> None:
    (tree / "adapter_model.safetensors.index.json").write_text((tree / INDEX).read_text())


DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "missing shard": (_delete(SECOND), "shards", "shard 2 of 2 is missing"),
    "missing shard, by the index": (_delete(SECOND), "shards", f"is said to be in {SECOND}, which is missing"),
    "stale index": (
        lambda tree: write_index(tree, {"embed.weight": SECOND}),
        "shards",
        f"embed.weight is said to be in {SECOND}, which does not hold it",
    ),
    "index names an absent tensor": (
        lambda tree: write_index(tree, {"gone.weight": FIRST}),
        "shards",
        f"gone.weight is said to be in {FIRST}, which does not hold it",
    ),
    "index leaves a tensor out": (
        lambda tree: write_index(tree, {"head.weight": None}),
        "shards",
        f"head.weight (in {SECOND}) is not in it",
    ),
    "index leads outside": (
        lambda tree: write_index(tree, {"head.weight": f"../{SECOND}"}),
        "shards",
        "leads out of the folder",
    ),
    "index is absolute": (
        lambda tree: write_index(tree, {"head.weight": f"/tmp/{SECOND}"}),
        "shards",
        "leads out of the folder",
    ),
    "index names an absent shard": (
        lambda tree: write_index(tree, {"head.weight": "model-00009-of-00009.safetensors"}),
        "shards",
        "model-00009-of-00009.safetensors, which is missing",
    ),
    "no index": (_delete(INDEX), "shards", f"without {INDEX} there is model.safetensors alone"),
    "index is no JSON": (lambda tree: _write(tree, INDEX, "{"), "shards", "is not valid JSON"),
    "index without a map": (lambda tree: _write(tree, INDEX, '{"metadata": {}}'), "shards", "weight_map is no map"),
    "index without metadata": (lambda tree: _write(tree, INDEX, '{"weight_map": {}}'), "shards", "metadata is missing"),
    "another index": (_second_index, "shards", "adapter_model.safetensors.index.json is no index of these weights"),
    "tensor in two shards": (_twice, "shards", "embed.weight lies in 2 files"),
    "number beyond the count": (_renumber, "shards", "there is a shard 3 of 2"),
    "counts differ": (_recount, "shards", "shards say that there are 2, 3 of them"),
    "extra shard": (_extra_shard, "shards", "old.safetensors is no shard"),
    "extra shard, by the index": (_extra_shard, "shards", f"old.safetensors is named by no entry of {INDEX}"),
    "total_size of the storages": (
        lambda tree: write_index(tree, total=128_020),
        "shards",
        "total_size is 128020, the headers add up to 104",
    ),
    "truncated shard": (_truncate, "headers", f"{SECOND}: its tensors end at byte"),
    "over-long shard": (_extend, "headers", f"{SECOND}: its tensors end at byte"),
    "no format metadata": (_metadata(b""), "headers", 'exactly {"format": "pt"} is due'),
    "empty metadata": (_metadata(b'"__metadata__":{},'), "headers", 'exactly {"format": "pt"} is due'),
    "two metadata keys": (
        _metadata(b'"__metadata__":{"format":"pt","lm_head.weight":"embed.weight"},'),
        "headers",
        "lm_head.weight",
    ),
    "adapter released as a full model": (_as_adapter, "shards", "released as full, and these are an adapter's tensors"),
    "adapter's config in a full model": (
        lambda tree: _write(tree, "adapter_config.json", "{}"),
        "shards",
        "released as full, and adapter_config.json is there",
    ),
    "no config": (_delete("config.json"), "shards", "config.json is missing"),
    "config dtype that lies": (
        lambda tree: _write(tree, "config.json", json.dumps({**CONFIG, "dtype": "bfloat16"})),
        "config",
        "dtype is bfloat16, 20 of 20 floating elements are F32",
    ),
    "config that asks for code": (
        lambda tree: _write(tree, "config.json", json.dumps({**CONFIG, "auto_map": {"AutoModel": "x.py--X"}})),
        "config",
        "auto_map",
    ),
    "config without a class": (lambda tree: _write(tree, "config.json", "{}"), "config", "config.json is missing or"),
    "config with two classes": (
        lambda tree: _write(tree, "config.json", json.dumps({"architectures": ["A", "B"]})),
        "config",
        "one class is due",
    ),
    "no card": (_delete("README.md"), "card", "README.md is missing"),
    "private mode": (lambda tree: (tree / FIRST).chmod(0o600), "files", f"{FIRST} has mode 0600; 0644 is due"),
    "executable": (lambda tree: (tree / "config.json").chmod(0o755), "files", "config.json has mode 0755"),
    "hard link": (
        lambda tree: link(tree / "README.md", tree.parent / "second"),
        "files",
        "README.md has a second name",
    ),
}  # fmt: skip


def _write(tree: Path, name: str, text: str) -> None:
    (tree / name).write_text(text)


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found_although_the_manifest_fits_it(tree: Path, what: str) -> None:
    damage, check, words = DAMAGES[what]
    damage(tree)
    report = quick(reseal(tree))
    faults = [one.detail for one in report.checks if one.verdict is Verdict.FAILED and one.name == check]
    assert faults, report.checks
    assert words in faults[0]
    assert not report.ok


def test_a_link_is_no_file_of_a_release(tree: Path) -> None:
    (tree / "README.md").rename(tree.parent / "card.md")
    (tree / "README.md").symlink_to(tree.parent / "card.md")
    report = quick(tree, deep=True)
    assert "README.md is no regular file" in detail(report, "files")
    assert "README.md is missing" in detail(report, "card")
    assert verdicts(report)["second-loader"] is Verdict.NOT_DONE


def test_weights_behind_a_link_are_not_read(tree: Path) -> None:
    (tree / FIRST).rename(tree.parent / FIRST)
    (tree / FIRST).symlink_to(tree.parent / FIRST)
    report = quick(tree)
    assert f"{FIRST} is no regular file" in detail(report, "files")
    assert "embed.weight is in the manifest and in no file" in detail(report, "tensors")


def test_files_are_those_of_the_manifest_both_ways(tree: Path) -> None:
    (tree / "notes.txt").write_text("x")
    (tree / "README.md").write_text((tree / "README.md").read_text().replace("tiny", "tini"))
    (tree / "config.json").unlink()
    said = detail(quick(tree), "files")
    assert "notes.txt is not in the manifest" in said
    assert "config.json is missing" in said
    assert "README.md has not the digest" in said


def test_a_changed_length_is_named_with_both_sizes(tree: Path) -> None:
    with (tree / "README.md").open("a") as card:
        card.write("more\n")
    assert "bytes, the manifest says" in detail(quick(tree), "files")


def test_what_a_download_leaves_behind_is_no_part_of_it(tree: Path) -> None:
    """A prepared tree with such a folder is refused by the scan; one that was downloaded says so."""
    cache = tree / ".cache" / "huggingface"
    cache.mkdir(parents=True)
    (cache / "config.json.metadata").write_text("etag")
    (tree / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    assert not quick(tree).ok
    assert quick(tree, downloaded=True).ok
    (tree / ".cache" / "other").write_text("x")
    assert ".cache/other is not in the manifest" in detail(quick(tree, downloaded=True), "files")


def test_modes_are_those_that_the_folder_promises(tree: Path) -> None:
    """A download under a strict umask is private as a whole, and whole."""
    for path in tree.iterdir():
        path.chmod(0o600)
    assert not quick(tree).ok
    tree.chmod(0o700)
    assert quick(tree).ok


def test_tensors_are_those_of_the_manifest_both_ways(tree: Path) -> None:
    rewrite(tree / FIRST, lambda tensors: tensors.update({"new": tensors.pop("position.ids")}))
    said = detail(quick(tree), "tensors")
    assert "position.ids is in the manifest and in no file" in said
    assert f"new (in {FIRST}) is not in the manifest" in said


def test_a_flipped_byte_is_named_by_its_tensor(tree: Path) -> None:
    data = bytearray((tree / SECOND).read_bytes())
    data[-1] ^= 1
    (tree / SECOND).write_bytes(data)
    report = quick(tree)
    assert detail(report, "tensors") == "head.weight: its bytes have not the digest that the manifest says"
    assert f"{SECOND} has not the digest" in detail(report, "files")


def test_a_tensor_with_another_dtype_is_named_with_both(tree: Path) -> None:
    rewrite(tree / FIRST, lambda tensors: tensors.update({"position.ids": ("I32", (6,), tensors["position.ids"][2])}))
    assert f"position.ids is I32 [6] in {FIRST}, the manifest says I64 [3]" in detail(quick(tree), "tensors")


def test_a_content_digest_of_other_tensors_fails(tree: Path) -> None:
    reseal(tree, content_sha256="1" * 64)
    assert "content_sha256" in detail(quick(tree), "tensors")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "cannot be read"),
        (b"{", "not valid JSON"),
        (b'{"format": 2}', "format 2"),
        (b'{"format": 1, "shape": 1}', "shape: unknown key"),
    ],
)
def test_without_a_manifest_nothing_else_is_done(tree: Path, data: bytes | None, words: str) -> None:
    (tree / MANIFEST).unlink()
    if data is not None:
        (tree / MANIFEST).write_bytes(data)
    report = quick(tree)
    assert words in detail(report, "manifest")
    assert {check.verdict for check in report.checks[1:]} == {Verdict.NOT_DONE}
    assert len(report.checks) > 8


def test_a_manifest_behind_a_link_is_not_read(tree: Path) -> None:
    (tree / MANIFEST).rename(tree.parent / MANIFEST)
    (tree / MANIFEST).symlink_to(tree.parent / MANIFEST)
    assert detail(quick(tree), "manifest") == f"{MANIFEST} is a link"


def test_a_manifest_has_one_spelling_and_one_order(tree: Path) -> None:
    manifest = read_manifest(tree)
    (tree / MANIFEST).write_bytes(encode(manifest) + b"\n")
    assert "not in its canonical form" in detail(quick(tree), "manifest")
    (tree / MANIFEST).write_bytes(encode(manifest.model_copy(update={"files": manifest.files[::-1]})))
    assert "not sorted by path" in detail(quick(tree), "manifest")


def test_an_adapter_has_an_adapters_files_and_names(tree: Path) -> None:
    reseal(tree, kind=Kind.ADAPTER)
    said = detail(quick(tree), "shards")
    assert "adapter_config.json is missing" in said
    assert "no tensor has an adapter's name" in detail(quick(_as_single_adapter(tree)), "shards")


def _as_single_adapter(tree: Path) -> Path:
    for name in (FIRST, SECOND, INDEX):
        (tree / name).unlink()
    tensors = {"head.weight": ("F32", (1,), b"\0" * 4)}
    (tree / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
    (tree / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "acme/base"}')
    return reseal(tree)


def test_a_custom_release_does_not_call_itself_loadable_by_transformers(tree: Path) -> None:
    (tree / "config.json").write_text('{"width": 2}')
    said = detail(quick(reseal(tree, kind=Kind.CUSTOM)), "config")
    assert said == "README.md: library_name is transformers, which cannot load a custom architecture"
