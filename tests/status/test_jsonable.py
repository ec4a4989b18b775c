"""Values become JSON in one way: integers stay integers, and what has no form is an error."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from support.commits import generation

from replicate.errors import NothingFound
from replicate.jsonable import jsonable
from replicate.layout import GenerationId


class Colour(StrEnum):
    RED = "red"


class Number(Enum):
    ONE = 1


@dataclass(frozen=True, slots=True)
class Inner:
    where: Path
    id: GenerationId


@dataclass(frozen=True)
class Outer:
    inner: Inner
    many: tuple[Inner, ...]


ID = GenerationId(1, 2, 300, "1f3a9c2e")


@pytest.mark.parametrize(
    ("value", "due"),
    [
        (2**53 + 1, 2**53 + 1),
        (True, True),
        (None, None),
        (1.5, 1.5),
        ("text", "text"),
        (Colour.RED, "red"),
        (Number.ONE, 1),
        (Path("a/b"), "a/b"),
        (Decimal("0.0230"), "0.0230"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC), "2026-01-02T03:04:05.678Z"),
        (ID, "a0001-g000002-u000000000300-1f3a9c2e"),
        ({ID: [Colour.RED]}, {"a0001-g000002-u000000000300-1f3a9c2e": ["red"]}),
        (frozenset({"b", "a"}), ["a", "b"]),
        (
            Outer(Inner(Path("x"), ID), (Inner(Path("y"), ID),)),
            {"inner": {"where": "x", "id": str(ID)}, "many": [{"where": "y", "id": str(ID)}]},
        ),
        (NothingFound("none", hint="look"), {"exit_code": 4, "message": "none", "hint": "look"}),
    ],
)
def test_values_have_one_form(value: Any, due: Any) -> None:
    found = jsonable(value)
    assert found == due
    assert type(found) is type(due)


def test_models_become_objects() -> None:
    record = generation(1).record
    document = jsonable(record)
    assert document["files"][0]["path"] == "config.json"
    assert document["files"][0]["size"] == record.files[0].size
    assert document["parent"] is None


@pytest.mark.parametrize("value", [b"bytes", object(), Inner, iter(())])
def test_what_has_no_form_is_an_error(value: Any) -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        jsonable(value)
