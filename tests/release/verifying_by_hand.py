"""Trees to verify, made by hand and damaged on purpose, and a way to run the child's work in this process.

``sharded(folder)`` writes a small sharded release without torch.  ``reseal(tree)`` makes the
manifest fit whatever lies in the tree now, so that a check has to see the damage itself and not
its digest.  ``in_this_process`` spares a test the seconds that a child takes to import torch; the
same program is tested as a child in test_verify_release_sandbox.py.
"""

import hashlib
import json
import os
import shutil
import struct
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from release.prepared_by_hand import safetensors_bytes
from support.releases import Built, variant

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.formats.safetensors import read_header
from replicate.release.bundle import (
    MANIFEST,
    Action,
    Exporter,
    ExportManifest,
    Kind,
    PublishedFile,
    PublishedTensor,
    SourceIdentity,
    Transform,
    content_sha256,
)
from replicate.release.description import ReleaseDescription, load_description
from replicate.release.documents import decode, encode
from replicate.release.preparing import prepare
from replicate.release.scan.scanning import Identities
from replicate.release.source import SourceGeneration, open_local
from replicate.release.verifying import architecture, child, verifying
from replicate.release.verifying.checks import Verdict
from replicate.release.verifying.sandbox import Answer, Job, Limits
from replicate.release.verifying.verifying import VerifyReleaseReport, verify_release
from replicate.release.weights import reading
from tiers.testing.manual_clock import ManualClock

Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]
SHARDS: Mapping[str, Tensors] = {
    "model-00001-of-00002.safetensors": {
        "embed.weight": ("F32", (4, 2), struct.pack("<8f", *range(8))),
        "position.ids": ("I64", (3,), struct.pack("<3q", 0, 1, 2)),
    },
    "model-00002-of-00002.safetensors": {
        "layer.weight": ("F32", (2, 2), struct.pack("<4f", 1, 2, 3, 4)),
        "head.weight": ("F32", (2, 4), struct.pack("<8f", *range(8, 16))),
    },
}
FIRST, SECOND = SHARDS
INDEX = "model.safetensors.index.json"
NOBODY = Identities(user="", host="", run="", run_uid="", places=())
CONFIG = {"architectures": ["TinyForCausalLM"], "dtype": "float32"}


def sharded(folder: Path, shards: Mapping[str, Tensors] = SHARDS) -> Path:
    """Write a full release in shards, with index, config, card and manifest."""
    tree = folder / "tree"
    tree.mkdir(parents=True, mode=0o755)
    for name, tensors in shards.items():
        (tree / name).write_bytes(safetensors_bytes(tensors))
    write_index(tree)
    (tree / "config.json").write_text(json.dumps(CONFIG))
    (tree / "README.md").write_text("---\nlibrary_name: transformers\n---\n# tiny\n")
    for path in tree.iterdir():
        path.chmod(0o644)
    names = [name for tensors in shards.values() for name in tensors]
    transforms = tuple(Transform(source=name, action=Action.KEPT, target=name) for name in sorted(names))
    return reseal(tree, manifest=_empty_manifest(transforms))


def _empty_manifest(transforms: tuple[Transform, ...]) -> ExportManifest:
    return ExportManifest(
        kind=Kind.FULL,
        name="tiny",
        version="1.0",
        license="mit",
        source=SourceIdentity(
            generation="a0001-g000001-u000000000002-00000000",
            record_sha256="0" * 64,
            next_update=2,
            sealed_at="2026-01-01T00:00:00Z",
            contract={},
        ),
        exporter=Exporter(ckptier="0", libraries={}),
        files=(),
        tensors=(),
        content_sha256="0" * 64,
        transforms=transforms,
    )


def write_index(tree: Path, changes: Mapping[str, str | None] | None = None, *, total: int | None = None) -> None:
    """Write an index that fits, and then ``changes``: a name that is moved to a file, or left out."""
    headers = {path.name: read_header(path) for path in sorted(tree.glob("*.safetensors"))}
    entries: dict[str, str | None] = {one.name: file for file, header in headers.items() for one in header.tensors}
    entries.update(changes or {})
    size = sum(header.data_size for header in headers.values()) if total is None else total
    weight_map = {name: file for name, file in entries.items() if file is not None}
    (tree / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))


def reseal(tree: Path, *, manifest: ExportManifest | None = None, **changes: Any) -> Path:
    """Write the manifest again, for what lies in the tree now; ``changes`` replace its other fields."""
    manifest = manifest or read_manifest(tree)
    paths = sorted(path for path in tree.rglob("*") if path.is_file() and path.name != MANIFEST)
    files = [_file(tree, path) for path in paths]
    tensors = {one.name: one for path in paths if path.suffix == ".safetensors" for one in _tensors(path)}
    ordered = tuple(tensors[name] for name in sorted(tensors))
    fitted = manifest.model_copy(
        update={
            "files": tuple(sorted(files, key=lambda one: one.path)),
            "tensors": ordered,
            "content_sha256": content_sha256(ordered),
            **changes,
        }
    )
    (tree / MANIFEST).write_bytes(encode(fitted))
    return tree


