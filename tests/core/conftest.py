"""A store and a machine for the tests of the commit protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from core.builders import Machine

from tiers.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    """Return what lies on the tier, whoever looks."""
    return MemoryStore()


@pytest.fixture
def machine(tmp_path: Path, store: MemoryStore) -> Iterator[Machine]:
    """One machine of attempt 1."""
    one = Machine(tmp_path / "one", store)
    yield one
    one.tracker.close()
