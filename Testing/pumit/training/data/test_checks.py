"""Every case is inspected before training starts, and named where something is wrong with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from labelled_scans import SPACING, ball_and_box, write, write_pairs
from pumit.errors import PumitError
from pumit.training.data.checks import DataFacts, examine
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.recipes.labelled import LabelledData

IMAGE, LABELS = ball_and_box(1)


def look(folder: Path, **data: Any) -> DataFacts:
    classes = {"ball": 1, "box": 2}
    return examine(
        find_labelled_set(LabelledData(folder=str(folder), classes=classes, **data), Path)
    )


def test_good_data_are_measured(tmp_path, monkeypatch):
    found = look(write_pairs(tmp_path, 2))
    assert (found.warnings, found.channels) == ((), 1)
    first = found.cases[0]
    image, labels = ball_and_box(0)
    assert first.class_voxels == tuple(np.bincount(labels.ravel()))
    assert first.spacing_mm == SPACING
    assert first.foreground.shape == (1, int((labels > 0).sum()))
    # Of more voxels than that, every so many.
    monkeypatch.setattr("pumit.training.data.case.FOREGROUND_SAMPLES", 100)
    places = np.flatnonzero(labels)
    expected = image.ravel()[places[:: len(places) // 100]]
    assert np.array_equal(look(tmp_path).cases[0].foreground[0], expected)


def with_more_channels(folder: Path) -> None:
    image = SimpleITK.GetImageFromArray(np.stack([IMAGE] * 2, axis=-1), isVector=True)
    image.SetSpacing(SPACING[::-1])
    SimpleITK.WriteImage(image, str(folder / "images" / "case_1.nii.gz"))


def test_unusable_cases_are_named_at_once(tmp_path):
    write_pairs(tmp_path, 12)
    strange = LABELS.copy()
    strange[0, 0, 0] = 7
    for case, labels, geometry in (
        (2, LABELS[:, :, :-1], {}),
        (3, LABELS, {"origin": (0.0, 0.0, 7.0)}),
        (4, LABELS, {"spacing": (2.0, 1.0, 1.2)}),
        (5, strange, {}),
        (6, LABELS.astype(np.float32) * 0.5, {}),
        (9, LABELS[:1], {}),
    ):
        write(tmp_path / "labels" / f"case_{case}.nii.gz", labels, **geometry)
    (tmp_path / "images" / "case_7.nii.gz").write_bytes(b"none")
    write(tmp_path / "images" / "case_8.nii.gz", ball_and_box(0)[0])
    with_more_channels(tmp_path)
    write(tmp_path / "images" / "case_9.nii.gz", IMAGE[:1])
    (tmp_path / "images" / "case_11.nii.gz").write_bytes(b"")
    with pytest.raises(PumitError) as raised:
        look(tmp_path)
    problems = str(raised.value).partition(": ")[2].split("; ")
    told = {text.partition(": ")[0]: text for text in problems}
    for case, words in (
        (1, "2 channels instead of 1"),
        (2, "14 x 30 x 27"),
        (3, "off the image's grid by 3.5 voxels"),
        (4, "off the image's grid"),
        (5, "no class is named for the label values 7"),
        (6, "not whole numbers"),
        (7, "not an image"),
        (8, "same image as case_0"),
        (9, "one slice"),
        (11, "case_11"),
    ):
        assert words in told[f"case_{case}"], told
    assert str(tmp_path) not in str(raised.value)


def test_data_without_any_foreground_are_refused(tmp_path):
    write_pairs(tmp_path, 1)
    write(tmp_path / "labels" / "case_0.nii.gz", np.zeros_like(LABELS))
    with pytest.raises(PumitError, match="nothing to learn"):
        look(tmp_path)


def test_single_channel_may_stand_for_all(tmp_path):
    with_more_channels(write_pairs(tmp_path, 3))
    found = look(tmp_path, channels=["a", "b"], repeat_single_channel=True)
    assert found.channels == 2
