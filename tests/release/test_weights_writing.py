"""Shards and index as loaders expect them: right sizes, one metadata key, the same bytes every time."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import load_torch_model
from safetensors.torch import load_file
from support.releases import Built, expected_of, logits

from replicate.errors import ConfigInvalid, LocalDisk
from replicate.formats.safetensors import read_header
from replicate.release.bundle import Kind
from replicate.release.description import Weights
from replicate.release.weights.dtypes import NAMED
from replicate.release.weights.exporting import open_export
from replicate.release.weights.plan import plan_transforms
from replicate.release.weights.reading import TorchStateDict, stored_tensor
from replicate.release.weights.writing import METADATA, Written, shard_bytes, write_weights

Tiny = Callable[[str], Built]


def state_of(values: Mapping[str, torch.Tensor]) -> TorchStateDict:
    return TorchStateDict(values=values, entries=tuple(stored_tensor(name, value) for name, value in values.items()))


def write(
    values: Mapping[str, torch.Tensor],
    folder: Path,
    weights: Mapping[str, Any] | None = None,
    *,
    kind: Kind = Kind.CUSTOM,
    size: str = "5GB",
) -> Written:
    folder.mkdir(exist_ok=True)
    state = state_of(values)
    plan = plan_transforms(state.entries, Weights.model_validate(weights or {}), kind=kind, expected=None)
    return write_weights(plan, state, folder, kind=kind, max_shard_size=size)


def test_one_file_has_the_plain_name_and_exactly_one_metadata_key(tmp_path: Path) -> None:
    written = write({"a": torch.ones(2, 3)}, tmp_path)

    assert (written.shards, written.index, written.total_size) == (("model.safetensors",), None, 24)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert read_header(tmp_path / "model.safetensors").metadata == (("format", "pt"),)
    assert METADATA == {"format": "pt"}


def test_shards_are_numbered_from_one_in_five_digits_and_the_index_maps_each_tensor(tmp_path: Path) -> None:
    values = {f"layer.{number}": torch.full((4,), float(number)) for number in range(5)}

    written = write(values, tmp_path, size="32B")

    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert list(written.shards) == names
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index == {
        "metadata": {"total_size": 80},
        "weight_map": {f"layer.{number}": names[number // 2] for number in range(5)},
    }
    assert {name for one in names for name in load_file(tmp_path / one)} == set(values)
    assert all(read_header(tmp_path / one).metadata == (("format", "pt"),) for one in names)


def test_total_size_counts_the_data_and_not_the_buffers_or_the_files(tmp_path: Path) -> None:
    large = torch.arange(32_005, dtype=torch.float32)
    values = {"view": large[5:30], "other": torch.ones(300, dtype=torch.int64)}

    write(values, tmp_path, size="200B")

    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 25 * 4 + 300 * 8}
    view = load_file(tmp_path / index["weight_map"]["view"])["view"]
    assert view.tolist() == [float(number) for number in range(5, 30)]


def test_views_of_one_buffer_and_tensors_that_are_not_contiguous_are_written_as_they_read(tmp_path: Path) -> None:
    buffer = torch.arange(24, dtype=torch.float32)
    values = {"q": buffer[:12].view(3, 4), "k": buffer[12:].view(4, 3).t(), "w": torch.arange(6).reshape(2, 3).t()}

    write(values, tmp_path)

    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in values.items())
    assert all(value.is_contiguous() for value in found.values())


def test_every_type_that_can_be_written_comes_back_bit_for_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    raw = torch.randint(0, 2, (64,), generator=generator, dtype=torch.uint8)
    values = {str(dtype): raw.clone().view(dtype) if dtype is not torch.bool else raw.bool() for dtype in NAMED}

    write(values, tmp_path)

    found = load_file(tmp_path / "model.safetensors")
    assert {name: value.dtype for name, value in found.items()} == {name: one.dtype for name, one in values.items()}
    assert all(torch.equal(found[name].view(torch.uint8), one.view(torch.uint8)) for name, one in values.items())


def test_scalars_and_empty_tensors_are_written(tmp_path: Path) -> None:
    values = {"step": torch.tensor(3), "none": torch.empty(0, 4)}

    write(values, tmp_path)

    found = load_file(tmp_path / "model.safetensors")
    assert (found["step"].item(), tuple(found["none"].shape)) == (3, (0, 4))


def test_the_order_of_the_state_dict_does_not_matter_to_the_bytes(tmp_path: Path) -> None:
    values = {f"n{number}": torch.full((3,), float(number)) for number in range(9)}
    turned = dict(reversed(values.items()))

    written = write(values, tmp_path / "one", size="24B")
    write(turned, tmp_path / "two", size="24B")

    for name in (*written.shards, written.index):
        assert name is not None
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_dropped_names_of_ties_stand_in_no_file_and_no_index(tmp_path: Path) -> None:
    embed = torch.ones(4, 4)
    values = {"z.embed": embed, "a.head": embed, "b": torch.ones(4, 4)}

    written = write(values, tmp_path, {"tied": [{"keep": "z.embed", "drop": ["a.head"]}]}, size="70B")

    assert len(written.shards) == 2
    assert all(b"a.head" not in path.read_bytes() for path in tmp_path.iterdir())


def test_declared_ties_whose_bytes_differ_are_refused_and_equal_copies_are_not(tmp_path: Path) -> None:
    tied = {"tied": [{"keep": "embed", "drop": ["head"]}]}
    embed = torch.ones(2, 2)

    write({"embed": embed, "head": embed.clone()}, tmp_path / "equal", tied)
    with pytest.raises(ConfigInvalid, match="head and embed are declared as tied, and their bytes differ"):
        write({"embed": embed, "head": torch.tensor([[1.0, 1.0], [1.0, 1.5]])}, tmp_path / "unequal", tied)

    assert list((tmp_path / "unequal").iterdir()) == []


def test_a_cast_is_written_and_its_error_returned_by_name(tmp_path: Path) -> None:
    values = {"module.a": torch.tensor([50257.0]), "module.ids": torch.tensor([50257])}

    written = write(values, tmp_path, {"cast": {"dtype": "bfloat16", "allow": ["*"]}})

    found = load_file(tmp_path / "model.safetensors")
    assert (found["a"].dtype, found["a"].item()) == (torch.bfloat16, 50176.0)
    assert (found["ids"].dtype, found["ids"].item()) == (torch.int64, 50257)
    assert written.errors["a"].max_abs == "81"
    assert set(written.errors) == {"a"}


def test_a_value_of_bfloat16_that_float16_cannot_hold_stops_the_export(tmp_path: Path) -> None:
    values = {"a": torch.tensor([1.0]), "b": torch.tensor([70000.0], dtype=torch.bfloat16)}

    with pytest.raises(ConfigInvalid, match=r"weights\.cast: b: 70144 is finite and does not fit F16"):
        write(values, tmp_path, {"cast": {"dtype": "float16", "allow": ["*"]}})


def test_an_adapter_is_one_file_of_its_own_name(tmp_path: Path) -> None:
    values = {f"base_model.model.{part}.lora_A.default.weight": torch.ones(4) for part in "qk"}

    written = write(values, tmp_path, kind=Kind.ADAPTER)

    assert written.shards == ("adapter_model.safetensors",)
    with pytest.raises(ConfigInvalid, match=r"weights\.max_shard_size: 20B divides the adapter") as caught:
        write(values, tmp_path / "small", kind=Kind.ADAPTER, size="20B")
    assert caught.value.hint == "raise it above 32 bytes"


@pytest.mark.parametrize(
    ("text", "count"), [("1B", 1), ("30KB", 30_000), ("5MB", 5_000_000), ("5GB", 5 * 10**9), ("2TB", 2 * 10**12)]
)
def test_sizes_are_decimal(text: str, count: int) -> None:
    assert shard_bytes(text) == count


def test_a_disk_that_fills_while_a_shard_is_written_is_told(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with pytest.raises(LocalDisk, match=r"model\.safetensors"):
            write({"a": torch.ones(10_000)}, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["gpt2", "llama", "moe", "custom"])
def test_the_hubs_own_loader_takes_it_and_the_logits_are_the_same(tiny: Tiny, tmp_path: Path, name: str) -> None:
    built = tiny(name)
    fresh: Any = built.fresh_model()
    export = open_export(built.source(), built.described())
    export.write(export.plan(expected_of(built)), tmp_path)

    tied = built.name == "tiny-gpt2"
    result: Any = load_torch_model(fresh, tmp_path, strict=not tied)

    assert result.unexpected_keys == []
    assert result.missing_keys == (["lm_head.weight"] if tied else [])
    if tied:
        fresh.tie_weights()
    assert torch.equal(logits(fresh), built.logits())


MEMORY = """
import resource, sys
from pathlib import Path
import torch
from replicate.release.bundle import Kind
from replicate.release.description import Weights
from replicate.release.weights import casting
from replicate.release.weights.plan import plan_transforms
from replicate.release.weights.reading import TorchStateDict, stored_tensor
from replicate.release.weights.writing import write_weights

