"""A folder per class is split the same way everywhere, and no class is left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pumit.errors import PumitError
from pumit.training.classification.cases import ClassificationData, require_split
from pumit.training.classification.reader import read_class_folders, read_classification_data


def fill(folder: Path, counts: dict[str, int]) -> Path:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{name}{i}.nii.gz").write_bytes(b"not read yet")
    return folder


def names(data: ClassificationData) -> dict[str, list[str]]:
    return {split: list(cases.names) for split, cases in data.splits.items()}


def test_each_class_is_split_by_its_share(tmp_path: Path) -> None:
    data = read_class_folders(fill(tmp_path / "set", {"sick": 20, "healthy": 10}), seed=3)
    assert data.classes == ("healthy", "sick")
    assert data.counts() == {"train": [6, 14], "val": [2, 3], "test": [2, 3]}
    found = [name for split in names(data).values() for name in split]
    assert len(found) == len(set(found)) == 30
    for cases in data.splits.values():
        said = [data.classes[k] for k in cases.labels]
        assert all(name.startswith(c) for name, c in zip(cases.names, said, strict=True))
    again = read_class_folders(fill(tmp_path / "two", {"sick": 20, "healthy": 10}), seed=3)
    assert names(data) == names(again) != names(read_class_folders(tmp_path / "set", seed=2))


def test_scans_of_the_same_name_in_two_classes_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(4):
            (tmp_path / name / f"{i}.nii.gz").write_bytes(b"no scan")
    data = read_class_folders(tmp_path)
    found = [name for split in names(data).values() for name in split]
    assert sorted(found) == [f"{c}/{i}.nii.gz" for c in "ab" for i in range(4)]


def test_no_patient_is_torn_apart(tmp_path: Path) -> None:
    for i in range(60):
        inner = tmp_path / ("ill", "well")[i % 2]
        inner.mkdir(exist_ok=True)
        (inner / f"p{i // 3:02d}_scan{i}.nii.gz").write_bytes(b"")
    data = read_class_folders(tmp_path, split={"val": 0.2, "test": 0.3}, patient=r"/(p\d+)_")
    patients = {
        split: {name.split("/")[1][:3] for name in given} for split, given in names(data).items()
    }
    assert {split: len(found) for split, found in patients.items()} == {
        "train": 10,
        "val": 4,
        "test": 6,
    }
    assert len(set.union(*patients.values())) == 20
    assert sum(len(given) for given in names(data).values()) == 60
    with pytest.raises(PumitError, match="matches nothing"):
        read_class_folders(tmp_path, patient="case")


def test_splits_that_are_there_and_series_are_kept(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("val", 2), ("test", 1)):
        fill(tmp_path / split, {"a": count, "b": count})
    # Folders are DICOM series; other and hidden files are passed over.
    (tmp_path / "train" / "a" / "series").mkdir()
    (tmp_path / "train" / "a" / "notes.txt").write_text("x")
    (tmp_path / "train" / "a" / ".hidden.nii.gz").write_text("x")
    (tmp_path / ".cache").mkdir()
    data = read_class_folders(tmp_path)
    assert data.counts() == {"train": [4, 3], "val": [2, 2], "test": [1, 1]}
    shutil.rmtree(tmp_path / "val")  # where only the test is given, a validation set is made
    data = read_class_folders(tmp_path, split={"val": 0.3})
    assert data.counts() == {"train": [3, 2], "val": [1, 1], "test": [1, 1]}


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "holds no folders"),
        ({"a": 5}, "of one class"),
        ({"a": 5, "b": 0}, "class folder 'b' holds no scan"),
        ({"a": 9, "b": 2}, "Class 'b' has 2 scans, too few for train, val, test"),
    ],
)
def test_a_folder_that_cannot_be_learned_from_is_refused(
    tmp_path: Path, counts: dict[str, int], message: str
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    with pytest.raises(PumitError, match=message):
        read_classification_data(fill(folder, counts))


def test_a_class_without_training_cases_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"a": 2, "b": 2})
    fill(tmp_path / "val", {"a": 2, "c": 2})
    with pytest.raises(PumitError, match="Class 'c' of val"):
        read_classification_data(tmp_path)
    with pytest.raises(PumitError, match="leave the key classes out"):
        read_classification_data(tmp_path, classes=["a", "b"])


def test_shares_have_to_leave_something_to_learn_from() -> None:
    assert require_split(None) == {"val": 0.15, "test": 0.15}
    assert require_split({"val": 0.5}) == {"val": 0.5, "test": 0.0}
    for bad in ({"val": 0}, {"test": 0.2}, {"val": 0.5, "test": 0.5}, {"val": "x"}, {"dev": 0.1}):
        with pytest.raises(PumitError, match="split must give"):
            require_split(bad)
