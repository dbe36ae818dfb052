"""Picture of two registered scans, to check the registration before lesions are transferred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from pumit.report.panels import draw_outline, first_channel, new_figure, save_figure
from pumit.report.views import TEXT, View, views_through
from pumit.segmentation import Mask
from pumit.volume import Volume

ROWS = ("earlier", "later, registered", "both: earlier red, later blue-green")
OUTLINE = "#ffd166"
ROW_INCHES, DPI = 3.0, 100


def write_registration_picture(
    earlier: Volume,
    registered: npt.NDArray[np.float32],
    mask: Mask,
    path: Path,
    *,
    title: str,
) -> None:
    """Write a PNG with three planes of each scan and of their overlay, through the lesions.

    Args:
        registered: Later scan on the grid of the earlier one, (D, H, W).
        mask: Lesions of the earlier scan, not empty; outlined on all panels.

    Raises:
        ExportError: If the file cannot be written.
    """
    scan = np.asarray(first_channel(earlier), np.float32)
    first, second = (_grey(part, mask) for part in (scan, registered))
    index = np.argwhere(mask)
    nearest = index[np.abs(index - np.median(index, axis=0)).sum(axis=1).argmin()]
    d, h, w = (int(i) for i in nearest)
    views = views_through(earlier, (d, h, w))
    width, height = ROW_INCHES * 1.25 * len(views), ROW_INCHES * len(ROWS) + 0.4
    figure = new_figure(width, height, dpi=DPI)
    grid = figure.subplots(len(ROWS), len(views), squeeze=False)
    for row, name, parts in zip(
        grid, ROWS, ((first, first), (second, second), (first, second)), strict=True
    ):
        for axes, view in zip(row, views, strict=True):
            _draw(axes, view, parts, mask)
        row[0].set_title(name, color=TEXT, fontsize=9, loc="left")
    figure.suptitle(title, color=TEXT, fontsize=10)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    save_figure(figure, path)


def _grey(array: npt.NDArray[np.float32], mask: Mask) -> npt.NDArray[np.float32]:
    windows = [slice(max(int(i.min()) - 30, 0), int(i.max()) + 31) for i in np.nonzero(mask)]
    low, high = np.percentile(array[tuple(windows)], (5, 99.5))
    return np.asarray(np.clip((array - low) / max(float(high - low), 1e-6), 0, 1), np.float32)


def _draw(axes: Axes, view: View, parts: Any, mask: Mask) -> None:
    red, other = (view.cut(part) for part in parts)
    width, height = view.size_mm(mask.shape)
    image = np.stack([red, other, other], axis=-1)
    axes.imshow(image, extent=(0.0, width, height, 0.0), interpolation="bilinear")
    axes.set(xlim=(0, width), ylim=(height, 0))
    draw_outline(axes, view, mask, OUTLINE, width=0.8)
    axes.set_axis_off()
