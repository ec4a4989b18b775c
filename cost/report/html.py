"""The report as one HTML file that needs nothing else: no script, no request, figures inside."""

from cost.report.contents import Report


def render(report: Report) -> str:
    """Return the page; needs the extra ``cost`` (jinja2, matplotlib)."""
    raise NotImplementedError
