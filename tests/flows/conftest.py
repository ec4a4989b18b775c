"""The places that flows go through."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from flows.machines import Machine, Place
from support.seaweed import BUCKET, SeaweedServer

from replicate.config import TierConfig

_names = itertools.count(1)


@pytest.fixture
def volume(tmp_path: Path) -> Place:
    """Return a mounted folder."""
    (tmp_path / "volume").mkdir()
    return Place(TierConfig(name="volume", url=f"file://{tmp_path / 'volume'}"))


@pytest.fixture
def memory() -> Place:
    """Return a store in this process that nobody else has."""
    return Place(TierConfig(name="memory", url=f"memory://flows-{next(_names)}"))


@pytest.fixture
def bucket_place(seaweed: SeaweedServer, prefix: str) -> Place:
    """Return a prefix of a bucket on SeaweedFS."""
    url = f"s3://{BUCKET}/flows/{prefix}"
    return Place(TierConfig(name="bucket", url=url, endpoint_url=seaweed.endpoint_url, profile="seaweedfs"))


@pytest.fixture(params=["volume", "bucket_place"])
def place(request: pytest.FixtureRequest) -> Place:
    """Run the test on a volume, and on SeaweedFS."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    return found


@pytest.fixture(params=["memory", "volume", "bucket_place"])
def any_place(request: pytest.FixtureRequest) -> Place:
    """Run the test in memory, on a volume, and on SeaweedFS."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Return a maker of machines: ``machine("one", place, …)``."""

    def make(name: str, *places: Place) -> Machine:
        folder = tmp_path / name
        folder.mkdir()
        return Machine(folder, places)

    return make
