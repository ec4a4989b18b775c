"""A prepared release made by hand: real files and digests, no torch, nothing exported.

``prepare_by_hand(folder)`` writes what ``release prepare`` would, small and always the same:

    prepared = prepare_by_hand(tmp_path / "prepared")                       # private, on the Hub
    prepared = prepare_by_hand(tmp_path / "prepared", destination=FOLDER)   # or wherever it is to go

``reseal(prepared)`` writes manifest and scan report again after a test changed the tree, as
somebody would who prepares other bytes; without it the change is damage.  Roles, keys, a policy
and authorizations for it are in ``release.authorized_by_hand``.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replicate import canonical
from replicate.formats.safetensors import read_header
from replicate.release.bundle import (
    MANIFEST,
    Action,
    Exporter,
    ExportManifest,
    Kind,
    Prepared,
    PublishedFile,
    PublishedTensor,
    SourceIdentity,
    Transform,
    content_sha256,
)
from replicate.release.description import ReleaseDescription
from replicate.release.destination import Destination, Visibility
from replicate.release.documents import encode
from replicate.release.findings import Finding, ScanReport, Waiver

HUB_DESTINATION = Destination(url="hf://acme/tiny", tag="v1.0", visibility=Visibility.PRIVATE)

TENSORS: Mapping[str, tuple[str, tuple[int, ...], bytes]] = {
    "embed.weight": ("F32", (4, 2), struct.pack("<8f", *(0.5 * index for index in range(8)))),
    "head.weight": ("BF16", (2, 4), bytes(range(16))),
    "position.ids": ("I64", (3,), struct.pack("<3q", 0, 1, 2)),
}


def safetensors_bytes(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Return a safetensors file: length, header, data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + b"".join(data for _, _, data in tensors.values())


def describe(destination: Destination = HUB_DESTINATION, *, license_id: str = "apache-2.0") -> ReleaseDescription:
    """Return the description that the tree was made from."""
    prose = "A very small model that exists so that publishing can be tested."
    document = {
        "format": 1,
        "kind": "full",
        "name": "tiny",
        "version": "1.0",
        "code_version": "abc1234",
        "license": {"id": license_id},
        "source": {"files": ["model.pt"], "entries": "model"},
        "architecture": {"model_class": "LlamaForCausalLM"},
        "files": {"config": "config.json", "license": "LICENSE"},
        "card": {
            "title": "Tiny",
            "summary": prose,
            "intended_use": prose,
            "limitations": prose,
            "training": prose,
            "compute": prose,
            "library_name": "transformers",
        },
        "destination": destination.model_dump(mode="json"),
    }
    return ReleaseDescription.model_validate(document)


def prepare_by_hand(
    root: Path,
    *,
    destination: Destination = HUB_DESTINATION,
    license_id: str = "apache-2.0",
    waivers: tuple[Waiver, ...] = (),
    blocking: tuple[Finding, ...] = (),
) -> Prepared:
    """Write a prepared release and return its paths."""
    prepared = Prepared(root)
    prepared.tree.mkdir(parents=True)
    files = {
        "model.safetensors": safetensors_bytes(TENSORS),
        "config.json": b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}\n',
        "LICENSE": b"Permission is granted under the terms named in the card.\n",
        "README.md": f"---\nlicense: {license_id}\n---\n# Tiny\n".encode(),
        "tokenizer/vocab.txt": b"a\nb\n",
        "empty.txt": b"",
    }
    for name, data in files.items():
        path = prepared.tree / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    prepared.description.write_bytes(encode(describe(destination, license_id=license_id)))
    reseal(prepared, license_id=license_id, waivers=waivers, blocking=blocking)
    return prepared


def reseal(
    prepared: Prepared,
    *,
    license_id: str = "apache-2.0",
    waivers: tuple[Waiver, ...] = (),
    blocking: tuple[Finding, ...] = (),
) -> ExportManifest:
    """Write manifest, scan report and waivers for the tree as it is now."""
    manifest = _manifest(prepared, license_id)
    prepared.manifest.write_bytes(encode(manifest))
    report = ScanReport(
        export_manifest_sha256=manifest.sha256,
        scanners=("by hand",),
        files=len(manifest.files),
        tensors=len(manifest.tensors),
        blocking=blocking,
        waived=(),
        waivers=waivers,
    )
    prepared.scan_report.write_bytes(encode(report))
    prepared.waivers.unlink(missing_ok=True)
    if waivers:
        listed = [waiver.model_dump(mode="json") for waiver in waivers]
        prepared.waivers.write_bytes(canonical.dump({"format": 1, "waivers": listed}))
    return manifest


def _manifest(prepared: Prepared, license_id: str) -> ExportManifest:
    paths = sorted(path.relative_to(prepared.tree).as_posix() for path in prepared.tree.rglob("*") if path.is_file())
    files = tuple(
        PublishedFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path in paths
        if path != MANIFEST
        for data in [(prepared.tree / path).read_bytes()]
    )
    tensors = tuple(
        sorted(
            (tensor for path in paths if path.endswith(".safetensors") for tensor in _tensors(prepared.tree, path)),
            key=lambda tensor: tensor.name,
        )
    )
    return ExportManifest(
        kind=Kind.FULL,
        name="tiny",
        version="1.0",
        license=license_id,
        source=SourceIdentity(
            generation="a0001-g000006-u000000000220-1f3a9c2e",
            record_sha256=hashlib.sha256(b"generation.json").hexdigest(),
            next_update=220,
            sealed_at="2026-01-01T00:00:00.000Z",
            contract={"code": "abc1234"},
        ),
        exporter=Exporter(ckptier="0.1.0", libraries={"safetensors": "0.8.0", "torch": "2.13.0"}),
        files=files,
        tensors=tensors,
        content_sha256=content_sha256(tensors),
        transforms=tuple(
            Transform(source=f"module.{tensor.name}", action=Action.KEPT, target=tensor.name) for tensor in tensors
        ),
    )


def _tensors(tree: Path, path: str) -> tuple[PublishedTensor, ...]:
    data = (tree / path).read_bytes()
    return tuple(
        PublishedTensor(
            name=tensor.name,
            file=path,
            dtype=tensor.dtype,
            shape=tensor.shape,
            sha256=hashlib.sha256(data[tensor.start : tensor.end]).hexdigest(),
        )
        for tensor in read_header(tree / path).tensors
    )
