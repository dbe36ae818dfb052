"""A picture of segments on their scan: three views, outlines, prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from scipy.spatial import ConvexHull, QhullError

from pumit.errors import ExportError, VolumeError
from pumit.geometry import Floats
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.report.style import BACKGROUND, FAINT_TEXT, TEXT
from pumit.report.views import View, views_through
from pumit.segmentation import Mask, Segment
from pumit.system.atomic import atomic_path
from pumit.volume import Volume

POSITIVE, NEGATIVE, BOX = "#4ade80", "#ff6b6b", "#ffd166"

# For segments whose colours are alike, and by how much one part of a colour must differ.
SPARE_COLORS = ("#4fd1c5", "#f2c14e", "#7aa5f7", "#e76f9b", "#9bd65b", "#b98ee8", "#e8e8e8")
LEAST_CONTRAST = 0.2

WIDTH_INCHES, HEIGHT_LIMIT_INCHES, DPI = 11.0, 9.0, 130
GAP_INCHES, HEADER_INCHES, FOOTER_INCHES = 0.12, 0.5, 0.42
FILL_OPACITY = 0.28
# Part of the width after which the legend names no further segment.
LEGEND_LIMIT = 0.82
# A prompt is drawn on a view if it is at most this many slices away from it.
NEAR_SLICES = 1.5
# No scanner but CT gives values this low; then air must not set the window.
AIR_HU, TISSUE_HU = -500.0, -300.0


@dataclass(frozen=True)
class _Panel:
    view: View
    left: float
    top: float
    width: float
    height: float


def write_picture(
    volume: Volume,
    segments: Sequence[Segment],
    path: str | Path,
    *,
    prompts: Sequence[Prompt] = (),
    title: str = "",
) -> None:
    """Write a PNG with axial, coronal and sagittal views where most segments are seen.

    Physical proportions are kept. A 2D image is one panel. Views follow the volume's own axes,
    named by the nearest anatomical ones.

    Args:
        volume: The scan; 8-bit colour is shown in colour, of other channels the first.
        segments: Segments on the volume's grid, each in its own colour; of several that are alike
            one keeps it.
        prompts: Drawn where they lie on a view: points, scribbles and boxes.

    Raises:
        ExportError: If there is no segment, or the file cannot be written.
        VolumeError: If a mask is not on the volume's grid.
    """
    if not segments:
        raise ExportError("There is no segment to show; segment something first.")
    for segment in segments:
        if segment.mask.shape != volume.shape:
            raise VolumeError(
                f"The mask of segment {segment.name!r} has shape {segment.mask.shape}, the "
                f"volume {volume.shape}; masks must be on the volume's own grid."
            )
    largest = max(segments, key=lambda s: int(np.count_nonzero(s.mask)))
    index = _centre_index(largest.mask) if len(segments) == 1 else _fullest_slices(segments)
    views = views_through(volume, index)
    segments = _told_apart(segments)
    window = _window(volume, largest.mask)
    panels, size = _layout(views, volume.shape)
    figure = Figure(figsize=size, dpi=DPI, facecolor=BACKGROUND)
    canvas = FigureCanvasAgg(figure)
    for panel in panels:
        axes = figure.add_axes(
            (
                panel.left / size[0],
                1 - (panel.top + panel.height) / size[1],
                panel.width / size[0],
                panel.height / size[1],
            )
        )
        _draw_slice(axes, panel.view, volume, window)
        for segment in segments:
            _draw_mask(axes, panel.view, segment)
        for prompt in prompts:
            _draw_prompt(axes, panel.view, volume, prompt)
    _write_text(canvas, size, segments, title)
    with atomic_path(Path(path)) as temporary:
        figure.savefig(temporary, format="png", facecolor=BACKGROUND)


def _centre_index(mask: Mask) -> tuple[int, int, int]:
    """Return the voxel of a mask that is nearest to its centroid."""
    indices = np.stack(np.nonzero(mask), axis=-1)
    nearest = np.abs(indices - indices.mean(axis=0)).max(axis=1).argmin()
    d, h, w = (int(i) for i in indices[nearest])
    return (d, h, w)


def _fullest_slices(segments: Sequence[Segment]) -> tuple[int, int, int]:
    """Return the slices along each axis that show most segments, and of those most of them."""
    best = []
    for axis in range(3):
        others = tuple({0, 1, 2} - {axis})
        areas = np.stack([np.count_nonzero(s.mask, axis=others) for s in segments])  # (N, slices)
        shares = areas / areas.max(axis=1, keepdims=True)
        # Each counts as far as it is seen, a small one as much as a large one.
        best.append(int(np.sqrt(shares).sum(axis=0).argmax()))
    return (best[0], best[1], best[2])


def _told_apart(segments: Sequence[Segment]) -> list[Segment]:
    """Give segments other colours where they are as good as those of earlier ones."""
    used: list[Floats] = []
    shown = []
    for segment in segments:
        spare = (np.array(to_rgb(color)) for color in SPARE_COLORS)
        choices = [np.array(segment.color_rgb), *spare]
        color = next((c for c in choices if _is_new(c, used)), choices[0])
        used.append(color)
        shown.append(replace(segment, color_rgb=tuple(color.tolist())))
    return shown


def _is_new(color: Floats, used: Sequence[Floats]) -> bool:
    return all(float(np.abs(color - other).max()) > LEAST_CONTRAST for other in used)


def _window(volume: Volume, mask: Mask) -> tuple[float, float]:
    """Darkest and brightest shown value: percentiles around the segment, without air in CT."""
    around = tuple(
        slice(max(int(i.min()) - margin, 0), int(i.max()) + margin + 1)
        for i, margin in ((i, 10 + int(np.ptp(i)) // 4) for i in np.nonzero(mask))
    )
    scalar = volume.array if volume.array.ndim == 3 else volume.array[0]
    values = scalar[around].astype(np.float64).ravel()
    values = values[np.isfinite(values)]
    if values.size and values.min() < AIR_HU < np.median(scalar[mask]):
        values = values[values > TISSUE_HU]
    if not values.size:
        return (0.0, 1.0)
    low, high = np.percentile(values, (1.0, 99.5))
    return (float(low), float(high) if high > low else float(low) + 1.0)


def _layout(
    views: list[View], shape: tuple[int, int, int]
) -> tuple[list[_Panel], tuple[float, float]]:
    """Place the views at one scale, in a row or two below each other, whichever is fuller."""
    sizes = [
        (shape[v.right[0]] * v.spacing_mm[1], shape[v.down[0]] * v.spacing_mm[0]) for v in views
    ]  # (width, height) mm
    columns = [[0], [1], [2]] if len(views) == 3 else [[0]]
    if len(views) == 3 and _emptiness(sizes, [[0], [1, 2]]) < _emptiness(sizes, columns):
        columns = [[0], [1, 2]]
    widths = [max(sizes[i][0] for i in column) for column in columns]
    room = WIDTH_INCHES - GAP_INCHES * (len(columns) + 1)
    gaps = max(len(column) for column in columns) - 1
    tallest = max(sum(sizes[i][1] for i in column) for column in columns)
    scale = min(room / sum(widths), (HEIGHT_LIMIT_INCHES - gaps * GAP_INCHES) / tallest)
    height = tallest * scale + gaps * GAP_INCHES
    panels, left = [], GAP_INCHES
    for column, width in zip(columns, widths, strict=True):
        used = sum(sizes[i][1] for i in column) * scale + GAP_INCHES * (len(column) - 1)
        top = HEADER_INCHES + (height - used) / 2
        for i in column:
            w, h = (s * scale for s in sizes[i])
            panels.append(_Panel(views[i], left + (width * scale - w) / 2, top, w, h))
            top += h + GAP_INCHES
        left += width * scale + GAP_INCHES
    return panels, (left, HEADER_INCHES + height + FOOTER_INCHES)


def _emptiness(sizes: list[tuple[float, float]], columns: list[list[int]]) -> float:
    width = sum(max(sizes[i][0] for i in column) for column in columns)
    height = max(sum(sizes[i][1] for i in column) for column in columns)
    return 1 - sum(w * h for w, h in sizes) / (width * height)


def _draw_slice(axes: Axes, view: View, volume: Volume, window: tuple[float, float]) -> None:
    plane = view.cut(volume.array)
    low, high = window
    image: npt.NDArray[Any]
    if plane.ndim == 3 and len(plane) in (3, 4) and plane.dtype == np.uint8:
        image = np.moveaxis(plane[:3], 0, -1)
    else:
        image = plane if plane.ndim == 2 else plane[0]
    rows, columns = image.shape[:2]
    width, height = columns * view.spacing_mm[1], rows * view.spacing_mm[0]
    axes.imshow(
        image,
        cmap="gray",
        vmin=low,
        vmax=high,
        extent=(0, width, height, 0),
        interpolation="bilinear",
        aspect="auto",
    )
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    _letter(axes, 0.015, 0.985, view.name, "left", "top", color=TEXT, size=10)
    places = [(0.012, 0.5, "left", "center"), (0.988, 0.5, "right", "center")]
    places += [(0.5, 0.985, "center", "top"), (0.5, 0.015, "center", "bottom")]
    for letter, (x, y, horizontal, vertical) in zip(view.edges, places, strict=True):
        _letter(axes, x, y, letter, horizontal, vertical, color=FAINT_TEXT, size=8)


def _letter(
    axes: Axes, x: float, y: float, text: str, ha: str, va: str, *, color: str, size: float
) -> None:
    outline = [withStroke(linewidth=2, foreground=BACKGROUND)]
    axes.text(
        x, y, text, transform=axes.transAxes, ha=ha, va=va, color=color, fontsize=size,
        path_effects=outline,
    )  # fmt: skip


def _draw_mask(axes: Axes, view: View, segment: Segment) -> None:
    plane = view.cut(segment.mask)
    if not plane.any():
        return
    rows, columns = plane.shape
    row_mm, column_mm = view.spacing_mm
    fill = np.zeros((rows, columns, 4))
    fill[plane] = (*segment.color_rgb, FILL_OPACITY)
    axes.imshow(
        fill,
        extent=(0, columns * column_mm, rows * row_mm, 0),
        interpolation="nearest",
        aspect="auto",
    )
    # One voxel of margin closes outlines at the border of the image.
    padded = np.pad(plane, 1).astype(np.float64)
    x = (np.arange(columns + 2) - 0.5) * column_mm
    y = (np.arange(rows + 2) - 0.5) * row_mm
    axes.contour(x, y, padded, levels=[0.5], colors=[segment.color_rgb], linewidths=1.4)


def _draw_prompt(axes: Axes, view: View, volume: Volume, prompt: Prompt) -> None:
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
    """Where a box meets the slice: a closed line, (N, 2) mm; empty if it does not.

    Args:
        corners: (x mm, y mm, depth in slices) of its corners, any order, (4 or 8, 3).
        is_planar: Whether depth has no meaning.
    """
    flat = np.ptp(corners[:, 2]) < 2 * NEAR_SLICES and abs(corners[:, 2].mean()) <= NEAR_SLICES
    if is_planar or (flat and len(corners) == 4):
        points = corners[:, :2]
    else:
        # Lines between all pairs of corners meet the plane in points of the same hull as edges.
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


def _write_text(
    canvas: FigureCanvasAgg, size: tuple[float, float], segments: Sequence[Segment], title: str
) -> None:
    figure, x = canvas.figure, GAP_INCHES / size[0]
    if title:
        y = 1 - HEADER_INCHES / 2 / size[1]
        figure.text(x, y, title, color=TEXT, fontsize=13, va="center")
    y = FOOTER_INCHES / 2 / size[1]
    for number, segment in enumerate(segments):
        if x > LEGEND_LIMIT:
            more = f"and {len(segments) - number} more"
            figure.text(x, y, more, color=FAINT_TEXT, fontsize=10, va="center")
            break
        swatch = figure.text(x, y, "■ ", color=segment.color_rgb, fontsize=12, va="center")
        x = _right_edge(canvas, swatch)
        label = figure.text(x, y, segment.name, color=TEXT, fontsize=10, va="center")
        x = _right_edge(canvas, label) + 0.25 / size[0]


def _right_edge(canvas: FigureCanvasAgg, text: Text) -> float:
    box = text.get_window_extent(canvas.get_renderer())
    return float(box.x1 / canvas.figure.bbox.width)
