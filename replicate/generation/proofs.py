"""What is known of copies on tiers beyond their commit: ``evidence/<generation>@<tier>.json``.

A commit proves that a copy was whole when it was made.  That every byte of it was read
back later, or that training went on from it, is recorded here, and so is that it was
found hurt.  Each is bound to the manifest's digest: it says nothing about another copy.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.generation.disk import local_io, make_directory, read_document, write_durably
from replicate.generation.evidence import Level
from replicate.layout import GenerationId, LocalRun
from replicate.log import LiveCommit
from replicate.manifest import Record, Sha256, Text, parse
from tiers import effects

_MAX_BYTES = 1024 * 1024
_HURT = f'"{Level.QUARANTINED}"'.encode()
_log = logging.getLogger(__name__)


class Proof(Record):
    """What was last found of a copy: ``level`` is ``read-back``, ``rehearsed``, or ``quarantined`` where it was hurt.

    ``at`` says when, ``detail`` by what.
    """

    format: Literal[1] = 1
    generation: Text
    tier: Text
    manifest_sha256: Sha256
    level: Annotated[Level, Field(strict=False)]
    at: Text
    detail: Text = ""

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


def record_proof(local: LocalRun, proof: Proof) -> None:
    """Write a proof down, durably; a stronger one of the same copy stays, unless the copy is hurt since."""
    generation = GenerationId.parse(proof.generation)
    known = proof_level(local, generation, proof.tier, proof.manifest_sha256)
    if known.rank > proof.level.rank and proof.level is not Level.QUARANTINED:
        return
    make_directory(local.evidence)
    write_durably(local.evidence / _name(generation, proof.tier), proof.encode())


def proof_level(local: LocalRun, generation: GenerationId, tier: str, manifest_sha256: str) -> Level:
    """Return how well a committed copy is known to be good, quarantined where it was found hurt.

    A document that is damaged counts as none.
    """
    path = local.evidence / _name(generation, tier)
    try:
        data = read_document(path, _MAX_BYTES)
        proof = parse(Proof, data, what=str(path), max_bytes=_MAX_BYTES) if data is not None else None
    except IntegrityFailure as error:
        _log.warning("%s; the copy counts as replicated and no more", error.message)
        return Level.REPLICATED
    said = (str(generation), tier, manifest_sha256)
    if proof is None or (proof.generation, proof.tier, proof.manifest_sha256) != said:
        return Level.REPLICATED
    return proof.level


def damaged_proofs(local: LocalRun) -> tuple[str, ...]:
    """Return what is wrong with the documents about copies on tiers, one after another."""
    return tuple(str(found) for found in _proofs(local) if isinstance(found, IntegrityFailure))


def known_hurt(local: LocalRun) -> tuple[Proof, ...]:
    """Return what was written down of copies that were found hurt, whatever became of them since."""
    found = _proofs(local, saying=_HURT)
    return tuple(one for one in found if isinstance(one, Proof) and one.level is Level.QUARANTINED)


def _proofs(local: LocalRun, *, saying: bytes = b"") -> Iterator[Proof | IntegrityFailure]:
    """Read the documents that contain these bytes: parsing thousands that do not would take long."""
    for name in sorted(_named(local)):
        path = local.evidence / name
        try:
            data = read_document(path, _MAX_BYTES)
            if data is not None and saying in data:
                yield parse(Proof, data, what=str(path), max_bytes=_MAX_BYTES)
        except IntegrityFailure as error:
            yield error


def _named(local: LocalRun) -> frozenset[str]:
    """Return the names of all documents about copies on tiers, by one listing."""
    with local_io(local.evidence, "listing it"):
        try:  # not is_dir(), for which a plain file in the way is no folder and no error
            names = [path.name for path in local.evidence.iterdir()]
        except FileNotFoundError:
            return frozenset()
    return frozenset(name for name in names if "@" in name and name.endswith(".json"))


def forget_proof(local: LocalRun, generation: GenerationId, tier: str) -> None:
    """Remove what was known of a copy that is gone."""
    path = local.evidence / _name(generation, tier)
    if path.exists():
        with local_io(path, "removing it"):
            effects.unlink(path)


def _name(generation: GenerationId, tier: str) -> str:
    return f"{generation}@{tier}.json"


def proof_levels(local: LocalRun, tier: str, live: Iterable[LiveCommit]) -> dict[GenerationId, Level]:
    """Return how well the live commits of a tier are known to be good."""
    return levels_of(local, tier, ((one.id, one.manifest_sha256) for one in live))


def levels_of(local: LocalRun, tier: str, copies: Iterable[tuple[GenerationId, str]]) -> dict[GenerationId, Level]:
    """Return how well copies, each with the digest of its manifest, are known to be good."""
    named = _named(local)  # of thousands that are committed, few have a document
    return {
        one: proof_level(local, one, tier, digest) if _name(one, tier) in named else Level.REPLICATED
        for one, digest in copies
    }


def found_hurt(local: LocalRun) -> dict[str, dict[GenerationId, Level]]:
    """Return by tier which copies were found hurt, as far as this machine wrote down; their logs are not asked."""
    found: dict[str, dict[GenerationId, Level]] = {}
    for proof in known_hurt(local):
        found.setdefault(proof.tier, {})[GenerationId.parse(proof.generation)] = proof.level
    return found
