"""Panels of a figure with slices of scans, outlines, prompts and legend."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from scipy.spatial import ConvexHull, QhullError

from pumit.geometry import Floats, Triple
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.report.views import BACKGROUND, FAINT_TEXT, TEXT, View
from pumit.segmentation import Mask
from pumit.system.files import atomic_path
from pumit.volume import Volume

POSITIVE, NEGATIVE, BOX = "#4ade80", "#ff6b6b", "#ffd166"
# Maximum distance in slices at which a prompt is drawn on a view.
NEAR_SLICES = 1.5
# Share of the width at which the legend is cut off.
LEGEND_LIMIT = 0.82

Color = str | Triple


def new_figure(width: float, height: float, *, dpi: int, color: str = BACKGROUND) -> Figure:
    """Return an empty figure of a size in inches."""
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor=color)
    FigureCanvasAgg(figure)
    return figure


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes at a position in inches from the upper left corner."""
    w, h = figure.get_size_inches()
    return figure.add_axes((left / w, 1 - (top + height) / h, width / w, height / h))


def add_text(figure: Figure, x: float, y: float, text: str, **style: Any) -> float:
    """Add text at a position in inches from the upper left corner, and return its right end."""
    w, h = figure.get_size_inches()
    # A name with two dollar signs is no formula.
    usual = {"color": TEXT, "va": "center", "parse_math": False}
    line = figure.text(x / w, 1 - y / h, text, **{**usual, **style})
    return float(line.get_window_extent().x1 / figure.bbox.width * w)


def add_legend(figure: Figure, x: float, y: float, entries: Sequence[tuple[str, Color]]) -> None:
    """Add names with their colours on one line, as many as fit; positions as in `add_text`."""
    for number, (name, color) in enumerate(entries):
        if x > LEGEND_LIMIT * figure.get_figwidth():
            more = f"and {len(entries) - number} more"
            add_text(figure, x, y, more, color=FAINT_TEXT, fontsize=10)
            return
        x = add_text(figure, x, y, "■ ", color=color, fontsize=12)
        x = add_text(figure, x, y, name, fontsize=10) + 0.25


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG.

    Raises:
        ExportError: If the file cannot be written.
    """
    with atomic_path(path, what="The picture") as temporary:
        figure.savefig(temporary, format="png")


def first_channel(volume: Volume) -> npt.NDArray[Any]:
    """Return the first channel of a scan, (D, H, W)."""
    return volume.array if volume.array.ndim == 3 else volume.array[0]


def draw_slice(
    axes: Axes,
    view: View,
    array: npt.NDArray[Any],
    limits: tuple[float, float],
    *,
    colors: str = "gray",
    interpolation: str = "nearest",
) -> None:
    """Draw a slice on axes in mm; 8-bit colour in colour, else the first channel.

    Args:
        array: (D, H, W) or (C, D, H, W).
    """
    plane = view.cut(array)
    if plane.ndim == 3 and len(plane) in (3, 4) and plane.dtype == np.uint8:
        plane = np.moveaxis(plane[:3], 0, -1)
    elif plane.ndim == 3:
        plane = plane[0]
    width, height = view.size_mm(array.shape[-3:])
    axes.imshow(
        plane, cmap=colors, vmin=limits[0], vmax=limits[1], interpolation=interpolation,
        extent=(0, width, height, 0),
    )  # fmt: skip
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def draw_outline(
    axes: Axes, view: View, mask: Mask, color: Color, *, style: Any = "-", width: float = 1.2
) -> None:
    """Draw the outline of a mask on a view."""
    plane = view.cut(mask)
    if not plane.any():
        return
    # A margin of one voxel closes outlines at the border of the image.
    x = (np.arange(plane.shape[1] + 2) - 0.5) * view.spacing_mm[1]
    y = (np.arange(plane.shape[0] + 2) - 0.5) * view.spacing_mm[0]
    axes.contour(x, y, np.pad(plane, 1).astype(float), levels=[0.5], colors=[color],
                 linewidths=width, linestyles=[style])  # fmt: skip


def draw_letters(
    axes: Axes, places: Iterable[tuple[float, float, str, str, str]], *, color: str, size: float
) -> None:
    """Add texts to a slice: (x, y, text, horizontal and vertical alignment), x and y in 0..1."""
    outline = [withStroke(linewidth=2, foreground=BACKGROUND)]
    for x, y, text, ha, va in places:
        axes.text(x, y, text, transform=axes.transAxes, ha=ha, va=va, color=color, fontsize=size,
                  path_effects=outline)  # fmt: skip


def draw_prompt(axes: Axes, view: View, volume: Volume, prompt: Prompt) -> None:
    """Draw a prompt if it is close to a view."""

    def place(points_lps: object) -> Floats:
        return view.to_mm(volume.world_to_index(np.asarray(points_lps)), volume.shape)

    outline = [withStroke(linewidth=3, foreground=BACKGROUND)]
    if isinstance(prompt, PointPrompt):
        x, y, depth = place(prompt.point_lps)[0]
        if volume.is_planar or abs(depth) <= NEAR_SLICES:
            color, marker = (POSITIVE, "+") if prompt.is_positive else (NEGATIVE, "x")
            axes.plot(x, y, marker, color=color, ms=10, mew=2.2, path_effects=outline, zorder=5)
    elif isinstance(prompt, ScribblePrompt):
        points = place(prompt.points_lps)
        if not volume.is_planar:
            points[np.abs(points[:, 2]) > NEAR_SLICES] = np.nan
        color = POSITIVE if prompt.is_positive else NEGATIVE
        axes.plot(points[:, 0], points[:, 1], color=color, lw=2, path_effects=outline, zorder=5)
    elif isinstance(prompt, BoxPrompt):
        outline_mm = _box_outline(place(prompt.corners_lps), is_planar=volume.is_planar)
        axes.plot(*outline_mm.T, color=BOX, lw=1.3, ls=(0, (4, 2)), zorder=4)


def _box_outline(corners: Floats, *, is_planar: bool) -> Floats:
    """Return the intersection of a box with the slice, a closed line (N, 2) mm, or empty.

    Args:
        corners: Corners (x mm, y mm, depth in slices) in any order, (4 or 8, 3).
    """
    flat = np.ptp(corners[:, 2]) < 2 * NEAR_SLICES and abs(corners[:, 2].mean()) <= NEAR_SLICES
    if is_planar or (flat and len(corners) == 4):
        points = corners[:, :2]
    else:
        # Segments between all pairs of corners give the same convex hull as the edges.
        a, b = (corners[i] for i in np.triu_indices(len(corners), 1))
        crossing = (a[:, 2] <= 0) != (b[:, 2] <= 0)
        a, b = a[crossing], b[crossing]
        part = a[:, 2:] / (a[:, 2:] - b[:, 2:])
        points = (a + part * (b - a))[:, :2]
    try:
        hull = ConvexHull(points).vertices if len(points) > 2 else np.arange(len(points))
    except QhullError:
        hull = np.array([points[:, 0].argmin(), points[:, 0].argmax()])
    return np.asarray(points[np.append(hull, hull[:1])])
