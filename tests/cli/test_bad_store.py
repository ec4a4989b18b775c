"""Stores that are hurt or out of reach: one clear error, and what can go on goes on."""

import json
from pathlib import Path

import pytest
from cli.driver import Project
from support.commits import tree

from replicate.errors import ExitCode
from replicate.generation.locks import Flock

EVERYWHERE = (
    ("status",),
    ("status", "--remote"),
    ("list",),
    ("explain",),
    ("safe-to-terminate",),
    ("replicate", "--once"),
    ("restore",),
    ("restore", "--if-absent", "--fresh-ok"),
    ("adopt", "/etc/hostname", "--update", "1"),
)


@pytest.fixture
def replicated(project: Project) -> Project:
    project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    return project


def remote_keys(tmp_path: Path) -> set[str]:
    """Return what lies on the volume, but for the backend's own scratch folder."""
    return {path for path in tree(tmp_path / "volume") if not path.startswith(".ckptier")}


@pytest.mark.parametrize("command", EVERYWHERE, ids=" ".join)
def test_a_store_below_a_plain_file_is_a_disk_error(replicated: Project, command: tuple[str, ...]) -> None:
    """Tests run as root, whom no permission stops; a file where a folder should be stops everybody."""
    replicated.local.root.parent.rename(replicated.folder / "kept")
    replicated.local.root.parent.write_text("not a folder")
    before = replicated.snapshot()
    replicated.refused(ExitCode.DISK, *command).says("Not a directory")
    error = replicated(*command, "--json").error()
    assert error["exit_code"] == ExitCode.DISK
    assert replicated.snapshot() == before


def test_check_names_a_store_that_cannot_be_written(replicated: Project) -> None:
    replicated.local.root.parent.rename(replicated.folder / "kept")
    replicated.local.root.parent.write_text("not a folder")
    done = replicated("check")
    assert done.code == ExitCode.DISK
    done.says("FAIL  store: writable", "next: change `store`", "ok    volume: reads: 2 generations")


def test_files_can_be_rescued_although_the_store_is_broken(replicated: Project, tmp_path: Path) -> None:
    replicated.local.root.parent.rename(replicated.folder / "kept")
    replicated.local.root.parent.write_text("not a folder")
    assert replicated("restore", "--to", str(tmp_path / "rescued")).code == 0
    assert (tmp_path / "rescued" / "model.bin").read_bytes().startswith(b"update 200")


def test_a_half_written_incoming_is_never_offered(project: Project) -> None:
    project.publish(100)
    half = project.local.root / ".incoming-left-by-a-kill"
    (half / "files").mkdir(parents=True)
    (half / "files" / "model.bin").write_bytes(b"half")
    assert project("replicate", "--once").code == 0
    found = project("list", "--json").result()["generations"]
    assert [one["next_update"] for one in found] == [100]
    assert project("safe-to-terminate").code == 0


def test_a_damaged_tracker_is_set_aside_and_rebuilt(replicated: Project, tmp_path: Path) -> None:
    """What the log says is enough: nothing goes up a second time, and nothing is forgotten."""
    root = replicated.local.root
    for path in root.glob("tracker.sqlite*"):
        path.write_bytes(b"this is no database, and was one\n" * 200)
    before = remote_keys(tmp_path)
    done = replicated("replicate", "--once")
    assert (done.code, done.out) == (0, "volume: nothing to do\n")
    assert remote_keys(tmp_path) == before
    assert list(root.glob("tracker.sqlite?*"))
    assert any(b"this is no database" in path.read_bytes() for path in root.glob("*tracker*"))
    assert replicated("wait", "--timeout", "0").code == 0
    assert replicated("status", "--json").result()["daemon"]["tiers"][0]["completed"] == 2


