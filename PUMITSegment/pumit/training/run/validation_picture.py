"""A picture of a validation case after each validation: labels and answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from skimage.measure import find_contours

from pumit.errors import ExportError
from pumit.export.classes import class_colors
from pumit.geometry import Triple
from pumit.report.views import View, views_through
from pumit.runs import PICTURES
from pumit.segmentation import Mask
from pumit.system.atomic import atomic_path
from pumit.training.data.case import LabelledVolume
from pumit.training.data.classes import UNKNOWN, ClassValue
from pumit.training.run.reporter import RunReporter
from pumit.volume import Volume

logger = logging.getLogger(__name__)

LONGEST_SIDE = 640  # pixels
FINER = 2  # lines are drawn this many times larger, and reduced with soft edges
LINE, DASH, GAP = 2.0, 7.0, 5.0  # pixels
FOOTER, MARGIN, TEXT_SIZE = 26, 8, 13
BACKGROUND, TEXT = (13, 16, 20), (232, 235, 239)
SHOWN = (1.0, 99.5)  # percentiles of the slice that are black and white

Points = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShownClass:
    """A class in a picture.

    Attributes:
        color_rgb: Its colour, each part 0 to 1.
        answer: Mask of the network's answer, (D, H, W).
        truth: True mask, (D, H, W).
    """

    name: str
    color_rgb: Triple
    answer: Mask
    truth: Mask


class OverlayPictures:
    """Write a picture of the first case that has labels, at every validation the same slice.

    Args:
        reporter: Reporter of the run; its `step` names the picture.
    """

    def __init__(self, reporter: RunReporter, folder: Path, classes: Sequence[ClassValue]) -> None:
        self._reporter, self._folder = reporter, folder
        self._colors = list(class_colors([c.label for c in classes]).values())
        self._case = ""
        self._step = -1  # of the last picture

    def __call__(self, case: LabelledVolume, pairs: Iterable[tuple[str, Mask, Mask]]) -> None:
        """Draw a case, if it is the one.

        Args:
            pairs: Name, answer and truth of each class.
        """
        step = self._reporter.step
        labels = np.where(case.labels == UNKNOWN, np.uint8(0), case.labels)
        if not self._case and labels.any():
            self._case = case.name
        if self._reporter.folder is None or case.name != self._case or step == self._step:
            return
        self._step = step
        name = f"overlay_{step:06}.png"
        classes = (
            ShownClass(label, color, answer, truth)
            for color, (label, answer, truth) in zip(self._colors, pairs, strict=True)
        )
        view = most_labelled_view(case.volume, labels)
        try:
            title = f"Step {step}"
            write_overlay(self._folder / PICTURES / name, case.volume, view, classes, title=title)
        except (ExportError, OSError) as error:  # such as a full disk, for which a save waits
            logger.info("no picture: %s", error)
            return
        self._reporter.report({"step": step, "overlay": f"{PICTURES}/{name}", "case": case.name})


def most_labelled_view(volume: Volume, labels: npt.NDArray[np.uint8]) -> View:
    """Return the axial slice with most labelled voxels; the middle one where none is labelled.

    Args:
        labels: Its label map (D, H, W), 0 the background.
    """
    middle = tuple(n // 2 for n in labels.shape)
    view = views_through(volume, (middle[0], middle[1], middle[2]))[0]
    others = tuple(axis for axis in range(3) if axis != view.normal)
    counts = np.count_nonzero(labels, axis=others)
    return replace(view, index=int(counts.argmax())) if counts.any() else view


def write_overlay(
    path: Path, volume: Volume, view: View, classes: Iterable[ShownClass], *, title: str
) -> None:
    """Write a PNG of one slice, in physical proportions.

    Args:
        classes: One after the other, lest the masks of many fill the memory. The answer is drawn
            as a line in the class's colour, the truth as a dashed one.

    Raises:
        ExportError: If the file cannot be written.
    """
    grey = _grey(volume, view)
    row_mm, column_mm = view.spacing_mm
    height_mm, width_mm = grey.shape[0] * row_mm, grey.shape[1] * column_mm
    scale = LONGEST_SIDE / max(height_mm, width_mm)
    size = (max(round(width_mm * scale), 1), max(round(height_mm * scale), 1))
    fine = (size[0] * FINER, size[1] * FINER)
    picture = Image.fromarray(grey).resize(fine, Image.Resampling.BICUBIC).convert("RGB")
    draw = ImageDraw.Draw(picture)
    pixels = (fine[1] / grey.shape[0], fine[0] / grey.shape[1])  # of a voxel
    legend = []
    for one in classes:
        color = _bytes(one.color_rgb)
        answer, truth = view.cut(one.answer), view.cut(one.truth)
        for line in _outlines(truth, pixels):
            _dashed(draw, line, color)
        for line in _outlines(answer, pixels):
            draw.line([tuple(p) for p in line], fill=color, width=round(LINE * FINER))
        if answer.any() or truth.any():
            legend.append((one.name, color))
    whole = Image.new("RGB", (max(size[0], LONGEST_SIDE), size[1] + FOOTER), BACKGROUND)
    reduced = picture.resize(size, Image.Resampling.LANCZOS)
    whole.paste(reduced, ((whole.width - size[0]) // 2, 0))
    _write_text(whole, size[1], title, legend)
    path.parent.mkdir(exist_ok=True)
    with atomic_path(path) as temporary:
        whole.save(temporary, format="PNG")


def _grey(volume: Volume, view: View) -> npt.NDArray[np.uint8]:
    """Return the slice in bytes; of several channels the first."""
    array = volume.array if volume.array.ndim == 3 else volume.array[0]
    plane = np.nan_to_num(view.cut(array).astype(np.float64))
    low, high = np.percentile(plane, SHOWN)
    share = (plane - low) / max(high - low, 1e-9)
    return np.asarray(np.clip(share, 0, 1) * 255).astype(np.uint8)


def _bytes(color_rgb: Triple) -> tuple[int, int, int]:
    r, g, b = (round(255 * part) for part in color_rgb)
    return (r, g, b)


def _outlines(mask: Mask, pixels: tuple[float, float]) -> list[Points]:
    """Return closed lines round a mask, (N, 2) as (x, y) pixels."""
    # A margin of one voxel closes lines at the border of the image.
    lines = find_contours(np.pad(mask, 1).astype(np.float64), 0.5)
    return [(line[:, ::-1] - 0.5) * np.array(pixels[::-1]) for line in lines]


def _dashed(draw: ImageDraw.ImageDraw, line: Points, color: tuple[int, int, int]) -> None:
    """Draw a line in dashes of even length, however its points lie."""
    lengths = np.hypot(*np.diff(line, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    period = (DASH + GAP) * FINER
    for start in np.arange(0.0, along[-1], period):
        end = min(start + DASH * FINER, along[-1])
        inside = along[(along > start) & (along < end)]
        places = np.concatenate([[start], inside, [end]])
        points = [
            (float(np.interp(p, along, line[:, 0])), float(np.interp(p, along, line[:, 1])))
            for p in places
        ]
        draw.line(points, fill=color, width=round(LINE * FINER))


def _write_text(
    picture: Image.Image,
    top: int,
    title: str,
    legend: Sequence[tuple[str, tuple[int, int, int]]],
) -> None:
    """Title, what the lines mean, and as many classes as fit."""
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(TEXT_SIZE)
    x, y = float(MARGIN), top + (FOOTER - TEXT_SIZE) / 2 - 2
    for text, color in [(f"{title}  line: answer, dashes: truth", TEXT), *legend]:
        width = draw.textlength(text, font=font)
        if x + width > picture.width - MARGIN:
            return
        draw.text((x, y), text, fill=color, font=font)
        x += width + 1.5 * MARGIN
