"""Every case is inspected before training starts, and named where something is wrong with it."""

from __future__ import annotations

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

CLASSES = {"ball": 1, "box": 2}


def look(folder: Path, **data: Any) -> DataFacts:
    return examine(
        find_labelled_set(LabelledData(folder=str(folder), classes=CLASSES, **data), Path)
    )


def test_good_data_are_measured(tmp_path: Path) -> None:
    found = look(write_pairs(tmp_path, 2))
    assert found.warnings == ()
    assert found.channels == 1
    first = found.cases[0]
    _, labels = ball_and_box(0)
    assert first.class_voxels == tuple(np.bincount(labels.ravel()))
    assert first.spacing_mm == SPACING
    assert first.foreground.shape == (1, int((labels > 0).sum()))


def test_foreground_is_a_sample_of_every_so_many_voxels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path, 1)
    image, labels = ball_and_box(0)
    monkeypatch.setattr("pumit.training.data.case.FOREGROUND_SAMPLES", 100)
    places = np.flatnonzero(labels)
    expected = image.ravel()[places[:: len(places) // 100]]
    assert np.array_equal(look(tmp_path).cases[0].foreground[0], expected)


def replace_label(folder: Path, labels: np.ndarray, **geometry: Any) -> None:
    write(folder / "labels" / "case_1.nii.gz", labels, **geometry)


def with_unknown_value(folder: Path) -> None:
    labels = ball_and_box(1)[1]
    labels[0, 0, 0] = 7
    replace_label(folder, labels)


def replace_image(folder: Path, image: np.ndarray) -> None:
    write(folder / "images" / "case_1.nii.gz", image)


def with_more_channels(folder: Path) -> None:
    image = SimpleITK.GetImageFromArray(np.stack([ball_and_box(1)[0]] * 2, axis=-1), isVector=True)
    image.SetSpacing(SPACING[::-1])
    SimpleITK.WriteImage(image, str(folder / "images" / "case_1.nii.gz"))


def with_one_slice(folder: Path) -> None:
    image, labels = ball_and_box(1)
    replace_image(folder, image[:1])
    replace_label(folder, labels[:1])


LABELS = ball_and_box(1)[1]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: replace_label(folder, LABELS[:, :, :-1]), "14 x 30 x 27"),
        (
            lambda folder: replace_label(folder, LABELS, origin=(0.0, 0.0, 7.0)),
            "off the image's grid by 3.5 voxels",
        ),
        (
            lambda folder: replace_label(folder, LABELS, spacing=(2.0, 1.0, 1.2)),
            "off the image's grid",
        ),
        (with_unknown_value, "no class is named for the label values 7"),
        (
            lambda folder: replace_label(folder, LABELS.astype(np.float32) * 0.5),
            "not whole numbers",
        ),
        (
            lambda folder: (folder / "images" / "case_1.nii.gz").write_bytes(b"nothing"),
            "not an image",
        ),
        (lambda folder: replace_image(folder, ball_and_box(0)[0]), "same image as case_0"),
        (with_more_channels, "2 channels instead of 1"),
        (with_one_slice, "one slice"),
    ],
)
def test_unusable_case_is_named(tmp_path: Path, spoil: Any, message: str) -> None:
    spoil(write_pairs(tmp_path, 3))
    with pytest.raises(PumitError) as raised:
        look(tmp_path)
    assert "case_1: " in str(raised.value)
    assert message in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


def test_all_unusable_cases_are_named_at_once(tmp_path: Path) -> None:
    write_pairs(tmp_path, 3)
    with_unknown_value(tmp_path)
    (tmp_path / "images" / "case_2.nii.gz").write_bytes(b"")
    with pytest.raises(PumitError, match=r"case_1: .*; case_2: "):
        look(tmp_path)


def test_classes_that_nobody_names_are_read_off_the_labels(tmp_path: Path) -> None:
    write_pairs(tmp_path, 2)
    found = find_labelled_set(LabelledData(folder=str(tmp_path)), Path)
    assert [(c.value, c.label.name) for c in found.classes] == [(1, "class 1"), (2, "class 2")]
    assert examine(found).warnings == ()


def test_doubtful_cases_are_kept_with_a_warning(tmp_path: Path) -> None:
    write_pairs(tmp_path, 5)
    labels = ball_and_box(1)[1]
    replace_label(tmp_path, np.where(labels == 2, 0, labels).astype(np.uint8))
    write(tmp_path / "labels" / "case_2.nii.gz", np.zeros_like(labels))
    image, labels = ball_and_box(3)
    write(tmp_path / "images" / "case_3.nii.gz", image, (25.0, 1.0, 1.0))
    write(tmp_path / "labels" / "case_3.nii.gz", labels, (25.0, 1.0, 1.0))
    found = look(tmp_path)
    assert len(found.cases) == 5
    assert found.warnings == (
        "case_1: has no box",
        "case_2: its label map is empty",
        "case_3: spacing 25 x 1 x 1 mm where 2 x 1 x 1 mm is usual",
    )


def test_data_without_any_foreground_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path, 2)
    for i in range(2):
        write(tmp_path / "labels" / f"case_{i}.nii.gz", np.zeros_like(ball_and_box(i)[1]))
    with pytest.raises(PumitError, match="nothing to learn"):
        look(tmp_path)


def test_single_channel_may_stand_for_all(tmp_path: Path) -> None:
    write_pairs(tmp_path, 3)
    with_more_channels(tmp_path)
    found = look(tmp_path, channels=["a", "b"], repeat_single_channel=True)
    assert found.channels == 2
