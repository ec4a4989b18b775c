"""Reports of an estimate: text for 80 columns, JSON with every digit, HTML that opens offline.

Start from :func:`cost.report.contents.report`; then :func:`cost.report.text.render`,
:func:`cost.report.document.render`, and :func:`cost.report.html.render`, which needs the extra ``cost``.
"""
