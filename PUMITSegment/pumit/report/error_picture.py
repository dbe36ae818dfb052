"""A picture of what an answer gets wrong: three planes through its largest error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import deepest
from pumit.geometry import Triple, window_of
from pumit.prompts import BoxPrompt, PointPrompt, Prompt
from pumit.report.views import View, views_through
from pumit.system.atomic import atomic_path
from pumit.volume import Volume

Mask = npt.NDArray[np.bool_]

TRUTH, ANSWER = "#4ade80", "#ff4d4d"
POSITIVE, NEGATIVE, BOX = "#4ade80", "#ff6b6b", "#ffd166"
ROW_INCHES, DPI = 3.2, 90
# Surroundings that are shown, as a share of the extent of what is compared.
MARGIN = 0.35
# A click is drawn on a plane if it is at most this many slices away from it.
NEAR_SLICES = 1.5


@dataclass(frozen=True)
class Stage:
    """One answer with its prompts, a row of the picture.

    Attributes:
        name: Such as "box" or "3 clicks".
        mask: The answer, (D, H, W).
    """

    name: str
    mask: Mask
    prompts: Sequence[Prompt]


def write_error_picture(
    volume: Volume, target: Mask, stages: Sequence[Stage], path: Path, *, title: str
) -> None:
    """Write a PNG with a row for each answer and a column for each plane.

    The planes go through the deepest place of the largest error. The truth is outlined in green,
    the answer in red; clicks are + and x, a box is yellow.

    Args:
        target: The true mask, (D, H, W), not empty.

    Raises:
        ExportError: If the file cannot be written.
    """
    union = target.copy()
    for stage in stages:
        union |= stage.mask
    window = window_around(union)
    cut = cut_out(volume, window)
    truth = target[window]
    grey = grey_range(cut.array, union[window])
    columns = 1 if cut.is_planar else 3
    figure = Figure(figsize=(columns * ROW_INCHES * 1.15, len(stages) * ROW_INCHES + 0.4), dpi=DPI)
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(stages), columns, squeeze=False)
    for row, stage in zip(grid, stages, strict=True):
        answer = stage.mask[window]
        error = truth ^ answer
        through = deepest(error if error.any() else truth, cut.spacing_mm)
        for axes, view in zip(row, views_through(cut, through), strict=True):
            axes.imshow(view.cut(cut.array), cmap="gray", vmin=grey[0], vmax=grey[1],
                        extent=extent_of(view, cut.shape), interpolation="nearest")  # fmt: skip
            draw_outline(axes, view, truth, TRUTH)
            draw_outline(axes, view, answer, ANSWER)
            for prompt in stage.prompts:
                _draw(axes, view, cut, prompt)
            left, right, bottom, top = extent_of(view, cut.shape)
            axes.set(xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top))
            axes.set_xlabel(f"{view.name} {view.index}", fontsize=8)
        row[0].set_title(f"{stage.name}: Dice {dice(answer, truth):.2f}", fontsize=9, loc="left")
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def grey_range(scan: npt.NDArray[Any], shown: Mask) -> tuple[float, float]:
    """Darkest and brightest grey value to show, from what is compared and some room about it.

    Args:
        scan: (D, H, W).
        shown: Images to compare, on the same grid, not empty.
    """
    bounds = np.percentile(scan[shown], (0.5, 99.5))
    low, high = np.percentile(scan, (1, 99.5)) if bounds[0] == bounds[1] else bounds
    room = 0.4 * float(high - low)
    return (float(low) - room, float(high) + room)


def window_around(mask: Mask) -> tuple[slice, ...]:
    """Return the box of a mask with some surroundings, as slices of the volume."""
    window = []
    for box, size in zip(window_of(mask) or (), mask.shape, strict=True):
        room = 4 + round(MARGIN * float(box.stop - box.start))
        window.append(slice(max(box.start - room, 0), min(box.stop + room, size)))
    return tuple(window)


def cut_out(volume: Volume, window: tuple[slice, ...]) -> Volume:
    """Return the part of a scan in a window, in the world; of several channels the first."""
    scan = volume.array if volume.array.ndim == 3 else volume.array[0]
    return replace(
        volume,
        array=scan[window],
        origin_lps=tuple(volume.index_to_world([s.start for s in window]).tolist()),
        source=None,
    )


def extent_of(view: View, shape: tuple[int, int, int]) -> tuple[float, float, float, float]:
    """Left, right, bottom and top edge of a view, mm."""
    width, height = shape[view.right[0]] * view.spacing_mm[1], shape[view.down[0]]
    return (0.0, width, height * view.spacing_mm[0], 0.0)


def draw_outline(
    axes: Axes, view: View, mask: Mask, color: str | Triple, *, style: str = "-"
) -> None:
    """Draw the border of a mask on a view."""
    plane = view.cut(mask)
    if not plane.any():
        return
    # One voxel of margin closes outlines at the border of the picture.
    x = (np.arange(plane.shape[1] + 2) - 0.5) * view.spacing_mm[1]
    y = (np.arange(plane.shape[0] + 2) - 0.5) * view.spacing_mm[0]
    axes.contour(x, y, np.pad(plane, 1).astype(float), levels=[0.5], colors=[color], linewidths=1.2,
                 linestyles=style)  # fmt: skip


def _draw(axes: Axes, view: View, volume: Volume, prompt: Prompt) -> None:
    if isinstance(prompt, PointPrompt):
        x, y, depth = view.to_mm(volume.world_to_index(prompt.point_lps), volume.shape)[0]
        if volume.is_planar or abs(depth) <= NEAR_SLICES:
            color, marker = (POSITIVE, "+") if prompt.is_positive else (NEGATIVE, "x")
            axes.plot(x, y, marker, color=color, ms=9, mew=2)
    elif isinstance(prompt, BoxPrompt):
        corners = view.to_mm(volume.world_to_index(prompt.corners_lps), volume.shape)
        (left, top, near), (right, bottom, far) = corners.min(0), corners.max(0)
        if volume.is_planar or near - 0.5 <= 0 <= far + 0.5:
            axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top],
                      color=BOX, lw=1, ls="--")  # fmt: skip
