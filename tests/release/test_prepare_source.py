"""The generation that a release is made from: proved before it is handed out, and only as much of it as is needed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commits import RUN, Made, Writer, generation, make, seal_local, tamper, tree

from replicate import canonical
from replicate.config import Config, TierConfig
from replicate.errors import ConfigInvalid, IntegrityFailure, NothingFound
from replicate.layout import LocalRun
from replicate.release.source import SourceGeneration, fetch, open_local
from tiers.memory import MemoryTier
from tiers.protocol import Key
from tiers.testing.manual_clock import ManualClock

CONTENTS = {"model.safetensors": b"weights" * 500, "optimizer.pt": b"moments" * 900, "rng/0.pth": b"random"}


@pytest.fixture
def local(tmp_path: Path) -> LocalRun:
    return LocalRun(tmp_path / "runs" / RUN)


class Counting(MemoryTier):
    """A tier that remembers which objects were opened."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.opened: list[str] = []

    def open(self, key: Key, start: int = 0, length: int | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.opened.append(key)
        return super().open(key, start, length)


@pytest.fixture
def tier() -> Counting:
    return Counting("a")


@pytest.fixture
def made(tier: Counting) -> Made:
    made = make(CONTENTS, sequence=2)
    writer = Writer(tier)
    writer.commit(generation(1))
    writer.commit(made)
    return made


@pytest.fixture
def fetched(tmp_path: Path, tier: Counting) -> Callable[..., SourceGeneration]:
    config = Config(
        run=RUN, store="runs", tier=(TierConfig(name="a", url="memory://a"),), source=tmp_path / "ckptier.toml"
    )

    def run(made: Made | None, *patterns: str, name: str = "a") -> SourceGeneration:
        wanted = made.id if made is not None else None
        scratch = tmp_path / "scratch"
        return fetch(config, wanted, name, scratch, patterns, ManualClock(), opener=lambda *_: tier)

    return run


def test_only_the_files_that_are_needed_are_fetched(
    tmp_path: Path, tier: Counting, made: Made, fetched: Callable[..., SourceGeneration]
) -> None:
    source = fetched(None, "*.safetensors")

    assert source.id == made.id
    assert source.record == made.record
    assert canonical.sha256(source.record_bytes) == canonical.sha256(made.record.encode())
    assert tree(source.files) == {"model.safetensors": CONTENTS["model.safetensors"]}
    objects = {Path(key).name for key in tier.opened if "/files/" in key}
    assert objects == {"model.safetensors"}


def test_the_scratch_folder_is_for_its_owner_alone(fetched: Callable[..., SourceGeneration], made: Made) -> None:
    previous = os.umask(0)
    try:
        source = fetched(made, "*.safetensors")
    finally:
        os.umask(previous)

    assert source.files.parent.stat().st_mode & 0o777 == 0o700


def test_an_older_generation_is_fetched_by_its_id(made: Made, fetched: Callable[..., SourceGeneration]) -> None:
    assert fetched(generation(1), "model.bin").id == generation(1).id


def test_bytes_that_are_not_those_sealed_are_not_handed_out(
    tmp_path: Path, tier: Counting, made: Made, fetched: Callable[..., SourceGeneration]
) -> None:
    (key,) = [one.key for one in tier.list_objects("").objects if one.key.endswith("/model.safetensors")]
    tamper(tier, Key(key), lambda data: data[:-1] + b"X")

    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        fetched(made, "*.safetensors")

    assert not (tmp_path / "scratch" / "files").exists()


def test_a_pattern_that_names_nothing_and_a_tier_that_is_none_are_told(
    made: Made, fetched: Callable[..., SourceGeneration]
) -> None:
    with pytest.raises(NothingFound, match=r"no file of .* matches \*\.bin"):
        fetched(made, "*.bin")
    with pytest.raises(ConfigInvalid, match="no tier is called 'b'"):
        fetched(made, "*", name="b")


def test_a_local_generation_is_proved_where_it_is_read(local: LocalRun) -> None:
    made = make(CONTENTS)
    seal_local(local, made)
    weights = local.generation(made.id) / "files" / "model.safetensors"

    source = open_local(local, made.id)
    assert (source.id, source.files) == (made.id, weights.parent)
    assert source.record_bytes == made.record.encode()

    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)

    with pytest.raises(IntegrityFailure, match=r"model\.safetensors: its bytes are not those that were sealed"):
        open_local(local, made.id, patterns=["*.safetensors"])
    assert open_local(local, made.id, patterns=["optimizer.pt"]).id == made.id


def test_a_file_that_was_not_sealed_or_is_gone_is_damage(local: LocalRun) -> None:
    made = make(CONTENTS)
    files = seal_local(local, made) / "files"

    (files / "added.safetensors").write_bytes(b"more")
    with pytest.raises(IntegrityFailure, match=r"added\.safetensors: does not belong there"):
        open_local(local, made.id)
    (files / "added.safetensors").unlink()
    (files / "optimizer.pt").unlink()
    with pytest.raises(IntegrityFailure, match=r"optimizer\.pt: is missing"):
        open_local(local, made.id)


def test_a_store_without_a_validated_generation_has_no_newest_one(local: LocalRun) -> None:
    with pytest.raises(NothingFound, match="holds no validated generation") as caught:
        open_local(local, None)
    assert "--tier" in caught.value.hint

    with pytest.raises(NothingFound):
        open_local(local, make(CONTENTS).id)
