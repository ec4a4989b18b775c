"""The report as JSON: decimals as strings with every digit, fields added and never repurposed."""

from typing import Any

from cost.report.contents import Report


def document(report: Report) -> dict[str, Any]:
    """Return the report as plain values: strings, integers, booleans, lists and objects."""
    raise NotImplementedError


def render(report: Report) -> str:
    """Return the report as one JSON document, ended by a newline."""
    raise NotImplementedError
