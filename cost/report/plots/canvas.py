"""One way to draw: the same axes for a wide and for a narrow page, always the same bytes, ids that do not clash."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from cost.report.words import printable, span

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PINK, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#8A8A8A"
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, "#444444", "#B3B3B3", "#7A5195")
"""Okabe and Ito's colours, which people tell apart whatever their sight, and four more for long lists."""
INK, SLATE, FAINT = "#222222", "#555555", "#D9D9D9"
WIDE, NARROW = (7.4, 3.9), (3.75, 3.7)
SMALL = 8.5

_SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
Draw = Callable[[Axes, bool], None]
"""Draws on axes; the flag says that the page is narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure: its heading, what it shows in words, what to know about it, and the SVG of each width."""

    name: str
    title: str
    description: str
    caption: str
    wide: str
    narrow: str


def figure(name: str, title: str, description: str, caption: str, draw: Draw, *, height: float = 1.0) -> Figure:
    """Return a figure; ``height`` is a factor of the usual one."""
    title, description = printable(title), printable(description)
    return Figure(
        name=name,
        title=title,
        description=description,
        caption=printable(caption),
        wide=_svg(f"{name}-wide", (title, description), draw, (WIDE[0], WIDE[1] * height)),
        narrow=_svg(f"{name}-narrow", (title, description), draw, (NARROW[0], NARROW[1] * height)),
    )


def _svg(name: str, texts: tuple[str, str], draw: Draw, size: tuple[float, float]) -> str:
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's fonts draw the text, not ours
        drawing = Drawing(figsize=size, layout="constrained")
        draw(drawing.add_subplot(), size[0] < WIDE[0])
        stream = io.StringIO()
        drawing.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    return embedded(stream.getvalue(), name, texts)


def embedded(svg: str, name: str, texts: tuple[str, str]) -> str:
    """Return what may stand in a page: scaled by it, named for screen readers, ids prefixed, no address in it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    box = re.search(r'viewBox="[^"]+"', svg)
    title, description = texts
    head = (
        f'<svg {box[0] if box else ""} xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    )
    body = re.sub(r"^<svg[^>]*>", head, svg, count=1)
    return re.sub(r"[ \t]*\n[ \t\n]*", "\n", body).strip()


def apart(wanted: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Return positions at least ``gap`` apart and near the wanted ones, within bounds where there is room."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed: list[float] = []
    for index in order:
        least = placed[-1] + gap if placed else low
        placed.append(max(wanted[index], least))
    above = high
    for slot in reversed(range(len(placed))):
        placed[slot] = min(placed[slot], above)
        above = placed[slot] - gap
    result = [0.0] * len(wanted)
    for index, position in zip(order, placed, strict=True):
        result[index] = position
    return result


_SPANS = (1, 10, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 30 * 86_400)


def span_axis(axes: Axes, low: float, high: float, *, most: int) -> None:
    """Give the x axis the scale and ticks of time, logarithmic, between two numbers of seconds."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [each for each in _SPANS if low <= each <= high]
    step = -(-len(ticks) // most) if ticks else 1
    axes.set_xticks(ticks[::step], [span(each) for each in ticks[::step]])
    axes.minorticks_off()


def money_axis(axes: Axes, low: float, high: float) -> None:
    """Give the y axis a logarithmic scale with plain numbers between two amounts above zero."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    decades = [10.0**power for power in range(-6, 10)]
    wanted = [base * step for base in decades for step in (1, 2, 5)]
    ticks = [each for each in wanted if low <= each <= high]
    if len(ticks) > len(decades) // 2:
        ticks = [each for each in decades if low <= each <= high]
    axes.set_yticks(ticks, [f"{each:,.6g}" for each in ticks])
    axes.minorticks_off()
