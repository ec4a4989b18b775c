"""Manifests that somebody else wrote: refused whole, before the first write."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commits import AT, REMOTE, RUN, RUN_UID, Made, Restore, Writer, generation, sealed_file

from replicate import canonical
from replicate.errors import CapabilityMissing, IntegrityFailure, LocalDisk
from replicate.layout import GenerationId, encode_path
from replicate.log import Commit, LiveCommit
from replicate.manifest import MAX_MANIFEST_BYTES, GenerationRecord, SealedFile, content_digest
from replicate.restore.folder import Folder
from replicate.restore.staging import Staging
from tiers.bodies import BytesBody
from tiers.protocol import Key


@dataclass(frozen=True)
class Hostile:
    """A generation whose documents are consistent in every way but one."""

    made: Made
    document: bytes
    prefix: str


def hostile(
    files: Sequence[SealedFile], directories: tuple[str, ...] = (), *, serial: int = 1, **changes: Any
) -> Hostile:
    """Write the documents of these files, whatever they are called; ``changes`` go into the manifest."""
    identity = GenerationId(1, 2, 200, content_digest(tuple(files), directories)[:8])
    record = GenerationRecord.model_construct(
        format=1,
        id=str(identity),
        run=RUN,
        run_uid=RUN_UID,
        attempt=1,
        attempt_id="attempt-1",
        sequence=2,
        parent=None,
        next_update=200,
        payload="opaque",
        contract={},
        sealed_at=AT,
        save_milliseconds=1,
        files=tuple(files),
        directories=directories,
    )
    prefix = REMOTE.prefix(identity, 1, f"{serial:016x}")
    sealed = record.model_dump(mode="json", warnings=False)
    manifest = {
        "format": 1,
        "run_uid": RUN_UID,
        "term": 1,
        "nonce": f"{serial:016x}",
        "prefix": prefix,
        "generation": sealed,
        "generation_sha256": canonical.sha256(canonical.dump(sealed) + b"\n"),
        "objects": [
            {
                "path": file.path,
                "key": f"{prefix}files/{number}-{encode_path(file.path) or 'x'}",
                "size": file.size,
                "sha256": file.sha256,
                "verified_by": "store-sha256",
                "part_size": 0,
            }
            for number, file in enumerate(files)
        ],
        "written_at": AT,
    }
    made = Made(record=record, contents={file.path: b"" for file in files})
    return Hostile(made, canonical.dump(manifest | changes) + b"\n", prefix)


def commit(writer: Writer, what: Hostile, **changes: Any) -> None:
    """Commit it as a real writer would; ``changes`` go into the commit entry."""
    if writer.view.state is None:
        writer.claim()
    key = REMOTE.manifest(what.prefix)
    writer.tier.put(key, BytesBody(what.document))
    facts = {
        "generation": str(what.made.id),
        "parent": None,
        "manifest_key": str(key),
        "manifest_size": len(what.document),
        "manifest_sha256": canonical.sha256(what.document),
        "total_bytes": sum(file.size for file in what.made.record.files),
        "objects": len(what.made.record.files),
    }
    writer.append(Commit(**(facts | changes)), attempt=1, attempt_id="attempt-1")


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder in which no staging may ever be opened."""

    def never(*_: object) -> None:
        raise AssertionError("a staging was opened for a manifest that has to be refused")

    monkeypatch.setattr(Staging, "open", never)
    return tmp_path


NAMES = {
    "up": ["../evil"],
    "absolute": ["/etc/x"],
    "up inside": ["a/../../b"],
    "drive": ["C:\\x"],
    "drive with slash": ["C:/x"],
    "backslashes": ["..\\..\\y"],
    "unc": ["\\\\host\\share"],
    "empty component": ["a//b"],
    "empty": [""],
    "dot": ["."],
    "nul": ["a\0b"],
    "newline": ["a\nb"],
    "device": ["aux.pt"],
    "trailing dot": ["a."],
    "trailing space": ["a "],
    "file and folder": ["d", "d/x"],
    "through a link": ["l", "l/pwn"],
    "twice": ["a", "a"],
    "letter case": ["Model.pt", "model.pt"],
    "normalisation": ["caf\u00e9", "cafe\u0301"],
    "too long": ["x" * 256],
    "too deep": ["/".join("a" * 65)],
}


@pytest.mark.parametrize("name", NAMES)
def test_c76_unsafe_names_are_refused_before_the_first_write(
    writer: Writer, run_restore: Restore, untouched: Path, name: str
) -> None:
    files = [sealed_file(path, b"%d" % number) for number, path in enumerate(NAMES[name])]
    what = hostile(files)
    commit(writer, what)
    with pytest.raises(IntegrityFailure) as caught:
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)
    assert caught.value.hint
    assert not any(untouched.iterdir())