folder = Path(sys.argv[1])
torch.set_num_threads(1)
casting._ELEMENTS = 1 << 16  # what measuring takes is bounded apart
values = torch.load(folder / "m.pt", weights_only=True, map_location="cpu", mmap=True)
state = TorchStateDict(values=values, entries=tuple(stored_tensor(name, one) for name, one in values.items()))
cast = {"cast": {"dtype": "bfloat16", "allow": ["*"]}}
plan = plan_transforms(state.entries, Weights.model_validate(cast), kind=Kind.CUSTOM, expected=None)

def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) * 1024

highest, before = 0, anonymous()
import replicate.release.weights.writing as writing
inner = writing.save_file
def watching(*arguments, **options):
    global highest
    highest = max(highest, anonymous())
    return inner(*arguments, **options)
writing.save_file = watching
(folder / "out").mkdir()
written = write_weights(plan, state, folder / "out", kind=Kind.CUSTOM, max_shard_size="16MB")
print(len(written.shards), highest - before)
"""


def test_memory_is_that_of_a_shard_and_not_of_the_model(tmp_path: Path) -> None:
    torch.save({f"w{number}": torch.ones(1 << 22) for number in range(8)}, tmp_path / "m.pt")  # 128 MiB

    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )

    shards, used = map(int, done.stdout.split())
    assert shards == 8
    assert used < 32 * 1024 * 1024  # a shard of 8 MiB, and what allocators keep