def read_manifest(tree: Path) -> ExportManifest:
    return decode(ExportManifest, (tree / MANIFEST).read_bytes(), what=MANIFEST)


def _file(tree: Path, path: Path) -> PublishedFile:
    data = path.read_bytes()
    name = path.relative_to(tree).as_posix()
    return PublishedFile(path=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _tensors(path: Path) -> list[PublishedTensor]:
    try:
        header = read_header(path)
    except IntegrityFailure:
        return []
    data = path.read_bytes()
    return [
        PublishedTensor(
            name=one.name,
            file=path.name,
            dtype=one.dtype,
            shape=one.shape,
            sha256=hashlib.sha256(data[one.start : one.end]).hexdigest(),
        )
        for one in header.tensors
    ]


def contents(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Read the tensors of a file."""
    data = path.read_bytes()
    return {one.name: (one.dtype, one.shape, data[one.start : one.end]) for one in read_header(path).tensors}


def rewrite(path: Path, change: Callable[[dict[str, tuple[str, tuple[int, ...], bytes]]], None]) -> None:
    """Change the tensors of a file, which stays a valid one."""
    tensors = contents(path)
    change(tensors)
    path.write_bytes(safetensors_bytes(tensors))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def quick(tree: Path, **given: Any) -> VerifyReleaseReport:
    """Verify without source and without loading anything."""
    nothing: dict[str, Any] = {"description": None, "base": None, "source": None, "manifest_sha256": None}
    return verify_release(tree, **{**nothing, "deep": False, **given})


def digest_of(tree: Path) -> str:
    return canonical.sha256((tree / MANIFEST).read_bytes())


def verdicts(report: VerifyReleaseReport) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in report.checks}


def detail(report: VerifyReleaseReport, name: str) -> str:
    """Return what a failed check says."""
    check = next(one for one in report.checks if one.name == name)
    assert check.verdict is Verdict.FAILED, check
    return check.detail


@dataclass(frozen=True, kw_only=True)
class Made:
    """A prepared release with what it is verified against."""

    tree: Path
    description: ReleaseDescription
    base: Path
    source: SourceGeneration

    def verify(self, *, deep: bool = True, **given: Any) -> VerifyReleaseReport:
        known = {"description": self.description, "base": self.base, "source": self.source}
        return verify_release(self.tree, **{**known, "manifest_sha256": digest_of(self.tree), **given}, deep=deep)


@dataclass(kw_only=True)
class Maker:
    """Prepares each release once, and hands out copies."""

    tiny: Callable[[str], Built]
    root: Path
    made: dict[str, Made] = field(default_factory=dict)

    def whole(self, name: str, changes: Mapping[str, Any] | None = None) -> Made:
        key = name + json.dumps(changes or {}, sort_keys=True)
        if key not in self.made:
            built = self.tiny(name)
            if changes:
                built = variant(built, self.root / f"described-{len(self.made)}", changes)
            description = load_description(built.description)
            source = open_local(built.local, built.generation)
            out = self.root / f"prepared-{len(self.made)}"
            report = prepare(description, built.folder, source, out, identities=NOBODY, waivers=(), clock=ManualClock())
            self.made[key] = Made(tree=report.prepared.tree, description=description, base=built.folder, source=source)
        return self.made[key]

    def copy(self, to: Path, name: str, changes: Mapping[str, Any] | None = None) -> Made:
        made = self.whole(name, changes)
        tree = to / f"{name}-tree"
        shutil.copytree(made.tree, tree)
        return Made(tree=tree, description=made.description, base=made.base, source=made.source)


@contextmanager
def in_this_process() -> Iterator[None]:
    """Let verification do its jobs here; what a job does to this process is taken back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "run_jobs", _run_here)
        patch.setattr(architecture, "run_jobs", _run_here)
        patch.setattr(reading, "load_fault", lambda *_, **__: "")  # a child of the preparing side, tested there
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


def _run_here(jobs: Sequence[Job], *, limits: Limits, loaded_bytes: int) -> list[Answer]:
    assert limits.seconds > 0
    assert loaded_bytes >= 0
    threads, known, writes = torch.get_num_threads(), set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            return [child.do(job.task, job.names, json.loads(json.dumps(job.arguments))) for job in jobs]
    finally:
        sys.dont_write_bytecode = writes
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
        for name in set(sys.modules) - known:  # the user's factory, which the next test writes anew
            if not (getattr(sys.modules[name], "__file__", None) or "site-packages").count("site-packages"):
                del sys.modules[name]


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn off the bars that loaders draw; a child has them off by its environment."""
    from transformers.utils import logging  # noqa: PLC0415 - only who loads needs it

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def link(source: Path, target: Path) -> None:
    os.link(source, target)
