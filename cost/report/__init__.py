"""Reports of an estimate: text for 80 columns, JSON with every digit, HTML that opens offline.

Put one together with :func:`cost.report.contents.report`; then write it down with
:func:`cost.report.text.render`, :func:`cost.report.document.render`, or :func:`page`.
"""

from typing import TYPE_CHECKING

from cost.errors import CostError

if TYPE_CHECKING:
    from cost.report.contents import Report


def page(report: "Report") -> str:
    """Return the report as one HTML file; raises CostError where the extra ``cost`` is not installed."""
    try:
        from cost.report import html  # noqa: PLC0415 - jinja2 and matplotlib are loaded by who wants a page
    except ModuleNotFoundError as error:
        missing = (error.name or "more").partition(".")[0]
        raise CostError(f"an HTML report needs {missing}", hint="pip install 'ckptier[cost]'") from error
    return html.render(report)
