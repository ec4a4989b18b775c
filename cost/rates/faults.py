"""Turning what the models refuse into faults that a person can act on: where, what, and what instead."""

import difflib
import types
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cost.errors import Fault
from cost.rates.lines import LineIndex
from cost.rates.parts import BROKEN_RULES, WRONG_VALUE, Path

_LONGEST = 80
_RIGHT: Mapping[str, str] = types.MappingProxyType(
    {
        "int_type": "write a whole number without quotes",
        "int_from_float": "write a whole number without quotes",
        "bool_type": "write true or false without quotes",
        "bool_parsing": "write true or false without quotes",
        "string_type": "write a string in quotes",
        "tuple_type": "write an array",
        "dict_type": "write a table",
        "model_type": "write a table",
        "model_attributes_type": "write a table",
        "too_short": "give at least one",
    }
)


def shown(value: object) -> str:
    """Return a value as it stands in the file, shortened."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}" if value else "an empty array"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if not text.isprintable():
        text = ascii(text)[1:-1]
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
    return f'"{text}"' if isinstance(value, str) else text


def dotted(path: Path) -> str:
    """Return a path as people read it: ``tier.0.storage_brackets.1.unit_price``."""
    text = ".".join(map(str, path)) or "file"
    return text if text.isprintable() else ascii(text)[1:-1]


def faults_of(error: ValidationError, model: type[BaseModel], file: str, index: LineIndex) -> Iterator[Fault]:
    """Yield a fault for everything that validation refused."""
    for details in error.errors(include_url=False):
        path = tuple(key for key in details["loc"] if key != "[key]")
        if details["type"] == "too_short" and details["input"]:
            continue  # items that are wrong do not count as items; each has its own fault
        if details["type"] == BROKEN_RULES:
            for broken in details.get("ctx", {})["broken"]:
                whole = (*path, *broken.at)
                found = broken.found if isinstance(broken.found, str) else shown(broken.found)
                yield make_fault(file, index, whole, found, broken.right)
        else:
            found = "nothing" if details["type"] == "missing" else shown(details["input"])
            yield make_fault(file, index, path, found, _right(details, path, model))


def make_fault(file: str, index: LineIndex, path: Path, found: str, right: str) -> Fault:
    """Return a fault at the line of ``path``."""
    return Fault(file=file, line=index.find(path), field=dotted(path), found=found, right=right)


def _right(details: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    right = _RIGHT.get(kind, details["msg"])
    if kind == WRONG_VALUE:
        right = str(context["right"])
    elif kind == "missing":
        told = _description(model, path)
        right = f"add it: {told}" if told else "add it"
    elif kind == "extra_forbidden":
        right = _known_keys(model, path)
    elif kind == "literal_error":
        right = f"write {str(context['expected']).replace(chr(39), chr(34))}"
    elif kind in {"greater_than_equal", "less_than_equal"}:
        right = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
    return f"fill this in: {right}" if details["input"] == "" else right


def _known_keys(model: type[BaseModel], path: Path) -> str:
    owner = _owner(model, path[:-1])
    keys = sorted(field.alias or name for name, field in owner.model_fields.items()) if owner else []
    close = difflib.get_close_matches(str(path[-1]), keys, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"unknown key: {guess}known keys here: {', '.join(keys)}"


def _description(model: type[BaseModel], path: Path) -> str | None:
    """Return what a missing key should hold: what its field says, or the values that it may have."""
    owner = _owner(model, path[:-1])
    for name, field in owner.model_fields.items() if owner else ():
        if path[-1] in {name, field.alias}:
            kind = field.annotation
            terms = kind if isinstance(kind, type) and issubclass(kind, StrEnum) else ()
            return field.description or " or ".join(f'"{term.value}"' for term in terms) or None
    return None


def _owner(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the table at ``path``: keys go down, indices and names of a map do not."""
    current: type[BaseModel] | None = model
    for key in path:
        fields = current.model_fields if current else {}
        matching = [f for name, f in fields.items() if key in {name, f.alias}]
        if matching:
            current = _model_in(matching[0].annotation)
    return current


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    found = [model for argument in get_args(annotation) if (model := _model_in(argument)) is not None]
    return found[0] if found else None
