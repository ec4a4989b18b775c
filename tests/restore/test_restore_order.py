"""What a configured restore reads first: what is on this machine, whatever was declared before it."""

from pathlib import Path

import pytest
from support.commits import RUN

from replicate import engine
from replicate.config import Config, TierConfig
from replicate.engine import Replicator
from replicate.opening import near_of, volumes_of
from replicate.restore import RestoreOptions, RestoreRequest

FAR = TierConfig(name="far", url="s3://bucket/prefix", connections=6)
NEAR = TierConfig(name="near", url="file:///mnt/a%20b", connections=4)
HERE = TierConfig(name="here", url="memory://restore-order", connections=4)


def test_near_is_what_needs_no_network() -> None:
    assert near_of((FAR, NEAR, HERE)) == {"near", "here"}
    assert volumes_of((FAR, NEAR, HERE)) == {"near": Path("/mnt/a b")}


@pytest.mark.parametrize(("spread", "workers"), [(False, 6), (True, 14)])
def test_a_restore_is_told_what_is_near_and_how_wide_the_tiers_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spread: bool,
    workers: int,
) -> None:
    asked: list[tuple[RestoreRequest, RestoreOptions]] = []

    def noted(request: RestoreRequest, *_: object, options: RestoreOptions, **__: object) -> None:
        asked.append((request, options))

    monkeypatch.setattr(engine, "restore", noted)
    monkeypatch.setattr(Replicator, "_tiers", lambda *_: _Nothing())
    config = Config(run=RUN, store="runs", tier=(FAR, NEAR, HERE), source=tmp_path / "ckptier.toml")
    Replicator(config).restore(RestoreRequest(spread=spread))
    ((request, options),) = asked
    assert request.near == {"near", "here"}
    assert (options.workers, options.volumes) == (workers, {"near": Path("/mnt/a b")})


class _Nothing:
    def __enter__(self) -> list[object]:
        return []

    def __exit__(self, *_: object) -> None:
        return None
