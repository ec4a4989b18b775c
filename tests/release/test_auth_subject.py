"""What an authorization is about is recomputed from bytes: whatever is altered is found, and named."""

import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from release.authorized_by_hand import Scene, fields
from release.prepared_by_hand import TENSORS, describe, prepare_by_hand, reseal, safetensors_bytes

from replicate import canonical
from replicate.digests import BLOCK
from replicate.errors import CkptierError, IntegrityFailure, LocalDisk
from replicate.paths import UnsafePath
from replicate.release.bundle import ExportManifest, Prepared, content_sha256
from replicate.release.destination import Destination, Visibility
from replicate.release.documents import encode
from replicate.release.findings import Finding, Rule, Waiver
from replicate.release.subject import observe

WAIVER = Waiver(
    rule=Rule.SECRET,
    path="README.md",
    reason="an example token of the documentation",
    author="author",
    expires=datetime(2027, 1, 1, tzinfo=UTC),
)
FINDING = Finding(rule=Rule.SECRET, path="README.md", detail="a token")


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return prepare_by_hand(tmp_path / "prepared")


def test_everything_is_recomputed(prepared: Prepared) -> None:
    observed = observe(prepared)
    manifest = json.loads(prepared.manifest.read_bytes())
    digests = {file["path"]: file["sha256"] for file in manifest["files"]}
    subject = observed.subject
    assert (
        subject.export_manifest_sha256 == canonical.sha256(prepared.manifest.read_bytes()) == observed.manifest.sha256
    )
    assert subject.card_sha256 == digests["README.md"]
    assert subject.license_sha256 == digests["LICENSE"]
    assert subject.scan_report_sha256 == canonical.sha256(prepared.scan_report.read_bytes())
    assert subject.content_sha256 == content_sha256(observed.manifest.tensors)
    assert subject.transforms_sha256 == observed.manifest.transforms_sha256
    assert subject.exporter == "ckptier 0.1.0; safetensors 0.8.0; torch 2.13.0"
    assert observed.destination == Destination(url="hf://acme/tiny", tag="v1.0", visibility=Visibility.PRIVATE)
    assert observed.manifest_bytes == prepared.manifest.read_bytes()


def test_findings_are_handed_on_and_refused_later(tmp_path: Path) -> None:
    prepared = prepare_by_hand(tmp_path / "prepared", blocking=(FINDING,))
    assert observe(prepared).report.blocking == (FINDING,)


def test_waivers_are_those_of_the_report(tmp_path: Path) -> None:
    prepared = prepare_by_hand(tmp_path / "prepared", waivers=(WAIVER,))
    assert observe(prepared).subject.waivers == (WAIVER,)
    whole = prepared.waivers.read_bytes()
    other = json.loads(whole)
    other["waivers"][0]["reason"] = "another reason, given later"
    for data in (canonical.dump(other), canonical.dump({"format": 1, "waivers": []})):
        prepared.waivers.write_bytes(data)
        with pytest.raises(IntegrityFailure, match=r"waivers.json: its [01] waivers are not the 1"):
            observe(prepared)
    prepared.waivers.unlink()
    with pytest.raises(IntegrityFailure, match=r"waivers.json: its 0 waivers"):
        observe(prepared)


def test_a_file_larger_than_a_block_is_read_to_its_end(tmp_path: Path) -> None:
    prepared = prepare_by_hand(tmp_path / "prepared")
    big = {"big": ("U8", (BLOCK + 3,), bytes(BLOCK) + b"end")}
    (prepared.tree / "big.safetensors").write_bytes(safetensors_bytes(big))
    manifest = reseal(prepared)
    assert observe(prepared).subject.content_sha256 == manifest.content_sha256


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def _flip(path: Path) -> None:
    _rewrite(path, lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])


