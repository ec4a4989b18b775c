"""What becomes of each entry is decided from names and types alone, and what is not understood is refused by name."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from replicate.errors import ConfigInvalid
from replicate.release.bundle import Action, Kind
from replicate.release.description import Weights
from replicate.release.expected import Expected
from replicate.release.weights.plan import CastError, TransformPlan, plan_transforms, released_names
from replicate.release.weights.stored import StoredTensor


def stored(name: str, dtype: str = "F32", shape: tuple[int, ...] = (2, 3), **place: Any) -> StoredTensor:
    """Describe a contiguous tensor; each has a buffer of its own unless ``storage`` says otherwise."""
    strides = tuple(int(one) for one in _strides(shape))
    return StoredTensor(
        name=name, dtype=dtype, shape=shape, **{"storage": abs(hash(name)) + 1, "strides": strides, **place}
    )


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides = [1]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * length)
    return strides if shape else []


def plan(
    *entries: StoredTensor,
    kind: Kind = Kind.FULL,
    expected: Expected | None = None,
    weights: Mapping[str, Any] | None = None,
) -> TransformPlan:
    return plan_transforms(entries, Weights.model_validate(weights or {}), kind=kind, expected=expected)


def refusal(*entries: StoredTensor, **options: Any) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        plan(*entries, **options)
    return caught.value


def architecture(*tied: tuple[str, tuple[str, ...]], **shapes: tuple[int, ...]) -> Expected:
    return Expected(shapes={name.replace("__", "."): shape for name, shape in shapes.items()}, tied=tied)


def test_entries_are_sorted_by_released_name_and_keep_their_types() -> None:
    made = plan(stored("module.b", "I64"), stored("module.a", "BOOL", (4,)))

    assert [(one.source, one.target, one.from_dtype, one.to_dtype) for one in made.tensors] == [
        ("module.a", "a", "BOOL", "BOOL"),
        ("module.b", "b", "I64", "I64"),
    ]
    assert {one.reason for one in made.tensors} == {"wrapper parts taken away"}


def test_case_96_names_that_collide_once_stripped_are_refused_with_both() -> None:
    error = refusal(stored("_orig_mod.a.weight"), stored("module._orig_mod.a.weight"))

    assert error.message == (
        "weights: _orig_mod.a.weight and module._orig_mod.a.weight would both be released as a.weight"
    )
    assert "weights.omit" in error.hint


def test_case_96_unknown_and_missing_names_are_told_against_the_architecture() -> None:
    error = refusal(stored("_orig_mod.a"), stored("x"), expected=architecture(a=(2, 3), b=(2, 3), c=(1,)))

    assert "1 unknown to it: x" in error.message
    assert "2 missing: b, c" in error.message


def test_a_shape_that_the_architecture_does_not_have_is_refused() -> None:
    error = refusal(stored("a", shape=(2, 4)), expected=architecture(a=(2, 3)))

    assert "a has shape [2, 4] where [2, 3] is due" in error.message


def test_what_is_omitted_is_recorded_with_the_pattern() -> None:
    made = plan(stored("module.a"), stored("module.n_averaged", "I64", ()), weights={"omit": ["n_aver*"]})

    assert made.omitted == (("module.n_averaged", "n_aver*"),)
    (_, omitted) = made.transforms({})
    assert (omitted.action, omitted.target, omitted.reason) == (Action.OMITTED, None, "weights.omit: n_aver*")


def test_averaged_weights_lose_their_prefix_once_the_counter_is_left_out() -> None:
    entries = (stored("module.a"), stored("n_averaged", "I64", ()))

    assert plan(*entries, weights={"omit": ["n_averaged"]}).tensors[0].target == "a"
    assert "module" in refusal(*entries).message


@pytest.mark.parametrize(
    ("weights", "names"),
    [
        ({"omit": ["nothing.*"]}, "weights.omit: 'nothing.*'"),
        ({"rename": [{"prefix": "x.", "to": "y."}]}, "weights.rename.0.prefix: no name starts with 'x.'"),
        ({"cast": {"dtype": "float16", "allow": ["b.*"]}}, "weights.cast.allow: 'b.*': no such name"),
        ({"cast": {"dtype": "float16", "allow": ["a"], "keep": ["c"]}}, "weights.cast.keep: 'c'"),
    ],
)
def test_a_rule_that_meets_nothing_is_an_error(weights: dict[str, Any], names: str) -> None:
    assert names in refusal(stored("a"), weights=weights).message


def test_entries_that_are_no_tensors_are_refused_unless_left_out() -> None:
    number = StoredTensor(name="step", unfit="a int, no tensor")

    error = refusal(stored("a"), number)

    assert error.message.startswith("source.entries: step is a int, no tensor, which cannot be released")
    assert [one.target for one in plan(stored("a"), number, weights={"omit": ["step"]}).tensors] == ["a"]


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.state.0.exp_avg",
        "state.3.exp_avg_sq",
        "a.momentum_buffer",
        "master.a.weight",
        "fp32_master.a",
        "rng_state",
        "module.optim_state.a",
    ],
)
def test_a_trainings_own_state_is_refused(name: str) -> None:
    assert name in refusal(stored("a.weight"), stored(name), weights={}).message


def test_an_architecture_that_has_such_a_name_is_believed() -> None:
    made = plan(stored("momentum"), expected=architecture(momentum=(2, 3)))

    assert made.tensors[0].target == "momentum"


def test_a_rename_that_puts_a_wrapper_part_in_is_refused() -> None:
    error = refusal(stored("a.w"), weights={"rename": [{"prefix": "a.", "to": "_orig_mod.a."}]})

    assert "'_orig_mod.a.w' still has _orig_mod in it" in error.message
    assert "has an empty part" in refusal(stored("a.w"), weights={"rename": [{"prefix": "a.", "to": "."}]}).message


def test_the_adapter_of_a_model_is_not_released_as_a_whole_model() -> None:
    lora = stored("base_model.model.q.lora_A.default.weight")

    assert "kind:" in refusal(lora).message
    assert 'kind = "adapter"' in refusal(stored("q.base_layer.weight")).hint
    assert plan(lora, kind=Kind.ADAPTER).tensors[0].target == "base_model.model.q.lora_A.weight"


def test_an_adapters_base_says_what_module_is() -> None:
    names = ("base_model.model.enc.module.q.lora_A.default.weight", "base_model.model.module.k.lora_A.default.weight")
    known = Expected(
        shapes={"base_model.model.enc.module.q.lora_A.weight": (2, 3), "base_model.model.k.lora_A.weight": (2, 3)}
    )

    made = plan(*map(stored, names), kind=Kind.ADAPTER, expected=known)

    assert {one.target for one in made.tensors} == set(known.shapes)


def test_an_architecture_with_low_rank_parts_of_its_own_is_believed() -> None:
    made = plan(stored("q.lora_A"), kind=Kind.CUSTOM, expected=architecture(q__lora_A=(2, 3)))

    assert made.tensors[0].target == "q.lora_A"


def test_the_names_of_a_release_are_told_without_its_architecture() -> None:
    entries = (stored("module.a"), stored("module.skip"), StoredTensor(name="n", unfit="a number"))

    weights = Weights.model_validate({"omit": ["skip", "n"], "rename": [{"prefix": "a", "to": "b"}]})

    assert released_names(entries, weights, Kind.FULL) == {"b"}


# --- ties


TIE = {"tied": [{"keep": "embed", "drop": ["head"]}]}


def test_a_declared_tie_that_shares_is_an_alias_and_needs_no_comparison() -> None:
    made = plan(stored("embed", storage=1), stored("head", storage=1), weights=TIE)

    assert [one.target for one in made.tensors] == ["embed"]
    (alias,) = made.aliases
    assert (alias.target, alias.of, alias.shared) == ("head", "embed", True)
    transforms = {one.source: one for one in made.transforms({})}
    assert (transforms["head"].action, transforms["head"].of) == (Action.ALIAS, "embed")


def test_a_declared_tie_that_does_not_share_has_to_be_compared() -> None:
    (alias,) = plan(stored("embed", storage=1), stored("head", storage=2), weights=TIE).aliases

    assert not alias.shared


def test_sharing_that_is_not_declared_is_refused_with_both_names() -> None:
    error = refusal(stored("embed", storage=1), stored("head", storage=1))

    assert "embed and head are one tensor in the source, and are not declared as tied" in error.message
    assert 'keep = "embed", drop = ["head"]' in error.hint


def test_tensors_that_overlap_are_refused_and_disjoint_views_are_not() -> None:
    whole = stored("qkv", shape=(4, 3), storage=1)
    part = stored("q", shape=(2, 3), storage=1)
    rest = stored("k", shape=(2, 3), storage=1, offset=24)

    assert "q and qkv overlap in the source" in refusal(whole, part).message
    assert [one.target for one in plan(part, rest).tensors] == ["k", "q"]


def test_columns_that_interleave_in_one_buffer_are_two_tensors() -> None:
    left = stored("left", shape=(2, 1), storage=1, strides=(2, 1))
    right = stored("right", shape=(2, 1), storage=1, strides=(2, 1), offset=4)

    assert len(plan(left, right).tensors) == 2


def test_the_wrong_one_of_a_tie_kept_is_refused() -> None:
    entries = (stored("embed", storage=1), stored("head", storage=1))
    known = architecture(("embed", ("head",)), embed=(2, 3), head=(2, 3))

    error = refusal(*entries, expected=known, weights={"tied": [{"keep": "head", "drop": ["embed"]}]})

    assert "the model class does not tie embed: loaders would leave it random" in error.message
    assert plan(*entries, expected=known, weights=TIE).aliases[0].target == "head"


def test_a_tie_to_another_tensor_than_the_class_has_is_refused() -> None:
    entries = (stored("embed", storage=1), stored("head", storage=2), stored("other", storage=2))
    known = architecture(("embed", ("head",)), embed=(2, 3), head=(2, 3), other=(2, 3))

    error = refusal(*entries, expected=known, weights={"tied": [{"keep": "other", "drop": ["head"]}]})

    assert "other is kept for head, the model class makes it from embed" in error.message
    assert error.hint == 'say keep = "embed"'


def test_a_tie_of_the_class_that_is_not_declared_is_refused_even_where_the_source_does_not_share() -> None:
    entries = (stored("embed", storage=1), stored("head", storage=2))

    error = refusal(*entries, expected=architecture(("embed", ("head",)), embed=(2, 3), head=(2, 3)))

    assert "the model class ties head to embed, and both are in the source" in error.message


def test_a_source_that_lacks_the_tied_name_already_is_fine_only_where_the_class_ties_it() -> None:
    known = architecture(("embed", ("head",)), embed=(2, 3), head=(2, 3))

    assert plan(stored("embed"), expected=known, weights=TIE).aliases == ()
    assert "weights.tied.0.drop: head is not in the source" in refusal(stored("embed"), weights=TIE).message
    assert "weights.tied.0.keep: embed is not in the source" in refusal(stored("head"), weights=TIE).message


def test_a_tie_between_unequal_types_is_refused() -> None:
    error = refusal(stored("embed"), stored("head", "BF16"), weights=TIE)

    assert "head and embed differ in type or shape" in error.message


# --- casts


def test_only_allowed_floating_tensors_are_cast() -> None:
    cast = {"dtype": "bfloat16", "allow": ["*"], "keep": ["norm*"]}
    entries = (
        stored("a"),
        stored("norm.weight"),
        stored("ids", "I64"),
        stored("mask", "BOOL"),
        stored("packed", "U8"),
        stored("scale", "F8_E4M3"),
        stored("low", "BF16"),
    )

    made = {one.target: (one.to_dtype, one.reason) for one in plan(*entries, weights={"cast": cast}).tensors}

    assert made == {
        "a": ("BF16", "weights.cast.allow: *"),
        "norm.weight": ("F32", "weights.cast.keep: norm*"),
        "ids": ("I64", "not a floating tensor: never cast"),
        "mask": ("BOOL", "not a floating tensor: never cast"),
        "packed": ("U8", "not a floating tensor: never cast"),
        "scale": ("F8_E4M3", "not a floating tensor: never cast"),
        "low": ("BF16", "weights.cast.allow: *"),
    }


@pytest.mark.parametrize("dtype", ["I64", "I32", "BOOL", "U8", "F8_E4M3", "C64"])
def test_asking_for_an_integer_boolean_or_packed_tensor_by_name_is_refused(dtype: str) -> None:
    error = refusal(stored("a"), stored("ids", dtype), weights={"cast": {"dtype": "float16", "allow": ["ids"]}})

    assert re.search(rf"weights\.cast\.allow: 'ids': ids is {dtype}, and only floating tensors are cast", error.message)


def test_a_cast_is_recorded_with_its_error() -> None:
    made = plan(stored("module.a"), weights={"cast": {"dtype": "float16", "allow": ["a"]}})

    (one,) = made.transforms({"a": CastError(max_abs="0.5", max_rel="0.25", flushed=0)})

    assert one.model_dump() == {
        "source": "module.a",
        "action": Action.CAST,
        "target": "a",
        "of": None,
        "from_dtype": "F32",
        "to_dtype": "F16",
        "max_abs_error": "0.5",
        "max_rel_error": "0.25",
        "reason": "weights.cast.allow: a; wrapper parts taken away",
    }
