"""A bucket that is put back to an earlier state, or hides its end: noticed by whoever remembers, or was told."""

import logging
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli.driver import Project, volume

from replicate.errors import ExitCode
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.signing.anchor import Anchor
from replicate.signing.remembered import last_seen
from tiers.volume import VolumeTier

TRUST = int(ExitCode.TRUST)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A volume with three generations of a run, and what it was after the first two."""

    project: Project
    root: Path
    early: Path
    made: list[GenerationId]

    def put_back(self) -> None:
        """Put the earlier state in the place of the present one."""
        shutil.rmtree(self.root)
        shutil.copytree(self.early, self.root)

    def stranger(self, folder: Path) -> Project:
        """Return a machine that has never seen the run."""
        return Project(folder=folder, tiers=self.project.tiers).write()

    def log(self) -> LogView:
        return Logbook(VolumeTier("reader", self.root), RemoteRun.of("toy")).read()

    def anchor(self) -> str:
        view = self.log()
        return str(Anchor(view.next_slot - 1, view.last_sha256))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[GenerationId]]:
    """Make it once: each test works on a copy."""
    folder = tmp_path_factory.mktemp("grown")
    root = folder / "volume"
    root.mkdir()
    project = Project(folder=folder / "machine", tiers={"a": volume(root)}).write()
    made = project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    shutil.copytree(root, folder / "early")
    made += project.publish(300)
    assert project("replicate", "--once").code == 0
    return folder, made


@pytest.fixture
def bucket(tmp_path: Path, grown: tuple[Path, list[GenerationId]]) -> Bucket:
    folder, made = grown
    for name in ("machine", "volume", "early"):
        shutil.copytree(folder / name, tmp_path / name)
    project = Project(folder=tmp_path / "machine", tiers={"a": volume(tmp_path / "volume")}).write()
    return Bucket(project, tmp_path / "volume", tmp_path / "early", made)


def test_a_bucket_that_was_put_back_is_refused_by_whoever_has_seen_it(bucket: Bucket, tmp_path: Path) -> None:
    """By the daemon, which writes nothing, by restore, and by everything that looks."""
    project = bucket.project
    bucket.put_back()
    before = sorted(path.name for path in bucket.root.rglob("*"))
    once = project("replicate", "--once")
    assert once.code == TRUST
    once.says("rolled back", "slot 3")
    for command in (("restore",), ("restore", "--to", str(tmp_path / "to")), ("restore", "--dry-run")):
        project.refused(ExitCode.TRUST, *command).says("rolled back", "--unsafe-allow-rollback")
    status = project("status", "--remote")
    assert status.code == TRUST
    status.says("rolled back")
    for reading in (("verify", "--tier", "a"), ("pin", str(bucket.made[0]))):
        assert project(*reading).code == TRUST, reading
    assert project("safe-to-terminate").code == ExitCode.NOT_SAFE
    listed = project("list")
    assert listed.code == int(ExitCode.PARTIAL)
    listed.says("rolled back")
    assert not (tmp_path / "to").exists()
    assert sorted(path.name for path in bucket.root.rglob("*")) == before


def test_a_rollback_that_is_known_of_can_be_taken(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_back()
    project = bucket.project
    shutil.rmtree(project.local.generations)
    taken = project("restore", "--to", str(tmp_path / "newest"), "--unsafe-allow-rollback")
    assert taken.code == 0
    taken.says("note: ", "rolled back", str(bucket.made[1]))
    named = project("restore", "--to", str(tmp_path / "named"), "--generation", str(bucket.made[0]))
    assert named.code == 0, "whoever names a generation does not ask for the newest"
    named.says("note: ", "rolled back")


def test_an_emptied_bucket_is_no_fresh_start(bucket: Bucket) -> None:
    project = bucket.project
    shutil.rmtree(project.local.generations)
    shutil.rmtree(bucket.root / "toy")
    project.refused(ExitCode.TRUST, "restore", "--if-absent", "--fresh-ok").says("rolled back")


def test_a_log_that_goes_on_is_no_rollback(bucket: Bucket, tmp_path: Path) -> None:
    """Another machine went on; this one has seen less, and that is part of it."""
    other = bucket.stranger(tmp_path / "other")
    assert other("restore").code == 0
    other.publish(400)
    assert other("replicate", "--once").code == 0
    assert bucket.project("list").code == 0
    assert bucket.project("verify", "--tier", "a").code == 0
    assert bucket.project("restore", "--to", str(tmp_path / "to")).code == 0


def test_another_history_of_the_same_length_is_refused(bucket: Bucket) -> None:
    tracker = bucket.project.local.root / "tracker.sqlite"
    with sqlite3.connect(tracker) as db:
        db.execute("UPDATE tier SET seen_sha256=?", ("0" * 64,))
    db.close()
    assert bucket.project("status", "--remote").code == TRUST
    unsafe = bucket.project("safe-to-terminate")
    assert unsafe.code == ExitCode.NOT_SAFE, "it has every generation, and nobody knows which history it is"
    unsafe.says("rolled back")
    assert bucket.project("replicate", "--once").code == TRUST


def test_memory_that_cannot_be_read_is_warned_of(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    folder = bucket.project.local.root
    assert str(last_seen(folder, "a")) == bucket.anchor()
    assert last_seen(folder, "b") is None
    assert last_seen(folder / "nowhere", "a") is None
    (folder / "tracker.sqlite").write_bytes(b"not a database, and long enough to be looked at" * 100)
    assert last_seen(folder, "a") is None
    assert "would not be noticed" in caplog.text


def test_looking_leaves_no_trace(bucket: Bucket) -> None:
    before = bucket.project.snapshot()
    assert bucket.project("list").code == 0
    assert bucket.project.snapshot() == before


def test_a_machine_that_remembers_nothing_can_be_told_how_far_the_run_was(bucket: Bucket, tmp_path: Path) -> None:
    bucket_anchor = bucket.anchor()
    early_anchor = f"{2}:{'e' * 64}"
    bucket.put_back()
    stranger = bucket.stranger(tmp_path / "stranger")
    newest = bucket.made[2]

    def asked(*told: str) -> tuple[str, ...]:
        return ("restore", "--to", str(tmp_path / "to"), *told)

    stranger.refused(ExitCode.TRUST, *asked("--min-sequence", str(newest.sequence))).says(
        "no generation is as new as 3"
    )
    stranger.refused(ExitCode.TRUST, *asked("--min-sequence", str(newest)))
    stranger.refused(ExitCode.TRUST, *asked("--min-sequence", "3", "--generation", str(bucket.made[1])))
    stranger.refused(ExitCode.TRUST, *asked("--expect-anchor", bucket_anchor)).says("no tier's log holds the anchor")
    stranger.refused(ExitCode.TRUST, *asked("--expect-anchor", early_anchor))
    stranger.refused(ExitCode.USAGE, *asked("--expect-anchor", "3"))
    stranger.refused(ExitCode.USAGE, *asked("--min-sequence", "newest"))
    assert not (tmp_path / "to").exists()
    stranger(*asked("--min-sequence", "2", "--expect-anchor", bucket_anchor, "--expect-anchor", bucket.anchor()))
    assert (tmp_path / "to" / "model.bin").read_bytes().startswith(b"update 200\n")


def test_only_tiers_that_hold_the_anchor_are_used(bucket: Bucket, tmp_path: Path) -> None:
    """The other one could be anything: here it is an old state, which would otherwise count as one more copy."""
    both = {"old": volume(bucket.early), "a": volume(bucket.root)}
    stranger = Project(folder=tmp_path / "stranger", tiers=both).write()
    done = stranger("restore", "--dry-run", "--json", "--expect-anchor", bucket.anchor())
    candidates = done.result()["plan"]["candidates"]
    assert [[place["tier"] for place in one["replicas"]] for one in candidates] == [["a"], ["a"], ["a"]]


def test_anchors_are_told(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    """In the daemon's log, by status, whether it asks or not, and by explain: each to be kept somewhere else."""
    project = bucket.project
    project.publish(400)
    with caplog.at_level(logging.INFO, "replicate"):
        assert project("replicate", "--once", "--verbose").code == 0
    anchor = bucket.anchor()
    assert f"a: the log's anchor is {anchor}" in caplog.text
    for asked in ((), ("--remote",)):
        told = project("status", "--json", *asked).result()
        assert [tier["anchor"] for tier in told["daemon"]["tiers"]] == [anchor]
        assert [tier["anchor"] for tier in told["status"]["tiers"]] == [anchor]
    project("explain").says(f"anchor of a: {anchor}")
