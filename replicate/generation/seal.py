"""Sealing: fsync, digest, write ``generation.json``, rename into place, fsync the directory.

The one time that checkpoint bytes are hashed.  A directory to be sealed holds
``files/`` and nothing else; it comes out as ``generations/<id>``.
"""

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from replicate import canonical
from replicate.digests import MIN_LEAF, digest_file
from replicate.errors import IntegrityFailure, UsageError
from replicate.generation.disk import disk_error, local_io, make_directory, write_new
from replicate.generation.evidence import Evidence, FileIdentity, Level, evidence_path, write_evidence
from replicate.generation.tree import Found, Tree, scan
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
T = TypeVar("T")


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
    """How to seal.  ``elapsed`` gives the milliseconds since saving began, ``now`` the time as RFC 3339."""

    place: Place
    description: Description
    elapsed: Callable[[], int]
    now: Callable[[], str]
    hash_workers: int = 2


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


def make_durable(files: Path, tree: Tree) -> None:
    """Fsync every file and directory of a tree, without reading it (deferred seal)."""
    with local_io(files, "flushing"):
        for found in tree.files:
            effects.fsync_file(files / found.path)
        _fsync_directories(files, tree)


def seal_tree(directory: Path, order: SealOrder, local: LocalRun) -> Sealed:
    """Seal ``directory`` (on the store's filesystem) into ``generations/<id>``.

    Evidence is written before the rename: a disk that fills there leaves no generation.
    After an error nothing stands in ``generations/`` and the directory is the caller's to remove.
    """
    files = directory / FILES
    tree = check_tree(files, order.description)
    identities, sealed = _digest(files, tree, order.hash_workers)
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


def _digest(files: Path, tree: Tree, workers: int) -> tuple[dict[str, FileIdentity], tuple[SealedFile, ...]]:
    """Flush and hash: small files beside each other, the leaves of a large one beside each other."""
    small = [found for found in tree.files if found.status.st_size <= MIN_LEAF]
    large = [found for found in tree.files if found.status.st_size > MIN_LEAF]
    done = parallel(lambda found: _seal_file(files, found, 1), small, workers)
    done += [_seal_file(files, found, workers) for found in large]
    done.sort(key=lambda pair: pair[1].path)
    return {file.path: identity for identity, file in done}, tuple(file for _, file in done)


def parallel(work: Callable[[Found], T], items: list[Found], workers: int) -> list[T]:
    """Map with threads; with one worker none is started, which also works while the interpreter shuts down."""
    if workers == 1 or len(items) < 2:  # noqa: PLR2004 - one item needs no pool
        return [work(item) for item in items]
    with ThreadPoolExecutor(workers, thread_name_prefix="ckptier-seal") as pool:
        return list(pool.map(work, items))


def _seal_file(files: Path, found: Found, workers: int) -> tuple[FileIdentity, SealedFile]:
    path = files / found.path
    with local_io(path, "flushing"):
        effects.fsync_file(path)
    with local_io(path, "hashing"):
        before = FileIdentity.of(path)
        digest = digest_file(path, before.size, workers=workers)
        after = path.lstat()
    if FileIdentity.of(path) != before:
        raise IntegrityFailure(
            f"{found.path!r} changed while it was sealed",
            hint="finish writing before the block is left: no writer thread may go on",
        )
    return before, SealedFile(
        path=found.path,
        size=digest.size,
        mode=after.st_mode & 0o777,
        sha256=digest.sha256,
        leaf_size=digest.leaf_size,
        leaves=digest.leaves,
    )


def _fsync_directories(files: Path, tree: Tree) -> None:
    """Deepest first, so that a name is durable before the directory that leads to it."""
    for path in sorted(tree.directories, key=lambda path: -path.count("/")):
        effects.fsync_directory(files / path)
    effects.fsync_directory(files)
