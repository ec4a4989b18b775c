"""Commands leave loggers as they found them, and work in a folder without a configuration."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every logger that a command sets back its level."""
    before = {name: logging.getLogger(name).level for name in ("replicate", "tiers", "botocore")}
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("CKPTIER_CONFIG", raising=False)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
