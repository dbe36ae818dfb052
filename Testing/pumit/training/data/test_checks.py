"""Every case is inspected before training starts, and named where something is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
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


def test_good_data_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def labelled(change: Callable[[np.ndarray], np.ndarray], **geometry: Any) -> Callable[[Path], Any]:
    return lambda folder: write(
        folder / "labels" / "case_1.nii.gz", change(LABELS.copy()), **geometry
    )


def shown(image: np.ndarray) -> Callable[[Path], Any]:
    return lambda folder: write(folder / "images" / "case_1.nii.gz", image)


def with_unknown_value(labels: np.ndarray) -> np.ndarray:
    labels[0, 0, 0] = 7
    return labels


def with_more_channels(folder: Path) -> None:
    image = SimpleITK.GetImageFromArray(np.stack([IMAGE] * 2, axis=-1), isVector=True)
    image.SetSpacing(SPACING[::-1])
    SimpleITK.WriteImage(image, str(folder / "images" / "case_1.nii.gz"))


def with_one_slice(folder: Path) -> None:
    shown(IMAGE[:1])(folder)
    labelled(lambda labels: labels[:1])(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (labelled(lambda labels: labels[:, :, :-1]), "14 x 30 x 27"),
        (labelled(np.asarray, origin=(0.0, 0.0, 7.0)), "off the image's grid by 3.5 voxels"),
        (labelled(np.asarray, spacing=(2.0, 1.0, 1.2)), "off the image's grid"),
        (labelled(with_unknown_value), "no class is named for the label values 7"),
        (labelled(lambda labels: labels.astype(np.float32) * 0.5), "not whole numbers"),
        (lambda folder: (folder / "images/case_1.nii.gz").write_bytes(b"none"), "not an image"),
        (shown(ball_and_box(0)[0]), "same image as case_0"),
        (with_more_channels, "2 channels instead of 1"),
        (with_one_slice, "one slice"),
    ],
)
def test_unusable_cases_are_named_at_once(
    tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(write_pairs(tmp_path, 4))
    (tmp_path / "images" / "case_3.nii.gz").write_bytes(b"")
    with pytest.raises(PumitError) as raised:
        look(tmp_path)
    assert all(said in str(raised.value) for said in ("case_1: ", message, "case_3: "))
    assert str(tmp_path) not in str(raised.value)


def test_data_without_any_foreground_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path, 1)
    write(tmp_path / "labels" / "case_0.nii.gz", np.zeros_like(LABELS))
    with pytest.raises(PumitError, match="nothing to learn"):
        look(tmp_path)


def test_single_channel_may_stand_for_all(tmp_path: Path) -> None:
    with_more_channels(write_pairs(tmp_path, 3))
    found = look(tmp_path, channels=["a", "b"], repeat_single_channel=True)
    assert found.channels == 2
