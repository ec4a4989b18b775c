"""Histories that do not fit together, and documents from somebody who means harm, met by the command."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli.driver import Project, volume
from support.commits import REMOTE, Made, Writer, generation, make, sealed_file, tree

from replicate import canonical
from replicate.errors import ExitCode
from replicate.layout import GenerationId, encode_path
from replicate.manifest import MAX_MANIFEST_BYTES, GenerationRecord, content_digest
from tiers.volume import VolumeTier


@pytest.fixture
def replicated(project: Project) -> Project:
    project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    return project


def another(project: Project, folder: Path) -> Project:
    """Return the same configuration on another machine, its store empty."""
    return Project(folder=folder, tiers=project.tiers).write()


def remote(tmp_path: Path) -> dict[str, bytes | None]:
    return {path: data for path, data in tree(tmp_path / "volume").items() if not path.startswith(".ckptier")}


def test_an_empty_store_under_a_name_that_is_taken(replicated: Project, tmp_path: Path) -> None:
    """Somebody forgot to restore, and trained from nothing under the old name."""
    stranger = another(replicated, tmp_path / "b").write(extra="poll_seconds = 0.1\n")
    stranger.publish(10)
    before = remote(tmp_path), tree(stranger.local.generations)
    done = stranger("replicate", "--once")
    assert done.code == ExitCode.TRUST
    done.says("volume: FAILED", "belong to another run", "`ckptier restore`", "another name")
    failure = stranger("replicate", "--once", "--json").result()["results"][0]["failure"]
    assert failure["exit_code"] == ExitCode.TRUST
    left = stranger("replicate", "--json").document()
    assert left["exit_code"] == ExitCode.TRUST, "a daemon leaves too, instead of trying for ever"
    assert left["result"] == {"run": "toy", "stopped": True}
    assert stranger("check").code == ExitCode.TRUST
    stranger.refused(ExitCode.TRUST, "restore").says("belongs to another run", "--to DIR")
    shown = stranger("status", "--remote")
    assert shown.code == ExitCode.TRUST
    shown.says("HOLDS ANOTHER RUN")
    assert stranger("safe-to-terminate").code == ExitCode.NOT_SAFE
    assert (remote(tmp_path), tree(stranger.local.generations)) == before


def test_what_the_refusal_advises_works(replicated: Project, tmp_path: Path) -> None:
    """A store of another run does not stand in the way of plain files."""
    stranger = another(replicated, tmp_path / "b")
    stranger.publish(10)
    stranger.refused(ExitCode.TRUST, "restore").says("--to DIR")
    assert stranger("restore", "--to", str(tmp_path / "out")).code == 0


def test_the_second_line_of_a_fork_is_refused_and_both_are_named(replicated: Project, tmp_path: Path) -> None:
    one, two = another(replicated, tmp_path / "one"), another(replicated, tmp_path / "two")
    for project, update in ((one, 300), (two, 310)):
        assert project("restore").code == 0
        project.publish(update)
    assert one("replicate", "--once").code == 0
    done = two("replicate", "--once")
    assert done.code == ExitCode.TRUST, done
    lines = [project.store.lineage() for project in (one, two)]
    identities = [line.attempt_id for line in lines if line is not None]
    assert len(set(identities)) == 2
    done.says("volume: ", *identities, "next: ")
    one.publish(400, 500)
    assert one("replicate", "--once").code == 0
    risky = two("safe-to-terminate")
    assert risky.code == ExitCode.NOT_SAFE, "the tier has gone further, on the other line"
    risky.says("volume: its log went on elsewhere")
    before = remote(tmp_path)
    assert remote(tmp_path) == before
    two.refused(ExitCode.TRUST, "restore").says(*identities, "--generation ID")
    status = two("status", "--remote")
    assert status.code == ExitCode.TRUST
    status.says("FORK", *identities)


def test_a_fork_is_refused_although_both_lines_begin_with_the_same_bytes(replicated: Project, tmp_path: Path) -> None:
    """Deterministic training gives twins; the line that comes second learns it at its first pass."""
    one, two = another(replicated, tmp_path / "one"), another(replicated, tmp_path / "two")
    for project in (one, two):
        assert project("restore").code == 0
        project.publish(300)
    assert one("replicate", "--once").code == 0
    assert two("replicate", "--once").code == ExitCode.TRUST


def test_a_fork_between_tiers_is_refused_until_a_line_is_chosen(replicated: Project, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "volume", tmp_path / "copy")
    one = another(replicated, tmp_path / "one")
    two = Project(folder=tmp_path / "two", tiers={"copy": volume(tmp_path / "copy")}).write()
    newest: list[GenerationId] = []
    for project, update in ((one, 300), (two, 310)):
        assert project("restore").code == 0
        newest += project.publish(update)
        assert project("replicate", "--once").code == 0
    both = Project(folder=tmp_path / "both", tiers={**one.tiers, **two.tiers}).write()
    for command in (("restore",), ("restore", "--if-absent", "--fresh-ok"), ("restore", "--dry-run")):
        both.refused(ExitCode.TRUST, *command).says("attempt 2 was opened twice", "(volume)", "(copy)")
    assert not both.local.root.exists()
    chosen = both("restore", "--generation", str(newest[1]))
    assert chosen.code == 0
    chosen.says("note: the run forked", f"restored {newest[1]}", "attempt 3")


def test_a_machine_that_was_replaced_is_fenced(replicated: Project, tmp_path: Path) -> None:
    heir = another(replicated, tmp_path / "heir")
    assert heir("restore").code == 0
    heir.publish(300)
    assert heir("replicate", "--once").code == 0
    replicated.publish(300)
    before = remote(tmp_path)
    done = replicated("replicate", "--once")
    assert done.code == ExitCode.FENCED
    done.says("attempt 2", "next: ", "restore")
    assert replicated("safe-to-terminate").code == ExitCode.NOT_SAFE, "what is newer there is not what is here"
    assert remote(tmp_path) == before


Build = Callable[[Writer], None]


def commit_names(names: Sequence[str]) -> Build:
    """Return a commit of files under these names, consistent in every other way."""

    def build(writer: Writer) -> None:
        files = tuple(sealed_file(path, b"%d" % number) for number, path in enumerate(names))
        sane = make({"a": b"a"}, sequence=2)
        identity = GenerationId(1, 2, 200, content_digest(files, ())[:8])
        facts = {**sane.record.model_dump(), "id": str(identity), "files": files, "directories": ()}
        record = GenerationRecord.model_construct(**facts)
        prefix = REMOTE.prefix(identity, 1, "0" * 16)
        sealed = record.model_dump(mode="json", warnings=False)
        document = {
            "format": 1,
            "run_uid": writer.run_uid,
            "term": 1,
            "nonce": "0" * 16,
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
            "written_at": sane.record.sealed_at,
        }
        made = Made(record=record, contents={file.path: b"" for file in files})
        writer.commit_document(made, canonical.dump(document) + b"\n", prefix)

    return build


def commit_bytes(data: bytes) -> Build:
    """Return a commit of a manifest of these bytes."""

    def build(writer: Writer) -> None:
        made = generation(2)
        writer.commit_document(made, data, REMOTE.prefix(made.id, 1, "0" * 16))

    return build


HOSTILE = {
    "up": commit_names(["../evil"]),
    "absolute": commit_names(["/etc/evil"]),
    "windows": commit_names(["C:\\evil"]),
    "twice": commit_names(["a", "a"]),
    "letter case": commit_names(["Model.pt", "model.pt"]),
    "file and folder": commit_names(["d", "d/x"]),
    "deeply nested": commit_bytes(b"[" * 200_000),
    "huge": commit_bytes(b" " * (MAX_MANIFEST_BYTES + 1)),
    "not JSON": commit_bytes(b"\xff\xfe"),
    "empty": commit_bytes(b""),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_manifest_is_refused_whole(project: Project, tmp_path: Path, kind: str) -> None:
    tier = VolumeTier("volume", tmp_path / "volume")
    writer = Writer(tier)
    HOSTILE[kind](writer)
    before = tree(tmp_path / "volume").keys()
    target = tmp_path / "parent" / "out"
    target.parent.mkdir()
    done = project.refused(ExitCode.INTEGRITY, "restore", "--to", str(target))
    done.says("a0001-g000002-u000000000200-")
    assert tree(target.parent) == {}
    project.refused(ExitCode.INTEGRITY, "restore")
    assert project("verify").code == ExitCode.INTEGRITY
    (newest,) = project("list", "--json").result()["generations"]
    project.refused(ExitCode.INTEGRITY, "show", newest["generation"])
    project.refused(ExitCode.INTEGRITY, "restore", "--generation", newest["generation"])
    assert project.store.generations() == ()
    assert tree(tmp_path / "volume").keys() == before
    tier.close()


@pytest.mark.parametrize("kind", ["up", "deeply nested"])
def test_an_older_honest_generation_is_taken_instead(project: Project, tmp_path: Path, kind: str) -> None:
    tier = VolumeTier("volume", tmp_path / "volume")
    writer = Writer(tier)
    honest = generation(1)
    writer.commit(honest)
    HOSTILE[kind](writer)
    done = project("restore")
    assert done.code == 0
    done.says("passed over a0001-g000002-u000000000200-", f"restored {honest.id}")
    tier.close()
