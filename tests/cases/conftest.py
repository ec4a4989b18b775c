"""Places and machines, as the flows have them, and every kind of tier once a module."""

import itertools
from collections.abc import Iterator

import pytest
from flows.conftest import bucket_place, machine, volume
from flows.kinds import KINDS, Running
from flows.machines import Place
from support.seaweed import SeaweedServer

from replicate.config import TierConfig

__all__ = ["bucket_place", "kind", "machine", "memory", "volume"]
_names = itertools.count(1)


@pytest.fixture
def memory() -> Place:
    """Return a store in this process that nobody else has."""
    return Place(TierConfig(name="memory", url=f"memory://cases-{next(_names)}"))


@pytest.fixture(scope="module")
def kind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedServer
) -> Iterator[Running]:
    """Run what the kind of tier needs that a test's parameter names."""
    with KINDS[request.param](tmp_path_factory.mktemp("kind"), seaweed) as running:
        yield running
