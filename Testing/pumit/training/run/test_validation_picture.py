"""A picture after each validation: one slice, the answer as a line, the truth in dashes."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from pumit.errors import ExportError
from pumit.report.error_picture import ClassMasks
from pumit.runs import read_log
from pumit.segmentation import ClassLabel
from pumit.training.data.case import LabelledVolume
from pumit.training.data.classes import ClassValue
from pumit.training.run.reporter import RunReporter
from pumit.training.run.validation_picture import (
    FOOTER,
    LONGEST_SIDE,
    OverlayPictures,
    most_labelled_view,
    write_overlay,
)
from pumit.volume import Volume

RED, GREEN = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)


def box(shape: tuple[int, int, int], *sides: slice) -> npt.NDArray[np.bool_]:
    mask = np.zeros(shape, dtype=bool)
    mask[sides] = True
    return mask


def picture(path: Path, volume: Volume, classes: list[ClassMasks]) -> npt.NDArray[np.uint8]:
    labels = np.any([c.truth for c in classes], axis=0).astype(np.uint8)
    view = most_labelled_view(volume, labels)
    assert view.index == np.count_nonzero(labels, axis=(1, 2)).argmax()
    write_overlay(path, volume, view, classes, title="Step 3")
    return np.asarray(Image.open(path).convert("RGB"))[:-FOOTER]


def colored(image: npt.NDArray[np.uint8], channel: int) -> int:
    """Pixels where a colour stands out."""
    others = np.delete(image, channel, axis=-1).max(axis=-1)
    return int((image[..., channel].astype(int) - others > 100).sum())


@pytest.mark.parametrize("shape", [(4, 20, 40), (1, 20, 40), (3, 1, 20, 40)])
def test_pictures_keep_proportions(tmp_path, shape):
    volume = Volume(np.zeros(shape, np.float32), (5.0, 1.0, 0.5))
    grid = (shape[-3], 20, 40)
    mask = box(grid, slice(grid[0] // 4, 3), slice(5, 15), slice(10, 30))
    image = picture(tmp_path / "a.png", volume, [ClassMasks("a", RED, mask, mask)])
    assert image.shape == (LONGEST_SIDE, LONGEST_SIDE, 3)
    assert colored(image, 0) > 100


def test_answers_are_whole_lines_and_truth_is_dashed(tmp_path):
    shape = (4, 40, 40)
    volume = Volume(np.zeros(shape, np.float32), (1.0, 1.0, 1.0))
    left = box(shape, slice(1, 3), slice(10, 30), slice(2, 18))
    right = box(shape, slice(1, 3), slice(10, 30), slice(22, 38))
    nothing = np.zeros(shape, dtype=bool)
    classes = [ClassMasks("a", RED, nothing, left), ClassMasks("b", GREEN, right, nothing)]
    image = picture(tmp_path / "a.png", volume, classes)
    assert 0.4 < colored(image, 1) / colored(image, 0) < 0.75
    assert colored(image[:, LONGEST_SIDE // 2 :], 0) == 0


def case(name: str, *, labelled: bool) -> LabelledVolume:
    labels = np.zeros((4, 16, 16), np.uint8)
    labels[1:3, 4:12, 4:12] = labelled
    return LabelledVolume(name, Volume(np.zeros((4, 16, 16), np.float32), (1.0, 1.0, 1.0)), labels)


def test_always_the_same_case_is_shown_once_a_step(tmp_path, monkeypatch):
    reporter = RunReporter(tmp_path)
    draw = OverlayPictures(reporter, tmp_path, [ClassValue(1, ClassLabel("ball"))])
    cases = [case("empty", labelled=False), case("b", labelled=True), case("c", labelled=True)]
    for step in (20, 20, 40):
        reporter.validating(step)
        for one in cases:
            truth = one.labels == 1
            draw(one, iter([("ball", truth, truth)]))

    def refuse(*args: object, **options: object) -> None:
        raise ExportError("The disk is full.")

    monkeypatch.setattr("pumit.training.run.validation_picture.write_overlay", refuse)
    reporter.validating(60)
    draw(cases[1], iter([("ball", cases[1].labels == 1, cases[1].labels == 1)]))  # ends nothing
    logged = [(r["step"], r["overlay"], r["case"]) for r in read_log(tmp_path)[0]]
    assert logged == [
        (20, "pictures/overlay_000020.png", "b"),
        (40, "pictures/overlay_000040.png", "b"),
    ]
    assert (tmp_path / logged[1][1]).is_file()
