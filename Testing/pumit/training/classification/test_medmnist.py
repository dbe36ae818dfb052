"""MedMNIST's files are read as they are, and one line says what is wrong with another file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pumit.errors import PumitError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.training.classification.reader import read_classification_data
from pumit.training.classification.run import form_of, read_data
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.model import read_model

COUNTS = {"train": 6, "val": 4, "test": 4}


def arrays(shape: tuple[int, ...] = (4, 4, 4), classes: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for split, count in COUNTS.items():
        made[f"{split}_images"] = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
        made[f"{split}_labels"] = (np.arange(count) % classes)[:, None].astype(np.uint8)
    return made


def save(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "set.npz"
    np.savez(path, **content)
    return path


@pytest.mark.parametrize(
    ("shape", "read"),
    [
        *(((4, 4, 4), (4, 4, 4)), ((6, 7), (1, 6, 7))),
        *(((6, 7, 3), (3, 1, 6, 7)), ((5, 6, 7, 3), (3, 5, 6, 7))),
    ],
)
def test_images_and_labels_are_as_in_the_file(tmp_path, shape, read):
    content = arrays(shape)
    data = read_classification_data(save(tmp_path, content), classes=["no", "yes"])
    assert data.classes == ("no", "yes")
    assert not data.is_multi_label
    assert data.counts() == {"train": [3, 3], "val": [2, 2], "test": [2, 2]}
    for split, cases in data.splits.items():
        volume, stored = cases.read(1), content[f"{split}_images"][1]
        channels_first = np.moveaxis(stored, -1, 0) if len(read) == 4 else stored
        np.testing.assert_array_equal(volume.array, channels_first.reshape(read))
        assert volume.spacing_mm[0] == (PLANAR_SLICE_SPACING_MM if 1 in read else 1.0)
        assert cases.labels.tolist() == content[f"{split}_labels"].ravel().tolist()


def test_several_labels_per_case_stay_several(tmp_path):
    content = arrays()
    for split, count in COUNTS.items():
        content[f"{split}_labels"] = np.stack((np.arange(count) % 2, np.arange(count) < 2), 1)
    data = read_classification_data(save(tmp_path, content))
    assert data.is_multi_label
    assert data.classes == ("0", "1")
    assert data.counts()["train"] == [3, 2]


@pytest.mark.slow
def test_the_adrenal_shapes_are_read(shared_data):
    path = shared_data / "medmnist3d" / "adrenalmnist3d_64.npz"
    data = read_classification_data(path, classes=["normal", "hyperplasia"])
    assert data.counts() == {"train": [929, 259], "val": [76, 22], "test": [229, 69]}
    assert data.splits["test"].read(297).array.shape == (64, 64, 64)


def with_changes(**changes: Any) -> dict[str, Any]:
    content = {**arrays(), **changes}
    return {name: array for name, array in content.items() if array is not None}


@pytest.mark.parametrize(
    ("changes", "classes", "message"),
    [
        ({"val_labels": None}, (), "no val_labels"),
        ({"train_labels": np.array([{}] * 6, dtype=object)}, (), "Python objects"),
        ({"train_labels": np.array([["a"]] * 6)}, (), "no numbers"),
        ({"train_labels": np.full((6, 1), 0.5)}, (), "whole numbers"),
        ({"train_labels": np.zeros((5, 1), int)}, (), "there are 6 images"),
        ({"train_labels": np.zeros((6, 1), int)}, (), "out of range"),
        ({"val_labels": np.full((4, 1), 2)}, (), "out of range: they go from 0 to 1"),
        ({"val_labels": np.full((4, 1), -1)}, (), "out of range"),
        ({"train_labels": np.arange(6)[:, None] % 3}, ("a", "b"), "3 classes, but the recipe"),
        ({"val_labels": np.zeros((4, 1), int)}, (), "val cases .* too few"),
        ({"val_labels": np.zeros((4, 2), int)}, (), "differ in number"),
        ({"val_images": np.zeros((4, 5, 5, 5), np.uint8)}, (), "differ in size"),
        ({f"{s}_images": np.zeros((n, 4)) for s, n in COUNTS.items()}, (), r"must be \(N, D, H"),
        ({f"{s}_labels": np.zeros((n, 1), int) for s, n in COUNTS.items()}, (), "of one class"),
        ({f"{s}_images": np.zeros((0, 4, 4, 4)) for s in COUNTS}, (), "there are 0 images"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, changes, classes, message):
    path = save(tmp_path, with_changes(**changes))
    with pytest.raises(PumitError, match=message) as caught:
        read_classification_data(path, classes=classes)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04nothing", b"\x80\x04pickle"])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "set.npz"
    path.write_bytes(content)
    with pytest.raises(PumitError, match=r"file set\.npz is damaged"):
        read_classification_data(path)
    with pytest.raises(PumitError, match=r"There is no .absent\.npz."):
        read_classification_data(tmp_path / "absent.npz")
    np.save(tmp_path / "set.npy", np.zeros(3))
    with pytest.raises(PumitError, match=r"no \.npz file"):
        read_classification_data(tmp_path / "set.npy")


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1 / 255), (np.uint16, 16)])
def test_images_of_another_type_are_scaled_by_their_own_range(tmp_path, dtype, scale):
    content = arrays()
    plain = read_classification_data(save(tmp_path, content))
    for split in COUNTS:
        scaled = scale * content[f"{split}_images"].astype(float)
        content[f"{split}_images"] = scaled.astype(dtype)
    other = read_classification_data(save(tmp_path, content))
    recipe = read_model(ClassificationRecipe, {"data": {"file": "set.npz"}}, "")
    sizes = {"fixed_patch": [4, 4, 4], "position_table": [1, 1, 1], "in_channels": 1}
    first, second = (
        form_of(recipe, sizes, data).prepare(data.splits["train"].read(0))
        for data in (plain, other)
    )
    assert float((first - second).abs().max()) < 0.05


@pytest.mark.parametrize(
    ("flips", "classes", "told"),
    [(True, ["left", "right"], 1), (False, ["left", "right"], 0), (True, ["a", "b"], 0)],
)
def test_flips_of_sides_are_told(tmp_path, flips, classes, told):
    save(tmp_path, arrays())
    keys = {"flips": flips, "data": {"file": "set.npz", "classes": classes}}
    recipe = read_model(ClassificationRecipe, keys, "")
    notes = read_data(recipe, lambda text: tmp_path / text).notes
    assert [note.partition(",")[0] for note in notes] == ["left names a side"] * told
