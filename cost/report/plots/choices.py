"""What to choose: the tier, the cadence, and what moves the total."""

import math

from matplotlib.axes import Axes

from cost.compare import Row
from cost.pricing.retrieval import Verdict
from cost.report.cadence import CadenceStudy
from cost.report.contents import Report
from cost.report.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    SLATE,
    SMALL,
    Figure,
    apart,
    figure,
    money_axis,
    span_axis,
)
from cost.report.sensitivity import Swing
from cost.report.words import money, short, span

_LOOK = {Verdict.PASS: ("o", GREEN), Verdict.CONDITIONAL: ("D", ORANGE), Verdict.FAIL: ("X", GREY)}
_MIDDLE, _BESIDE, _NEAR = 0.55, 0.035, 0.15
_CLEAR, _THICK = 8, 4.5
_NAME, _CHANGE = 32, 24
_LOST = "Lost work: checkpoints and repeated computing, to first order, at the job's hourly cost for 730 hours. "
Point = tuple[int, Row, float, int]
"""Rank, row, amount a month and seconds."""
_SAID = {Verdict.PASS: "will do", Verdict.CONDITIONAL: "may do", Verdict.FAIL: "will not do"}


def frontier(report: Report) -> Figure | None:
    """Return monthly cost against the longest restore of each candidate; None without a comparison."""
    comparison = report.comparison
    if comparison is None:
        return None
    points = [
        (rank, row, float(row.per_month.low), float(row.per_month.high))
        for rank, row in enumerate(comparison.rows, 1)
        if row.per_month is not None and row.per_month.low > 0
    ]
    if not points:
        return None
    target = comparison.needs.recover_within
    times = [max(1, row.restore.high) for _, row, _, _ in points]

    def draw(axes: Axes, narrow: bool) -> None:  # noqa: FBT001 - the signature of every drawing
        span_axis(axes, min(*times, max(1, target)) / 1.6, max(*times, target) * 1.6, most=4 if narrow else 7)
        money_axis(axes, min(p[2] for p in points) / 1.5, max(p[3] for p in points) * 1.7)
        axes.axvline(max(1, target), color=RED, linestyle="--", linewidth=1.2)
        axes.annotate(
            f"target {span(target)}",
            (max(1, target), 1.0),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            color=RED,
            fontsize=SMALL,
        )
        for (_, row, low, high), time in zip(points, times, strict=True):
            marker, colour = _LOOK[row.standing]
            axes.plot([time, time], [low, high], color=colour, linewidth=2.2, solid_capstyle="butt")
            axes.plot([time], [high], marker, color=colour, markersize=7, markeredgecolor="white")
        _name_points(
            axes, [(r, row, high, t) for (r, row, _, high), t in zip(points, times, strict=True)], narrow=narrow
        )
        axes.set_xlabel("restore time, upper bound")
        axes.set_ylabel(f"cost a month, {comparison.currency}")

    listed = "; ".join(
        f"{rank} {row.candidate.name}: {money(row.per_month, comparison.currency) if row.per_month else 'no price'}"
        f" a month, up to {span(row.restore.high)}, {_SAID[row.standing]}"
        for rank, row, _, _ in points
    )
    return figure(
        "frontier",
        "Tiers: monthly cost against time to restore",
        f"Points by rank. {listed}. The target is {span(target)}.",
        "Round: will do. Diamond: may do. Cross, grey: will not do. Numbers are ranks in the table; "
        "a bar reaches down to the lower end where a card leaves the metering open. Both axes are logarithmic.",
        draw,
        height=1.15,
    )


