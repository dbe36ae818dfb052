"""Figures of a comparison as SVG: every case's point with the means, and how losses fell."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pumit.report.style import COLORS, plot_style

MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*")
STYLES = ("-", "--", "-.", ":")
# Stands for the colour of the text around the figure, whatever it is there.
_INK = "#010203"
_WIDTH, _ROW, _AXIS = 5.6, 0.42, 0.7  # inches


@dataclass(frozen=True)
class PointRow:
    """A network in a figure of points.

    Attributes:
        name: Beside the row.
        points: Values of the cases of each seed.
        mean: Mean of all; None where there is none.
        low: Lower end of its interval, where there is one.
    """

    name: str
    points: Sequence[Sequence[float]]
    mean: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TrainingCurve:
    """A training in a figure of curves.

    Attributes:
        name: Name of the network; curves of one name look alike.
        points: (x, y).
    """

    name: str
    points: Sequence[tuple[float, float]]


def point_rows_svg(rows: Sequence[PointRow], *, label: str, seeds: Sequence[int]) -> str:
    """One row a network: every case a point, each seed a marker and its own height.

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


def curves_svg(curves: Sequence[TrainingCurve], *, x_label: str, y_label: str) -> str:
    """Curves, those of one name in one colour and style.

    Args:
        x_label: Label of the horizontal axis, with its unit.
    """
    names = list(dict.fromkeys(curve.name for curve in curves))
    with plot_style(_INK):
        figure = Figure(figsize=(_WIDTH, 3.2))
        axes = figure.subplots()
        named: set[str] = set()
        for curve in curves:
            number = names.index(curve.name)
            x, y = zip(*curve.points, strict=True) if curve.points else ((), ())
            axes.plot(
                x, y, color=COLORS[number % len(COLORS)], ls=STYLES[number % len(STYLES)], lw=1.2,
                alpha=0.8, label=None if curve.name in named else curve.name,
            )  # fmt: skip
            named.add(curve.name)
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