def test_c76_what_is_not_hostile_passes_the_same_way(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    """The proof that the cases above fail for their names and for nothing else."""
    what = hostile([sealed_file("a", b"1"), sealed_file("d/x", b"2")])
    commit(writer, what)
    for number, data in enumerate((b"1", b"2")):
        key = f"{what.prefix}files/{number}-{'a' if number == 0 else 'd/x'}"
        writer.tier.put(Key(key), BytesBody(data))
    run_restore(writer.tier, to=tmp_path / "out", generation=what.made.id)
    assert (tmp_path / "out/d/x").read_bytes() == b"2"


def test_c76_unsafe_folders_are_refused_too(writer: Writer, run_restore: Restore, untouched: Path) -> None:
    what = hostile([], ("a/../../b",))
    commit(writer, what)
    with pytest.raises(IntegrityFailure, match="component"):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


def huge(size: int) -> SealedFile:
    digest = canonical.sha256(b"")
    return SealedFile.model_construct(
        path="huge", size=size, mode=0o644, sha256=digest, leaf_size=size, leaves=(digest,)
    )


def test_c76_a_size_beyond_all_bounds_is_refused(writer: Writer, run_restore: Restore, untouched: Path) -> None:
    what = hostile([huge(2**63)])
    commit(writer, what, total_bytes=0)
    with pytest.raises(IntegrityFailure, match="less than"):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


def test_c76_a_size_that_no_disk_has_is_refused_by_the_space_check(
    writer: Writer, run_restore: Restore, untouched: Path
) -> None:
    what = hostile([huge(2**52)])
    commit(writer, what)
    with pytest.raises(LocalDisk, match=str(2**52)):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


def test_c76_more_than_a_million_entries_are_refused(writer: Writer, run_restore: Restore, untouched: Path) -> None:
    what = hostile([], tuple(f"d{number}" for number in range(1_000_001)))
    commit(writer, what)
    with pytest.raises(IntegrityFailure, match="1000000"):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


def test_c76_a_manifest_larger_than_any_may_be_is_not_even_read(
    writer: Writer, run_restore: Restore, untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = hostile([sealed_file("a", b"")])
    commit(writer, what, manifest_size=MAX_MANIFEST_BYTES + 1)
    with pytest.raises(IntegrityFailure, match="more than"):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


FILE = sealed_file("a", b"1")

SWAPS: dict[str, dict[str, Any]] = {
    "another run_uid": {"run_uid": "f" * 32},
    "another term": {"term": 2},
    "another nonce": {"nonce": "f" * 16},
    "another prefix": {"prefix": "toy/generations/elsewhere/"},
    "no objects": {"objects": []},
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_manifest_that_does_not_belong_to_its_commit_is_refused(
    writer: Writer, run_restore: Restore, untouched: Path, swap: str
) -> None:
    what = hostile([FILE], **SWAPS[swap])
    commit(writer, what)
    with pytest.raises(IntegrityFailure):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


@pytest.mark.parametrize(
    "change", [{"total_bytes": 2}, {"objects": 2}, {"parent": "a0001-g000001-u000000000100-00000000"}]
)
def test_a_commit_that_says_another_thing_than_its_manifest_is_refused(
    writer: Writer, run_restore: Restore, untouched: Path, change: dict[str, Any]
) -> None:
    what = hostile([FILE])
    commit(writer, what, **change)
    with pytest.raises(IntegrityFailure, match="does not belong to its commit"):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


def test_a_manifest_replayed_for_another_generation_is_refused(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    """Swapping the manifest of one commit for the intact one of another shows in its digest."""
    first, second = generation(1), generation(2)
    one: LiveCommit = writer.commit(first)
    two = writer.commit(second)
    with writer.tier.open(Key(one.manifest_key)) as stream:
        data = stream.read()
    writer.tier.delete(Key(two.manifest_key))
    writer.tier.put(Key(two.manifest_key), BytesBody(data))
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert (report.generation, report.fell_back) == (first.id, True)


def test_a_manifest_of_a_newer_format_says_so(writer: Writer, run_restore: Restore, untouched: Path) -> None:
    what = hostile([FILE], format=2)
    commit(writer, what)
    with pytest.raises(CapabilityMissing, match="format 2"):
        run_restore(writer.tier, to=untouched / "out", generation=what.made.id)


def test_the_staging_never_writes_through_a_link(tmp_path: Path) -> None:
    with Folder.at(tmp_path) as parent:
        staging = Staging(parent, ".restoring-x")
        staging.open((sealed_file("l/pwn", b"1"),), ())
        (staging.files / "l/pwn").unlink(missing_ok=True)
        (staging.files / "l").rmdir()
        (tmp_path / "outside").mkdir()
        (staging.files / "l").symlink_to(tmp_path / "outside")
        with pytest.raises(OSError, match="l"):
            staging.open_file("l/pwn")
        staging.close()
    assert not any((tmp_path / "outside").iterdir())
