"""The stages that requests are counted on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from costing.stage import Machine, Stage, bucket_place, volume_place
from support.proxy import FaultProxy

Make = Callable[..., Stage]


@pytest.fixture
def on_s3(tmp_path: Path, proxy: FaultProxy, prefix: str) -> Make:
    """Return a maker of a machine with a tier on SeaweedFS behind the proxy; settings are the tier's."""

    def make(**settings: object) -> Stage:
        folder = tmp_path / "machine"
        folder.mkdir()
        place = bucket_place(proxy, prefix, **settings)
        return Stage(Machine(folder, [place]), place, proxy)

    return make


@pytest.fixture
def on_volume(tmp_path: Path) -> Stage:
    """Return a machine with a mounted folder as its tier."""
    folder = tmp_path / "machine"
    folder.mkdir()
    place = volume_place(tmp_path / "volume")
    return Stage(Machine(folder, [place]), place)
