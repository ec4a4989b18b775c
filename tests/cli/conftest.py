"""A project on a volume, and loggers that are as they were after each command."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli.driver import Project, volume

from replicate import opening
from replicate.config import TierConfig
from tiers.opening import TierSpec
from tiers.retrying import RetryPolicy

_LOGGERS = ("replicate", "tiers", "botocore")


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Give every logger that a command sets back its level."""
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, so that no configuration is found but the one that is meant."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in [name for name in os.environ if name.startswith("CKPTIER_CONFIG")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry, but not for as long as people would."""
    patient = opening.tier_spec

    def hurried(config: TierConfig) -> TierSpec:
        return replace(patient(config), retry=RetryPolicy(attempts=2, base=0.01))

    monkeypatch.setattr(opening, "tier_spec", hurried)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a volume tier called ``volume``."""
    folder = tmp_path / "volume"
    folder.mkdir()
    return Project(folder=tmp_path / "project", tiers={"volume": volume(folder)}).write()