@pytest.mark.parametrize("data", [b"", b"{", b'{"format":99}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_status_file_stops_nothing_and_is_mended_by_the_next_pass(replicated: Project, data: bytes) -> None:
    replicated.local.status.write_bytes(data)
    for command in (("status",), ("list",), ("explain",), ("safe-to-terminate",)):
        assert replicated(*command).code == 0, "it is a view; nothing is decided from it"
    replicated.refused(ExitCode.PARTIAL, "wait", "--timeout", "0").says("`ckptier replicate --once`")
    assert replicated("restore", "--if-absent").code == 0
    assert replicated("replicate", "--once").code == 0
    assert replicated("status").code == 0


@pytest.mark.parametrize("data", [b"", b"{", b'{"format":1}', b"[" * 100_000])
def test_a_damaged_lineage_stops_what_would_build_on_it(replicated: Project, tmp_path: Path, data: bytes) -> None:
    replicated.local.lineage.write_bytes(data)
    before = replicated.snapshot(), remote_keys(tmp_path)
    for command in (("restore",), ("status",), ("safe-to-terminate",)):
        replicated.refused(ExitCode.INTEGRITY, *command).says("lineage.json")
    assert replicated("check").code == ExitCode.INTEGRITY
    assert replicated("replicate", "--once").code == ExitCode.INTEGRITY
    assert (tree(replicated.local.generations), remote_keys(tmp_path)) == (
        {
            path.removeprefix("runs/toy/generations/"): content
            for path, content in before[0].items()
            if path.startswith("runs/toy/generations/")
        },
        before[1],
    )
    assert replicated.local.lineage.read_bytes() == data
    assert replicated("restore", "--to", str(tmp_path / "out")).code == 0


def test_a_second_process_is_fenced(replicated: Project) -> None:
    lock = Flock.attempt(replicated.local.daemon_lock)
    assert lock is not None
    before = replicated.snapshot()
    replicated.refused(ExitCode.FENCED, "replicate", "--once").says("another process replicates", "ckptier wait")
    assert replicated.snapshot() == before
    lock.release()
    assert replicated("replicate", "--once").code == 0


def test_local_bytes_that_changed_after_the_seal_are_quarantined(project: Project, tmp_path: Path) -> None:
    older, newer = project.publish(100, 200)
    victim = project.local.generation(newer) / "files" / "model.bin"
    victim.write_bytes(victim.read_bytes()[::-1])
    done = project("replicate", "--once")
    assert done.code == ExitCode.INTEGRITY
    done.says(f"volume: committed {older}", f"QUARANTINED {newer}")
    assert not [path for path in remote_keys(tmp_path) if str(newer) in path and path.endswith("manifest.json")]
    project("status").says(f"QUARANTINED {newer}")
    project.refused(ExitCode.INTEGRITY, "wait", "-g", str(newer)).says("quarantined")
    other = Project(folder=tmp_path / "b", tiers=project.tiers).write()
    assert json.loads(other("restore", "--json").out)["result"]["generation"] == str(older)


@pytest.mark.parametrize("command", ["show", "explain"])
def test_ids_that_are_none_or_nowhere(replicated: Project, command: str) -> None:
    nowhere = "a0009-g000009-u000000000220-1f3a9c2e"
    for text in ("latest", "../../etc", "a1-g1-u1-00000000", ""):
        replicated.refused(ExitCode.USAGE, command, text).says("is not a generation id", "`ckptier list`")
    replicated.refused(ExitCode.NOTHING, command, nowhere).says(nowhere, "`ckptier list`")


def test_ids_that_are_none_or_nowhere_as_options(replicated: Project) -> None:
    before = replicated.snapshot()
    nowhere = "a0009-g000009-u000000000220-1f3a9c2e"
    for command in ("restore", "wait", "verify"):
        replicated.refused(ExitCode.USAGE, command, "--generation", "newest").says("is not a generation id")
    replicated.refused(ExitCode.NOTHING, "restore", "--generation", nowhere).says(nowhere, "`ckptier list`")
    replicated.refused(ExitCode.NOTHING, "wait", "--timeout", "0", "--generation", nowhere).says(nowhere)
    assert replicated.snapshot() == before
