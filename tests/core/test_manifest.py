"""generation.json and manifest.json: exact bytes through a round trip, and every lie refused."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from core.builders import RUN_UID, generation_record, sealed_bytes

from replicate import canonical
from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.manifest import parse_generation, parse_manifest
from tiers.testing import content

PREFIX = "llm-7b/generations/g.t1-nonce/"
RECORD = generation_record([sealed_bytes("a.bin", content(10)), sealed_bytes("sub/b.bin", content(200))])
Document = dict[str, Any]


def manifest_of(generation: Document) -> Document:
    """Return a manifest that tells the truth about a generation document."""
    sealed = canonical.dump(generation) + b"\n"
    objects = [
        {
            "path": file["path"],
            "key": f"{PREFIX}files/{file['path']}",
            "size": file["size"],
            "sha256": file["sha256"],
            "verified_by": "store-sha256",
            "part_size": 0,
            "parts": [],
        }
        for file in generation["files"]
    ]
    return {
        "format": 1,
        "run_uid": RUN_UID,
        "term": 1,
        "nonce": "nonce",
        "prefix": PREFIX,
        "generation": generation,
        "generation_sha256": hashlib.sha256(sealed).hexdigest(),
        "objects": objects,
        "written_at": "2026-01-01T00:00:00.000Z",
    }


def generation_document() -> Document:
    document: Document = json.loads(RECORD.encode())
    return document


def honest() -> Document:
    return manifest_of(generation_document())


def encoded(document: Document) -> bytes:
    return canonical.dump(document) + b"\n"


def test_generation_round_trip() -> None:
    assert parse_generation(RECORD.encode()) == RECORD
    assert parse_generation(RECORD.encode()).encode() == RECORD.encode()
    assert RECORD.total_bytes == 210


def test_manifest_round_trip_keeps_the_sealed_bytes() -> None:
    manifest = parse_manifest(encoded(honest()))
    assert manifest.generation_bytes == RECORD.encode()
    assert manifest.record() == RECORD
    assert manifest.encode() == encoded(honest())


def test_fields_of_the_future_survive_in_the_generation() -> None:
    """A restore by an older version has to write back the very bytes that were sealed."""
    generation = generation_document() | {"from_the_future": {"deep": ["é", 1]}}
    generation["files"][0]["xattr"] = "new"
    document = manifest_of(generation) | {"also_new": True}
    manifest = parse_manifest(encoded(document))
    assert manifest.generation_bytes == encoded(generation)
    assert manifest.record().files[0].path == "a.bin"


Change = Callable[[Document], object]
LIES: dict[str, Change] = {
    "missing object": lambda m: m["objects"].pop(),
    "extra object": lambda m: m["objects"].append(m["objects"][0] | {"path": "c", "key": PREFIX + "files/c"}),
    "object twice": lambda m: m["objects"].append(m["objects"][0] | {"key": PREFIX + "files/other"}),
    "missing file": lambda m: m["generation"]["files"].pop(),
    "wrong size": lambda m: m["objects"][0].update(size=11),
    "wrong digest": lambda m: m["objects"][0].update(sha256="0" * 64),
    "digest with a newline": lambda m: m["objects"][0].update(sha256=m["objects"][0]["sha256"] + "\n"),
    "key outside": lambda m: m["objects"][0].update(key="llm-7b/generations/other/files/a.bin"),
    "key climbs out": lambda m: m["objects"][0].update(key=PREFIX + "files/../../x"),
    "key with blank": lambda m: m["objects"][0].update(key=PREFIX + "files/a b"),
    "key is huge": lambda m: m["objects"][0].update(key=PREFIX + "x" * 2000),
    "shared key": lambda m: m["objects"][1].update(key=m["objects"][0]["key"]),
    "swapped paths": lambda m: (m["objects"][0].update(path="sub/b.bin"), m["objects"][1].update(path="a.bin")),
    "other run": lambda m: m.update(run_uid="another"),
    "other generation bytes": lambda m: m["generation"].update(payload="other"),
    "wrong generation digest": lambda m: m.update(generation_sha256="0" * 64),
    "negative size": lambda m: m["objects"][0].update(size=-1),
    "size as text": lambda m: m["objects"][0].update(size="10"),
    "no format": lambda m: m.pop("format"),
    "format zero": lambda m: m.update(format=0),
    "no objects": lambda m: m.pop("objects"),
}


@pytest.mark.parametrize("lie", LIES)
def test_manifest_that_lies_is_refused(lie: str) -> None:
    document = honest()
    LIES[lie](document)
    with pytest.raises(IntegrityFailure):
        parse_manifest(encoded(document))


GENERATION_LIES: dict[str, Change] = {
    "id of other content": lambda g: g.update(id=g["id"][:-1] + "x"),
    "id of another attempt": lambda g: g.update(attempt=2),
    "id of another sequence": lambda g: g.update(sequence=2),
    "id that is none": lambda g: g.update(id="../x"),
    "attempt beyond any id": lambda g: g.update(attempt=10**12, id=g["id"].replace("a0001", f"a{10**12}")),
    "unsafe path": lambda g: g["files"][0].update(path="../a.bin"),
    "colliding paths": lambda g: g["files"][1].update(path="A.BIN"),
    "one leaf too many": lambda g: g["files"][0]["leaves"].append("0" * 64),
    "no leaf": lambda g: g["files"][0].update(leaves=[]),
    "other leaf": lambda g: g["files"][1]["leaves"].__setitem__(0, "0" * 64),
    "leaf size zero": lambda g: g["files"][0].update(leaf_size=0),
    "set-uid mode": lambda g: g["files"][0].update(mode=0o4755),
    "size beyond any file": lambda g: g["files"][0].update(size=2**60),
    "contract with a number": lambda g: g["contract"].update(config=1),
    "no writers": lambda g: g.update(writers=0),
}


@pytest.mark.parametrize("lie", GENERATION_LIES)
def test_generation_that_lies_is_refused_alone_and_inside_a_manifest(lie: str) -> None:
    """Even where the manifest around it was made to fit."""
    generation = generation_document()
    GENERATION_LIES[lie](generation)
    with pytest.raises(IntegrityFailure):
        parse_generation(encoded(generation))
    with pytest.raises(IntegrityFailure):
        parse_manifest(encoded(manifest_of(generation)))


def test_newer_format_is_told_from_damage() -> None:
    """The remedy is another one: update, not repair."""
    with pytest.raises(CapabilityMissing, match="format 2"):
        parse_manifest(encoded(honest() | {"format": 2, "objects": "elsewhere"}))
    with pytest.raises(CapabilityMissing, match="format 2"):
        parse_generation(encoded(generation_document() | {"format": 2}))
    with pytest.raises(CapabilityMissing, match="format 7"):
        parse_manifest(encoded(manifest_of(generation_document() | {"format": 7})))


@pytest.mark.parametrize("cut", [0, 1, 10, -2])
def test_truncated_document_is_refused(cut: int) -> None:
    with pytest.raises(IntegrityFailure):
        parse_manifest(encoded(honest())[:cut])


def test_manifest_object_list_may_be_empty_where_nothing_was_sealed() -> None:
    """A generation of no files is odd and consistent."""
    record = generation_record([])
    document = manifest_of(json.loads(record.encode()))
    assert parse_manifest(encoded(document)).objects == ()
