"""A store to work in."""

from pathlib import Path

import pytest

from replicate import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Return the store of a fresh run."""
    return RunStore(tmp_path / "store" / "llm-7b")
