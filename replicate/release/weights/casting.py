"""Casting a floating tensor, with its error measured on every element.

A value that is finite stays finite, or the cast is refused.  Integers, booleans and packed or
eight-bit floating types are never cast: 50257 would become 50176 in bfloat16.
"""

from decimal import Decimal

import torch

from replicate.errors import ConfigInvalid
from replicate.formats.safetensors import FLOATING
from replicate.release.weights.dtypes import NAMED, TORCH
from replicate.release.weights.plan import CastError

_ELEMENTS = 1 << 20
"""Elements measured at a time, in double precision: some forty megabytes."""

_LEAST = 5e-324
"""The least positive number in double precision."""


def cast_tensor(tensor: torch.Tensor, to_dtype: str, *, name: str) -> tuple[torch.Tensor, CastError]:
    """Return the tensor in ``to_dtype`` (as safetensors names it), and how far that moved its values.

    Rounds to the nearest, ties to even.  Raises ConfigInvalid that names the tensor, and a value
    that would not stay finite.
    """
    from_dtype = NAMED.get(tensor.dtype, str(tensor.dtype))
    if from_dtype not in FLOATING or to_dtype not in FLOATING:
        raise ConfigInvalid(
            f"weights.cast: {name} is {from_dtype}: only {', '.join(sorted(FLOATING))} are cast, and into one of these",
            hint="leave it out of weights.cast.allow",
        )
    cast = tensor.to(TORCH[to_dtype])
    absolute = relative = 0.0
    flushed = 0
    flat, flat_cast = tensor.reshape(-1), cast.reshape(-1)
    for start in range(0, flat.numel(), _ELEMENTS):
        a, b = flat[start : start + _ELEMENTS].double(), flat_cast[start : start + _ELEMENTS].double()
        finite = a.isfinite()
        if not finite.all():
            a, b = a[finite], b[finite]
        if not b.isfinite().all():
            raise _overflow(a[~b.isfinite()], to_dtype, name)
        moved = (a - b).abs_()
        absolute = max(absolute, _greatest(moved))
        relative = max(
            relative, _greatest(moved.div_(a.abs().clamp_min_(_LEAST)))
        )  # where a is 0, b is 0, and 0 / _LEAST
        flushed += int(a.count_nonzero()) - int(b.count_nonzero())
    return cast, CastError(max_abs=_exact(absolute), max_rel=_exact(relative), flushed=flushed)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and bits."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _overflow(lost: torch.Tensor, to_dtype: str, name: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"weights.cast: {name}: {lost[0].item():g} is finite and does not fit {to_dtype} "
        f"({lost.numel()} such values, or more)",
        hint="name the tensor in weights.cast.keep, or cast to bfloat16, which has the range of float32",
    )


def _greatest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _exact(value: float) -> str:
    """Spell a binary number in decimal, without rounding."""
    return str(Decimal(value))
