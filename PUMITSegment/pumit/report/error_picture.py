"""Pictures of the errors of a prediction: three planes through the largest error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pumit.errors import VolumeError
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import deepest
from pumit.geometry import Triple, window_of
from pumit.prompts import Prompt
from pumit.report.panels import (
    POSITIVE,
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
from pumit.report.views import TEXT, views_through
from pumit.segmentation import Mask
from pumit.volume import Volume

ANSWER = "#ff4d4d"
ROW_INCHES, DPI = 3.2, 90
# Margin around the compared masks, as a fraction of their extent.
MARGIN = 0.35
WIDTH_INCHES, LONGEST_INCHES, CLASS_DPI = 10.0, 4.6, 110
HEADER_INCHES, LINE_INCHES, GAP_INCHES = 0.45, 0.22, 0.1
TRUTH_STYLE = "--"
_PER_LINE = 4
_MOST_NAMED = 16


@dataclass(frozen=True)
class Stage:
    """One prediction with its prompts, a row of the picture.

    Attributes:
        name: Title, such as "box" or "3 clicks".
        mask: Prediction, (D, H, W).
    """

    name: str
    mask: Mask
    prompts: Sequence[Prompt]


def write_error_picture(
    volume: Volume, target: Mask, stages: Sequence[Stage], path: Path, *, title: str
) -> None:
    """Write a PNG with a row per prediction and a column per plane.

    The planes go through the deepest voxel of the largest error. The ground truth is outlined in
    green, the prediction in red; clicks are + and x, a box is yellow.

    Args:
        target: Ground truth, (D, H, W), not empty.

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
    width, height = columns * ROW_INCHES * 1.15, len(stages) * ROW_INCHES + 0.4
    figure = new_figure(width, height, dpi=DPI, color="white")
    grid = figure.subplots(len(stages), columns, squeeze=False)
    for row, stage in zip(grid, stages, strict=True):
        answer = stage.mask[window]
        error = truth ^ answer
        through = deepest(error if error.any() else truth, cut.spacing_mm)
        for axes, view in zip(row, views_through(cut, through), strict=True):
            draw_slice(axes, view, cut.array, grey)
            draw_outline(axes, view, truth, POSITIVE)
            draw_outline(axes, view, answer, ANSWER)
            for prompt in stage.prompts:
                draw_prompt(axes, view, cut, prompt)
            axes.set_xlabel(f"{view.name} {view.index}", fontsize=8)
        row[0].set_title(f"{stage.name}: Dice {dice(answer, truth):.2f}", fontsize=9, loc="left")
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    save_figure(figure, path)


def grey_range(scan: npt.NDArray[Any], shown: Mask) -> tuple[float, float]:
    """Return the display window from the intensities in a mask, with a margin.

    Args:
        scan: (D, H, W).
        shown: Union of the compared masks, on the same grid, not empty.
    """
    bounds = np.percentile(scan[shown], (0.5, 99.5))
    low, high = np.percentile(scan, (1, 99.5)) if bounds[0] == bounds[1] else bounds
    room = 0.4 * float(high - low)
    return (float(low) - room, float(high) + room)


def window_around(mask: Mask) -> tuple[slice, ...]:
    """Return the bounding box of a mask with a margin, as slices of the volume."""
    window = []
    for box, size in zip(window_of(mask) or (), mask.shape, strict=True):
        room = 4 + round(MARGIN * float(box.stop - box.start))
        window.append(slice(max(box.start - room, 0), min(box.stop + room, size)))
    return tuple(window)


def cut_out(volume: Volume, window: tuple[slice, ...]) -> Volume:
    """Return a scan's first channel cropped to a window, at its world position."""
    return replace(
        volume,
        array=first_channel(volume)[window],
        origin_lps=tuple(volume.index_to_world([s.start for s in window]).tolist()),
        source=None,
    )


@dataclass(frozen=True, eq=False)
class ClassMasks:
    """Masks of a class of a case.

    Attributes:
        truth: Ground truth, bool (D, H, W).
        answer: Prediction, same shape.
    """

    name: str
    color_rgb: Triple
    truth: Mask
    answer: Mask


