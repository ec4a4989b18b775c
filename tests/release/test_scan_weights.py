"""Weights: containers that are whole and agree with their index, tensors that are what they should be."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from release.scan_stage import Content, Stage, bf16, found, normal, only, safetensors_bytes

from replicate.release.expected import Expected
from replicate.release.findings import Rule

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
EXPECTED = Expected(
    shapes={
        "model.embed_tokens.weight": (40, 8),
        "lm_head.weight": (40, 8),
        "model.layers.0.input_layernorm.weight": (8,),
        "model.layers.0.self_attn.q_proj.weight": (8, 8),
        "model.layers.0.self_attn.q_proj.bias": (8,),
        "model.layers.0.mlp.up_proj.weight": (16, 8),
        "model.norm.weight": (8,),
        "model.positions": (8,),
    },
    tied=(("model.embed_tokens.weight", ("lm_head.weight",)),),
)


def index_of(stage: Stage) -> dict[str, Any]:
    """Return the index that the stage would write."""
    stage.write()
    document: dict[str, Any] = json.loads((stage.tree / INDEX).read_bytes())
    return document


def put_index(stage: Stage, document: object) -> None:
    stage.files[INDEX] = json.dumps(document).encode()


def test_the_architecture_agrees(tmp_path: Path) -> None:
    assert Stage(tmp_path).scan(expected=EXPECTED).blocking == ()


def test_what_the_architecture_has_not_and_what_it_misses(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    shard = stage.shards[SECOND]
    shard["model.surprise"] = normal(7, 3)
    shard["model.norm.weight"] = normal(4, 9)
    del shard["model.layers.0.mlp.up_proj.weight"]
    assert found(stage.scan(expected=EXPECTED)) == {
        (Rule.TENSOR_UNKNOWN.value, SECOND, "model.surprise"),
        (Rule.TENSOR_SHAPE.value, SECOND, "model.norm.weight"),
        (Rule.TENSOR_MISSING.value, FIRST, "model.layers.0.mlp.up_proj.weight"),
    }


def test_the_wrong_name_of_a_tied_tensor_was_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    shard = stage.shards[FIRST]
    shard["lm_head.weight"] = shard.pop("model.embed_tokens.weight")
    assert found(stage.scan(expected=EXPECTED)) == {
        (Rule.TENSOR_MISSING.value, FIRST, "model.embed_tokens.weight"),
    }


def test_both_names_of_a_tied_tensor_were_written(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    shard = stage.shards[FIRST]
    shard["lm_head.weight"] = shard["model.embed_tokens.weight"]
    assert only(stage.scan(expected=EXPECTED)).rule is Rule.TENSOR_DUPLICATE


@pytest.mark.parametrize(
    "name",
    [
        "state.0.exp_avg", "optimizer.state.0.step", "model.exp_avg_sq", "momentum_buffer", "fp32_groups.0",
        "rng_state", "model.layers.0.master_weights.0", "lr_scheduler.last",
    ],
)  # fmt: skip
def test_names_of_optimizers_are_training_state(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND][name] = normal(9, 4)
    assert (Rule.TRAINING_STATE.value, SECOND, name) in found(stage.scan())


@pytest.mark.parametrize(
    "name", ["model.num_batches_tracked", "bn.running_mean", "model.step_embedding.weight", "moments.mlp.bias"]
)
def test_names_of_models_are_not(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND][name] = normal(9, 4)
    assert stage.scan().blocking == ()


@pytest.mark.parametrize(
    "name", ["_orig_mod.model.x", "module.model.x", "model._fsdp_wrapped_module.x", "a.lora_A.weight"]
)
def test_parts_of_wrappers_are_left(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND][name] = normal(9, 4)
    assert found(stage.scan()) == {(Rule.TENSOR_UNKNOWN.value, SECOND, name)}


def test_dtypes_are_those_of_the_cast(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.description["weights"]["cast"] = {"dtype": "bfloat16", "allow": ["model.*"], "keep": ["*.up_proj.*"]}
    stage.shards[SECOND]["model.layers.0.mlp.up_proj.weight"] = normal(3, 16, 8)
    assert found(stage.scan()) == {(Rule.TENSOR_DTYPE.value, SECOND, "model.norm.weight")}


def test_the_config_says_the_dtype_of_the_weights(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.edit("config.json", dtype="float16")
    assert only(stage.scan()).detail.endswith("most of the floating weights are BF16")


FLOATS: dict[str, tuple[type[np.generic], int, list[int]]] = {
    "F16": (np.uint16, 0x3C00, [0x7C00, 0xFC00, 0x7E01]),
    "BF16": (np.uint16, 0x3F80, [0x7F80, 0xFF80, 0x7FC0]),
    "F32": (np.uint32, 0x3F80_0000, [0x7F80_0000, 0xFF80_0000, 0x7FC0_0000]),
    "F64": (np.uint64, 0x3FF0_0000_0000_0000, [0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000]),
    "F8_E4M3": (np.uint8, 0x38, [0x7F, 0xFF]),
    "F8_E5M2": (np.uint8, 0x3C, [0x7C, 0xFC, 0x7D]),
    "F8_E8M0": (np.uint8, 0x7F, [0xFF]),
    "F8_E4M3FNUZ": (np.uint8, 0x40, [0x80]),
    "F8_E5M2FNUZ": (np.uint8, 0x40, [0x80]),
}


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_nan_and_infinity_are_found_in_every_dtype(tmp_path: Path, dtype: str) -> None:
    item, one, bad = FLOATS[dtype]
    for number, pattern in enumerate([one, *bad]):
        stage = Stage(tmp_path / str(number))
        values = np.array([one, one, 0, pattern], dtype=item)
        stage.shards[SECOND]["scale"] = (dtype, (4,), values.tobytes())
        wanted = set() if pattern == one else {(Rule.TENSOR_NOT_FINITE.value, SECOND, "scale")}
        assert found(stage.scan()) == wanted, hex(pattern)


def test_the_greatest_finite_values_are_finite(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND]["e4m3"] = ("F8_E4M3", (3,), bytes([0x7E, 0xFE, 0x00]))
    stage.shards[SECOND]["e5m2"] = ("F8_E5M2", (3,), bytes([0x7B, 0xFB, 0x01]))
    stage.shards[SECOND]["f32"] = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max], np.float32)
    assert stage.scan().blocking == ()


def test_a_value_in_the_last_piece_of_a_long_tensor_is_found(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    values = normal(11, 3 * 1024 * 1024)  # 12 MiB: more than one piece
    values[-1] = np.nan
    stage.shards[SECOND]["long"] = values
    stage.edit("config.json", dtype="float32")
    assert only(stage.scan()).detail == f"1 of {values.size} elements are NaN or infinite"


CONSTANTS: list[tuple[str, Content, bool]] = [
    ("zeros.weight", np.zeros((4, 4), np.float32), True),
    ("ones.weight", bf16(np.ones((4, 4), np.float32)), True),
    ("norm.weight", np.ones(16, np.float32), False),
    ("some.bias", np.zeros(16, np.float32), False),
    ("single.weight", np.ones((1, 1), np.float32), False),
    ("zero_points", np.zeros((4, 4), np.int64), False),
    ("scalar", np.ones((), np.float32), False),
    ("empty", np.zeros((0, 4), np.float32), False),
]


@pytest.mark.parametrize(("name", "content", "flagged"), CONSTANTS, ids=[name for name, _, _ in CONSTANTS])
def test_constant_tensors(tmp_path: Path, name: str, content: Content, flagged: bool) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND][name] = content
    assert found(stage.scan()) == ({(Rule.TENSOR_CONSTANT.value, SECOND, name)} if flagged else set())


def test_an_untrained_adapter_is_told_as_one(tmp_path: Path) -> None:
    stage = Stage.adapter(tmp_path)
    name = next(name for name in stage.shards["adapter_model.safetensors"] if "lora_B" in name)
    stage.shards["adapter_model.safetensors"][name] = np.zeros((8, 2), np.float32)
    assert "never trained" in only(stage.scan()).detail


def test_an_adapter_with_a_weight_of_its_base_and_a_name_that_loaders_ignore(tmp_path: Path) -> None:
    stage = Stage.adapter(tmp_path)
    shard = stage.shards["adapter_model.safetensors"]
    shard["base_model.model.model.q_proj.base_layer.weight"] = normal(8, 4, 4)
    shard["model.layers.0.self_attn.v_proj.lora_A.weight"] = normal(9, 2, 8)
    assert {place for _, _, place in found(stage.scan(), Rule.TENSOR_UNKNOWN)} == {
        "base_model.model.model.q_proj.base_layer.weight",
        "model.layers.0.self_attn.v_proj.lora_A.weight",
    }


def test_an_adapter_released_as_a_full_model(tmp_path: Path) -> None:
    stage = Stage.adapter(tmp_path)
    stage.shards = {"model.safetensors": stage.shards["adapter_model.safetensors"]}
    assert (Rule.FILE_NOT_ALLOWED.value, "model.safetensors", "") in found(stage.scan())


def test_copies_are_found_across_shards_and_not_among_norms(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND]["copy"] = stage.shards[FIRST]["model.layers.0.self_attn.q_proj.weight"]
    stage.shards[SECOND]["rotary.inv_freq"] = normal(12, 4)
    stage.shards[FIRST]["rotary2.inv_freq"] = normal(12, 4)
    finding = only(stage.scan())
    assert (finding.rule, finding.place) == (Rule.TENSOR_DUPLICATE, "copy")
    assert "model.layers.0.self_attn.q_proj.weight" in finding.detail


def _stale(stage: Stage, index: dict[str, Any]) -> str:
    index["weight_map"]["gone.weight"] = FIRST
    return "gone.weight"


def _unlisted(stage: Stage, index: dict[str, Any]) -> str:
    del index["weight_map"]["model.norm.weight"]
    return "model.norm.weight"


def _elsewhere(stage: Stage, index: dict[str, Any]) -> str:
    index["weight_map"]["model.norm.weight"] = FIRST
    return "model.norm.weight"


def _outside(stage: Stage, index: dict[str, Any]) -> str:
    index["weight_map"]["model.norm.weight"] = f"../{SECOND}"
    return "model.norm.weight"


def _total(stage: Stage, index: dict[str, Any]) -> str:
    index["metadata"]["total_size"] += 1
    return "metadata/total_size"


@pytest.mark.parametrize("change", [_stale, _unlisted, _elsewhere, _outside, _total])
def test_the_index_is_true_both_ways(tmp_path: Path, change: Callable[[Stage, dict[str, Any]], str]) -> None:
    stage = Stage(tmp_path)
    index = index_of(stage)
    place = change(stage, index)
    put_index(stage, index)
    assert found(stage.scan()) == {(Rule.CONTAINER.value, INDEX, place)}


@pytest.mark.parametrize("index", [[], {}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_an_index_that_is_none(tmp_path: Path, index: object) -> None:
    stage = Stage(tmp_path)
    put_index(stage, index)
    assert (Rule.CONTAINER.value, INDEX, "weight_map") in found(stage.scan())


def test_an_index_without_shards_and_shards_without_an_index(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "one")
    stage.shards = {"model.safetensors": {**stage.shards[FIRST], **stage.shards[SECOND]}}
    put_index(stage, {"metadata": {"total_size": 0}, "weight_map": {}})
    assert (Rule.CONTAINER.value, INDEX, "") in found(stage.scan())
    stage = Stage(tmp_path / "two")
    stage.write()
    (stage.tree / INDEX).unlink()
    assert (Rule.CONTAINER.value, INDEX, "") in found(stage.scan(write=False))


def test_numbering_is_complete(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards["model-00003-of-00004.safetensors"] = stage.shards.pop(SECOND)
    paths = {path for rule, path, place in found(stage.scan()) if rule == Rule.CONTAINER and not place}
    assert paths == {FIRST, "model-00001-of-00004.safetensors", SECOND}


def test_a_number_beyond_the_count(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards["model-00003-of-00002.safetensors"] = {"late": normal(5, 3)}
    assert (Rule.CONTAINER.value, "model-00003-of-00002.safetensors", "") in found(stage.scan())


def test_a_single_file_beside_shards(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards["model.safetensors"] = {"late": normal(5, 3)}
    assert (Rule.CONTAINER.value, "model.safetensors", "") in found(stage.scan())


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND]["model.embed_tokens.weight"] = stage.shards[FIRST]["model.embed_tokens.weight"]
    assert (Rule.CONTAINER.value, SECOND, "model.embed_tokens.weight") in found(stage.scan())


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    (stage.tree / SECOND).unlink()
    report = stage.scan(write=False, manifest=manifest)
    assert (Rule.CONTAINER.value, SECOND, "") in found(report)
    assert (Rule.CONTAINER.value, INDEX, "model.norm.weight") in found(report)


def test_no_weights_at_all(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards = {}
    assert (Rule.CONTAINER.value, ".", "") in found(stage.scan())


@pytest.mark.parametrize("metadata", [{}, {"format": "np"}, {"format": "pt", "step": "4"}])
def test_metadata_is_exactly_the_format(tmp_path: Path, metadata: dict[str, str]) -> None:
    stage = Stage(tmp_path, metadata=metadata)
    assert found(stage.scan()) == {(Rule.METADATA.value, name, "__metadata__") for name in (FIRST, SECOND)}


def test_bytes_that_are_not_those_of_the_manifest(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    shard = stage.tree / SECOND
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    report = stage.scan(write=False, manifest=manifest)
    assert found(report) == {(Rule.CONTAINER.value, SECOND, "model.positions")}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: struct.pack("<Q", 10 * 1024**3) + data[8:],
        lambda data: b"",
        lambda data: struct.pack("<Q", 4) + b"\xff\xff\xff\xff" + data[12:],
        lambda data: safetensors_bytes({"a": ("F32", (3,), b"\0" * 8)}),
    ],
    ids=["truncated", "longer", "ten gigabytes of header", "empty", "no text", "a wrong size"],
)
def test_a_damaged_container(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    stage = Stage(tmp_path)
    manifest = stage.write()
    shard = stage.tree / SECOND
    shard.write_bytes(damage(shard.read_bytes()))
    report = stage.scan(write=False, manifest=manifest)
    assert any(one.path == SECOND and not one.place for one in report.blocking if one.rule is Rule.CONTAINER)


def test_a_pickle_inside_a_tensor_of_bytes(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shards[SECOND]["blob"] = np.frombuffer(b"\x80\x04\x95" + bytes(20), np.uint8)
    assert found(stage.scan()) == {(Rule.PICKLE.value, SECOND, "blob")}
