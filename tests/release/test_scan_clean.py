"""A release with nothing wrong has no finding; a report says the same on every day and repeats no secret."""

import shutil
from datetime import timedelta
from pathlib import Path

from release.scan_stage import NOW, Stage

from replicate.release.documents import encode


def test_a_clean_release_has_no_finding(tmp_path: Path) -> None:
    report = Stage(tmp_path).scan()
    assert report.blocking == ()
    assert (report.files, report.tensors) == (13, 7)


def test_a_clean_adapter_has_no_finding(tmp_path: Path) -> None:
    assert Stage.adapter(tmp_path).scan().blocking == ()


def test_the_report_is_the_same_on_another_day_and_in_another_folder(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first = stage.scan()
    moved = Stage(tmp_path / "elsewhere")
    shutil.copytree(stage.tree, moved.tree)
    again = moved.scan(write=False, now=NOW + timedelta(days=900))
    assert encode(again) == encode(first)


def test_the_report_says_what_looked(tmp_path: Path) -> None:
    names = [name.split()[0] for name in Stage(tmp_path).scan().scanners]
    assert names[0] == "ckptier"
    assert "detect-secrets" in names
