"""A machine to run daemons on."""

from pathlib import Path

import pytest
from daemon.stage import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return one that is not configured yet."""
    return Machine(tmp_path / "machine")
