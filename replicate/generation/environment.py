"""What a generation was made with, as far as this process has loaded it already."""

import os
import platform
import sys
from typing import Any

from replicate.errors import UsageError


def describe_environment() -> dict[str, Any]:
    """Return versions, devices and world size.  Libraries that the trainer did not import are left out."""
    described: dict[str, Any] = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
    }
    for name in ("numpy", "torch"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "__version__"):
            described[name] = str(module.__version__)
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        described["cuda"] = str(torch.version.cuda or "none")
        described["device_count"] = torch.cuda.device_count()
        if torch.cuda.is_initialized():  # asking for names initializes CUDA, which a process that forks must not
            described["devices"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if (size := os.environ.get("WORLD_SIZE", "")).isdigit():
        described["world_size"] = int(size)
    return described


def changes(recorded: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """Name what differs between two environments; what only one of them knows is not a difference."""
    return tuple(
        f"{key}: {recorded[key]!r} then, {now[key]!r} now"
        for key in sorted(set(recorded) & set(now))
        if recorded[key] != now[key]
    )


def check_plain(value: Any, where: str = "environment") -> None:
    """Refuse what has no canonical JSON form (floats included), naming the place."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for key, inner in value.items():
            check_plain(inner, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            check_plain(inner, where)
    elif value is not None and not isinstance(value, (str, int)):
        raise UsageError(
            f"{where} holds a {type(value).__name__}, which generation.json cannot",
            hint="use strings, integers, booleans, lists and dictionaries; write other numbers as strings",
        )
