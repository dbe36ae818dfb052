"""Labels that were drawn in part say what they know, and what they do not."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_scans import ball_and_box, write, write_pairs
from pumit.errors import PumitError, VolumeError
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.training.data.case import LabelledVolume, read_labelled
from pumit.training.data.checks import examine, part_in_words
from pumit.training.data.class_matching import cut_classes
from pumit.training.data.classes import UNKNOWN, classes_from
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.labelled_set import find_cases, find_labelled_set
from pumit.training.data.survey import DataSurvey
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.model import read_model
from pumit.volume import Volume

CLASSES = {"ball": 1, "box": 2}


def find(folder: Path, **data: Any) -> LabelledSet:
    return find_labelled_set(
        read_model(LabelledData, {"folder": str(folder), **data}, "data"), Path
    )


def reads(folder: Path, **data: Any) -> list[LabelledVolume]:
    found = find(folder, **data)
    return [read_labelled(case, found.classes) for case in found.cases]


@pytest.fixture
def nnunet(tmp_path: Path) -> Path:
    """A data set of nnU-Net of which every other slice was drawn, and value 3 says so."""
    for number in range(2):
        image, labels = ball_and_box(number)
        labels[1::2] = 3
        write(tmp_path / "imagesTr" / f"c{number}_0000.nii.gz", image)
        write(tmp_path / "labelsTr" / f"c{number}.nii.gz", labels)
    labels = {"background": 0, **CLASSES, "ignore": 3}
    content = {"channel_names": {"0": "CT"}, "labels": labels, "file_ending": ".nii.gz"}
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    return tmp_path


def write_segments(
    folder: Path, number: int, names: tuple[str, ...], **more: np.ndarray
) -> np.ndarray:
    """Write a case whose file names its segments; returns all that is in the scan."""
    image, labels = ball_and_box(number)
    path = write(folder / "images" / f"case_{number}.nii.gz", image)
    masks = {"ball": labels == 1, "box": labels == 2, "nothing": labels == 1, **more}
    segments = tuple(Segment(name, masks[name]) for name in names)
    (folder / "labels").mkdir(exist_ok=True)
    out = folder / "labels" / f"case_{number}.seg.nrrd"
    write_seg_nrrd(Segmentation(Volume.read(path), segments, Algorithm("x", "1")), out)
    out.write_bytes(out.read_bytes().replace(b"Status:inprogress", b"Status:completed"))
    return labels


def test_nnunets_label_to_ignore_is_unknown(nnunet):
    found = find(nnunet)
    assert [c.label.name for c in found.classes] == ["ball", "box"]
    read = read_labelled(found.cases[0], found.classes)
    _, labels = ball_and_box(0)
    assert (read.labels[1::2] == UNKNOWN).all()
    assert np.array_equal(read.labels[::2], labels[::2])
    facts = examine(found)
    first = facts.cases[0]
    assert first.known_share == 0.5
    assert first.class_voxels == tuple(np.bincount(labels[::2].ravel()))
    assert first.foreground.shape[1] == (labels[::2] > 0).sum()
    assert first.cut == {1, 2}
    assert facts.warnings == (
        "labelled in part, what is unknown is left out: c0 (50 % known), c1 (50 % known)",
    )


def test_a_recipe_names_the_value_to_ignore(tmp_path):
    write_pairs(tmp_path, 1)
    _, labels = ball_and_box(0)
    labels[:, :3] = 9
    write(tmp_path / "labels" / "case_0.nii.gz", labels)
    (read,) = reads(tmp_path, ignore=9)
    assert (read.labels[:, :3] == UNKNOWN).all()
    assert sorted(np.unique(read.labels)) == [0, 1, 2, UNKNOWN]
    assert [c.value for c in find(tmp_path, ignore=9).classes] == [1, 2]
    with pytest.raises(PumitError, match="label values 9"):
        reads(tmp_path, classes=CLASSES)


def test_names_of_segments_tell_which_classes_were_drawn(tmp_path):
    """A class without a segment is unknown; an empty segment says that there is none."""
    write_segments(tmp_path, 0, ("ball", "box"))
    write_segments(tmp_path, 1, ("ball",))
    write_segments(tmp_path, 2, ("ball", "box"))
    path = tmp_path / "labels" / "case_2.seg.nrrd"
    header, _, packed = path.read_bytes().partition(b"\n\n")
    voxels = gzip.decompress(packed).replace(b"\2", b"\0")
    path.write_bytes(header + b"\n\n" + gzip.compress(voxels))
    found = reads(tmp_path, classes=CLASSES)
    assert [read.drawn for read in found] == [None, (True, False), None]
    facts = examine(find(tmp_path, classes=CLASSES))
    assert facts.warnings == (
        "case_2: has no box",
        "labelled in part, what is unknown is left out: case_1 (box not drawn)",
    )
    assert [r.drawn for r in reads(tmp_path, classes=CLASSES, drawn="all")] == [None] * 3
    write_segments(tmp_path, 1, ("nothing",))  # segments of no class at all teach nothing
    classes = {"ball": 5, "box": 6}
    assert reads(tmp_path, classes=classes)[1].drawn == (False, False)
    assert "case_1: nothing of it is known" in examine(find(tmp_path, classes=classes)).warnings


def test_a_list_names_the_classes_that_were_drawn_in_label_maps(tmp_path):
    write_pairs(tmp_path, 2)
    keys: dict[str, Any] = {"classes": CLASSES, "drawn": {"case_1": ["Ball"]}}
    first, second = reads(tmp_path, **keys)
    assert (first.drawn, second.drawn) == (None, (True, False))
    _, labels = ball_and_box(1)
    assert (second.labels[labels == 2] == UNKNOWN).all()  # half a box is no box
    assert np.array_equal(second.labels == 1, labels == 1)
    folders = [{"folder": str(tmp_path), "drawn": {"case_1": ["box"]}}]
    data = read_model(LabelledData, {"folders": folders, "classes": CLASSES}, "data")
    found = find_labelled_set(data, Path)
    assert read_labelled(found.cases[1], found.classes).drawn == (False, True)
    row = {"image": str(tmp_path / "images/case_0.nii.gz"), "drawn": ["ball"], "known": "slices"}
    row["label"] = str(tmp_path / "labels/case_0.nii.gz")
    data = read_model(LabelledData, {"cases": [row], "classes": CLASSES}, "data")
    (case,) = find_labelled_set(data, Path).cases
    assert (case.drawn, case.known) == (("ball",), "slices")
    with pytest.raises(VolumeError, match=r"case_1: drawn names 'bal', which is no class .*ball"):
        reads(tmp_path, classes=CLASSES, drawn={"case_1": ["bal"]})


def test_dataset_json_names_the_classes_that_were_drawn(nnunet):
    content = json.loads((nnunet / "dataset.json").read_text())
    more = {"drawn": {"c1": ["box"]}, "known": "slices"}
    (nnunet / "dataset.json").write_text(json.dumps({**content, **more}))
    first, second = find(nnunet).cases
    assert (first.drawn, second.drawn, first.known) == (None, ("box",), "slices")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_of_sparse_slices_only_those_that_hold_labels_are_known(tmp_path, axis):
    image, labels = ball_and_box(0)
    every = (slice(None),) * axis
    kept = np.zeros_like(labels)
    used = np.flatnonzero((labels > 0).any(axis=tuple({0, 1, 2} - {axis})))[::3]
    kept[(*every, used)] = labels[(*every, used)]
    write(tmp_path / "images" / "a.nii.gz", image)
    write(tmp_path / "labels" / "a.nii.gz", kept)
    (read,) = reads(tmp_path, classes=CLASSES, known="slices")
    known = (read.labels != UNKNOWN).any(axis=tuple({0, 1, 2} - {axis}))
    assert np.flatnonzero(known).tolist() == used.tolist()
    assert np.array_equal(read.labels[(*every, used)], labels[(*every, used)])


def test_of_strokes_only_what_they_cover_is_known(tmp_path):
    labels = ball_and_box(0)[1]
    inside, beside = np.zeros_like(labels, dtype=bool), np.zeros_like(labels, dtype=bool)
    inside[np.unravel_index(np.flatnonzero(labels == 1)[::7], labels.shape)] = True
    beside[0, :4] = True
    write_segments(tmp_path, 0, ("ball", "background"), ball=inside, background=beside)
    (read,) = reads(tmp_path, known="strokes")
    assert (read.labels == 1).sum() == inside.sum()
    assert ((read.labels == 0) == beside).all()
    write_segments(tmp_path, 0, ("ball",), ball=inside)
    (read,) = reads(tmp_path, known="strokes")
    assert "has no stroke of a segment that is called background" in read.doubts


def test_a_segment_that_is_called_ignore_is_unknown(tmp_path):
    hidden = np.zeros_like(ball_and_box(0)[1], dtype=bool)
    hidden[:, :, 20:] = True
    labels = write_segments(tmp_path, 0, ("ball", "box", "Ignore"), Ignore=hidden)
    (read,) = reads(tmp_path)
    assert (read.labels[hidden] == UNKNOWN).all()
    assert np.array_equal(read.labels[~hidden], labels[~hidden])
    assert read.drawn is None


def test_structures_that_touch_the_unknown_are_cut():
    labels = np.zeros((5, 5, 5), np.uint8)
    labels[1, 1, 1], labels[3, 3, 3], labels[3, 3, 4] = 1, 2, UNKNOWN
    classes = classes_from({"a": 1, "b": 2, "both": [1, 2]})
    assert {classes[i - 1].label.name for i in cut_classes(labels, classes)} == {"b", "both"}


def test_the_check_of_the_data_says_how_much_is_known(nnunet, tmp_path):
    survey = DataSurvey(find_cases(LabelledData(folder=str(nnunet)), Path))
    assert [report.part for report in survey.reports()] == ["50 % known"] * 2
    assert not survey.summary().doubts
    folder = tmp_path / "named"
    folder.mkdir()
    write_segments(folder, 0, ("ball",))
    write_segments(folder, 1, ("ball", "box"))
    survey = DataSurvey(find_cases(LabelledData(folder=str(folder)), Path))
    assert [report.part for report in survey.reports()] == ["", ""]
    late = {"case_0": {"problems": [], "doubts": [], "part": "box not drawn"}}
    assert survey.summary().found_late == late  # which was not known before the second case
    assert replace(survey.summary(), found_late={}).doubts == []
    # Segments of no class may mean one that their case lacks.
    keys = {"folder": str(folder), "classes": {"kidney": 1, "box": 2}}
    survey = DataSurvey(find_cases(LabelledData(**keys), Path))
    list(survey.reports())
    assert survey.summary().may_be_same == [("ball", "kidney")]


def test_a_part_is_never_all(tmp_path):
    (fact,) = examine(find(write_pairs(tmp_path, 1), classes=CLASSES)).cases
    shares = (1.0, 0.9999, 0.357, 0.00123)
    said = [part_in_words(replace(fact, known_share=share), list(CLASSES)) for share in shares]
    assert said == ["", "99.9 % known", "36 % known", "0.123 % known"]


def test_a_list_may_name_a_class_that_only_a_later_case_has(tmp_path):
    write_pairs(tmp_path, 2)
    path = tmp_path / "labels" / "case_0.nii.gz"
    write(path, np.where(ball_and_box(0)[1] == 1, 1, 0).astype(np.uint8))
    keys = {"folder": str(tmp_path), "drawn": {"case_0": ["class 2"], "case_1": ["class 1"]}}
    survey = DataSurvey(find_cases(read_model(LabelledData, keys, "data"), Path))
    assert [report.problems for report in survey.reports()] == [[], []]
    late = survey.summary().found_late
    assert {case: row["part"] for case, row in late.items()} == {
        "case_0": "class 1 not drawn",
        "case_1": "class 2 not drawn",
    }