def write_class_error_picture(
    volume: Volume, classes: Sequence[ClassMasks], path: Path, *, title: str
) -> None:
    """Write a PNG of three planes through the deepest voxel of the largest error.

    The ground truth is outlined with dashed lines, the prediction with solid ones, each in its
    class's colour.

    Args:
        volume: The scan; its first channel is shown.

    Raises:
        VolumeError: If no class is in ground truth or prediction.
        ExportError: If the file cannot be written.
    """
    present = [c for c in classes if c.truth.any() or c.answer.any()]
    if not present:
        raise VolumeError("Neither label nor answer has any class; there is nothing to show.")
    union = np.logical_or.reduce([m for c in present for m in (c.truth, c.answer)])
    window = window_around(union)
    cut = cut_out(volume, window)
    inside = [replace(c, truth=c.truth[window], answer=c.answer[window]) for c in present]
    through = _place_of_largest_error(inside, cut.spacing_mm)
    views = views_through(cut, through)
    grey = grey_range(cut.array, union[window])
    # Views side by side at the same scale, above a legend.
    lines = 1 + (min(len(inside), _MOST_NAMED) - 1) // _PER_LINE
    sizes = [view.size_mm(cut.shape) for view in views]
    tallest, room = max(h for _, h in sizes), WIDTH_INCHES - GAP_INCHES * (len(views) + 1)
    scale = min(room / sum(w for w, _ in sizes), LONGEST_INCHES / tallest)
    footer = LINE_INCHES * (lines + 1) + GAP_INCHES
    figure = new_figure(WIDTH_INCHES, HEADER_INCHES + tallest * scale + footer, dpi=CLASS_DPI)
    left = (WIDTH_INCHES - sum(w for w, _ in sizes) * scale - GAP_INCHES * (len(views) - 1)) / 2
    for view, (w, h) in zip(views, sizes, strict=True):
        top = HEADER_INCHES + (tallest - h) * scale / 2
        panel = add_panel(figure, left, top, w * scale, h * scale)
        draw_slice(panel, view, cut.array, grey)
        for one in inside:
            draw_outline(panel, view, one.truth, one.color_rgb, style=TRUTH_STYLE)
            draw_outline(panel, view, one.answer, one.color_rgb)
        draw_letters(panel, [(0.015, 0.985, view.name, "left", "top")], color=TEXT, size=9)
        left += w * scale + GAP_INCHES
    _legend(figure, inside)
    add_text(figure, 0.12, HEADER_INCHES / 2, title, fontsize=11)
    save_figure(figure, path)


def _place_of_largest_error(
    classes: Sequence[ClassMasks], spacing_mm: Triple
) -> tuple[int, int, int]:
    """Return the deepest voxel of the error of the worst class, or of the largest class if none."""
    worst = max(classes, key=lambda c: int((c.truth ^ c.answer).sum()))
    error = worst.truth ^ worst.answer
    if not error.any():
        error = max((c.truth for c in classes), key=lambda mask: int(mask.sum()))
    d, h, w = (int(i) for i in deepest(error, spacing_mm))
    return (d, h, w)


def _legend(figure: Figure, classes: Sequence[ClassMasks]) -> None:
    entries = [
        Line2D(
            [], [], color=c.color_rgb, lw=3, label=f"{c.name}: Dice {dice(c.answer, c.truth):.2f}"
        )
        for c in classes[:_MOST_NAMED]
    ]
    if len(classes) > _MOST_NAMED:
        more = f"and {len(classes) - _MOST_NAMED + 1} more"  # in the place of the last one
        entries[-1] = Line2D([], [], lw=0, label=more)
    styles = [
        Line2D([], [], color=TEXT, lw=1.4, ls=TRUTH_STYLE, label="label"),
        Line2D([], [], color=TEXT, lw=1.4, label="answer"),
    ]
    shared = {"frameon": False, "labelcolor": TEXT, "fontsize": 9, "borderaxespad": 0.5}
    figure.legend(handles=entries, loc="lower left", ncols=_PER_LINE, **shared)
    figure.add_artist(figure.legend(handles=styles, loc="upper right", ncols=2, **shared))
