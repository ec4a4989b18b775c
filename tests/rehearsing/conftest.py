"""Commands leave loggers as they found them; one committed project for the tests that only add evidence to it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from rehearsing.rehearsals import Stage, staged


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every logger that a command sets back its level."""
    before = {name: logging.getLogger(name).level for name in ("replicate", "tiers", "botocore")}
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("CKPTIER_CONFIG", raising=False)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a project with one committed generation on one volume."""
    return staged(tmp_path / "project", section='function = "mine:good"')


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return such a project for tests that only add evidence, and take none for granted."""
    return staged(tmp_path_factory.mktemp("shared") / "project", section='function = "mine:good"')
