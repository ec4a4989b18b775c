"""TOML from plain values, for descriptions that tests change."""

import json
from collections.abc import Mapping
from typing import Any


def toml(document: Mapping[str, Any], above: str = "") -> str:
    """Write TOML: plain values first, then tables."""
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {_value(value)}\n" for key, value in plain.items()]
    for key, value in tables.items():
        lines.append(f"\n[{above}{key}]\n{toml(value, f'{above}{key}.')}")
    return "".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
