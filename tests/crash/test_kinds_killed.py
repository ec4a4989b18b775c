"""kill -9 on kinds of tier that the other sweeps do not have: a strict S3 dialect, and a filesystem over SSH."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.stage import Case, clone, look, tier_digests
from crash.zygote import Zygote
from flows.kinds import KINDS, Running
from flows.machines import Place
from support.seaweed import SeaweedServer

EFFECTS = ["remote", "transaction"]


@pytest.fixture(scope="module", params=["s3-r2", "fsspec-sftp"])
def kind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedServer
) -> Iterator[Running]:
    with KINDS[request.param](tmp_path_factory.mktemp("kind"), seaweed) as running:
        yield running


def machine(base: Case, folder: Path, kind: Running) -> tuple[Case, Place]:
    """Return a copy of the run, with a tier of its own on this kind of store."""
    case = clone(base, folder)
    place = kind.place(name="t", connections=1)
    settings = place.settings.model_dump(exclude_defaults=True, exclude={"options"})
    options = ", ".join(f"{name} = {json.dumps(value)}" for name, value in place.settings.options.items())
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    text = ['run = "llm-7b"', 'store = "runs"', "hash_workers = 1", "[[tier]]", *lines, f"options = {{ {options} }}"]
    case.config.write_text("\n".join(text) + "\n")
    return case, place


def test_a_process_that_is_killed_leaves_nothing_half_committed(
    kind: Running, base: Case, scratch: Path, first: Zygote
) -> None:
    calm, _place = machine(base, scratch / "calm", kind)
    points = len(first.run("replicate", calm.journal, config=str(calm.config), kinds=EFFECTS).points)
    assert points > 30
    for share in range(1, 4):
        case, place = machine(base, scratch / str(share), kind)
        killed = first.run(
            "replicate", case.journal, config=str(case.config), kinds=EFFECTS, kill_at=share * points // 4
        )
        assert killed.killed
        with place.raw() as tier:
            before = look(tier, tier_digests(tier))
            assert case.completed().items() <= before.live.items(), killed.last
            result = first.finish("replicate", case.journal, config=str(case.config))
            assert (result["exit_code"], result["failures"]) == (0, []), killed.last
            after = look(tier, tier_digests(tier))
        assert len(after.live) == 2
        assert case.completed() == after.live
        assert before.keys.items() <= after.keys.items(), "nothing that was there has changed"
