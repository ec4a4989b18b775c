"""A copy of a training state that nothing else writes to.

``state_dict()`` hands out live tensors; a background writer that got those would mix
two updates.  Storages are copied once each, so that tied weights stay tied.
"""

import copy
import sys
from collections import OrderedDict
from typing import Any


def own(state: Any) -> Any:
    """Return a deep copy with every tensor on the CPU, detached; torch is used only if it is loaded."""
    return _own(state, {})


def _own(value: Any, memo: dict[Any, Any]) -> Any:
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _own_tensor(torch, value, memo)
    if isinstance(value, dict):
        return _own_dict(value, memo)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_own(inner, memo) for inner in value))
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_own(inner, memo) for inner in value)
    return copy.deepcopy(value)


def _own_dict(value: dict[Any, Any], memo: dict[Any, Any]) -> dict[Any, Any]:
    """Copy a mapping as a plain one of its kind; the versions that a state_dict carries come along."""
    copied: dict[Any, Any] = OrderedDict() if isinstance(value, OrderedDict) else {}
    copied.update((key, _own(inner, memo)) for key, inner in value.items())
    metadata = getattr(value, "_metadata", None)
    if metadata is not None:
        copied._metadata = copy.deepcopy(metadata)  # type: ignore[attr-defined]  # noqa: SLF001 - where torch keeps them
    return copied


def _own_tensor(torch: Any, value: Any, memo: dict[Any, Any]) -> Any:
    value = value.detach()
    if value.layout is not torch.strided or value.is_quantized or type(value) is not torch.Tensor:
        return value.to("cpu", copy=True)
    storage = value.untyped_storage()
    key = (str(value.device), storage.data_ptr(), storage.nbytes())
    if key not in memo or not storage.nbytes():
        copied = storage.cpu() if value.device.type != "cpu" else storage.clone()
        memo[key] = (copied, storage)  # the original is kept too: its address must not be reused meanwhile
    empty = torch.empty(0, dtype=value.dtype, device="cpu")
    return empty.set_(memo[key][0], value.storage_offset(), value.size(), value.stride())