CHANGES: dict[str, Callable[[Path], None]] = {
    "flipped": _flip,
    "longer": lambda path: _rewrite(path, lambda data: data + b"x"),
    "shorter": lambda path: _rewrite(path, lambda data: data[:-1]),
}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "LICENSE", "README.md", "tokenizer/vocab.txt"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_altered_file_is_named(prepared: Prepared, name: str, change: Callable[[Path], None]) -> None:
    change(prepared.tree / name)
    with pytest.raises(IntegrityFailure, match=name.replace(".", r"\.")) as refused:
        observe(prepared)
    assert "prepare" in refused.value.hint


@pytest.mark.parametrize("name", ["export-manifest.json", "description.json", "scan-report.json"])
def test_an_altered_document_is_named(prepared: Prepared, name: str) -> None:
    path = prepared.manifest if name == "export-manifest.json" else prepared.root / name
    _rewrite(path, lambda data: data + b"\n")
    with pytest.raises(IntegrityFailure, match=f"{name} is not in its canonical form"):
        observe(prepared)
    _rewrite(path, lambda data: data[: len(data) // 2])
    with pytest.raises(IntegrityFailure, match=name):
        observe(prepared)
    path.unlink()
    with pytest.raises(CkptierError, match=name):
        observe(prepared)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bit_goes_by(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever bit of whatever file: it is an error, or the authorization of before does not fit any more."""
    scene = _scene(tmp_path_factory)
    authorization = _authorized[scene.prepared.root]
    paths = sorted(path for path in scene.prepared.root.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(paths), label="file")
    whole = path.read_bytes()
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    try:
        refusals = scene.decide(authorization, observed=observe(scene.prepared))
    except CkptierError:
        return
    finally:
        path.write_bytes(whole)
    # What the description says of anything but the destination is in the bytes that were made from it.
    assert refusals or path == scene.prepared.description


_scenes: list[Scene] = []
_authorized: dict[Path, Any] = {}


def _scene(factory: pytest.TempPathFactory) -> Scene:
    if not _scenes:
        _scenes.append(Scene.set(factory.mktemp("flipped")))
        _authorized[_scenes[0].prepared.root] = _scenes[0].authorized()
    return _scenes[0]


def test_the_set_of_files_is_exact(prepared: Prepared) -> None:
    (prepared.tree / "notes.txt").write_text("left over", encoding="utf-8")
    with pytest.raises(IntegrityFailure, match=r"'notes.txt' is in the tree and not in export-manifest.json \(1 such"):
        observe(prepared)
    (prepared.tree / "notes.txt").unlink()
    (prepared.tree / "config.json").unlink()
    with pytest.raises(IntegrityFailure, match=r"'config.json' is not in the tree but in export-manifest.json"):
        observe(prepared)


def test_an_empty_folder_is_refused(prepared: Prepared) -> None:
    (prepared.tree / "nothing").mkdir()
    with pytest.raises(IntegrityFailure, match="'nothing' is an empty folder"):
        observe(prepared)


def _to_link(path: Path) -> None:
    aside = path.parents[2] / "aside"
    path.rename(aside)
    path.symlink_to(aside)


def _to_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _to_hard_link(path: Path) -> None:
    (path.parents[2] / "second-name").hardlink_to(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [(_to_link, "symbolic link"), (_to_fifo, "FIFO"), (_to_hard_link, r"config.json has 2 names \(hard links\)")],
    ids=["link", "fifo", "hard link"],
)
def test_only_plain_files_are_published(prepared: Prepared, change: Callable[[Path], None], words: str) -> None:
    change(prepared.tree / "config.json")
    with pytest.raises(IntegrityFailure, match=words):
        observe(prepared)


def test_a_linked_document_is_refused(prepared: Prepared) -> None:
    aside = prepared.root / "aside.json"
    prepared.scan_report.rename(aside)
    prepared.scan_report.symlink_to(aside)
    with pytest.raises(IntegrityFailure, match=r"scan-report.json is a symbolic link"):
        observe(prepared)


def test_names_that_collide_elsewhere_are_refused(prepared: Prepared) -> None:
    (prepared.tree / "CONFIG.json").write_bytes(b"{}")
    with pytest.raises(UnsafePath):
        observe(prepared)


def _manifest(prepared: Prepared, **changes: Any) -> None:
    """Replace the manifest, and the report's name of it, by one that says something else."""
    told = ExportManifest.model_validate_json(prepared.manifest.read_bytes()).model_copy(update=changes)
    prepared.manifest.write_bytes(encode(told))
    report = json.loads(prepared.scan_report.read_bytes()) | {"export_manifest_sha256": told.sha256}
    prepared.scan_report.write_bytes(canonical.dump(report))


def test_a_manifest_that_says_something_else_of_a_tensor_is_refused(prepared: Prepared) -> None:
    """Also one whose content digest was computed anew."""
    tensors = observe(prepared).manifest.tensors
    for name, value in (("dtype", "F16"), ("shape", (8,)), ("sha256", "d" * 64)):
        wrong = (tensors[0].model_copy(update={name: value}), *tensors[1:])
        _manifest(prepared, tensors=wrong)
        with pytest.raises(IntegrityFailure, match="content_sha256"):
            observe(prepared)
        _manifest(prepared, tensors=wrong, content_sha256=content_sha256(wrong))
        with pytest.raises(IntegrityFailure, match=rf"tensor 'embed.weight': {name}: .* is written down, found"):
            observe(prepared)


def test_a_manifest_that_puts_a_tensor_into_another_file_is_refused(prepared: Prepared) -> None:
    first, *others = observe(prepared).manifest.tensors
    _manifest(prepared, tensors=(first.model_copy(update={"file": "config.json"}), *others))
    with pytest.raises(IntegrityFailure, match=r"tensor 'embed.weight': file: config.json is written down, found"):
        observe(prepared)


def test_tensors_are_compared_both_ways(prepared: Prepared) -> None:
    tensors = observe(prepared).manifest.tensors
    fewer, extra = tensors[1:], tensors[0].model_copy(update={"name": "zzz"})
    _manifest(prepared, tensors=fewer, content_sha256=content_sha256(fewer))
    with pytest.raises(IntegrityFailure, match=r"model.safetensors: tensor 'embed.weight' is not in export-manifest"):
        observe(prepared)
    more = (*tensors, extra)
    _manifest(prepared, tensors=more, content_sha256=content_sha256(more))
    with pytest.raises(IntegrityFailure, match=r"tensor 'zzz' of export-manifest.json is in no file"):
        observe(prepared)


def test_a_tensor_in_two_files_is_refused(prepared: Prepared) -> None:
    (prepared.tree / "second.safetensors").write_bytes(safetensors_bytes({"head.weight": TENSORS["head.weight"]}))
    manifest = reseal(prepared)
    once = {tensor.name: tensor for tensor in reversed(manifest.tensors)}
    tensors = tuple(once[name] for name in sorted(once))
    _manifest(prepared, tensors=tensors, content_sha256=content_sha256(tensors))
    with pytest.raises(IntegrityFailure, match=r"tensor 'head.weight' is in model.safetensors and in second"):
        observe(prepared)


@pytest.mark.parametrize("listed", ["files", "tensors"])
def test_a_manifest_is_sorted_and_lists_once(prepared: Prepared, listed: str) -> None:
    manifest = observe(prepared).manifest
    items = getattr(manifest, listed)
    for wrong in (items[::-1], (*items, items[-1])):
        _manifest(prepared, **{listed: wrong})
        with pytest.raises(IntegrityFailure, match=f"{listed} are not sorted, or one stands there twice"):
            observe(prepared)
    itself = manifest.files[0].model_copy(update={"path": "export-manifest.json"})
    _manifest(
        prepared, files=tuple(sorted((*manifest.files, itself), key=lambda file: file.path)), tensors=manifest.tensors
    )
    with pytest.raises(IntegrityFailure, match="it lists itself"):
        observe(prepared)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "other"}, "name"),
        ({"version": "2.0"}, "version"),
        ({"license": describe(license_id="mit").license}, "license.id"),
    ],
)
def test_the_description_is_of_this_release(prepared: Prepared, change: dict[str, Any], field: str) -> None:
    prepared.description.write_bytes(encode(describe().model_copy(update=change)))
    with pytest.raises(IntegrityFailure, match=rf"description.json: {field}: .* is written down, found"):
        observe(prepared)


