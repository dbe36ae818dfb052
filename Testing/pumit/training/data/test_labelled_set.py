"""Cases are found however their files are laid out, and what is missing is said at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from generated_scans import touch
from labelled_scans import ball_and_box, write, write_pairs
from pumit.errors import PumitError
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.training.cross_validation import fold_splits
from pumit.training.data.found_cases import LabelledSet, one_line
from pumit.training.data.labelled_set import find_cases, find_labelled_set
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.model import read_model
from pumit.training.validate import read_segmentation
from pumit.volume import Volume

CLASSES = {"ball": 1, "box": 2}


def find(root: Path, /, **data: Any) -> LabelledSet:
    if not {"cases", "folders"} & data.keys():
        data = {"folder": ".", **data}
    if not (root / "dataset.json").exists():
        data.setdefault("classes", CLASSES)  # or they are read off the labels
    return find_labelled_set(read_model(LabelledData, data, "data"), lambda text: root / text)


def test_files_of_one_name_are_a_case(tmp_path):
    touch(tmp_path, "images/b.1.nrrd", "labels/b.1.nii.gz", "images/a.mha", "labels/a.nii.gz")
    touch(tmp_path, "images/._a.mha", "labels/notes.txt")
    found = find(tmp_path, classes=CLASSES)
    assert [case.name for case in found.cases] == ["a", "b.1"]
    assert found.cases[1].label == tmp_path / "labels" / "b.1.nii.gz"
    # Terminology and colours are kept.
    rows = [{"name": "Leber", "value": 6, "terminology": "liver", "color_rgb": [0.5, 0.2, 0.1]}]
    assert [c.as_row() for c in find(tmp_path, classes=rows).classes] == rows


def test_patterns_find_other_layouts_and_channels(tmp_path):
    touch(tmp_path, "p1/image.nii.gz", "p1/label.nii.gz", "p2/image.nii.gz", "p2/label.nii.gz")
    found = find(tmp_path, images="{case}/image.nii.gz", labels="{case}/label.nii.gz")
    assert [case.name for case in found.cases] == ["p1", "p2"]
    touch(tmp_path, "mr/x_t2.nii.gz", "mr/x_t1.nii.gz", "seg/x.nii.gz")
    found = find(tmp_path, images="mr/{case}_{channel}.nii.gz", labels="seg/{case}.nii.gz")
    assert [path.name for path in found.cases[0].images] == ["x_t1.nii.gz", "x_t2.nii.gz"]
    touch(tmp_path, "mr/y_t1.nii.gz", "seg/y.nii.gz")
    pattern = {"images": "mr/{case}_{channel}.nii.gz", "labels": "seg/{case}.nii.gz"}
    with pytest.raises(PumitError, match="y: lacks channel t2"):
        find(tmp_path, **pattern)
    assert len(find(tmp_path, **pattern, repeat_single_channel=True).cases) == 2


def two_sites(root: Path) -> list[dict[str, Any]]:
    """Folders whose cases are called alike."""
    for site in ("a/site", "b/site"):
        touch(
            root / site, *(f"{kind}/case_{n}.nii.gz" for kind in ("images", "labels") for n in "12")
        )
    return [{"folder": "a/site"}, {"folder": "b/site"}]


def test_folders_and_listed_cases_add_up(tmp_path):
    rows = two_sites(tmp_path)
    touch(tmp_path, "x.nii.gz", "x_seg.nii.gz", "y1.nii.gz", "y2.nii.gz")
    listed = [
        {"name": "case_1", "image": "x.nii.gz", "label": "x_seg.nii.gz"},
        {"image": ["y1.nii.gz", "y2.nii.gz"], "label": "x_seg.nii.gz"},
    ]
    found = find(tmp_path, folders=rows, cases=listed)
    assert [(case.name, len(case.images)) for case in found.cases] == [
        *(("case_1", 1), ("folder1-case_1", 1), ("folder1-case_2", 1), ("folder2-case_1", 1)),
        *(("folder2-case_2", 1), ("y1", 2)),
    ]
    assert found.cases[3].label == tmp_path / "b/site/labels/case_1.nii.gz"
    # What one folder leaves out is nothing to another.
    rows[0]["leave_out"], rows[1]["patients"] = ["case_1"], {"case_1": "P7"}
    assert [(case.name, case.patient) for case in find(tmp_path, folders=rows).cases] == [
        *(("folder1-case_2", ""), ("folder2-case_1", "P7"), ("folder2-case_2", ""))
    ]
    del rows[0]["leave_out"]
    (alone, second) = find(tmp_path, folders=rows[:1]).cases
    assert (alone.name, second.name) == ("case_1", "case_2")


def test_a_folder_that_fails_hides_no_other(tmp_path):
    rows = [*two_sites(tmp_path), {"folder": "gone"}]
    found = find_cases(LabelledData(folders=rows, classes=CLASSES), lambda text: tmp_path / text)
    (problem,) = found.problems
    assert str(problem).startswith("There is no folder 'gone'; correct its path")
    assert len(found.data.cases) == 4
    assert found.origins["folder2-case_1"] == ("b/site", "case_1")


def test_classes_that_folders_name_differently_have_to_be_named(tmp_path):
    rows = two_sites(tmp_path)
    for row, names in zip(rows, ({"liver": 1}, {"spleen": 1}), strict=True):
        folder = tmp_path / row["folder"]
        listed = [{"image": "images/case_1.nii.gz", "label": "labels/case_1.nii.gz"}]
        labels = {"0": "background", **{str(v): k for k, v in names.items()}}
        content = {"modality": {"0": "CT"}, "labels": labels, "training": listed}
        (folder / "dataset.json").write_text(json.dumps(content))
    found = find_cases(LabelledData(folders=rows), lambda text: tmp_path / text)
    assert ["name their classes differently" in str(p) for p in found.problems] == [True]
    assert found.data.channels == ("CT",)
    assert not find_cases(
        LabelledData(folders=rows, classes=CLASSES), lambda t: tmp_path / t
    ).problems


def test_channels_of_folders_that_mean_something_else_are_not_mixed(tmp_path):
    for site, names in (("a", ("t1", "t2")), ("b", ("flair", "t1")), ("c", ("T1", "T2"))):
        touch(tmp_path / site, *(f"p/{name}.nii.gz" for name in names), "p/seg.nii.gz")

    def problems(*sites: str, **data: Any) -> list[str]:
        rows = [{"folder": site} for site in sites]
        given = read_model(LabelledData, {"folders": rows, **data}, "data")
        return [str(p) for p in find_cases(given, lambda text: tmp_path / text).problems]

    (problem,) = problems("a", "b")
    assert problem.startswith("the folders have different channels (t1, t2; flair, t1)")
    assert not problems("a", "c")
    assert not problems("a", "b", channels=["first", "second"])
    # One channel of several kinds, such as CT and MR, is a choice.
    for site in "ab":
        (tmp_path / site / "p" / "t1.nii.gz").unlink()
    assert not problems("a", "b")


@pytest.mark.parametrize("version", ["decathlon", "nnunet1", "nnunet2", "nnunet2 listed"])
def test_dataset_json_of_every_kind(tmp_path, version):
    channels = {"0": "T1", "1": "T2"}
    split = ["imagesTr/c1_0000.nii.gz", "imagesTr/c1_0001.nii.gz"]
    touch(
        tmp_path,
        "labelsTr/c1.nii.gz",
        *(["imagesTr/c1.nii.gz"] if version == "decathlon" else split),
    )
    listed = [{"image": "./imagesTr/c1.nii.gz", "label": "./labelsTr/c1.nii.gz"}]
    old = {"modality": channels, "labels": {"0": "background", "2": "box", "1": "ball"}}
    new = {"channel_names": channels, "labels": {"background": 0, "ball": 1, "box": 2}}
    named = {"c1": {"images": split, "label": "labelsTr/c1.nii.gz"}}
    content = {
        "decathlon": {**old, "training": listed},
        "nnunet1": {**old, "training": listed},
        "nnunet2": {**new, "file_ending": ".nii.gz"},
        "nnunet2 listed": {**new, "dataset": named},
    }[version]
    # Editors on Windows begin a file with a mark of its encoding.
    encoding = "utf-8-sig" if version == "nnunet2" else "utf-8"
    (tmp_path / "dataset.json").write_text(json.dumps(content), encoding=encoding)
    found = find(tmp_path)
    assert [case.name for case in found.cases] == ["c1"]
    assert len(found.cases[0].images) == (1 if version == "decathlon" else 2)
    assert found.channels == ("T1", "T2")
    assert [c.label.name for c in found.classes] == ["ball", "box"]


@pytest.mark.parametrize(
    ("files", "data", "message"),
    [
        (["images/a.nii.gz"], {}, "labels/"),
        (
            ["images/a.nii.gz", "labels/c.nii.gz", "labels/a.nii.gz"],
            {},
            "c: has a label and no image",
        ),
        (["images/a.nii.gz", "images/a.nrrd", "labels/a.nii.gz"], {}, "a: is there twice"),
        ([], {"folder": "absent"}, "no folder 'absent'"),
        ([], {"images": "images/*.nii.gz"}, "needs {case}"),
        ([], {"cases": [{"image": "x.nii.gz", "label": "y.nii.gz"}]}, "x: there is no file"),
        ([], {"cases": [{"imgae": "x.nii.gz", "label": "y.nii.gz"}]}, "did you mean 'image'"),
        ([], {"cases": []}, "holds no case"),
        ([], {"cases": [], "folder": "."}, "either a folder"),
        ([], {"classes": {"liver": 1, "tumour": 1}}, "share the value 1"),
        ([], {"classes": [{"name": "x", "value": 1, "terminology": "livr"}]}, "liver"),
        ([], {"classes": [{"name": "x", "valu": 1}]}, "did you mean 'value'"),
    ],
)
def test_what_is_missing_is_said(tmp_path, files, data, message):
    touch(tmp_path, *files)
    with pytest.raises(PumitError) as raised:
        find(tmp_path, **data)
    assert message in str(raised.value)


def test_all_problems_are_in_one_message(tmp_path):
    touch(tmp_path, *(f"labels/c{i:02d}.nii.gz" for i in range(20)), "images/c00.nii.gz")
    with pytest.raises(PumitError, match=r"c01: has .* no image.*c12: has .* and 7 more\.$"):
        find(tmp_path)


def test_scans_without_labels_stop_nothing(tmp_path):
    touch(tmp_path, "images/a.nii.gz", "images/b.nii.gz", "images/c.nii.gz", "labels/a.nii.gz")
    found = find(tmp_path)
    assert [case.name for case in found.cases] == ["a"]
    assert found.doubts == ("2 scans have no labels and are not used",)
    (tmp_path / "labels" / "a.nii.gz").unlink()
    with pytest.raises(PumitError, match=r"None of 3 scans has labels.*labels/\{case\}"):
        find(tmp_path)


@pytest.mark.parametrize("is_listed", [True, False])
def test_scans_without_labels_stop_no_data_set_of_nnunet(tmp_path, is_listed):
    touch(tmp_path, *(f"imagesTr/{case}_0000.nii.gz" for case in "abc"), "labelsTr/a.nii.gz")
    content: dict[str, Any] = {"labels": {"background": 0, "x": 1}, "channel_names": {"0": "CT"}}
    if is_listed:
        rows = ({"image": f"imagesTr/{c}.nii.gz", "label": f"labelsTr/{c}.nii.gz"} for c in "abc")
        content["training"] = list(rows)
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    assert [case.name for case in find(tmp_path).cases] == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be used"),
        ('{"labels": {"background": 0, "whole": [1, 0]}}', "whole numbers"),
        ('{"labels": {"x": 1}, "known": "some"}', "known"),
        ('{"labels": {"background": 0}}', "no class but the background"),
        ('{"modality": {"0": "CT"}}', "labels"),
        ('{"labels": {"x": 1}, "training": [{"image": "a", "label": "b"}]}', "no file"),
    ],
)
def test_damaged_dataset_json_is_refused(tmp_path, content, message):
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(PumitError, match=message):
        find(tmp_path)


def write_segments(path: Path, status: str = "inprogress") -> None:
    """Write the ball and box of the first case as a named segmentation of some origin."""
    _, labels = ball_and_box(0)
    volume = Volume.read(write(path.parent.parent / "images" / "x.nii.gz", labels))
    segments = (Segment("ball", labels == 1), Segment("box", labels == 2))
    write_seg_nrrd(Segmentation(volume, segments, Algorithm("hippo", "1", "AUTOMATIC")), path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"Status:inprogress", f"Status:{status}".encode()))
    (path.parent.parent / "images" / "x.nii.gz").unlink()


@pytest.fixture
def half_predicted(tmp_path: Path) -> Path:
    """Three cases, of which a model labelled two."""
    write_pairs(tmp_path, 3)
    for number in (1, 2):
        (tmp_path / "labels" / f"case_{number}.nii.gz").unlink()
        write_segments(tmp_path / "labels" / f"case_{number}.seg.nrrd")
    return tmp_path


def test_a_models_own_labels_are_not_used_unless_they_are_confirmed(half_predicted):
    """F5: a model was trained and validated on its own output."""
    found = find(half_predicted)
    assert [case.name for case in found.cases] == ["case_0"]
    (doubt,) = found.doubts
    assert "labels of case_1, case_2 (made by hippo, not reviewed)" in doubt
    assert "--use-unreviewed" in doubt
    for confirmed in (True, ["case_1", "case_2"]):
        assert len(find(half_predicted, use_unreviewed=confirmed).cases) == 3
    rows = [{"folder": ".", "use_unreviewed": ["case_2"]}]
    assert [c.name for c in find(half_predicted, folders=rows).cases] == ["case_0", "case_2"]
    write_segments(half_predicted / "labels" / "case_1.seg.nrrd", status="completed")
    assert [c.name for c in find(half_predicted).cases] == ["case_0", "case_1"]
    # A cross-validation leaves the others out, too.
    keys = {"folds": 2, "data": {"folder": str(half_predicted), "classes": CLASSES}}
    splits = fold_splits(read_segmentation(keys, "recipe"), Path)
    assert {name for s in splits for name in s.validation} == {"case_0", "case_1"}


@pytest.mark.parametrize("key", ["training", "validation"])
def test_a_recipe_that_names_a_models_own_labels_is_refused(half_predicted, key):
    with pytest.raises(PumitError, match=r"names labels of case_1 .made by hippo.*--use-unrev"):
        find(half_predicted, **{key: ["case_1"]})
    assert find(half_predicted, use_unreviewed=["case_1"], **{key: ["case_1"]})
    with pytest.raises(PumitError, match="no reviewed labels"):
        find(half_predicted, leave_out=["case_0"])


def test_the_message_of_a_case_names_no_path():
    assert one_line(FileNotFoundError(2, "No such file", "/doe/jane.nii")) == (
        "a file cannot be read (No such file)"
    )
    assert one_line(PumitError("It is\ndamaged.")) == "It is damaged"
