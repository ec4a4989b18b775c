"""A cast measures every element, keeps finite values finite, and touches floating tensors only."""

from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replicate.errors import ConfigInvalid
from replicate.release.weights.casting import cast_tensor, same_bytes


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_integers_booleans_and_packed_types_are_never_cast(dtype: torch.dtype) -> None:
    tensor = torch.tensor([1, 0, 1]).to(dtype)

    with pytest.raises(ConfigInvalid, match=r"weights\.cast: ids is \w+: only BF16, F16, F32, F64 are cast"):
        cast_tensor(tensor, "BF16", name="ids")


def test_nothing_is_cast_into_an_integer() -> None:
    with pytest.raises(ConfigInvalid, match="into one of these"):
        cast_tensor(torch.ones(2), "I64", name="a")


def test_a_finite_value_that_does_not_fit_is_refused_with_name_and_value() -> None:
    tensor = torch.tensor([1.0, 70000.0, -2.0]).to(torch.bfloat16)

    with pytest.raises(ConfigInvalid, match=r"head\.weight: 70144 is finite and does not fit F16") as caught:
        cast_tensor(tensor, "F16", name="head.weight")

    assert "weights.cast.keep" in caught.value.hint


def test_the_least_value_that_rounds_to_infinity_is_refused_and_the_greatest_that_does_not_is_cast() -> None:
    cast, _ = cast_tensor(torch.tensor([65519.0]), "F16", name="a")

    assert cast.tolist() == [65504.0]
    with pytest.raises(ConfigInvalid, match="65520 is finite"):
        cast_tensor(torch.tensor([65520.0]), "F16", name="a")


def test_what_is_not_finite_before_stays_so_and_is_not_measured() -> None:
    cast, error = cast_tensor(torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0]), "BF16", name="a")

    assert cast[:2].tolist() == [float("inf"), float("-inf")]
    assert cast[2].isnan()
    assert (error.max_abs, error.max_rel) == ("0", "0")


def test_errors_are_exact_decimals() -> None:
    _, error = cast_tensor(torch.tensor([50257.0, 1.0]), "BF16", name="a")

    assert error.max_abs == "81"  # 50257 becomes 50176
    assert Decimal(error.max_rel) == Decimal(81 / 50257)


def test_values_that_become_zero_are_counted() -> None:
    _, error = cast_tensor(torch.tensor([1e-8, 0.0, 1.0]), "F16", name="a")

    assert error.flushed == 1
    assert Decimal(error.max_rel) == 1
    assert Decimal(error.max_abs) == Decimal(torch.tensor(1e-8).item())


def test_a_cast_to_more_bits_loses_nothing() -> None:
    tensor = torch.randn(100, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)

    cast, error = cast_tensor(tensor, "F32", name="a")

    assert (error.max_abs, error.max_rel, error.flushed) == ("0", "0", 0)
    assert same_bytes(cast.to(torch.bfloat16), tensor)


def test_empty_and_scalar_tensors_are_cast() -> None:
    assert cast_tensor(torch.empty(0, 3), "F16", name="a")[1].max_abs == "0"
    assert cast_tensor(torch.tensor(0.1), "F16", name="a")[0].shape == ()


def test_elements_are_measured_in_pieces_and_across_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicate.release.weights.casting._ELEMENTS", 4)
    tensor = torch.arange(30, dtype=torch.float32).reshape(5, 6).t() / 7
    tensor[5, 4] = 50257.0

    cast, error = cast_tensor(tensor, "BF16", name="a")

    assert error.max_abs == "81"
    assert torch.equal(cast, tensor.to(torch.bfloat16))


@given(st.lists(st.floats(width=32, min_value=-60000, max_value=60000), min_size=1, max_size=40))
def test_the_error_is_that_of_the_worst_element(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)

    cast, error = cast_tensor(tensor, "F16", name="a")

    differences = [abs(Fraction(a) - Fraction(b)) for a, b in zip(values, cast.tolist(), strict=True)]
    assert Fraction(error.max_abs) == max(differences)


def test_same_bytes_tells_zeros_and_knows_nan() -> None:
    nan = torch.tensor([float("nan")])

    assert same_bytes(nan, nan.clone())
    assert not same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bytes(torch.zeros(2), torch.zeros(1, 2))
    assert not same_bytes(torch.zeros(2), torch.zeros(2, dtype=torch.float16))
    assert same_bytes(torch.tensor(True), torch.tensor(True))
