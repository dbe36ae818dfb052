"""Charts of a training as PNG, and of a comparison as SVG."""

import colorsys
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pumit.geometry import Triple
from pumit.report.views import COLORS, plot_style
from pumit.system.files import atomic_path

WIDTH_INCHES, CHART_INCHES, DPI = 8.0, 2.5, 110
# Maximum luminance at which a line is visible on white.
LIGHTEST = 0.72
MOST_NAMED = 24
_PER_COLUMN = 9
MOST_TICKS = 7
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*")
STYLES = ("-", "--", "-.", ":")
# Placeholder for the text colour of the page (currentColor).
_INK = "#010203"
_WIDTH, _ROW, _AXIS = 5.6, 0.42, 0.7  # inches


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        color_rgb: Colour; None for one of the chart's palette.
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
        label: Label of the y axis, with its unit if any.
        limits: Limits of the y axis; None for automatic ones.
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
        second: Secondary axis at the top: its label, and ascending pairs (x, value on it).

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
    for number, line in enumerate(chart.lines):
        color = readable(line.color_rgb or to_rgb(COLORS[number % len(COLORS)]))
        x, y = zip(*line.points, strict=True) if line.points else ((), ())
        marker = "o" if line.has_dots or len(line.points) == 1 else ""
        axes.plot(
            x, y, marker=marker, color=color, ms=3.5, lw=1.0 if line.is_faint else 1.6,
            alpha=0.55 if line.is_faint else 1.0, ls="--" if line.is_faint else "-",
            label=line.name if number < MOST_NAMED else None,
        )  # fmt: skip
    for name, place in chart.marks:
        axes.axvline(place, color="#6b7280", lw=1.0, ls=":", label=name)
    axes.set_ylabel(chart.label)
    if chart.limits is not None:
        axes.set_ylim(*chart.limits)
    axes.grid(alpha=0.25)
    if [line.name for line in chart.lines] == [chart.label]:
        return
    columns = 1 + (min(len(chart.lines), MOST_NAMED) + len(chart.marks) - 1) // _PER_COLUMN
    axes.legend(fontsize=8, ncols=columns, loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _second_axis(axes: Axes, label: str, pairs: Sequence[tuple[float, float]]) -> None:
    """Draw an axis of another quantity at the top, with ticks at round values."""
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
    """Return a colour of the same hue that is dark enough for a line on white."""
    r, g, b = color_rgb
    light = 0.299 * r + 0.587 * g + 0.114 * b
    if light <= LIGHTEST:
        return color_rgb
    hue, saturation, value = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb(hue, saturation, value * LIGHTEST / light)


@dataclass(frozen=True)
class PointRow:
    """A network's row in a point plot.

    Attributes:
        points: Values of the cases, by seed.
        mean: Mean of all values; None if undefined.
    """

    name: str
    points: Sequence[Sequence[float]]
    mean: float | None
    low: float | None = None
    high: float | None = None


def point_rows_svg(rows: Sequence[PointRow], *, label: str, seeds: Sequence[int]) -> str:
    """Return a point plot with one row per network, one point per case and one marker per seed.

    Args:
        seeds: Seeds in the order of the rows' points, for the legend.
    """
    with plot_style(_INK):
        figure = Figure(figsize=(_WIDTH, _AXIS + _ROW * len(rows)))
        axes = figure.subplots()
        for number, row in enumerate(rows):
            _draw_row(axes, row, -number, COLORS[number % len(COLORS)])
        axes.set_yticks([-i for i in range(len(rows))], [row.name for row in rows])
        axes.set_ylim(0.6 - len(rows), 0.6)
        axes.set_xlabel(label)
        for number, seed in enumerate(seeds):
            axes.plot(
                [], [], MARKERS[number % len(MARKERS)], color=_INK, ms=5, label=f"seed {seed}"
            )
        axes.plot([], [], "|", color=_INK, ms=12, mew=2, label="mean, 95 % interval")
        axes.legend(ncols=min(len(seeds) + 1, 4), loc="lower left", bbox_to_anchor=(0, 1))
        axes.set_facecolor("none")
        axes.grid(axis="x", color=_INK, alpha=0.15)
        axes.tick_params(axis="y", length=0)
        return _svg(figure)


def curves_svg(lines: Sequence[Line], *, x_label: str, y_label: str) -> str:
    """Return a line plot, with one colour and style per name."""
    names = list(dict.fromkeys(line.name for line in lines))
    with plot_style(_INK):
        figure = Figure(figsize=(_WIDTH, 3.2))
        axes = figure.subplots()
        named: set[str] = set()
        for line in lines:
            number = names.index(line.name)
            x, y = zip(*line.points, strict=True) if line.points else ((), ())
            axes.plot(
                x, y, color=COLORS[number % len(COLORS)], ls=STYLES[number % len(STYLES)], lw=1.2,
                alpha=0.8, label=None if line.name in named else line.name,
            )  # fmt: skip
            named.add(line.name)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.legend(ncols=2)
        axes.set_facecolor("none")
        axes.grid(color=_INK, alpha=0.15)
        return _svg(figure)


def _draw_row(axes: Axes, row: PointRow, middle: float, color: str) -> None:
    count = len(row.points)
    for number, values in enumerate(row.points):
        height = middle + (0.0 if count == 1 else 0.25 - 0.5 * number / (count - 1))
        axes.plot(
            values, [height] * len(values), MARKERS[number % len(MARKERS)], color=color, ms=5,
            alpha=0.6, mec="none", clip_on=False,
        )  # fmt: skip
    if row.mean is not None:
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [middle, middle], color=_INK, lw=2.0)
        axes.plot([row.mean], [middle], "|", color=_INK, ms=16, mew=2.4)


def _svg(figure: Figure) -> str:
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0.0)
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    return file.getvalue().replace(_INK, "currentColor")
