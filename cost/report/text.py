"""The report as text for a terminal of 80 columns."""

from cost.report.contents import Report

WIDTH = 80


def render(report: Report) -> str:
    """Return the report, lines of at most 80 columns, the last one ended."""
    raise NotImplementedError
