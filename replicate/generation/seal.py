"""Sealing: fsync, digest, write ``generation.json``, rename into place, fsync the directory.

The one time that checkpoint bytes are hashed.  A directory to be sealed holds
``files/`` and nothing else; it comes out as ``generations/<id>``.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from replicate import canonical
from replicate.digests import Leave
from replicate.errors import UsageError
from replicate.generation.disk import disk_error, local_io, make_directory, write_new
from replicate.generation.evidence import Evidence, Level, evidence_path, write_evidence
from replicate.generation.hashing import FLUSHERS, flush, flush_and_hash
from replicate.generation.tree import Tree, scan
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import (
    Accumulation,
    Count,
    Experiment,
    GenerationRecord,
    Record,
    SealedFile,
    Text,
    content_digest,
)
from tiers import effects

RECORD = "generation.json"
FILES = "files"


class Description(Record):
    """What the publisher says about a generation."""

    next_update: Count
    tokens_seen: Count | None = None
    payload: Text = "files"
    contract: dict[str, Text] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    accumulation: Accumulation | None = None
    experiment: Experiment | None = None


class Place(Record):
    """Where a generation stands in its run, allocated under the store's lock."""

    run: Text
    run_uid: Text
    attempt: Count
    attempt_id: Text
    sequence: Count
    parent: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A generation that now exists."""

    directory: Path
    record: GenerationRecord
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SealOrder:
    """How to seal.  ``elapsed`` gives the milliseconds since saving began, ``now`` the time as RFC 3339.

    ``leave`` is asked before each block of bytes is hashed, and waits where the process has to.
    """

    place: Place
    description: Description
    elapsed: Callable[[], int]
    now: Callable[[], str]
    hash_workers: int = 2
    leave: Leave | None = None


def check_tree(files: Path, description: Description) -> Tree:
    """Look over what was written, before a byte is read; raises naming what may not be sealed."""
    tree = scan(files)
    if not tree.files:
        raise UsageError(
            f"nothing was written into {files}", hint="write the state into the directory that publish yields"
        )
    accumulation = description.accumulation
    if accumulation is not None and accumulation.gradients_path not in {found.path for found in tree.files}:
        raise UsageError(
            f"{accumulation.gradients_path!r} was not written: saving in mid-accumulation needs the partial gradients",
            hint="write the gradients there, or publish after the optimizer update instead",
        )
    return tree


def make_durable(files: Path, tree: Tree, *, threads: bool) -> None:
    """Fsync every file and directory of a tree, without reading it (deferred seal)."""
    flush(files, tree.files, FLUSHERS if threads else 1)
    with local_io(files, "flushing"):
        _fsync_directories(files, tree)


def seal_tree(directory: Path, order: SealOrder, local: LocalRun, tree: Tree | None = None) -> Sealed:
    """Seal ``directory`` (on the store's filesystem) into ``generations/<id>``.

    ``tree`` is what was found there, where it was looked over already.

    Evidence is written before the rename: a disk that fills there leaves no generation.
    After an error nothing stands in ``generations/`` and the directory is the caller's to remove.
    """
    files = directory / FILES
    tree = tree or check_tree(files, order.description)
    hashed = flush_and_hash(files, tree.files, order.hash_workers, order.leave)
    identities, sealed = {file.path: identity for identity, file in hashed}, tuple(file for _, file in hashed)
    record = _record(sealed, tree.empty, order)
    data = record.encode()
    with local_io(directory, "sealing"):
        (directory / RECORD).unlink(missing_ok=True)
        write_new(directory / RECORD, data)
        _fsync_directories(files, tree)
        effects.fsync_directory(directory)
    evidence = Evidence(
        generation=record.id,
        level=Level.SEALED,
        at=order.now(),
        reason="sealed",
        record_sha256=canonical.sha256(data),
        identities=identities,
    )
    write_evidence(local, evidence)
    target = put_in_place(directory, local, record.generation)
    return Sealed(directory=target, record=record, evidence=evidence)


def put_in_place(directory: Path, local: LocalRun, generation: GenerationId) -> Path:
    """Rename a durable directory to ``generations/<id>`` and make the name durable, or undo it."""
    target = local.generation(generation)
    make_directory(local.generations)
    with local_io(local.generations, f"putting {generation} in place"):
        if target.exists():
            raise FileExistsError(errno.EEXIST, "a generation of this id already stands there", str(target))
        effects.rename(directory, target)
    try:
        effects.fsync_directory(local.generations)
    except OSError as error:
        target.rename(directory)
        evidence_path(local, generation).unlink(missing_ok=True)
        raise disk_error(error, local.generations, f"making {generation} durable") from error
    return target


def _record(files: Sequence[SealedFile], empty: tuple[str, ...], order: SealOrder) -> GenerationRecord:
    place, said = order.place, order.description
    digest8 = content_digest(tuple(files), empty)[:8]
    return GenerationRecord(
        format=1,
        id=str(GenerationId(place.attempt, place.sequence, said.next_update, digest8)),
        **place.model_dump(),
        next_update=said.next_update,
        tokens_seen=said.tokens_seen,
        payload=said.payload,
        contract=said.contract,
        environment=said.environment,
        accumulation=said.accumulation,
        experiment=said.experiment,
        sealed_at=order.now(),
        save_milliseconds=order.elapsed(),
        files=tuple(files),
        directories=empty,
    )


def _fsync_directories(files: Path, tree: Tree) -> None:
    """Deepest first, so that a name is durable before the directory that leads to it."""
    for path in sorted(tree.directories, key=lambda path: -path.count("/")):
        effects.fsync_directory(files / path)
    effects.fsync_directory(files)
