"""Picture of a validation case after each validation, with labels and prediction."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError
from pumit.export.classes import class_colors
from pumit.report.error_picture import ClassMasks
from pumit.report.panels import (
    add_legend,
    add_panel,
    add_text,
    draw_outline,
    draw_slice,
    first_channel,
    new_figure,
    save_figure,
)
from pumit.report.views import View, views_through
from pumit.runs import PICTURES
from pumit.segmentation import Mask
from pumit.training.data.case import LabelledVolume
from pumit.training.data.classes import UNKNOWN, ClassValue
from pumit.training.run.reporter import RunReporter
from pumit.volume import Volume

logger = logging.getLogger(__name__)

LONGEST_SIDE, FOOTER = 640, 26  # pixels
DPI = 100
LINE_POINTS = 1.44  # two pixels
DASHES = (0, (3.5, 2.5))  # in line widths
SHOWN = (1.0, 99.5)  # percentiles of the slice shown as black and white


class OverlayPictures:
    """Write a picture of the first labelled case at each validation, always the same slice."""

    def __init__(self, reporter: RunReporter, folder: Path, classes: Sequence[ClassValue]) -> None:
        self._reporter, self._folder = reporter, folder
        self._colors = list(class_colors([c.label for c in classes]).values())
        self._case = ""
        self._step = -1  # of the last picture

    def __call__(self, case: LabelledVolume, pairs: Iterable[tuple[str, Mask, Mask]]) -> None:
        """Draw a case if it is the chosen one; `pairs` are name, answer and truth of each class."""
        step = self._reporter.step
        labels = np.where(case.labels == UNKNOWN, np.uint8(0), case.labels)
        if not self._case and labels.any():
            self._case = case.name
        if self._reporter.folder is None or case.name != self._case or step == self._step:
            return
        self._step = step
        name = f"overlay_{step:06}.png"
        classes = (
            ClassMasks(label, color, truth, answer)
            for color, (label, answer, truth) in zip(self._colors, pairs, strict=True)
        )
        view = most_labelled_view(case.volume, labels)
        try:
            title = f"Step {step}"
            write_overlay(self._folder / PICTURES / name, case.volume, view, classes, title=title)
        except (ExportError, OSError) as error:  # such as a full disk, which a save will handle
            logger.info("no picture: %s", error)
            return
        self._reporter.report({"step": step, "overlay": f"{PICTURES}/{name}", "case": case.name})


def most_labelled_view(volume: Volume, labels: npt.NDArray[np.uint8]) -> View:
    """Return the axial slice with the most labelled voxels, or the middle one without labels.

    Args:
        labels: Label map (D, H, W), 0 is the background.
    """
    middle = tuple(n // 2 for n in labels.shape)
    view = views_through(volume, (middle[0], middle[1], middle[2]))[0]
    others = tuple(axis for axis in range(3) if axis != view.normal)
    counts = np.count_nonzero(labels, axis=others)
    return replace(view, index=int(counts.argmax())) if counts.any() else view


def write_overlay(
    path: Path, volume: Volume, view: View, classes: Iterable[ClassMasks], *, title: str
) -> None:
    """Write a PNG of one slice, with its physical aspect ratio.

    Args:
        classes: Masks, iterated to limit memory. The prediction is drawn as a solid line in the
            class's colour, the ground truth as a dashed line.

    Raises:
        ExportError: If the file cannot be written.
    """
    array = first_channel(volume)
    width_mm, height_mm = view.size_mm(array.shape)
    scale = LONGEST_SIDE / max(width_mm, height_mm) / DPI
    width, height = width_mm * scale, height_mm * scale
    longest, footer = LONGEST_SIDE / DPI, FOOTER / DPI
    figure = new_figure(longest, height + footer, dpi=DPI)
    axes = add_panel(figure, (longest - width) / 2, 0, width, height)
    low, high = np.nanpercentile(view.cut(array).astype(np.float64), SHOWN)
    draw_slice(axes, view, array, (float(low), float(high)), interpolation="bicubic")
    legend = []
    for one in classes:
        draw_outline(axes, view, one.truth, one.color_rgb, style=DASHES, width=LINE_POINTS)
        draw_outline(axes, view, one.answer, one.color_rgb, width=LINE_POINTS)
        if view.cut(one.answer).any() or view.cut(one.truth).any():
            legend.append((one.name, one.color_rgb))
    y = height + footer / 2
    x = add_text(figure, 0.08, y, f"{title}  line: answer, dashes: truth", fontsize=9)
    add_legend(figure, x + 0.15, y, legend)
    path.parent.mkdir(exist_ok=True)
    save_figure(figure, path)