def _name_points(axes: Axes, points: list[Point], *, narrow: bool) -> None:
    """Write rank and name beside each point, moved apart; towards the middle of the figure."""
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    for members in _clusters(points, left, right):
        columns = [math.log(each[3] / left) / math.log(right / left) for each in members]
        flipped = columns[0] > _MIDDLE
        column = columns[0] - _BESIDE if flipped else columns[-1] + _BESIDE
        wanted = [math.log(each[2] / low) / math.log(high / low) for each in members]
        places = apart(wanted, 0.058 if narrow else 0.052, 0.02, 0.97)
        for (rank, row, amount, time), place in zip(members, places, strict=True):
            arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
            named = axes.annotate(
                str(rank) if narrow else f"{rank} {short(row.candidate.name, _NAME)}",
                (time, amount),
                (column, place),
                textcoords="axes fraction",
                ha="right" if flipped else "left",
                va="center",
                fontsize=SMALL,
                color=SLATE if row.standing is Verdict.FAIL else INK,
                bbox={"boxstyle": "square,pad=0.08", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
                arrowprops={**arrow, "relpos": (1 if flipped else 0, 0.5)},
            )
            named.set_in_layout(False)  # a long name is cut off; it does not push the axes together


def _clusters(points: list[Point], left: float, right: float) -> list[list[Point]]:
    """Return the points from left to right, those that lie near each other sharing a column of labels."""
    found: list[list[Point]] = []
    for point in sorted(points, key=lambda each: each[3]):
        if found and math.log(point[3] / found[-1][-1][3]) / math.log(right / left) < _NEAR:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def against_cadence(report: Report) -> Figure | None:
    """Return the bill and lost time at each cadence, with the best one marked; None without a study."""
    study = report.cadence
    if study is None or not study.points:
        return None
    spans = [point.cadence for point in study.points]
    curves = _curves(study)
    values = [value for curve, _ in curves.values() for value in curve if value > 0]
    if not values:
        return None

    def draw(axes: Axes, narrow: bool) -> None:  # noqa: FBT001 - as above
        span_axis(axes, min(spans) / 1.15, max(spans) * 1.15, most=4 if narrow else 8)
        low, high = min(values) / 1.6, max(values) * 1.6
        money_axis(axes, low, high)
        for name, (curve, colour) in curves.items():
            axes.plot(
                spans, curve, color=colour, marker="o", markersize=3, linewidth=_THICK if name == "lost work" else 1.4
            )
        for at, name, colour, height in _marks(study):
            axes.axvline(at, color=colour, linestyle="--", linewidth=1.1)
            axes.annotate(
                f"{name} {span(round(at))}",
                (at, height),
                (0, 3),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                color=colour,
                fontsize=SMALL,
            )
        ends = [math.log(max(curve[-1], low) / low) / math.log(high / low) for curve, _ in curves.values()]
        for (name, (_, colour)), place in zip(curves.items(), apart(ends, 0.07, 0.03, 0.97), strict=True):
            axes.annotate(name, (1.02, place), xycoords="axes fraction", va="center", color=colour, fontsize=SMALL)
        axes.set_xlabel("time between checkpoints")
        axes.set_ylabel(f"a month, {study.currency}")

    best = "" if study.best is None else f" Least at T* = {span(round(study.best))}."
    listed = "; ".join(
        f"every {span(p.cadence)}: bill {money(p.bill.high)}" + (f", lost work {money(p.lost)}" if p.lost else "")
        for p in study.points
    )
    return figure(
        "cadence",
        "Cost against cadence",
        f"Curves of {', '.join(curves)} in {study.currency} a month. {listed}.{best}",
        ("" if len(curves) == 1 else _LOST) + "Milestones keep their distance in time. Both axes are logarithmic.",
        draw,
    )


def _curves(study: CadenceStudy) -> dict[str, tuple[list[float], str]]:
    """Return the curves by name, with their colours; lost work only where a burn rate prices it."""
    bills = [float(point.bill.high) for point in study.points]
    lost = [float(point.lost) for point in study.points]
    curves = {"bill": (bills, BLUE)}
    if any(lost):
        curves["lost work"] = (lost, RED)
        curves["both"] = ([a + b for a, b in zip(bills, lost, strict=True)], INK)
    return curves


def _marks(study: CadenceStudy) -> list[tuple[float, str, str, float]]:
    """Return the cadences to mark: where, name, colour, and how high the name stands, above another that is near."""
    marks = [(float(study.current), "now", SLATE, 1.0)]
    if study.best is not None:
        clear = max(study.best, study.current) > _CLEAR * min(study.best, study.current)
        marks.append((study.best, "T*", GREEN, 1.0 if clear else 1.07))
    return marks


def tornado(report: Report) -> Figure | None:
    """Return how far the total moves when one thing changes; None where nothing was varied."""
    swings = [swing for swing in report.sensitivity if swing.reach]
    if not swings:
        return None
    base = float(swings[0].base.high)
    currency = report.estimate.currency

    def draw(axes: Axes, narrow: bool) -> None:  # noqa: FBT001 - as above
        every = [base, *(float(amount.high) for swing in swings for _, amount in swing.outcomes)]
        room = (max(every) - min(every)) * (0.42 if narrow else 0.2)
        axes.set_xlim(min(every) - room, max(every) + room)
        for row, swing in enumerate(reversed(swings)):
            _bars(axes, row, swing, narrow=narrow)
        axes.axvline(base, color=INK, linewidth=1)
        names = [short(swing.name, _NAME) for swing in reversed(swings)]
        axes.set_yticks(range(len(swings)), [name.replace(" ", "\n", 1) if narrow else name for name in names])
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_formatter("{x:,.6g}")
        axes.set_ylim(-0.6, len(swings) - 0.4)
        axes.set_xlabel(f"total of the run, {currency} (now {money(swings[0].base.high)})")

    listed = "; ".join(
        f"{swing.name}: " + ", ".join(f"{text} {money(amount.high)}" for text, amount in swing.outcomes)
        for swing in swings
    )
    return figure(
        "sensitivity",
        "What moves the total",
        f"Bars from {money(swings[0].base.high, currency)}. {listed}.",
        "One thing is changed at a time. Orange: dearer. Blue: cheaper.",
        draw,
        height=max(0.6, 0.16 * len(swings) + 0.25),
    )


def _bars(axes: Axes, row: int, swing: Swing, *, narrow: bool) -> None:
    """Draw what one change does, with one text on each side for all that lies there."""
    base = float(swing.base.high)
    for dearer, colour in ((True, ORANGE), (False, BLUE)):
        found = [each for each in swing.outcomes if (each[1].high > swing.base.high) is dearer]
        if not found:
            continue
        for _, amount in found:
            axes.barh(row, float(amount.high) - base, left=base, height=0.5, color=colour, alpha=1 / len(found))
        texts = [f"{short(text, _CHANGE)}: {money(amount.high)}" for text, amount in found]
        if narrow:
            texts = [each.replace(": ", "\n", 1) for each in texts[:1]] if len(texts) == 1 else texts
        furthest = max((float(amount.high) for _, amount in found), key=lambda value: abs(value - base))
        axes.annotate(
            "\n".join(texts),
            (furthest, row),
            (3 if dearer else -3, 0),
            textcoords="offset points",
            ha="left" if dearer else "right",
            va="center",
            fontsize=SMALL,
        )