def test_the_scan_is_of_this_release(prepared: Prepared) -> None:
    old = prepared.scan_report.read_bytes()
    (prepared.tree / "LICENSE").write_bytes(b"Other terms.\n")
    reseal(prepared)
    prepared.scan_report.write_bytes(old)
    with pytest.raises(IntegrityFailure, match=r"scan-report.json: export_manifest_sha256"):
        observe(prepared)


@pytest.mark.parametrize("name", ["LICENSE", "README.md"])
def test_license_and_card_have_to_be_there(prepared: Prepared, name: str) -> None:
    (prepared.tree / name).unlink()
    reseal(prepared)
    with pytest.raises(IntegrityFailure, match=f"{name} is not in the tree"):
        observe(prepared)


@pytest.mark.parametrize(
    "data",
    [b"", b"short", struct.pack("<Q", 1 << 40) + b"{}", struct.pack("<Q", 2) + b"{]", struct.pack("<Q", 2) + b"{}tail"],
    ids=["empty", "short", "long header", "no JSON", "tail"],
)
def test_a_hostile_container_is_refused(prepared: Prepared, data: bytes) -> None:
    manifest = observe(prepared).manifest
    (prepared.tree / "model.safetensors").write_bytes(data)
    sealed = tuple(
        file.model_copy(update={"size": len(data), "sha256": canonical.sha256(data)})
        if file.path == "model.safetensors"
        else file
        for file in manifest.files
    )
    _manifest(prepared, files=sealed)
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        observe(prepared)


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "model.safetensors", "config.json"])
def test_other_bytes_that_were_prepared_anew_are_not_authorized(tmp_path: Path, name: str) -> None:
    """Everything fits together again, and it is another release: what was authorized is not this."""
    scene = Scene.set(tmp_path)
    authorization = scene.authorized()
    _flip(scene.prepared.tree / name)
    reseal(scene.prepared)
    refused = fields(scene.decide(authorization, observed=observe(scene.prepared)))
    bound = {"LICENSE": "license_sha256", "README.md": "card_sha256", "model.safetensors": "content_sha256"}
    assert "subject.export_manifest_sha256" in refused
    assert "subject.scan_report_sha256" in refused
    assert name not in bound or f"subject.{bound[name]}" in refused


