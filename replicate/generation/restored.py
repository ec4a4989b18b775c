"""Putting a generation that came from a tier into the store, under its own id."""

from pathlib import Path

from replicate import canonical
from replicate.errors import IntegrityFailure, TrustFailure
from replicate.generation.bench import Bench
from replicate.generation.disk import local_io, read_document, remove_tree
from replicate.generation.evidence import Evidence, FileIdentity, Level, write_evidence
from replicate.generation.lineage import read_lineage
from replicate.generation.local import LocalGeneration, load_generation
from replicate.generation.seal import FILES, RECORD, put_in_place
from replicate.generation.tree import scan
from replicate.layout import new_nonce
from replicate.manifest import MAX_GENERATION_BYTES, GenerationRecord, parse_generation
from tiers import effects

DAMAGED = ".damaged-"
"""Prefix of a local copy that a restored one replaced; kept as evidence until the operator removes it."""


def install_restored(bench: Bench, staging: Path, record_bytes: bytes) -> LocalGeneration:
    """Rename a verified, durable staging directory to ``generations/<id>`` and record it as validated.

    Its digests were verified while it arrived and are not computed again; the file set
    and sizes are looked at.  The attempt has to be open (open_attempt).  A good copy that
    is already there stays and the staging directory is removed; a bad one makes way.
    """
    record = parse_generation(record_bytes)
    lineage = read_lineage(bench.local)
    if lineage is None or lineage.run_uid != record.run_uid:
        raise TrustFailure(
            f"{bench.local.root} is not in the history of {record.id}",
            hint="restore opens an attempt first; restore another run into a store of its own",
        )
    if read_document(staging / RECORD, MAX_GENERATION_BYTES) != record_bytes:
        raise IntegrityFailure(f"{staging / RECORD} is not the document that was verified", hint="restore again")
    identities = _identities(staging / FILES, record)
    if _good_copy_stands(bench, record):
        remove_tree(staging)
    else:
        put_in_place(staging, bench.local, record.generation)
        evidence = Evidence(
            generation=record.id,
            level=Level.VALIDATED,
            at=bench.now(),
            reason="digests verified while restoring",
            detail="digests",
            record_sha256=canonical.sha256(record_bytes),
            identities=identities,
        )
        write_evidence(bench.local, evidence)
    bench.point_latest()
    return load_generation(bench.local, record.generation)


def _identities(files: Path, record: GenerationRecord) -> dict[str, FileIdentity]:
    tree = scan(files)
    sizes = {found.path: found.status.st_size for found in tree.files}
    if sizes != {file.path: file.size for file in record.files} or set(tree.empty) != set(record.directories):
        raise IntegrityFailure(f"{files} does not hold exactly the files of {record.id}", hint="restore again")
    with local_io(files, "looking at the restored files"):
        return {path: FileIdentity.of(files / path) for path in sizes}


def _good_copy_stands(bench: Bench, record: GenerationRecord) -> bool:
    """Whether the store has the generation and can prove it; a copy that it cannot prove is moved aside."""
    directory = bench.local.generation(record.generation)
    if not directory.exists():
        return False
    if bench.validate(record.generation).level is not Level.QUARANTINED:
        with local_io(directory, "making it durable"):  # who put it there may have died before the fsync
            effects.fsync_directory(bench.local.generations)
        return True
    aside = bench.local.root / f"{DAMAGED}{record.id}-{new_nonce()}"
    with local_io(directory, "moving the damaged copy aside"):
        effects.rename(directory, aside)
        effects.fsync_directory(bench.local.generations)
        effects.fsync_directory(bench.local.root)
    return False
