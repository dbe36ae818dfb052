"""A picture of what an answer gets wrong: three planes through its largest error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import deepest
from pumit.geometry import window_of
from pumit.prompts import Prompt
from pumit.report.panels import (
    POSITIVE,
    draw_outline,
    draw_prompt,
    draw_slice,
    first_channel,
    new_figure,
    save_figure,
)
from pumit.report.views import views_through
from pumit.segmentation import Mask
from pumit.volume import Volume

ANSWER = "#ff4d4d"
ROW_INCHES, DPI = 3.2, 90
# Surroundings that are shown, as a share of the extent of what is compared.
MARGIN = 0.35


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
    return replace(
        volume,
        array=first_channel(volume)[window],
        origin_lps=tuple(volume.index_to_world([s.start for s in window]).tolist()),
        source=None,
    )
