"""Loading a distributed checkpoint straight from tiers: the sealed bytes, and of no leaf that is not proved."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commits import AT, LEAF, REMOTE, RUN_UID, Made, Writer, flip, keys, make, payload, seal_local, tamper
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from replicate import RunStore
from replicate.config import load_config
from replicate.engine import Replicator
from replicate.errors import IntegrityFailure, NothingFound, TrustFailure, Unreachable, UsageError
from replicate.generation.lineage import Lineage
from replicate.integrations.dcp import TierReader
from replicate.layout import LocalRun
from replicate.restore import RestoreRequest
from replicate.restore.places import NotProved
from tiers.errors import TierUnavailable
from tiers.memory import MemoryTier
from tiers.protocol import Tier
from tiers.testing import PassThroughTier

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:TypedStorage is deprecated")


class Training:
    """A model and its optimizer, as far along as ``updates``; without any they are as they are built."""

    def __init__(self, updates: int = 0) -> None:
        torch.manual_seed(updates)
        self.model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 7))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.next_update = updates
        for _ in range(max(1, updates)):
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 40)).sum().backward()
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "next_update": self.next_update,
        }


def flat(state: Any, name: str = "") -> dict[str, Any]:
    """Return tensors as their bytes and everything else as it is, by path."""
    if isinstance(state, dict):
        return {key: value for part in state for key, value in flat(state[part], f"{name}/{part}").items()}
    return {name: state.numpy().tobytes() if isinstance(state, torch.Tensor) else state}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a checkpoint in a folder of two files of tensors, each of several leaves."""
    folder = tmp_path_factory.mktemp("dcp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_save(Training(3).state(), storage_writer=FileSystemWriter(folder, thread_count=2))
    return {f"shards/{path.name}": path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def made(saved: dict[str, bytes]) -> Made:
    made = make({**saved, "config.json": b"{}"}, sequence=3)
    assert sum(len(file.leaves) > 3 for file in made.record.files if file.path.endswith(".distcp")) == 2
    return made


class Place:
    """A tier with one generation on it, which counts what is asked of it."""

    def __init__(self, name: str, *generations: Made) -> None:
        self.memory = MemoryTier(name)
        self.writer = Writer(self.memory)
        for made in generations:
            self.commit = self.writer.commit(made)
        self.asked: list[tuple[str, int, int | None]] = []
        self.tier: Tier = _Recording(self)

    def hurt(self, made: Made, path: str, at: int) -> None:
        tamper(self.memory, keys(self.memory, made, self.commit)[path], flip(at))

    def leaves(self) -> list[tuple[str, int]]:
        """Return the leaves that were asked for, by file name."""
        data = [one for one in self.asked if "/files/" in one[0]]
        return [(key.rpartition("/")[2], start // LEAF) for key, start, _ in data]


class _Recording(PassThroughTier):
    def __init__(self, place: Place) -> None:
        super().__init__(place.memory)
        self._place = place

    def open(self, key: Any, start: int = 0, length: int | None = None) -> Any:
        self._place.asked.append((key, start, length))
        return super().open(key, start, length)


@pytest.fixture
def local(tmp_path: Path) -> LocalRun:
    return LocalRun(tmp_path / "runs" / "toy")


def opened(local: LocalRun, *tiers: Tier, **options: Any) -> TierReader:
    request = RestoreRequest(**{name: options.pop(name) for name in ("generation", "tier") if name in options})
    return TierReader.of(request, tiers, local, remote=REMOTE, **options)


def load(reader: TierReader, training: Training) -> dict[str, Any]:
    state = training.state()
    dcp_load(state, storage_reader=reader)
    return state


def cause_of(caught: pytest.ExceptionInfo[BaseException]) -> BaseException:
    """Return what a reader raised: torch wraps it."""
    found: BaseException = caught.value.failures[0][0]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("whole_up_to", [1 << 30, 0], ids=["whole", "leaf by leaf"])
def test_a_state_is_loaded_bit_for_bit(local: LocalRun, made: Made, whole_up_to: int) -> None:
    place = Place("a", made)
    with opened(local, place.tier, whole_up_to=whole_up_to) as reader:
        found = load(reader, Training())
        assert reader.generation == str(made.id)
        assert flat(found) == flat(Training(3).state())
        assert not reader.opened.ranges.incidents
    assert len(place.leaves()) == len(set(place.leaves())), "a leaf was fetched twice"
    assert not any("config.json" in key for key, _, _ in place.asked)


def test_a_replicated_generation_is_loaded_where_there_is_no_store(tmp_path: Path, saved: dict[str, bytes]) -> None:
    for path, data in saved.items():
        (tmp_path / "out" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / path).write_bytes(data)
    first, second = (_project(tmp_path / name, tmp_path / "tier") for name in ("first", "second"))
    adopted = RunStore(first.parent / "runs" / "toy").adopt(tmp_path / "out" / "shards", next_update=3)
    assert Replicator(load_config(first)).replicate_once().exit_code == 0
    with TierReader.open(second) as reader:
        assert reader.generation == str(adopted.id)
        assert flat(load(reader, Training())) == flat(Training(3).state())
    assert not (second.parent / "runs").exists(), "looking writes nothing"


def _project(folder: Path, tier: Path) -> Path:
    folder.mkdir()
    tier.mkdir(exist_ok=True)
    config = folder / "ckptier.toml"
    config.write_text(f'run = "toy"\nstore = "runs"\n[[tier]]\nname = "t"\nurl = "file://{tier}"\n')
    return config


def test_only_leaves_that_are_wanted_are_read(local: LocalRun, made: Made) -> None:
    place = Place("a", made)
    wanted = Training().model.state_dict()["1.bias"]
    with opened(local, place.tier, workers=1) as reader:
        dcp_load({"model": {"1.bias": wanted}}, storage_reader=reader)
    assert torch.equal(wanted, Training(3).model.state_dict()["1.bias"])
    metadata = {leaf for leaf in place.leaves() if leaf[0] == ".metadata"}
    lies_in = {leaf for leaf in place.leaves() if leaf not in metadata}
    assert 1 <= len(lies_in) <= 3
    assert all(length is not None and length <= LEAF for key, _, length in place.asked if "/files/" in key)


def test_a_flipped_byte_is_noticed_and_another_tier_has_the_leaf(local: LocalRun, made: Made) -> None:
    path = next(file.path for file in made.record.files if file.path.endswith(".distcp"))
    one, two = Place("a", made), Place("b", made)
    one.hurt(made, path, 2 * LEAF + 17)
    with opened(local, one.tier, two.tier) as reader:
        assert flat(load(reader, Training())) == flat(Training(3).state())
        faults = reader.opened.ranges.incidents
    assert {(fault.place, fault.path, fault.leaf) for fault in faults} == {("a", path, 2)}
    assert two.leaves() == [(path.rpartition("/")[2], 2)], "only the hurt leaf comes from the second tier"


def test_a_byte_that_is_flipped_everywhere_loads_nothing(local: LocalRun, made: Made) -> None:
    paths = sorted(file.path for file in made.record.files if file.path.endswith(".distcp"))
    one, two = Place("a", made), Place("b", made)
    for place in (one, two):
        place.hurt(made, paths[-1], LEAF + 5)
    training = Training()
    before = flat(training.state())
    with opened(local, one.tier, two.tier) as reader, pytest.raises(BaseException) as caught:  # noqa: PT011 - torch's
        load(reader, training)
    error = cause_of(caught)
    assert isinstance(error, NotProved)
    assert "leaf 1" in error.message
    assert paths[-1] in error.message
    assert "a: its digest" in error.message
    assert "b: its digest" in error.message
    assert "verify" in error.hint
    assert flat(training.state()) == before


def test_the_store_delivers_what_it_has_before_any_tier(local: LocalRun, made: Made) -> None:
    place = Place("a", made)
    seal_local(local, made)
    opening = Lineage(
        run="toy",
        run_uid=RUN_UID,
        attempt=1,
        attempt_id="attempt-1",
        highest_attempt=1,
        highest_sequence=3,
        opened_at=AT,
    )
    local.lineage.write_bytes(opening.encode())
    with opened(local, place.tier) as reader:
        assert flat(load(reader, Training())) == flat(Training(3).state())
    assert not place.leaves()
    with opened(local, place.tier, tier="a") as reader:
        load(reader, Training())
    assert place.leaves(), "--tier says where bytes come from"


def test_the_newest_is_taken_as_a_restore_would(local: LocalRun, made: Made, saved: dict[str, bytes]) -> None:
    older = make(saved, sequence=2)
    place = Place("a", older, made)
    with opened(local, place.tier, generation=older.id) as reader:
        assert reader.generation == str(older.id)
    place.memory.delete(place.commit.manifest_key)  # type: ignore[arg-type]
    with opened(local, place.tier) as reader:
        assert reader.generation == str(older.id)
        assert [skip.generation for skip in reader.opened.skipped] == [made.id]
    with pytest.raises(Unreachable):
        opened(local, place.tier, _Silent(MemoryTier("b")))


class _Silent(PassThroughTier):
    def open(self, key: Any, start: int = 0, length: int | None = None) -> Any:
        raise TierUnavailable("it does not answer", tier=self.name, operation="open", key=key)


def test_a_generation_without_a_checkpoint_is_told(local: LocalRun) -> None:
    with pytest.raises(NothingFound, match="holds none"):
        opened(local, Place("a", make({"model.bin": payload(1)})).tier)


def test_several_checkpoints_want_a_folder(local: LocalRun, saved: dict[str, bytes]) -> None:
    twice = {**saved, **{path.replace("shards/", "ema/"): data for path, data in saved.items()}}
    place = Place("a", make(twice))
    with pytest.raises(UsageError, match="several: 'ema', 'shards'"):
        opened(local, place.tier)
    with opened(local, place.tier, folder="ema") as reader:
        assert flat(load(reader, Training())) == flat(Training(3).state())


def test_metadata_that_does_more_is_not_loaded(local: LocalRun, saved: dict[str, bytes]) -> None:
    hostile = {**saved, "shards/.metadata": b"cposix\nsystem\n(S'true'\ntR."}
    with opened(local, Place("a", make(hostile)).tier) as reader, pytest.raises(IntegrityFailure, match="posix"):
        reader.read_metadata()


def test_metadata_of_other_files_is_not_loaded(local: LocalRun, saved: dict[str, bytes]) -> None:
    cut = {path: data[:-LEAF] if path.endswith(".distcp") else data for path, data in saved.items()}
    with opened(local, Place("a", make(cut)).tier) as reader, pytest.raises(IntegrityFailure, match="ends at"):
        reader.read_metadata()


def test_ranks_that_opened_different_generations_are_refused(local: LocalRun, made: Made) -> None:
    with opened(local, Place("a", made).tier) as reader:
        mine = reader.prepare_local_plan(LoadPlan(items=[]))
        assert reader.prepare_global_plan([mine, mine]) == [mine, mine]
        other = LoadPlan(items=[], storage_data="a0001-g000004-u000000000400-00000000")
        with pytest.raises(TrustFailure, match="different generations"):
            reader.prepare_global_plan([mine, other])
        reader.reset(reader.generation)
        with pytest.raises(UsageError):
            reader.reset("a0001-g000004-u000000000400-00000000")
    assert TierReader.validate_checkpoint_id(str(made.id))
    assert not TierReader.validate_checkpoint_id("/some/folder")


def test_a_rank_reads_its_part_of_a_chunk(local: LocalRun, made: Made) -> None:
    place = Place("a", made)
    with opened(local, place.tier) as reader:
        metadata = reader.read_metadata()
        reader.set_up_storage_reader(metadata, is_coordinator=False, rank=1)
        index = next(one for one in metadata.storage_data if one.fqn == "model.0.weight")
        parts = [_rows(index, start) for start in (0, 10)]
        planner = _Planner({0: torch.zeros(10, 40), 10: torch.zeros(10, 40)})
        reader.read_data(LoadPlan(items=parts), planner).wait()  # type: ignore[arg-type]
    whole = Training(3).model.state_dict()["0.weight"]
    assert torch.equal(planner.into[0], whole[:10])
    assert torch.equal(planner.into[10], whole[10:20])


def _rows(index: MetadataIndex, start: int) -> ReadItem:
    return ReadItem(
        type=LoadItemType.TENSOR,
        dest_index=index,
        dest_offsets=torch.Size([0, 0]),
        storage_index=index,
        storage_offsets=torch.Size([start, 0]),
        lengths=torch.Size([10, 40]),
    )


class _Planner:
    def __init__(self, into: dict[int, torch.Tensor]) -> None:
        self.into = into

    def resolve_tensor(self, item: ReadItem) -> torch.Tensor:
        return self.into[item.storage_offsets[0]]

    def commit_tensor(self, item: ReadItem, tensor: torch.Tensor) -> None:
        self.into[item.storage_offsets[0]] = tensor
