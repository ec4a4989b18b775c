"""Verify a release: a prepared tree, a download of a published one, with its source or without.

Every check is reported: passed, failed, or not done and why.  What needs models or foreign code
runs in processes of their own (replicate.release.verifying.sandbox).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicate import canonical
from replicate.errors import CkptierError
from replicate.release.bundle import MANIFEST, ExportManifest, Kind
from replicate.release.carding import check_card
from replicate.release.description import ReleaseDescription
from replicate.release.documents import decode, encode
from replicate.release.source import SourceGeneration, wanted_files
from replicate.release.verifying import configs
from replicate.release.verifying.architecture import architecture_arguments
from replicate.release.verifying.checks import Check, Verdict, judged, not_done
from replicate.release.verifying.plainfiles import is_plain, read_plain
from replicate.release.verifying.sandbox import Job, Limits, Task, run_jobs
from replicate.release.verifying.structure import FILES, HEADERS, SHARDS, TENSORS, Structure, check_structure

MANIFEST_CHECK, PINNED, CARD, SOURCE = "manifest", "manifest-digest", "card", "source"
_COMPARISON, _TRANSFORMS, _LABEL = ("source-comparison",), ("transforms",), ("label",)
_LOADING = ("structural-load", "second-loader", "forward-pass")
_TOKENS = ("tokenizer", "chat-template")
_CARD_FILE = "README.md"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_NO_DESCRIPTION = "it needs the release description, which is not published: --description"
_NO_SOURCE = "it needs the source generation: --source, with --description and ckptier.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReleaseReport:
    """Every check, in the order in which they were made."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.verdict is not Verdict.FAILED for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether every check was done."""
        return all(check.verdict is not Verdict.NOT_DONE for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that failed."""
        return tuple(check for check in self.checks if check.verdict is Verdict.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Release:
    """What is verified, with all that was given to hold it against."""

    tree: Path
    manifest: ExportManifest
    description: ReleaseDescription | None
    base: Path | None
    source: SourceGeneration | None
    structure: Structure


def verify_release(
    tree: Path,
    *,
    description: ReleaseDescription | None,
    base: Path | None,
    source: SourceGeneration | None,
    manifest_sha256: str | None,
    deep: bool,
    downloaded: bool = False,
    limits: Limits | None = None,
) -> VerifyReleaseReport:
    """Do every check that what was given allows.

    ``downloaded`` passes over what a place and its client add to a tree (``.cache/huggingface``, ``.gitattributes``).
    ``base`` is the folder of the description's file.  ``manifest_sha256`` is the digest that the
    tree must have, from a place that the tree cannot change.  Without ``deep`` no model is loaded.
    A failed check is in the report; LocalDisk is raised where the tree cannot be read.
    """
    tree = tree.absolute()
    try:
        manifest, checks = _manifest(tree, manifest_sha256)
    except CkptierError as error:
        failed = judged(MANIFEST_CHECK, [error.message], "")
        rest = (FILES, HEADERS, SHARDS, TENSORS, configs.CHECK, CARD, *_COMPARISON, *_LOADING, *_TOKENS)
        return VerifyReleaseReport(checks=(failed, *(not_done(name, "there is no manifest to go by") for name in rest)))
    structure = check_structure(tree, manifest, downloaded=downloaded)
    release = _Release(
        tree=tree, manifest=manifest, description=description, base=base, source=source, structure=structure
    )
    checks += structure.checks
    checks += (configs.check_config(tree, manifest.kind, structure.tensors, description), _card(release))
    checks += (_identity(release),)
    return VerifyReleaseReport(checks=(*checks, *_in_processes(release, deep=deep, limits=limits or Limits())))


def _manifest(tree: Path, pinned: str | None) -> tuple[ExportManifest, tuple[Check, ...]]:
    data = read_plain(tree / MANIFEST)
    manifest = decode(ExportManifest, data, what=MANIFEST)
    found = canonical.sha256(data)
    faults = [] if encode(manifest) == data else [f"{MANIFEST} is not in its canonical form"]
    ordered = manifest.files == tuple(sorted(manifest.files, key=lambda one: one.path))
    faults += [] if ordered else [f"{MANIFEST}: files are not sorted by path"]
    check = judged(MANIFEST_CHECK, faults, f"sha256 {found}")
    if pinned is None:
        return manifest, (
            check,
            not_done(PINNED, "no digest was given to hold the manifest against: --manifest-sha256"),
        )
    wrong = [] if pinned == found else [f"{MANIFEST} has sha256 {found}, expected was {pinned}"]
    return manifest, (check, judged(PINNED, wrong, "it is the one that was expected"))


def _card(release: _Release) -> Check:
    path = release.tree / _CARD_FILE
    if not is_plain(path):
        return judged(CARD, [f"{_CARD_FILE} is missing"], "")
    if release.description is None:
        return not_done(CARD, f"{_CARD_FILE} is there; {_NO_DESCRIPTION}")
    findings = check_card(read_plain(path), release.description, release.manifest)
    faults = [f"{one.rule.value}: {one.place + ': ' if one.place else ''}{one.detail}" for one in findings]
    return judged(CARD, faults, f"{_CARD_FILE} agrees with description and weights")


def _identity(release: _Release) -> Check:
    """Whether the source that was given is the one that the release names."""
    if release.source is None:
        return not_done(SOURCE, _NO_SOURCE)
    said, source = release.manifest.source, release.source
    faults = []
    if said.generation != str(source.id):
        faults.append(f"the release is of {said.generation}, given was {source.id}")
    if said.record_sha256 != canonical.sha256(source.record_bytes):
        faults.append("the record of the generation is not the one that the release names")
    return judged(SOURCE, faults, f"the release is of {source.id}")


def _in_processes(release: _Release, *, deep: bool, limits: Limits) -> Iterator[Check]:
    """Plan the jobs, run them in one child, or where there is foreign code in two, and report in order."""
    planned = [*_weights_jobs(release), *_token_jobs(release), _loading_job(release, deep=deep)]
    blocked = _blocked(release)
    jobs = [one for one in planned if isinstance(one, Job)]
    answers: dict[tuple[str, ...], tuple[Check, ...]] = {}
    if not blocked:
        foreign = [job for job in jobs if job.foreign_code]
        for group in ([job for job in jobs if not job.foreign_code], foreign):
            found = run_jobs(group, limits=limits, loaded_bytes=_loaded_bytes(release)) if group else []
            answers.update({job.names: answer.checks for job, answer in zip(group, found, strict=True)})
    for one in planned:
        if not isinstance(one, Job):
            yield from one
        elif blocked:
            yield from (not_done(name, blocked) for name in one.names)
        else:
            yield from answers[one.names]


def _blocked(release: _Release) -> str:
    """Why nothing of the tree may be loaded: damaged containers, links that lead elsewhere, devices."""
    headers = next(check for check in release.structure.checks if check.name == HEADERS)
    if headers.verdict is Verdict.FAILED and len(release.structure.headers) == 0:
        return f"not reached: {HEADERS} did not pass"
    if not all(is_plain(path) or (path.is_dir() and not path.is_symlink()) for path in release.tree.rglob("*")):
        return "not reached: there are links or devices in the tree"
    return ""


Planned = Job | tuple[Check, ...]


def _refused(names: Sequence[str], reason: str) -> tuple[Check, ...]:
    return tuple(not_done(name, reason) for name in names)


def _weights_jobs(release: _Release) -> Iterator[Planned]:
    """Compare tensors with the source, and the record with the description."""
    source = _source_arguments(release)
    if isinstance(source, str):
        yield _refused(_COMPARISON, source)
        yield _refused(_TRANSFORMS, source)
        return
    weights = {**_common(release), "source": source, "libraries": ["torch"]}
    yield Job(task=Task.COMPARE, names=_COMPARISON, arguments=weights)
    description, architecture = release.description, _architecture(release)
    if description is None:
        yield _refused(_TRANSFORMS, _NO_DESCRIPTION)
        return
    known = architecture if isinstance(architecture, dict) else None
    libraries = known["libraries"] if known else ["torch"]
    arguments = {
        **weights,
        "weights": description.weights.model_dump(mode="json"),
        "kind": release.manifest.kind.value,
        "architecture": known,
        "libraries": libraries,
    }
    foreign = release.manifest.kind is Kind.CUSTOM
    yield Job(task=Task.PLAN, names=_TRANSFORMS, arguments=arguments, foreign_code=foreign)


def _loading_job(release: _Release, *, deep: bool) -> Planned:
    architecture = _architecture(release)
    if not deep:
        return _refused(_LOADING, "no model was loaded: --deep does it")
    if isinstance(architecture, str):
        return _refused(_LOADING, architecture)
    source = _source_arguments(release)
    arguments = {
        **_common(release),
        **architecture,
        "kind": release.manifest.kind.value,
        "source": source if isinstance(source, dict) else None,
        "names": sorted(release.structure.tensors),
    }
    foreign = release.manifest.kind is Kind.CUSTOM
    return Job(task=Task.LOAD, names=_LOADING, arguments=arguments, foreign_code=foreign)


def _token_jobs(release: _Release) -> Iterator[Planned]:
    tree = release.tree
    if any((tree / name).is_file() for name in _TOKENIZER_FILES):
        base = _base_path(release)
        rows, rows_from = configs.embedding_rows(tree, release.manifest.kind, release.structure.tensors, base)
        told = {name: configs.read_config(tree, name) for name in ("config.json", "generation_config.json")}
        declared = (tree / "chat_template.jinja").is_file() or "chat_template" in configs.read_config(
            tree, "tokenizer_config.json"
        )
        arguments = {
            "tree": str(tree),
            "configs": told,
            "rows": rows,
            "rows_from": rows_from,
            "chat": declared or bool(release.description and release.description.files.chat_template),
            "libraries": ["torch", "transformers"],
        }
        yield Job(task=Task.TOKENIZE, names=_TOKENS, arguments=arguments)
    else:
        yield tuple(judged(name, (), "the release has no tokenizer: nothing to check") for name in _TOKENS)
    if release.manifest.kind is Kind.CUSTOM:
        config = configs.read_config(tree, "config.json")
        yield Job(task=Task.LABEL, names=_LABEL, arguments={"config": config, "libraries": ["torch", "transformers"]})


def _common(release: _Release) -> dict[str, Any]:
    return {
        "tree": str(release.tree),
        "files": release.structure.weight_files,
        "transforms": [one.model_dump(mode="json") for one in release.manifest.transforms],
    }


def _source_arguments(release: _Release) -> dict[str, Any] | str:
    """Return where the source's tensors are, or why that is unknown."""
    if release.source is None:
        return _NO_SOURCE
    if release.description is None:
        return _NO_DESCRIPTION
    wanted = release.description.source
    files = [file.path for file in wanted_files(release.source.record, wanted.files)]
    return {"root": str(release.source.files.absolute()), "files": files, "entries": wanted.entries}


def _architecture(release: _Release) -> dict[str, Any] | str:
    """Return what builds the architecture, or why it is unknown."""
    kind, description = release.manifest.kind, release.description
    name = "adapter_config.json" if kind is Kind.ADAPTER else "config.json"
    if description is not None and release.base is not None:
        found = architecture_arguments(description, release.base, release.tree / name)
        return found or "adapter.base_path is not given: a local copy of the base model is needed"
    if kind is not Kind.FULL:
        return _NO_DESCRIPTION
    named = configs.read_config(release.tree, name).get("architectures")
    if not isinstance(named, list) or len(named) != 1:
        return "config.json names no class"
    config = str(release.tree / name)
    return {"libraries": ["torch", "transformers"], "config": config, "model_class": str(named[0])}


def _base_path(release: _Release) -> Path | None:
    adapter = release.description.adapter if release.description else None
    return release.base / adapter.base_path if adapter and adapter.base_path and release.base else None


def _loaded_bytes(release: _Release) -> int:
    """Bytes of the weights that are loaded, of the source's files and of an adapter's base."""
    own = sum(header.file_size for header in release.structure.headers.values())
    base = _base_path(release)
    below = sum(path.stat().st_size for path in base.glob("*.safetensors")) if base else 0
    wanted = release.description.source.files if release.description else ()
    source = sum(file.size for file in wanted_files(release.source.record, wanted)) if release.source and wanted else 0
    return own + below + source
