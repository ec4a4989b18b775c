"""Comparing values and tensors by their bits, in memory that does not grow with them."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import torch
from torch import Tensor

from replicate.causal import Comparison, Stage, in_order, stage_of

_CHUNK = 1 << 20
"""Elements that are looked at at once."""
_SHOWN = 60


def compare_payloads(path: str, a: Any, b: Any) -> tuple[Comparison, ...]:
    """Compare what two files of one path hold, in causal order."""
    mine, theirs = dict(flat("", a)), dict(flat("", b))
    return in_order(
        Comparison(stage=_stage(path, name), name=f"{path}: {name or 'the value'}", equal=not detail, detail=detail)
        for name in (*mine, *(name for name in theirs if name not in mine))
        for detail in [_either(name, mine, theirs)]
    )


def _either(name: str, a: dict[str, Any], b: dict[str, Any]) -> str:
    if name in a and name in b:
        return difference(a[name], b[name])
    return f"only in {'A' if name in a else 'B'}"


def _stage(path: str, name: str) -> Stage:
    """Tell the stage by the key at the top, else the file's name, else whatever word further down says it."""
    asked = (name.partition(".")[0], PurePosixPath(path).stem, name)
    return next((stage for one in asked if (stage := stage_of(one)) is not Stage.OTHER), Stage.OTHER)


def flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested state under dotted names."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, (list, tuple)) and value:
        yield from flat(prefix, dict(enumerate(value)))
    else:
        yield prefix, value


def difference(a: Any, b: Any) -> str:
    """Say how two leaves differ; nothing where they do not."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return tensor_difference(a, b)
    if isinstance(a, Tensor) or isinstance(b, Tensor) or _spelled(a) != _spelled(b):
        return f"{_short(a)} against {_short(b)}"
    return ""


def tensor_difference(a: Tensor, b: Tensor) -> str:
    """Compare by bits: 0.0 and -0.0 are not the same, and a NaN equals itself."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}"
    left, right = _numbers(a), _numbers(b)
    differing, largest = 0, torch.zeros((), dtype=torch.float64)
    for start in range(0, left.numel(), _CHUNK):
        x, y = left[start : start + _CHUNK], right[start : start + _CHUNK]
        unequal = (_bits(x) != _bits(y)).any(dim=1)
        if bool(unequal.any()):
            differing += int(unequal.sum())
            largest = torch.maximum(largest, (x.double() - y.double()).abs().max())
    return f"{differing} of {left.numel()} values differ, by up to {float(largest):.3g}" if differing else ""


def _numbers(tensor: Tensor) -> Tensor:
    plain = tensor.detach().cpu()
    return (torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain).contiguous().reshape(-1)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8).view(tensor.numel(), -1)


def _spelled(value: Any) -> tuple[type, str]:
    return type(value), value.hex() if isinstance(value, float) else repr(value)


def _short(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:_SHOWN]
