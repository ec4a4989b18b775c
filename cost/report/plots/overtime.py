"""What is stored and what is spent, over time."""

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from cost.ledger import DAY, Reason, byte_seconds, peaks
from cost.report.accrual import Accrual
from cost.report.contents import Report
from cost.report.plots.canvas import GREY, INK, PALETTE, RED, SMALL, Figure, apart, figure
from cost.report.words import byte_text, day_text, money
from cost.units import SECONDS_PER_HOUR, ByteUnit

_LINE = 0.075
_BINS = 240
_COLOURS = {
    Reason.MILESTONE: 0, Reason.LAST_K: 1, Reason.PINNED: 2, Reason.REPLICA: 4, Reason.STAGED: 3,
    Reason.NONCURRENT: 7, Reason.SOFT_DELETED: 8, Reason.GIT_HISTORY: 9, Reason.RESTORED_COPY: 5,
    Reason.INCOMPLETE_UPLOAD: 6,
}  # fmt: skip
_BOTTOM_UP = tuple(_COLOURS)
Layers = Mapping[str, Sequence[float]]


def stored(report: Report) -> Figure | None:
    """Return the bytes stored over time by reason, under what retention alone would allow; None without any."""
    ledger = report.estimate.ledger
    if not ledger.intervals or ledger.start == ledger.end:
        return None
    width = ledger.end - ledger.start
    bounds = sorted({ledger.start + width * step // _BINS for step in range(_BINS + 1)})
    sums = byte_seconds(ledger.intervals, bounds)
    highest = peaks(ledger.intervals, [ledger.start, ledger.end + 1])[0]
    unit = ByteUnit.TB if max(highest, report.bound or 0) >= ByteUnit.TB else ByteUnit.GB
    layers = {
        str(reason): [total / (b - a) / unit for total, a, b in zip(sums[reason], bounds, bounds[1:], strict=False)]
        for reason in _BOTTOM_UP
        if reason in sums
    }
    times, axis = _times(bounds, ledger.start)
    limit = None if report.bound is None else report.bound / unit

    def draw(axes: Axes, narrow: bool) -> None:  # noqa: FBT001 - the signature of every drawing
        # a mean holds for its whole period, so that areas are exact
        doubled = {name: [value for value in values for _ in (0, 1)] for name, values in layers.items()}
        edges = [time for pair in itertools.pairwise(times) for time in pair]
        _stack(axes, edges, doubled, {str(reason): PALETTE[index] for reason, index in _COLOURS.items()})
        if limit is not None:
            axes.axhline(limit, color=RED, linewidth=1.2, linestyle="--")
            text = f"(K+M)·S = {byte_text(report.bound or 0)}"
            axes.annotate(text, (times[0], limit), (2, 3), textcoords="offset points", color=RED, fontsize=SMALL)
        top = max(highest / unit, limit or 0.0)
        axes.set_ylim(0, top * 1.12)
        axes.set_xlabel(axis)
        axes.set_ylabel(f"stored, {unit.label} ({_spelled(unit)} bytes)")
        _name_layers(axes, {name: values[-1] for name, values in layers.items()}, narrow=narrow)

    parts = ", ".join(layers)
    return figure(
        "stored",
        "Stored bytes over time, by reason",
        f"Stacked areas from {day_text(ledger.start)} to {day_text(ledger.end)}: {parts}. "
        f"At most {byte_text(highest)} at any instant"
        + ("." if report.bound is None else f"; the dashed line is (K+M)·S, {byte_text(report.bound)}."),
        f"Means over periods of equal length, so that areas are exact. Highest at any instant: {byte_text(highest)}.",
        draw,
    )


def _spelled(unit: ByteUnit) -> str:
    return {ByteUnit.TB: "10¹²", ByteUnit.GB: "10⁹"}[unit]


def cumulative(report: Report) -> Figure | None:
    """Return what has been spent over time, by category; None for a plan that costs nothing."""
    accrual = Accrual(report.estimate, report.plan)
    found = accrual.cumulative(lambda line: line.about.category)
    layers = {name: values for name, values in sorted(found.items(), key=lambda each: -each[1][-1]) if values[-1] > 0}
    if not layers:
        return None
    times, axis = _times(accrual.bounds, report.estimate.start)
    currency = report.estimate.currency
    colours = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(layers)}

    def draw(axes: Axes, narrow: bool) -> None:  # noqa: FBT001 - as above
        _stack(axes, times, layers, colours)
        axes.set_ylim(0, sum(values[-1] for values in layers.values()) * 1.05)
        axes.set_xlabel(axis)
        axes.set_ylabel(f"spent so far, {currency}")
        axes.yaxis.set_major_formatter("{x:,.6g}")
        _name_layers(axes, {name: values[-1] for name, values in layers.items()}, narrow=narrow)

    ends = ", ".join(f"{name} {values[-1]:,.2f}" for name, values in layers.items())
    return figure(
        "cumulative",
        "Cumulative cost, by category",
        f"Stacked areas that rise to {money(report.estimate.total.high, currency)}: {ends}.",
        "A line of the estimate is for a month; here it is spread over the days that caused it. "
        "Where the metering is open, the upper end is drawn.",
        draw,
    )


def _times(bounds: Sequence[int], start: int) -> tuple[list[float], str]:
    days = bounds[-1] - start > 4 * DAY
    unit = DAY if days else SECONDS_PER_HOUR
    return [(at - start) / unit for at in bounds], f"{'days' if days else 'hours'} since {day_text(start)} (UTC)"


def _stack(axes: Axes, times: Sequence[float], layers: Layers, colours: Mapping[str, str]) -> None:
    below = [0.0] * len(times)
    for name, values in layers.items():
        above = [low + value for low, value in zip(below, values, strict=True)]
        axes.fill_between(times, below, above, color=colours[name], linewidth=0)
        axes.plot(times, above, color="white", linewidth=0.5)
        below = above
    axes.set_xlim(times[0], times[-1])


def _name_layers(axes: Axes, ends: Mapping[str, float], *, narrow: bool) -> None:
    """Write each layer's name beside its end, moved apart where layers are thin; one that has ended has no leader."""
    low, high = axes.get_ylim()
    middles, below = [], 0.0
    for value in ends.values():
        middles.append((below + value / 2 - low) / (high - low))
        below += value
    gap = _LINE if not narrow else _LINE * 1.05
    fills = [each.get_facecolor() for each in axes.collections]
    leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    for name, fill, middle, place in zip(ends, fills, middles, apart(middles, gap, 0.02, 0.98), strict=True):
        axes.annotate(
            name,
            (1.0, middle),
            (1.05, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=SMALL,
            color=INK,
            annotation_clip=False,
            arrowprops=leader if ends[name] else None,
            bbox={"boxstyle": "square,pad=0.25", "facecolor": "white", "edgecolor": fill[0], "linewidth": 1.4},
        )
