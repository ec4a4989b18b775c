"""The shipped examples, the schema for editors, the card to start from, and the lines of keys."""

import importlib
import json
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from cost.errors import CardInvalid
from cost.rates.lines import LineIndex
from cost.rates.loading import check_card, load_cards
from cost.rates.model import RateCard
from cost.rates.parts import Path as Where
from cost.rates.schema import card_schema, schema_text
from cost.rates.template import new_card
from cost.rates.terms import SourceKind

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "rates").glob("*.toml"))
TODAY = date(2026, 10, 1)

examples = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


@examples
def test_examples_pass_the_check_and_say_what_they_are(path: Path) -> None:
    card, warnings = check_card(path, today=TODAY)
    assert card.source_kind is SourceKind.EXAMPLE
    assert card.card_id.endswith("-example")
    assert "EXAMPLE" in warnings[0]
    assert "EXAMPLE" in path.read_text(encoding="utf-8").splitlines()[0]


def test_examples_can_be_used_together() -> None:
    assert len(EXAMPLES) == 5
    cards = load_cards(EXAMPLES, today=TODAY, allow_too_old=True)
    assert len(cards.cards) == 5


def plain(document: Any) -> Any:
    """Return a TOML document as an editor's JSON schema checker sees it: dates as strings."""
    return json.loads(json.dumps(document, default=str))


def complaints(document: dict[str, Any]) -> list[str]:
    jsonschema: Any = importlib.import_module("jsonschema")
    validator = jsonschema.Draft202012Validator(card_schema())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(plain(document))]


@examples
def test_examples_fit_the_schema(path: Path) -> None:
    assert complaints(tomllib.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("key", "value", "at"),
    [
        ("currency", "usd", "$.currency"),
        ("curency", "USD", "$"),
        ("schema", 2, "$.schema"),
        ("taxes", "included", "$.taxes"),
        ("max_age_days", 0, "$.max_age_days"),
    ],
)
def test_the_schema_refuses_what_the_check_refuses(key: str, value: object, at: str) -> None:
    document = tomllib.loads(EXAMPLES[0].read_text(encoding="utf-8"))
    document[key] = value
    (complaint,) = complaints(document)
    assert complaint.startswith(f"{at}: ")


def test_the_schema_has_no_number_for_money() -> None:
    document = tomllib.loads(EXAMPLES[0].read_text(encoding="utf-8"))
    document["tier"][0]["storage_brackets"][0]["unit_price"] = 0.023
    assert any("0.023" in complaint for complaint in complaints(document))


def test_the_schema_is_draft_2020_and_stable() -> None:
    jsonschema: Any = importlib.import_module("jsonschema")
    jsonschema.Draft202012Validator.check_schema(card_schema())
    assert schema_text() == schema_text()
    assert json.loads(schema_text()) == card_schema()
    assert card_schema()["additionalProperties"] is False


FILLED = {
    "id": '"mine"',
    "provider": '"acme"',
    "product": '"objects"',
    "region": '"north"',
    "billing_account_scope": '"account"',
    "currency": '"USD"',
    "as_of": "2026-09-30",
    "source_url": '"https://acme.com/prices"',
    "source_kind": '"provider_page"',
    "price_basis": '"list"',
    "storage_class": '"STANDARD"',
    "metering": '"byte_hours_fixed_month"',
    "bytes_per_unit": "1073741824",
    "month_hours": "730",
    "unit_price": '"0.02"',
    "unit_count": "1000",
    "price": '"0.005"',
    "from_zone": '"north"',
}


def test_a_new_card_lacks_only_what_has_to_be_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text(new_card(), encoding="utf-8")
    lines = new_card().splitlines()
    with pytest.raises(CardInvalid) as caught:
        check_card(path, today=TODAY)
    faults = caught.value.faults
    assert {fault.line for fault in faults} == {
        number for number, line in enumerate(lines, 1) if '= ""' in line and not line.startswith("#")
    }
    for fault in faults:
        assert fault.found == '""'
        assert fault.right.startswith("fill this in: ")
        assert fault.field.rpartition(".")[2] in FILLED


def test_a_new_card_filled_in_passes(tmp_path: Path) -> None:
    text = new_card()
    for key, value in FILLED.items():
        text = text.replace(f'{key} = ""', f"{key} = {value}")
    path = tmp_path / "new.toml"
    path.write_text(text, encoding="utf-8")
    card, warnings = check_card(path, today=TODAY)
    assert isinstance(card, RateCard)
    assert warnings == ()


def paths_in(value: Any, at: Where = ()) -> Iterator[Where]:
    if at:
        yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_in(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_in(item, (*at, index))


@examples
def test_every_key_of_the_examples_is_found_on_its_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    index, rows = LineIndex(text), text.splitlines()
    for where in paths_in(tomllib.loads(text)):
        row = rows[index.lines[where] - 1]
        assert str([key for key in where if isinstance(key, str)][-1]) in row or row.strip().startswith(("{", '"')), (
            where
        )


TRICKY = '''\
a = 1 # [[not]] = "a table"
"b.c" = """
[d]
e = 1 \\""" ""\\
"""
'f' = \'\'\'
x = "
\'\'\'\'
g.h."i\\u0041" = [ # comment ]
    1, "]", # another
    { j = [
        2,
    ], k = 'l}' },
]
m = 2026-01-01T00:00:00Z
[n.o]
p = ""
[[q]]
r = 1
[[q]]
[q.s]
t = 1.5e3
[[q.u]]
[[q.u]]
v = """"quoted""""
[ q.w . x ]
y = true
'''


def test_lines_of_all_that_toml_can_write() -> None:
    document, index = tomllib.loads(TRICKY), LineIndex(TRICKY)
    assert set(paths_in(document)) == set(index.lines)
    expected: dict[Where, str] = {
        ("a",): "a = 1",
        ("b.c",): '"b.c"',
        ("f",): "'f'",
        ("g", "h", "iA"): "g.h",
        ("g", "h", "iA", 1): '1, "]"',
        ("g", "h", "iA", 2, "j", 0): "2,",
        ("g", "h", "iA", 2, "k"): "], k",
        ("m",): "m =",
        ("n", "o", "p"): 'p = ""',
        ("q", 0, "r"): "r = 1",
        ("q", 1, "s"): "[q.s]",
        ("q", 1, "s", "t"): "t = 1.5e3",
        ("q", 1, "u", 1, "v"): 'v = """"',
        ("q", 1, "w", "x", "y"): "y = true",
    }
    rows = TRICKY.splitlines()
    for where, start in expected.items():
        assert rows[index.lines[where] - 1].strip().startswith(start), where
    assert index.find(("q", 1, "s", "nothing", 3)) == index.lines["q", 1, "s"]
    assert index.find(("nothing",)) == 1
