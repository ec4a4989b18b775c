"""Wrapper parts and adapters' names: taken away at any depth and in any order, never guessed at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicate.errors import ConfigInvalid
from replicate.release.description import Rename
from replicate.release.weights import adapters
from replicate.release.weights.naming import WRAPPERS, bare, renamed, unwrapped


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a.weight", "a.weight"),
        ("_orig_mod.a", "a"),
        ("module.a", "a"),
        ("module._orig_mod.a", "a"),
        ("_orig_mod.module.a", "a"),
        ("module.module.a", "a"),
        ("_orig_mod._orig_mod._orig_mod.a", "a"),
        ("c._orig_mod.d", "c.d"),
        ("_fsdp_wrapped_module.layers.0._checkpoint_wrapped_module.mlp.w", "layers.0.mlp.w"),
        ("module._fsdp_wrapped_module._orig_mod.h.3._fsdp_wrapped_module._orig_mod.b", "h.3.b"),
        ("encoder.module.decoder.module.w", "encoder.decoder.w"),
        ("orig_mod.a", "orig_mod.a"),
        ("submodule.a", "submodule.a"),
    ],
)
def test_every_wrapper_part_goes(name: str, plain: str) -> None:
    assert unwrapped([name]) == {name: plain}
    assert bare(name) == plain


def test_case_96_all_wrapper_parts_are_removed_at_any_depth_and_order() -> None:
    names = ["_orig_mod.a", "module._orig_mod.b", "c._orig_mod.d"]

    assert list(unwrapped(names).values()) == ["a", "b", "c.d"]


PARTS = st.sampled_from(["layers", "0", "attn", "weight", "orig_mod", "modules", "mod"])
WRAPPED = st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=4)


@given(
    names=st.lists(st.lists(PARTS, min_size=1, max_size=5).map(".".join), min_size=1, max_size=8, unique=True),
    around=WRAPPED,
    inside=st.dictionaries(PARTS, WRAPPED, max_size=4),
)
def test_whatever_wraps_a_model_and_its_parts_the_names_come_back(
    names: list[str], around: list[str], inside: dict[str, list[str]]
) -> None:
    """Every module of one name is wrapped alike, as wrapping by class does."""

    def wrapped(name: str) -> str:
        *parents, last = name.split(".")
        parts = list(around)
        for parent in parents:
            parts += [parent, *inside.get(parent, [])]
        return ".".join([*parts, last])

    tensors = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]

    assert list(unwrapped([wrapped(name) for name in tensors]).values()) == tensors


def test_a_tensor_that_is_called_module_keeps_its_name() -> None:
    assert unwrapped(["module.gate.module", "module.gate.weight"]) == {
        "module.gate.module": "gate.module",
        "module.gate.weight": "gate.weight",
    }


def test_a_child_called_module_beside_other_tensors_is_not_eaten_silently() -> None:
    with pytest.raises(ConfigInvalid, match=r"encoder\.module\.weight may be a wrapper or part of the name") as caught:
        unwrapped(["encoder.module.weight", "encoder.scale"])

    assert "weights.rename" in caught.value.hint


def test_a_rename_says_what_module_is() -> None:
    names = ["module.encoder.module.weight", "module.encoder.scale"]
    kept = (Rename(prefix="encoder.module.", to="encoder.module."),)
    away = (Rename(prefix="encoder.module.", to="encoder."),)

    assert [renamed(one, kept) for one in unwrapped(names, renames=kept).values()] == [
        "encoder.module.weight",
        "encoder.scale",
    ]
    assert [renamed(one, away) for one in unwrapped(names, renames=away).values()] == [
        "encoder.weight",
        "encoder.scale",
    ]


def test_where_the_architecture_is_known_its_names_decide() -> None:
    known = {"encoder.module.weight", "encoder.scale", "head.weight"}
    names = ["module._orig_mod.encoder.module.weight", "module._orig_mod.encoder.scale", "module.head.module.weight"]

    assert list(unwrapped(names, known=known).values()) == ["encoder.module.weight", "encoder.scale", "head.weight"]


def test_names_of_the_architecture_are_those_after_renames() -> None:
    renames = (Rename(prefix="net.", to="model."),)

    found = unwrapped(
        ["module.net.module.w", "module.net.b"],
        known={"model.module.w", "model.b"},
        named=lambda name: renamed(name, renames),
    )

    assert list(found.values()) == ["net.module.w", "net.b"]


def test_renames_are_done_in_order_each_once() -> None:
    renames = (Rename(prefix="a.", to="b."), Rename(prefix="b.", to="c."), Rename(prefix="a.", to="x."))

    assert renamed("a.w", renames) == "c.w"
    assert renamed("b.w", renames) == "c.w"
    assert renamed("d.a.w", renames) == "d.a.w"


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("base_model.model.q.lora_A.default.weight", "base_model.model.q.lora_A.weight"),
        ("base_model.model.q.lora_A.weight", "base_model.model.q.lora_A.weight"),
        ("base_model.model.e.lora_embedding_A.default", "base_model.model.e.lora_embedding_A"),
        ("base_model.model.head.modules_to_save.default.weight", "base_model.model.head.weight"),
        ("base_model.model.k.ia3_l.default", "base_model.model.k.ia3_l"),
    ],
)
def test_an_adapters_own_name_goes_as_in_what_peft_saves(name: str, saved: str) -> None:
    assert adapters.as_saved([name]) == {name: saved}


def test_two_adapters_in_one_source_are_refused_with_both_names() -> None:
    names = ["base_model.model.q.lora_A.first.weight", "base_model.model.q.lora_A.second.weight"]

    with pytest.raises(ConfigInvalid, match="2 adapters: first, second") as caught:
        adapters.as_saved(names)

    assert "*.second.*" in caught.value.hint


def test_weights_of_the_base_are_no_adapter() -> None:
    with pytest.raises(ConfigInvalid, match=r"q\.base_layer\.weight belong to the base model"):
        adapters.as_saved(["base_model.model.q.base_layer.weight", "base_model.model.q.lora_A.default.weight"])
    with pytest.raises(ConfigInvalid, match=r"q\.lora_A\.weight: an adapter's tensors are called base_model\.model"):
        adapters.as_saved(["q.lora_A.weight"])
