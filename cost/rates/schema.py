"""The JSON schema of a rate card, for editors that complete and check TOML."""

import json
from typing import Any

from cost.rates.model import SCHEMA, RateCard


def card_schema() -> dict[str, Any]:
    """Return the schema, generated from the models: it has their shapes, and no rule between fields."""
    generated = RateCard.model_json_schema(by_alias=True)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ckptier rate card, schema {SCHEMA}",
        "description": "Prices are decimal strings, sizes are bytes, dates are TOML dates or strings.",
    }
    return head | {key: value for key, value in generated.items() if key not in head}


def schema_text() -> str:
    """Return the schema as a file, the same bytes every time."""
    return json.dumps(card_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
