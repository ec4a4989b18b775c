"""Configs are bound to what is written, cleaned of the machine, and refused where they would run code."""

import json
from typing import Any

import pytest

from replicate.errors import ConfigInvalid
from replicate.release.bundle import Kind
from replicate.release.configuring import Configured, adapter_config, main_dtype, model_config, other_config
from replicate.release.description import Adapter

BASE = Adapter(base_model="acme/base", base_revision="a" * 40, base_license="mit")


def full(document: dict[str, Any], *, model_class: str = "GPT2LMHeadModel", **elements: int) -> dict[str, Any]:
    data = json.dumps({"model_type": "gpt2", **document}).encode()
    made = model_config(data, kind=Kind.FULL, model_class=model_class, elements=elements or {"F32": 1})
    return json.loads(made.data)  # type: ignore[no-any-return]


def custom(document: dict[str, Any]) -> Configured:
    return model_config(json.dumps(document).encode(), kind=Kind.CUSTOM, model_class=None, elements={"BF16": 1})


def test_architecture_and_dtype_are_those_that_are_written() -> None:
    made = full({"dtype": "float32", "n_layer": 2}, BF16=1000, F32=16, I64=5000)

    assert made == {"architectures": ["GPT2LMHeadModel"], "dtype": "bfloat16", "model_type": "gpt2", "n_layer": 2}


def test_the_older_key_of_the_dtype_goes_and_parts_have_their_own() -> None:
    made = full({"torch_dtype": "float16", "text_config": {"torch_dtype": "float16"}, "vision_config": {"d": 1}})

    assert "torch_dtype" not in made
    assert (made["dtype"], made["text_config"], made["vision_config"]) == ("float32", {"dtype": "float32"}, {"d": 1})


def test_the_type_that_most_elements_have_is_the_dtype() -> None:
    assert main_dtype({"F32": 3, "F16": 4, "I64": 99}) == "float16"
    assert main_dtype({"F32": 4, "F16": 4}) == "float16"  # the same answer whatever comes first
    assert main_dtype({"I64": 4, "F8_E4M3": 3}) is None


def test_what_is_of_the_machine_is_taken_out_at_any_depth() -> None:
    made = full({
        "_name_or_path": "/home/me/run", "name_or_path": "x", "_commit_hash": "y", "cache_dir": "/tmp",
        "parts": [{"_name_or_path": "/mnt/z", "kept": 1}], "_sliding_window_pattern": 6,
    })  # fmt: skip

    assert "/" not in json.dumps(made)
    assert (made["parts"], made["_sliding_window_pattern"]) == ([{"kept": 1}], 6)


def test_a_config_of_another_class_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"architectures is \['BertModel'\], the description says GPT2LMHeadModel"):
        full({"architectures": ["BertModel"]})


@pytest.mark.parametrize(
    "document",
    [{"auto_map": {"AutoModel": "x.Y"}}, {"parts": [{"trust_remote_code": True}]}, {"custom_pipelines": {}}],
)
def test_what_makes_loaders_run_code_is_refused(document: dict[str, Any]) -> None:
    for make in (full, custom, lambda one: adapter_config(json.dumps({"peft_type": "LORA", **one}).encode(), BASE)):
        with pytest.raises(ConfigInvalid, match="it makes loaders run code of the repository"):
            make(document)
    with pytest.raises(ConfigInvalid, match=r"files\.generation_config: (auto_map|trust_remote_code|custom_pipelines)"):
        other_config(json.dumps(document).encode(), what="files.generation_config")


@pytest.mark.parametrize("key", ["model_type", "architectures"])
def test_a_custom_architecture_has_nothing_that_automodel_goes_by(key: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"{key}: AutoModel goes by it") as caught:
        custom({"width": 16, key: "llama"})

    assert f"decoder_{key}" in caught.value.hint


def test_a_custom_config_keeps_its_keys_and_only_a_dtype_that_it_has_is_set() -> None:
    assert json.loads(custom({"width": 16, "epsilon": 1e-05}).data) == {"width": 16, "epsilon": 1e-05}
    assert json.loads(custom({"dtype": "float32"}).data) == {"dtype": "bfloat16"}


def test_an_adapter_is_bound_to_the_base_that_is_declared() -> None:
    data = json.dumps({"peft_type": "LORA", "r": 2, "base_model_name_or_path": "/home/me/base", "revision": None})

    made = adapter_config(data.encode(), BASE)

    assert json.loads(made.data) == {
        "peft_type": "LORA", "r": 2, "base_model_name_or_path": "acme/base", "revision": "a" * 40,
        "inference_mode": True,
    }  # fmt: skip
    assert "files.adapter_config: base_model_name_or_path was set to acme/base" in made.notes
    with pytest.raises(ConfigInvalid, match="has no peft_type"):
        adapter_config(b"{}", BASE)


@pytest.mark.parametrize(
    "data", [b"[1]", b"{", b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xff", b'{"a": ' + b"[" * 100_000]
)
def test_what_is_no_config_is_refused_by_its_key(data: bytes) -> None:
    with pytest.raises(ConfigInvalid, match=r"^files\.config: "):
        model_config(data, kind=Kind.FULL, model_class="X", elements={})


def test_bytes_do_not_depend_on_the_order_of_keys() -> None:
    one = custom({"b": 1, "a": {"d": 1, "c": "ü"}})

    assert one.data == custom({"a": {"c": "ü", "d": 1}, "b": 1}).data
    assert one.data.endswith(b"}\n")
