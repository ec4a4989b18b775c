"""Turning results into what ``--json`` prints: one function, no encoder to subclass."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from replicate.errors import CkptierError
from replicate.layout import GenerationId
from tiers.clock import rfc3339

_AS_TEXT = (GenerationId, PurePath, Decimal)
_AS_IS = (str, int, float, type(None))


def jsonable(value: Any) -> Any:
    """Return plain JSON data for a value made of dataclasses, models, enums, paths, times and containers.

    Integers stay integers, ids, paths and money become strings, times RFC 3339, sets sorted
    lists.  Raises TypeError for what has no agreed form (bytes, for one) instead of guessing.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, _AS_IS):
        return value
    if isinstance(value, CkptierError):
        return {"exit_code": int(value.exit_code), "message": value.message, "hint": value.hint}
    return _compound(value)


def _compound(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, BaseModel):
        return {name: jsonable(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(jsonable(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(jsonable(item) for item in value)
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form here")
