"""Tiers that do not answer, or refuse: never taken for empty ones, and the exit code says which."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.driver import Project, volume
from support.seaweed import BUCKET, SeaweedServer

from replicate.errors import ExitCode
from tiers.servers import HOST, free_ports

ASKING = (
    ("restore",),
    ("restore", "--if-absent", "--fresh-ok"),
    ("restore", "--dry-run"),
    ("verify",),
)


def closed_port() -> str:
    """Return an endpoint where nobody listens."""
    (port,) = free_ports(1)
    return f"http://{HOST}:{port}"


def on_s3(folder: Path, endpoint: str, bucket: str, prefix: str) -> Project:
    return Project(folder=folder, tiers={"bucket": f"s3://{bucket}/{prefix}"}).write(
        endpoint_url=endpoint, profile="seaweedfs"
    )


@pytest.fixture
def wrong_credentials() -> Iterator[None]:
    """Sign with a key that the server does not know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody-knows-it")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        yield


def assert_nobody_takes_it_for_empty(project: Project, code: ExitCode) -> None:
    """Ask from an empty store, the dangerous one: a fresh start would leave a history behind."""
    for command in ASKING:
        project.refused(code, *command)
        assert project(*command, "--json").error()["exit_code"] == code
    assert not project.local.root.exists()
    listed = project("list", "--json")
    assert listed.code == ExitCode.PARTIAL
    assert listed.result()["unanswered"]["bucket"]["exit_code"] == code
    project("list").says("! bucket did not answer", "next: ")
    project("status", "--remote").says("UNKNOWN", "FAILING")
    assert project("check").code == code


def assert_replicating_fails_alone(project: Project, code: ExitCode) -> None:
    """Nothing is lost: the generations stay, the failure is shown, and leaving is not safe."""
    made = project.publish(100)
    done = project("replicate", "--once")
    assert done.code == code
    done.says("bucket: FAILED", "next: ")
    shown = project("status")
    assert shown.code == ExitCode.PARTIAL
    shown.says("FAILING", "UNKNOWN")
    assert project("safe-to-terminate").code == ExitCode.NOT_SAFE
    assert [one.id for one in project.store.generations()] == made
    project("wait", "--timeout", "0").says("bucket", "`ckptier replicate --once`")
    project.refused(code, "restore", "--to", str(project.folder / "out"))
    assert project("restore", "--to", str(project.folder / "out"), "--accept-older").code == 0


def test_a_missing_bucket_is_denied(seaweed: SeaweedServer, prefix: str, tmp_path: Path) -> None:
    project = on_s3(tmp_path / "p", seaweed.endpoint_url, "no-such-bucket", prefix)
    project.refused(ExitCode.DENIED, "restore", "--if-absent", "--fresh-ok").says("bucket does not exist")
    assert_nobody_takes_it_for_empty(project, ExitCode.DENIED)
    assert_replicating_fails_alone(project, ExitCode.DENIED)


@pytest.mark.usefixtures("wrong_credentials")
def test_wrong_credentials_are_denied(seaweed: SeaweedServer, prefix: str, tmp_path: Path) -> None:
    project = on_s3(tmp_path / "p", seaweed.endpoint_url, BUCKET, prefix)
    project.refused(ExitCode.DENIED, "restore").says("access key")
    assert_nobody_takes_it_for_empty(project, ExitCode.DENIED)
    assert_replicating_fails_alone(project, ExitCode.DENIED)


def test_an_endpoint_that_is_down_is_unavailable(tmp_path: Path) -> None:
    project = on_s3(tmp_path / "p", closed_port(), BUCKET, "x")
    project.refused(ExitCode.UNREACHABLE, "restore").says("Connection refused", "endpoint_url")
    assert_nobody_takes_it_for_empty(project, ExitCode.UNREACHABLE)
    assert_replicating_fails_alone(project, ExitCode.UNREACHABLE)


