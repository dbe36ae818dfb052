"""Line charts one above the other over a common axis, as a PNG: how a training went."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pumit.geometry import Triple
from pumit.report.style import COLORS, plot_style
from pumit.system.atomic import atomic_path

WIDTH_INCHES, CHART_INCHES, DPI = 8.0, 2.5, 110
# Lighter than this, a line is lost on white.
LIGHTEST = 0.72
MOST_NAMED = 24
_PER_COLUMN = 9
MOST_TICKS = 7


@dataclass(frozen=True)
class Line:
    """Points joined by a line.

    Attributes:
        points: (x, y) of each.
        color_rgb: None for one of the chart's own.
        is_faint: Whether it is only there to compare with.
    """

    name: str
    points: Sequence[tuple[float, float]]
    color_rgb: Triple | None = None
    is_faint: bool = False
    has_dots: bool = False


@dataclass(frozen=True)
class LineChart:
    """Lines that share a y axis.

    Attributes:
        label: Label of the y axis, with its unit where it has one.
        limits: Ends of the y axis; None for what the lines need.
        marks: Name and x of places to point out.
    """

    label: str
    lines: Sequence[Line]
    limits: tuple[float, float] | None = None
    marks: Sequence[tuple[str, float]] = field(default=())


def write_line_charts(
    charts: Sequence[LineChart],
    path: Path,
    *,
    x_label: str,
    second: tuple[str, Sequence[tuple[float, float]]] | None = None,
) -> None:
    """Write a PNG of charts over a common x axis.

    Args:
        charts: Charts from top to bottom, at least one.
        x_label: Label of the x axis, with its unit.
        second: Another axis at the top: its label, and (x, its value) at some places, rising.

    Raises:
        ExportError: If the file cannot be written.
    """
    size = (WIDTH_INCHES, CHART_INCHES * len(charts) + 1.0)
    with plot_style():
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        rows = figure.subplots(len(charts), 1, sharex=True, squeeze=False)[:, 0]
        for axes, chart in zip(rows, charts, strict=True):
            _draw(axes, chart)
        rows[-1].set_xlabel(x_label)
        rows[-1].set_xlim(left=0)
        if second is not None:
            _second_axis(rows[0], *second)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png")


def _draw(axes: Axes, chart: LineChart) -> None:
    named = 0
    for number, line in enumerate(chart.lines):
        color = readable(line.color_rgb or to_rgb(COLORS[number % len(COLORS)]))
        named += 1
        x, y = zip(*line.points, strict=True) if line.points else ((), ())
        marker = "o" if line.has_dots or len(line.points) == 1 else ""
        axes.plot(
            x, y, marker=marker, color=color, ms=3.5, lw=1.0 if line.is_faint else 1.6,
            alpha=0.55 if line.is_faint else 1.0, ls="--" if line.is_faint else "-",
            label=line.name if named <= MOST_NAMED else None,
        )  # fmt: skip
    for name, place in chart.marks:
        axes.axvline(place, color="#6b7280", lw=1.0, ls=":", label=name)
    axes.set_ylabel(chart.label)
    if chart.limits is not None:
        axes.set_ylim(*chart.limits)
    axes.grid(alpha=0.25)
    if [line.name for line in chart.lines] == [chart.label]:
        return
    columns = 1 + (min(named, MOST_NAMED) + len(chart.marks) - 1) // _PER_COLUMN
    axes.legend(fontsize=8, ncols=columns, loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _second_axis(axes: Axes, label: str, pairs: Sequence[tuple[float, float]]) -> None:
    """Round values of another quantity along the top, where the lines below reach them."""
    x, other = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    if len(x) < 2 or (np.diff(x) <= 0).any() or (np.diff(other) < 0).any():
        return
    low, high = axes.get_xlim()
    places: list[float] = []
    values: list[str] = []
    for value in MaxNLocator(MOST_TICKS).tick_values(other[0], other[-1]):
        place = float(np.interp(value, other, x))
        is_free = not places or place - places[-1] > (high - low) / (2 * MOST_TICKS)
        if other[0] <= value <= other[-1] and is_free:
            places.append(place)
            values.append(f"{value:g}")
    top = axes.secondary_xaxis("top")
    top.set_xticks(places, values)
    top.set_xlabel(label)


def readable(color_rgb: Triple) -> Triple:
    """Return a colour dark enough for a line on white, of the same hue."""
    r, g, b = color_rgb
    light = 0.299 * r + 0.587 * g + 0.114 * b
    if light <= LIGHTEST:
        return color_rgb
    hue, saturation, value = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb(hue, saturation, value * LIGHTEST / light)
