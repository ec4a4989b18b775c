"""Figures of a report, as SVG that stands inside the page.  Needs the extra ``cost``."""