def test_another_destination_is_not_authorized(tmp_path: Path) -> None:
    scene = Scene.set(tmp_path)
    authorization = scene.authorized()
    elsewhere = describe(Destination(url="hf://acme/tiny", tag="v2.0", visibility=Visibility.PRIVATE))
    scene.prepared.description.write_bytes(encode(elsewhere))
    assert fields(scene.decide(authorization, observed=observe(scene.prepared))) == ("destination.tag",)
    found = replace(scene.observed, destination=scene.observed.destination.model_copy(update={"revision": "dev"}))
    assert fields(scene.decide(authorization, observed=found)) == ("destination.revision",)


def test_a_file_that_is_written_while_it_is_read_is_refused(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that were read are the right ones; whether those that are read next are, nobody knows."""
    target, fired = prepared.tree / "config.json", []
    inode, pread = target.stat().st_ino, os.read

    def read(fd: int, length: int) -> bytes:
        data = pread(fd, length)
        if data and os.fstat(fd).st_ino == inode:
            fired.append(fd)
            os.utime(target, ns=(1, 1))
        return data

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(IntegrityFailure, match=r"config.json: it changed while it was read"):
        observe(prepared)
    assert fired


def test_what_cannot_be_read_is_a_local_error(prepared: Prepared) -> None:
    prepared.scan_report.unlink()
    with pytest.raises(LocalDisk, match=r"scan-report.json"):
        observe(prepared)
