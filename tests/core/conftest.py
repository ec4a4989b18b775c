"""A store, a machine and a generation for the tests of the commit protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, LocalSource, Machine, make_source
from core.senders import FILES, Sender, machine_with

from tiers.memory import MemoryStore
from tiers.testing import content


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


@pytest.fixture
def source(tmp_path: Path) -> LocalSource:
    """One sealed generation: a file in parts, a small one and an empty one."""
    files = {"model.bin": content(3 * LEAF + 1), "sub/rng.pt": content(9), "empty": b""}
    return make_source(tmp_path / "store", files)


@pytest.fixture
def sender(machine: Machine, tmp_path: Path) -> Sender:
    return Sender(machine, tmp_path, FILES)


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Sender]:
    """Return a generation on its way to a tier that attests no digest."""
    machine = machine_with(tmp_path, READ_BACK)
    yield Sender(machine, tmp_path, FILES)
    machine.tracker.close()
