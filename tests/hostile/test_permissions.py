"""Other users of the machine: what they may write to is told, and what is private stays so whatever the umask."""

import os
import stat
from pathlib import Path

import pytest
from cli.driver import Project, volume

from replicate.errors import ExitCode


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "volume").mkdir()
    return Project(folder=tmp_path / "p", tiers={"t": volume(tmp_path / "volume")}).write()


@pytest.mark.parametrize("what", ["store", "config"])
def test_what_everybody_may_write_to_is_a_warning(project: Project, what: str) -> None:
    project.publish(100)
    path = project.local.root if what == "store" else project.config
    calm = project("check")
    assert "every user" not in calm.out
    path.chmod(path.stat().st_mode | stat.S_IWOTH)
    done = project("check")
    assert done.code == ExitCode.OK
    done.says(f"{path} can be written by every user", "chmod o-w")
    path.chmod(path.stat().st_mode | stat.S_ISVTX)
    assert "every user" not in project("check").out


def test_a_staging_is_private_under_any_umask(project: Project, tmp_path: Path) -> None:
    project.publish(100)
    assert project("replicate", "--once").code == ExitCode.OK
    before = os.umask(0)
    try:
        assert project("restore", "--to", str(tmp_path / "out")).code == ExitCode.OK
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777, "only once it is whole"
