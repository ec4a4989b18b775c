"""Whether a sealed generation may be used: its file set, its digests, its containers, its payload.

Digests are trusted while sealing's view of a file holds and computed again where it
does not.  Payloads of torch are loaded in a separate process that is limited in
memory, time and files (torch_check.py); nothing is ever unpickled in this one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from replicate import canonical
from replicate.digests import digest_file
from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.formats.torch_zip import MAGIC
from replicate.generation import torch_check
from replicate.generation.containers import TORCH_SUFFIXES, check_containers
from replicate.generation.disk import local_io
from replicate.generation.evidence import FileIdentity, Level, unchanged
from replicate.generation.local import LocalGeneration
from replicate.generation.tree import scan
from replicate.manifest import GenerationRecord, SealedFile

RESTART_KEYS = ("model", "optimizer", "next_update", "rng")
PAYLOAD = "payload.pt"
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on loading a payload.

    Memory is what Python with torch takes, plus the size of the files, plus ``memory_bytes``.
    """

    seconds: float = 300.0
    memory_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What validation found.  ``identities`` holds for the files whose digests are known to be right."""

    level: Level
    reason: str
    detail: str
    identities: dict[str, FileIdentity]


def validate_generation(generation: LocalGeneration, *, limits: Limits, hash_workers: int) -> Verdict:
    """Check one generation; raises LocalDisk where it cannot be read, which says nothing about it."""
    try:
        record = generation.record
        _check_record(generation)
        identities = _check_bytes(generation, record, hash_workers)
    except CapabilityMissing:
        raise
    except IntegrityFailure as error:
        return Verdict(level=Level.QUARANTINED, reason=_trim(error.message), detail="", identities={})
    try:
        unjudged = check_containers(generation.files, record)
        fault, detail = "", "digests"
    except IntegrityFailure as error:
        unjudged, fault, detail = (), error.message, ""
    if not fault and payload_kind(record.payload)[0] == "torch":
        fault, detail = _torch_fault(generation.files, record, limits)
    if fault:
        return Verdict(level=Level.QUARANTINED, reason=_trim(fault), detail="", identities=identities)
    detail = _trim("; ".join((detail, *unjudged)))
    return Verdict(level=Level.VALIDATED, reason="validated", detail=detail, identities=identities)


def payload_kind(payload: str) -> tuple[str, tuple[str, ...]]:
    """Split ``torch`` or ``torch:model,next_update`` into the kind and the keys that must be there."""
    kind, colon, keys = payload.partition(":")
    required = tuple(key for key in keys.split(",") if key) if colon else RESTART_KEYS
    return kind, required


def load_fault(path: Path, name: str, *, limits: Limits) -> str:
    """Load one torch file in the limited process; return what is wrong with it, nothing where it loads.

    Raises CapabilityMissing where torch is not installed, and LocalDisk where the file cannot be read.
    """
    with local_io(path, "reading its size"):
        size = path.stat().st_size
    file = {"path": str(path.absolute()), "name": name, "required": (), "next_update": None}
    allowed = {"memory_bytes": size + limits.memory_bytes, "cpu_seconds": int(limits.seconds) + 1}
    fault, loaded = _run_check(json.dumps({**allowed, "files": [file]}), limits)
    if not loaded:
        raise CapabilityMissing(f"{name} cannot be loaded without torch", hint="pip install 'ckptier[torch]'")
    return fault


def is_as_sealed(generation: LocalGeneration) -> bool:
    """Whether document and files are, by stat, what the evidence is about; costs one lstat a file."""
    try:
        _check_record(generation)
        return not unchanged(generation.directory, generation.record, generation.evidence)
    except IntegrityFailure:
        return False


def _check_record(generation: LocalGeneration) -> None:
    known = generation.evidence.record_sha256 if generation.evidence else None
    if known not in (None, canonical.sha256(generation.record_bytes)):
        raise IntegrityFailure("damaged: generation.json is not the one that was sealed")


def _check_bytes(generation: LocalGeneration, record: GenerationRecord, workers: int) -> dict[str, FileIdentity]:
    """Compare the file set, and the digest of every file that is not as sealing saw it."""
    tree = scan(generation.files)
    present, sealed = {found.path for found in tree.files}, {file.path: file for file in record.files}
    _compare("is missing", set(sealed) - present)
    _compare("was not sealed and lies there now", present - set(sealed))
    _compare("is not as it was sealed", set(tree.empty) ^ set(record.directories))
    identities = dict(generation.evidence.identities) if generation.evidence else {}
    for path in unchanged(generation.directory, record, generation.evidence):
        identities[path] = _check_digest(generation.files / path, sealed[path], workers)
    return {path: identities[path] for path in sealed}


def _compare(words: str, paths: set[str]) -> None:
    if paths:
        raise IntegrityFailure(f"damaged: {min(paths)!r} {words} ({len(paths)} in all)")


def _check_digest(path: Path, sealed: SealedFile, workers: int) -> FileIdentity:
    with local_io(path, "checking its digest"):
        identity = FileIdentity.of(path)
        if identity.size != sealed.size:
            raise IntegrityFailure(f"damaged: {sealed.path!r} has {identity.size} bytes, sealed were {sealed.size}")
        digest = digest_file(path, sealed.size, leaf_size=sealed.leaf_size, workers=workers)
    if digest.sha256 != sealed.sha256:
        raise IntegrityFailure(f"damaged: the bytes of {sealed.path!r} are not those that were sealed")
    return identity


def _torch_fault(files: Path, record: GenerationRecord, limits: Limits) -> tuple[str, str]:
    """Return the fault, if any, and how far the check went."""
    payloads = [file for file in record.files if _is_torch(files / file.path)]
    if not payloads:
        return "unloadable: no .pt, .pth or .bin file is there, and the payload is said to be torch", ""
    main = _main_payload(payloads)
    size = sum(file.size for file in payloads)
    request = {
        "memory_bytes": size + limits.memory_bytes,
        "cpu_seconds": int(limits.seconds) + 1,
        "files": [
            {
                "path": str((files / file.path).absolute()),
                "name": file.path,
                "required": payload_kind(record.payload)[1] if file is main else (),
                "next_update": record.next_update if file is main else None,
            }
            for file in payloads
        ],
    }
    fault, loaded = _run_check(json.dumps(request), limits)
    if not loaded:
        return fault, "container only"
    return fault, "loaded" if main else f"loaded; restart keys not checked, as no file is called {PAYLOAD}"


def _is_torch(path: Path) -> bool:
    if path.suffix in {".pt", ".pth"}:
        return True
    if path.suffix not in TORCH_SUFFIXES:
        return False
    with local_io(path, "checking its container"), path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _main_payload(payloads: list[SealedFile]) -> SealedFile | None:
    """Return the file that has to hold the restart state: payload.pt, or the only one there is."""
    named = [file for file in payloads if file.path == PAYLOAD]
    return next(iter(named or (payloads if len(payloads) == 1 else [])), None)


def _run_check(request: str, limits: Limits) -> tuple[str, bool]:
    """Run the checking process; returns the fault and whether payloads were loaded at all."""
    command = [sys.executable, "-P", "-B", str(Path(torch_check.__file__)), request]
    with local_io(Path(sys.executable), "starting the validating process"):
        try:
            done = subprocess.run(  # the limits are set by the program itself, before it reads the payload
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=limited_environment(os.environ.items()),
                timeout=limits.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"unloadable: loading took longer than {limits.seconds:g} s", True
    if done.returncode == torch_check.NO_TORCH:
        return "", False
    if done.returncode != 0:
        return f"unloadable: the loading process ended with status {done.returncode}: {_tail(done.stderr)}", True
    return str(json.loads(done.stdout)["fault"]), True


def limited_environment(inherited: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pass on what finding Python and torch takes, and nothing that could hold a secret."""
    passed = {name: value for name, value in inherited if name in _PASSED}
    return {**passed, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _tail(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())[-_REASON:]


def _trim(text: str) -> str:
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= _REASON else words[:_REASON] + "…"
