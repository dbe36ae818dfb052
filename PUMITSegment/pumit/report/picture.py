"""Picture of segments on their scan: three views, outlines, prompts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from pumit.errors import ExportError, VolumeError
from pumit.geometry import Floats
from pumit.prompts import Prompt
from pumit.report.panels import (
    add_legend,
    add_panel,
    add_text,
    draw_letters,
    draw_outline,
    draw_prompt,
    draw_slice,
    first_channel,
    new_figure,
    save_figure,
)
from pumit.report.views import FAINT_TEXT, TEXT, View, views_through
from pumit.segmentation import Mask, Segment
from pumit.volume import Volume

# Alternatives for segments of the same colour, and the minimum difference in one component.
SPARE_COLORS = ("#4fd1c5", "#f2c14e", "#7aa5f7", "#e76f9b", "#9bd65b", "#b98ee8", "#e8e8e8")
LEAST_CONTRAST = 0.2

WIDTH_INCHES, HEIGHT_LIMIT_INCHES, DPI = 11.0, 9.0, 130
GAP_INCHES, HEADER_INCHES, FOOTER_INCHES = 0.12, 0.5, 0.42
FILL_OPACITY = 0.28
# Only CT has values this low; the display window then excludes air.
AIR_HU, TISSUE_HU = -500.0, -300.0


class _Panel(NamedTuple):
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
    """Write a PNG with axial, coronal and sagittal views through the most visible slices.

    The physical aspect ratio is kept. A 2D image is one panel. Views follow the volume's own axes,
    named by the nearest anatomical ones.

    Args:
        volume: The scan; 8-bit colour is shown in colour, else the first channel.
        segments: Segments on the volume's grid. If several have nearly the same colour, the first
            keeps it and the others get another.
        prompts: Points, scribbles and boxes to draw if they are close to a view.

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
    panels, (width, height) = _layout(views, volume.shape)
    figure = new_figure(width, height, dpi=DPI)
    for view, *place in panels:
        axes = add_panel(figure, *place)
        _draw_slice(axes, view, volume, window)
        for segment in segments:
            _draw_mask(axes, view, segment)
        for prompt in prompts:
            draw_prompt(axes, view, volume, prompt)
    if title:
        add_text(figure, GAP_INCHES, HEADER_INCHES / 2, title, fontsize=13)
    names = [(segment.name, segment.color_rgb) for segment in segments]
    add_legend(figure, GAP_INCHES, height - FOOTER_INCHES / 2, names)
    save_figure(figure, Path(path))


def _centre_index(mask: Mask) -> tuple[int, int, int]:
    indices = np.stack(np.nonzero(mask), axis=-1)
    nearest = np.abs(indices - indices.mean(axis=0)).max(axis=1).argmin()
    d, h, w = (int(i) for i in indices[nearest])
    return (d, h, w)


def _fullest_slices(segments: Sequence[Segment]) -> tuple[int, int, int]:
    best = []
    for axis in range(3):
        others = tuple({0, 1, 2} - {axis})
        areas = np.stack([np.count_nonzero(s.mask, axis=others) for s in segments])  # (N, slices)
        shares = areas / areas.max(axis=1, keepdims=True)
        # Areas are relative to each segment's largest, so small segments count like large ones.
        best.append(int(np.sqrt(shares).sum(axis=0).argmax()))
    return (best[0], best[1], best[2])


def _told_apart(segments: Sequence[Segment]) -> list[Segment]:
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
    """Return the display window: percentiles around the segment, without air in CT."""
    around = tuple(
        slice(max(int(i.min()) - margin, 0), int(i.max()) + margin + 1)
        for i, margin in ((i, 10 + int(np.ptp(i)) // 4) for i in np.nonzero(mask))
    )
    scalar = first_channel(volume)
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
    """Place the views at the same scale, in one row or with two stacked, whichever fills more."""
    sizes = [view.size_mm(shape) for view in views]
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
    draw_slice(axes, view, volume.array, window, interpolation="bilinear")
    draw_letters(axes, [(0.015, 0.985, view.name, "left", "top")], color=TEXT, size=10)
    places = [(0.012, 0.5, "left", "center"), (0.988, 0.5, "right", "center")]
    places += [(0.5, 0.985, "center", "top"), (0.5, 0.015, "center", "bottom")]
    edges = [(x, y, e, ha, va) for e, (x, y, ha, va) in zip(view.edges, places, strict=True)]
    draw_letters(axes, edges, color=FAINT_TEXT, size=8)


def _draw_mask(axes: Axes, view: View, segment: Segment) -> None:
    plane = view.cut(segment.mask)
    if not plane.any():
        return
    width, height = view.size_mm(segment.mask.shape)
    fill = np.zeros((*plane.shape, 4))
    fill[plane] = (*segment.color_rgb, FILL_OPACITY)
    axes.imshow(fill, extent=(0, width, height, 0), interpolation="nearest")
    draw_outline(axes, view, segment.mask, segment.color_rgb, width=1.4)
