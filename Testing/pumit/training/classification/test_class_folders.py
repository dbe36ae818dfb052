"""A folder per class is split the same way everywhere, and no class is left behind."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from generated_scans import dicom_slice
from pumit.errors import PumitError
from pumit.training.classification.cases import Cases, ClassificationData, require_split
from pumit.training.classification.reader import read_class_folders, read_classification_data
from pumit.volume import Volume


def fill(folder: Path, counts: dict[str, int]) -> Path:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (folder / name / f"{name}{i}.nii.gz").write_bytes(b"not read yet")
    return folder


def names(data: ClassificationData) -> dict[str, list[str]]:
    return {split: list(cases.names) for split, cases in data.splits.items()}


def test_each_class_is_split_by_its_share(tmp_path):
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


def test_folders_of_earlier_runs_are_no_classes(tmp_path):
    fill(tmp_path, {"sick": 5, "healthy": 5})
    for run in (tmp_path / "runs" / "first", tmp_path / "second"):
        (run / "prepared").mkdir(parents=True)
        (run / "log.jsonl").write_text("{}")
        (run / "scores.png").write_bytes(b"")
    assert read_class_folders(tmp_path).classes == ("healthy", "sick")


def test_no_patient_is_torn_apart(tmp_path):
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


@pytest.mark.parametrize(
    ("name", "is_guess"),
    [
        ("{kind}/p{patient:02d}_visit{scan}.nii.gz", True),
        ("{kind}/{patient:04d}-{scan}.nrrd", True),
        ("{kind}/MR{patient}/scan{scan}.nii", False),
        ("{kind}/folder{patient}-{scan}.dcm", False),
        ("{kind}/folder{patient}.{scan}", False),
        ("{kind}{scan}/{patient}.nii.gz", True),
    ],
)
def test_patients_stay_together_without_a_pattern(tmp_path, name, is_guess):
    patient_of = {}
    for number in range(36):
        patient, kind, scan = number // 3, "ab"[number % 2], number % 3
        inner = name.format(kind=kind, patient=patient, scan=scan)
        patient_of[inner] = patient
        path = tmp_path / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        if "folder" in inner:
            pixels = np.zeros((2, 2), np.uint16)
            header = dicom_slice(pixels, (0.0, 0.0, 0.0), PatientID=f"ID{patient}")
            if path.suffix != ".dcm":
                path.mkdir()
                path /= "slice"
            header.save_as(path, enforce_file_format=True)
        else:
            path.write_bytes(b"not read yet")
    data = read_classification_data(tmp_path)
    parts = [{patient_of[case] for case in cases.names} for cases in data.splits.values()]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 12
    assert sum(len(cases) for cases in data.splits.values()) == 36
    assert all(0 not in numbers for numbers in data.counts().values())
    assert bool(data.notes) is is_guess
    assert not any("ID" in note for note in data.notes)


def test_each_class_may_name_its_patients_differently(tmp_path):
    for number in range(18):
        for kind, name in (
            ("a", f"mr_patient{number // 3:03d}_frame{number % 3}"),
            ("b", f"x{number}"),
        ):
            fill(tmp_path / kind, {"": 0})
            (tmp_path / kind / f"{name}.nii.gz").write_bytes(b"")
    data = read_class_folders(tmp_path)
    parts = [{n[:15] for n in given if n[0] == "a"} for given in names(data).values()]
    assert sum(map(len, parts)) == 6
    assert data.counts()["train"] == [12, 12]


def test_a_patient_folder_is_no_series_and_a_series_no_patient(tmp_path):
    """A folder with files of other suffixes is a series, also with a picture next to them."""
    files = ("1/a.nii.gz", "1/a.json", "2/x.png", "3/IM1", "3/key.jpg", "4/s1/IM1", "4/s2/IM1")
    for kind in "ab":
        for file in files:
            path = tmp_path / kind / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
    found = {name for split in names(read_class_folders(tmp_path)).values() for name in split}
    scans = ("1/a.nii.gz", "2/x.png", "3", "4/s1", "4/s2")
    assert found == {f"{kind}/{scan}" for kind in "ab" for scan in scans}


def test_a_class_of_too_few_patients_says_how_many_scans_they_have(tmp_path):
    for kind, count in (("a", 9), ("b", 2)):
        for i in range(count):
            fill(tmp_path / kind / f"p{i}", {"": 4})
    with pytest.raises(PumitError, match="'b' has 8 scans of 2 patients, too few for train, val"):
        read_classification_data(tmp_path)


def test_splits_that_are_there_and_series_are_kept(tmp_path):
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


def test_a_patient_in_two_splits_of_a_lab_is_told(tmp_path):
    for split, numbers in (("train", range(6)), ("val", range(5, 9))):
        for kind in "ab":
            fill(tmp_path / split, {kind: 0})
            for number in numbers:  # which are numbered in each folder
                (tmp_path / split / kind / f"{number}.nii.gz").write_bytes(b"")
    assert not read_class_folders(tmp_path).notes
    for path in [*tmp_path.rglob("*.nii.gz")]:
        kind = path.parent.name
        path.rename(path.with_name(f"p{path.name[0]}_{kind}.nii.gz"))
    (note,) = read_class_folders(tmp_path).notes
    assert note.startswith("1 patient in several splits, such as train/a/p5_a.nii.gz, ")
    assert "val/a/p5_a.nii.gz" in note


def test_splits_are_known_by_the_names_of_labs(tmp_path):
    for split, count in (("Training", 3), ("validation", 2)):
        fill(tmp_path / split, {"a": count, "b": count})
    assert read_class_folders(tmp_path).counts() == {"train": [3, 3], "val": [2, 2]}
    fill(tmp_path / "train", {"a": 1})
    with pytest.raises(PumitError, match="holds Training and train; join them"):
        read_class_folders(tmp_path)
    shutil.rmtree(tmp_path / "Training")
    shutil.rmtree(tmp_path / "train")
    with pytest.raises(PumitError, match="holds validation, but no folder train"):
        read_class_folders(tmp_path)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "holds no folders"),
        ({"a": 5}, "All training cases of set are of one class"),
        ({"a": 5, "b": 0}, "class folder 'b' holds no scan"),
        ({"a": 9, "b": 2}, "Class 'b' has 2 scans, too few for train, val, test"),
    ],
)
def test_a_folder_that_cannot_be_learned_from_is_refused(tmp_path, counts, message, monkeypatch):
    folder = tmp_path / "set"
    folder.mkdir()
    monkeypatch.chdir(fill(folder, counts))
    for path in (folder, Path()):  # the current folder has a name, too
        with pytest.raises(PumitError, match=message):
            read_classification_data(path)


def test_a_class_without_training_cases_is_refused(tmp_path):
    fill(tmp_path / "train", {"a": 2, "b": 2})
    fill(tmp_path / "val", {"a": 2, "c": 2})
    with pytest.raises(PumitError, match="Class 'c' of val"):
        read_classification_data(tmp_path)
    with pytest.raises(PumitError, match="leave the key classes out"):
        read_classification_data(tmp_path, classes=["a", "b"])


def test_shares_have_to_leave_something_to_learn_from():
    assert require_split(None) == {"val": 0.15, "test": 0.15}
    assert require_split({"val": 0.5}) == {"val": 0.5, "test": 0.0}
    for bad in ({"val": 0}, {"test": 0.2}, {"val": 0.5, "test": 0.5}, {"val": "x"}, {"dev": 0.1}):
        with pytest.raises(PumitError, match="split must give"):
            require_split(bad)


def test_copies_across_classes_or_splits_are_problems_and_others_doubts():
    blank = np.zeros((2, 4, 4), np.uint8)

    def cases(split: str, labels: list[int], arrays: list[np.ndarray]) -> Cases:
        names = [f"{split}{i}" for i in range(len(arrays))]
        files = list(map(Path, names))
        return Cases(names, np.array(labels), lambda i: Volume(arrays[i]), files)

    others = [blank.reshape(4, 2, 4), blank.view(np.int8)]  # the same bytes, no copies
    splits = {
        "train": cases("train", [0, 0, 1, 1, 1], [blank, blank, blank, *others]),
        "val": cases("val", [0, 1], [blank, blank + 1]),
    }
    found = ClassificationData(("a", "b"), splits, is_stored_as_shown=False).check_scans()
    problem = "It is the same image as train0; remove one."
    assert {name: told for name, *told in found if any(told)} == {
        "train1": ["", "train1 is the same image as train0"],
        "train2": [problem, ""],
        "val0": [problem, ""],
    }