def test_a_volume_that_is_not_mounted_is_unavailable(tmp_path: Path) -> None:
    project = Project(folder=tmp_path / "p", tiers={"bucket": volume(tmp_path / "absent")}).write()
    assert_nobody_takes_it_for_empty(project, ExitCode.UNREACHABLE)
    assert_replicating_fails_alone(project, ExitCode.UNREACHABLE)
    assert not (tmp_path / "absent").exists(), "writing below an empty mount point would fill the wrong disk"


def test_another_disk_where_the_volume_was(project: Project, tmp_path: Path) -> None:
    """The wrong volume is mounted: it answers, and is empty; this machine remembers better."""
    made = project.publish(100)
    assert project("replicate", "--once").code == 0
    (tmp_path / "volume").rename(tmp_path / "right")
    (tmp_path / "volume").mkdir()
    done = project("replicate", "--once")
    assert done.code == ExitCode.TRUST
    done.says("volume: FAILED", "next: ")
    project.refused(ExitCode.TRUST, "restore").says("ends before slot", "--generation ID")
    assert project("safe-to-terminate").code == ExitCode.NOT_SAFE
    assert not list((tmp_path / "volume").glob("toy/*"))
    (tmp_path / "volume").rename(tmp_path / "wrong")
    (tmp_path / "right").rename(tmp_path / "volume")
    assert project("replicate", "--once").code == 0
    assert [one.id for one in project.store.generations()] == made


def test_a_volume_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep me")
    project = Project(folder=tmp_path / "p", tiers={"bucket": volume(tmp_path / "file")}).write()
    project.publish(1)
    done = project("replicate", "--once")
    assert done.code not in (0, 1)
    done.says("bucket: FAILED", "next: ")
    assert project("restore", "--if-absent", "--fresh-ok", "--tier", "bucket").code not in (0, 1)
    assert (tmp_path / "file").read_text() == "keep me"


def test_a_tier_that_cannot_keep_writers_apart_has_to_be_accepted(tmp_path: Path) -> None:
    project = Project(folder=tmp_path / "p", tiers={"bucket": f"s3://{BUCKET}/x"}).write(endpoint_url=closed_port())
    project.publish(1)
    done = project("replicate", "--once")
    assert done.code == ExitCode.CAPABILITY
    done.says("accept_advisory = true", "seaweedfs")
    assert project("restore", "--to", str(tmp_path / "out")).code == ExitCode.UNREACHABLE, "reading needs no fence"


def test_one_tier_down_of_two(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    tiers = {"good": volume(tmp_path / "good"), "bad": volume(tmp_path / "bad")}
    project = Project(folder=tmp_path / "p", tiers=tiers).write()
    (made,) = project.publish(100)
    done = project("replicate", "--once")
    assert done.code == ExitCode.PARTIAL
    done.says(f"good: committed {made}", "bad: FAILED")
    assert project("safe-to-terminate", "--tier", "good").code == 0
    assert project("safe-to-terminate").code == ExitCode.NOT_SAFE
    status = project("status")
    assert status.code == ExitCode.PARTIAL
    status.says("restart from update 100", "bad: nothing committed by this store so far", "FAILING")
    shutil.rmtree(project.local.root)
    project.refused(ExitCode.UNREACHABLE, "restore").says(str(made), "--accept-older")
    assert not project.local.root.exists()
    found = project("restore", "--accept-older")
    assert found.code == 0
    found.says(f"restored {made}", "bad did not answer")


def test_a_dry_run_tells_of_the_tiers_that_answer(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    tiers = {"down": volume(tmp_path / "absent"), "up": volume(tmp_path / "there")}
    project = Project(folder=tmp_path / "p", tiers=tiers).write()
    (made,) = project.publish(100)
    done = project("replicate", "--dry-run")
    assert done.code == ExitCode.PARTIAL
    done.says("down:", "UNKNOWN: ", "is the volume mounted?", "up:", f"{made}  upload")
