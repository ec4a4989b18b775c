"""Every source of randomness, as plain data: Python, NumPy, torch CPU, each CUDA device, named Generators.

NumPy is used only where it is installed.  Nothing here needs unrestricted unpickling.
"""

import random
from collections.abc import Mapping
from typing import Any

import torch

from replicate.errors import CapabilityMissing, IntegrityFailure, UsageError

try:
    import numpy as np
except ImportError:  # torch works without it; its states are then absent on both sides
    np = None  # type: ignore[assignment]

_ARRAY = "__array__"
_SOURCES = ("python", "numpy_global", "torch_cpu", "torch_cuda", "generators")


def capture(generators: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of every source."""
    return {
        "python": random.getstate(),
        "numpy_global": None if np is None else _plain(np.random.get_state(legacy=False)),
        "torch_cpu": torch.get_rng_state(),
        "torch_cuda": _cuda_states(),
        "generators": {name: _capture_one(name, one) for name, one in generators.items()},
    }


def _cuda_states() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    return [
        {"name": torch.cuda.get_device_name(index), "state": state}
        for index, state in enumerate(torch.cuda.get_rng_state_all())
    ]


def check(saved: Mapping[str, Any], generators: Mapping[str, Any]) -> None:
    """Compare what was saved with what is there; raises before anything is restored."""
    absent = [source for source in _SOURCES if source not in saved]
    if absent:
        raise IntegrityFailure(f"missing random state: {', '.join(absent)}", hint="resume from another generation")
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if len(saved["torch_cuda"]) != here:
        raise CapabilityMissing(
            f"CUDA topology changed: saved with {len(saved['torch_cuda'])} devices, {here} are here",
            hint="resume with the same number of devices; exact continuation is not defined otherwise",
        )
    if saved["numpy_global"] is not None and np is None:
        raise CapabilityMissing("the checkpoint holds NumPy's random state", hint="install numpy on this machine")
    for name in sorted({*generators} ^ {*saved["generators"]}):
        where = "was not saved" if name in generators else "was saved and is not given"
        raise UsageError(f"generator {name!r} {where}", hint="pass the same named generators as when it was saved")
    for name, one in generators.items():
        kind = _kind(name, one)
        if saved["generators"][name]["kind"] != kind:
            raise UsageError(
                f"generator {name!r} is {kind}, saved was {saved['generators'][name]['kind']}",
                hint="build it as it was built before",
            )


def restore(saved: Mapping[str, Any], generators: Mapping[str, Any]) -> None:
    """Set every source; call it last, after every object has been built and loaded."""
    for name, one in generators.items():
        _restore_one(one, saved["generators"][name]["state"])
    random.setstate(saved["python"])
    if saved["numpy_global"] is not None:
        np.random.set_state(_arrays(saved["numpy_global"]))
    torch.set_rng_state(saved["torch_cpu"])
    if saved["torch_cuda"]:
        torch.cuda.set_rng_state_all([device["state"] for device in saved["torch_cuda"]])


def _capture_one(name: str, one: Any) -> dict[str, Any]:
    kind = _kind(name, one)
    if isinstance(one, torch.Generator):
        return {"kind": kind, "state": one.get_state()}
    if isinstance(one, random.Random):
        return {"kind": kind, "state": one.getstate()}
    state = one.bit_generator.state if hasattr(one, "bit_generator") else one.get_state(legacy=False)
    return {"kind": kind, "state": _plain(state)}


def _restore_one(one: Any, state: Any) -> None:
    if isinstance(one, torch.Generator):
        one.set_state(state)
    elif isinstance(one, random.Random):
        one.setstate(state)
    elif hasattr(one, "bit_generator"):
        one.bit_generator.state = _arrays(state)
    else:
        one.set_state(_arrays(state))


def _kind(name: str, one: Any) -> str:
    if isinstance(one, torch.Generator):
        return f"torch on {one.device}"
    if isinstance(one, random.Random):
        return "python"
    if np is not None and isinstance(one, np.random.Generator):
        return f"numpy {type(one.bit_generator).__name__}"
    if np is not None and isinstance(one, np.random.RandomState):
        return "numpy RandomState"
    raise UsageError(
        f"generator {name!r} is a {type(one).__name__}",
        hint="numpy Generator or RandomState, torch Generator and random.Random can be saved",
    )


def _plain(value: Any) -> Any:
    """Turn arrays and scalars of NumPy into lists and Python numbers, keeping the dtype."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return {_ARRAY: str(value.dtype), "values": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return np.array(value["values"], dtype=value[_ARRAY])
    return {key: _arrays(inner) for key, inner in value.items()}
