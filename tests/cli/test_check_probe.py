"""``ckptier check --probe`` by the real command: what a user reads, what follows from it, and what is remembered."""

import json
from pathlib import Path

import pytest
from cli.driver import Done, Project, volume
from support.rclone_server import RcloneServer
from support.seaweed import BUCKET, SeaweedServer

from replicate.errors import ExitCode


@pytest.fixture
def on_seaweed(tmp_path: Path, seaweed: SeaweedServer, prefix: str) -> Project:
    project = Project(folder=tmp_path / "project", tiers={"bucket": f"s3://{BUCKET}/{prefix}"})
    return project.write(endpoint_url=seaweed.endpoint_url)


@pytest.fixture
def on_rclone(tmp_path: Path, rclone: RcloneServer, prefix: str) -> Project:
    """Nobody said what kind of store it is."""
    project = Project(folder=tmp_path / "project", tiers={"bucket": f"s3://{BUCKET}/{prefix}"})
    return project.write(endpoint_url=rclone.endpoint_url)


def table(done: Done) -> list[str]:
    """Return the lines of the probe's table: from the blank line to the last but one."""
    lines = done.out.splitlines()
    return lines[lines.index("") : -1]


def test_seaweedfs_reports_cas_and_a_store_that_checks_sha256(on_seaweed: Project) -> None:
    on_seaweed.publish(1)
    done = on_seaweed("check", "--probe")
    assert done.code == ExitCode.OK
    done.says("writers: cas", "proof: store-sha256", "the store itself refuses bytes", "lets one win")
    assert max(map(len, table(done))) <= 80
    replicated = on_seaweed("replicate", "--once")
    assert replicated.code == ExitCode.OK, "what was found is used: no profile and no accept_advisory was needed"
    replicated.says("verified by store-sha256")


def test_without_a_probe_the_same_store_is_not_trusted(on_seaweed: Project) -> None:
    on_seaweed.publish(1)
    done = on_seaweed("replicate", "--once")
    assert done.code == ExitCode.CAPABILITY
    done.says("cannot keep two writers apart", "accept_advisory = true")


def test_rclone_reports_the_weaker_mode_in_words(on_rclone: Project) -> None:
    done = on_rclone("check", "--probe")
    assert done.code == ExitCode.OK
    assert max(map(len, table(done))) <= 80
    words = " ".join(done.out.split())
    for said in (
        "writers: advisory a second machine could replace what the first committed",
        "proof: read-back the store's word proves nothing: each object is read back and compared",
        "a wrong one is taken, and repeated as if it were true",
        "`replicate` wants accept_advisory = true",
    ):
        assert said in words


def test_replication_to_rclone_is_refused_until_it_is_accepted(on_rclone: Project, rclone: RcloneServer) -> None:
    on_rclone.publish(1)
    on_rclone("check", "--probe")
    refused = on_rclone("replicate", "--once")
    assert refused.code == ExitCode.CAPABILITY
    refused.says("cannot keep two writers apart", "accept_advisory = true")
    on_rclone.write(endpoint_url=rclone.endpoint_url, accept_advisory=True)
    accepted = on_rclone("replicate", "--once")
    assert accepted.code == ExitCode.OK
    accepted.says("verified by read-back")


def test_a_probe_takes_back_what_a_profile_promised(on_rclone: Project, rclone: RcloneServer) -> None:
    """With the wrong profile two writers would both commit; once probed, that is refused."""
    on_rclone.write(endpoint_url=rclone.endpoint_url, profile="minio")
    on_rclone.publish(1)
    done = on_rclone("check", "--probe")
    done.says("warn  bucket: profile: writers are kept apart by advisory, not cas, as profile minio says")
    assert on_rclone("replicate", "--once").code == ExitCode.CAPABILITY


def test_json(on_seaweed: Project) -> None:
    done = on_seaweed("check", "--probe", "--json")
    (probe,) = done.result()["probes"]
    assert (probe["tier"], probe["fencing"], probe["verification"]) == ("bucket", "cas", "store-sha256")
    assert probe["facts"]["checks_sha256"] is True
    outcomes = {one["subject"]: one["verdict"] for one in probe["outcomes"]}
    assert outcomes["one-winner"] == "yes"
    assert outcomes["list-order"] == "no"
    assert len(probe["clock"]["ahead"]) == 2


def test_the_record_and_when_it_is_not_used(on_seaweed: Project, seaweed: SeaweedServer) -> None:
    on_seaweed("check", "--probe")
    path = on_seaweed.local.root / "probes" / "bucket.json"
    record = json.loads(path.read_text())
    assert record["endpoint"] == seaweed.endpoint_url
    path.write_text(path.read_text().replace(record["at"], "2026-01-01T00:00:00.000Z"))
    done = on_seaweed("check")
    done.says("warn  bucket: probe: the probe of 2026-01-01", "days old, more than 90", "check --probe")
    on_seaweed.publish(1)
    assert on_seaweed("replicate", "--once").code == ExitCode.CAPABILITY


def test_a_check_without_probe_shows_no_table(on_seaweed: Project) -> None:
    done = on_seaweed("check")
    assert "writers: " not in done.out
    assert on_seaweed("check", "--json").result()["probes"] == []


def test_a_volume(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    project = Project(folder=tmp_path / "project", tiers={"pod": volume(tmp_path / "volume")}).write()
    done = project("check", "--probe")
    assert done.code == ExitCode.OK
    done.says("writers: posix", "proof: read-back", "note", "written by rename")
    assert max(map(len, table(done))) <= 80


def test_a_tier_that_does_not_answer_hides_no_other(tmp_path: Path, rclone: RcloneServer) -> None:
    (tmp_path / "volume").mkdir()
    tiers = {"gone": "s3://no-such-bucket/x", "pod": volume(tmp_path / "volume")}
    project = Project(folder=tmp_path / "project", tiers=tiers)
    project.write()
    text = project.config.read_text().replace(
        'url = "s3://no-such-bucket/x"\n', f'url = "s3://no-such-bucket/x"\nendpoint_url = "{rclone.endpoint_url}"\n'
    )
    project.config.write_text(text)
    done = project("check", "--probe")
    assert done.code != ExitCode.OK
    done.says("FAIL  gone: ", "writers: posix")
    assert not (project.local.root / "probes" / "gone.json").exists()
