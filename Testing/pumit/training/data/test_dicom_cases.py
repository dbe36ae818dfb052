"""Folders of DICOM patients, Slicer scenes and usual layouts become cases by themselves."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated_scans import touch
from label_objects_made import (
    a_series,
    a_volume,
    blobs,
    save,
    save_segments,
    write_bundle,
    write_parts,
    write_seg,
    write_struct,
)
from pumit.errors import PumitError
from pumit.training.data.case import read_labelled
from pumit.training.data.found_cases import FoundCases, guess_pairs
from pumit.training.data.labelled_set import find_cases, find_labelled_set
from pumit.training.recipes.labelled import LabelledData

MASKS = [mask.astype(np.uint8) for mask in blobs()]
SQUARE = [np.array([(2, 1.5, 1.5), (2, 1.5, 8.5), (2, 8.5, 8.5), (2, 8.5, 1.5)])]


def find(folder: Path, **data: Any) -> FoundCases:
    return find_cases(LabelledData(folder=str(folder), **data), Path)


def messages(found: FoundCases) -> list[str]:
    return [str(problem) for problem in found.problems]


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """p1: scan and DICOM-SEG; p2: two scans, RTSTRUCT; p3: a scan; p4: a lost SEG; p5: damage."""
    folder = tmp_path_factory.mktemp("patients")
    one = a_series(folder / "p1" / "ct")
    write_seg(folder / "p1" / "seg" / "a.dcm", one, MASKS[0], "BINARY", ["Liver"])
    two = a_series(folder / "p2" / "ct", seed=1)
    a_series(folder / "p2" / "ct" / "scout", seed=2)
    write_struct(folder / "p2" / "rt.dcm", two, {"LIVER": SQUARE})
    a_series(folder / "p3" / "ct", seed=3)
    other = a_series(folder.parent / "elsewhere" / "ct", seed=4)
    write_seg(folder / "p4" / "b.dcm", other, MASKS[0], "BINARY", ["Liver"])
    touch(folder, "p5/c.dcm")
    (folder / "p5" / "c.dcm").write_bytes(bytes(128) + b"DICM" + b"nothing of the kind")
    return folder


def test_patients_with_segmentations_are_cases(patients):
    found = find(patients)
    assert [case.name for case in found.data.cases] == ["p1", "p2"]
    first, second = found.data.cases
    assert first.images == (patients / "p1" / "ct",)
    assert second.images[0].name.startswith("ct#")  # another series lies below it
    assert messages(found)[0].startswith("p5: ")
    without_scan, without_labels = messages(found)[1:]
    assert without_scan.startswith("p4 b: the DICOM-SEG refers to a series")
    assert without_labels.startswith("p3: has no DICOM-SEG")
    kept = {"leave_out": ["p5", "p4 b"]}
    data = find_labelled_set(LabelledData(folder=str(patients), **kept), Path)
    assert [c.label.name for c in data.classes] == ["Liver"]
    assert data.classes[0].segments == ("LIVER",)
    assert data.doubts[0] == "1 scan has no labels and is not used"
    assert "'Liver' is also spelt 'LIVER' (p2)" in data.doubts[1]
    read = [read_labelled(case, data.classes) for case in data.cases]
    assert np.array_equal(read[0].labels, MASKS[0])
    assert read[1].labels[2, 2:9, 2:9].all()
    assert np.array_equal(read[1].volume.array, a_volume(1).array)


def test_segmentations_of_other_segments_are_one_case_and_readings_two(tmp_path):
    scan = a_series(tmp_path / "p" / "ct")
    for name, mask, label in (("a", 0, "Liver"), ("b", 1, "Spleen"), ("c", 1, "liver")):
        write_seg(tmp_path / "p" / f"{name}.dcm", scan, MASKS[mask], "BINARY", [label])
    cases = find(tmp_path).data.cases
    assert [len(case.labels) for case in cases] == [2, 1]
    assert cases[0].patient == cases[1].patient == "p"  # never the identifier


def test_parts_of_one_segmentation_are_one_case(tmp_path):
    scan = a_series(tmp_path / "p" / "ct")
    whole = write_seg(tmp_path / "whole.dcm", scan, MASKS[0], "BINARY", ["Liver"])
    parts = write_parts(whole, tmp_path / "p" / "seg")
    whole.unlink()
    found = find(tmp_path)
    assert messages(found) == []
    (case,) = found.data.cases
    assert len(case.labels) == 1
    data = find_labelled_set(LabelledData(folder=str(tmp_path)), Path)
    assert np.array_equal(read_labelled(case, data.classes).labels, MASKS[0])
    parts[0].unlink()
    (case,) = find(tmp_path).data.cases
    with pytest.raises(PumitError, match="Found 1 of 2 parts"):
        read_labelled(case, data.classes)


def test_scenes_are_cases(tmp_path):
    files = (
        save(tmp_path / "v.nrrd", a_volume()),
        save_segments(tmp_path / "s.seg.nrrd", a_volume()),
    )
    folder = tmp_path / "scenes"
    folder.mkdir()
    write_bundle(folder / "a.mrb", *files)
    write_bundle(folder / "b.mrb", *files, more="transform:vtkMRMLTransformNode1;")
    (folder / "c.mrb").write_bytes(b"no zip")
    found = find(folder)
    (case,) = found.data.cases
    assert (case.name, case.images[0].name) == ("a", "a.mrb#CT & more")
    assert messages(found)[0].startswith("b: 'Segments' and 'CT & more' ")
    assert messages(found)[1].startswith("c: The Slicer bundle is damaged")
    alone = find_labelled_set(LabelledData(folder=str(folder / "a.mrb"), use_unreviewed=True), Path)
    assert [c.label.name for c in alone.classes] == ["liver", "spleen"]
    # Codes and colours travel into the model.
    assert "SCT^10200004^Liver" in alone.classes[0].label.terminology
    assert alone.classes[0].label.color_rgb is not None
    assert "liver and spleen share" in read_labelled(case, alone.classes).doubts[-1]


def test_zips_of_patients_are_cases(tmp_path, patients):
    for name in ("p1", "p3"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            for file in (patients / name).rglob("*.dcm"):
                archive.write(file, file.relative_to(patients))
    found = find(tmp_path)
    assert [text.partition(": ")[0] for text in messages(found)] == ["p3"]
    assert [case.name for case in find(tmp_path / "p1.zip").data.cases] == ["p1"]
    data = find_labelled_set(LabelledData(folder=str(tmp_path), leave_out=[]), Path)
    assert np.array_equal(read_labelled(data.cases[0], data.classes).labels, MASKS[0])


def test_a_patient_of_dicom_is_one_in_all_folders_and_files(tmp_path):
    """All scans are of one patient; label maps of one are beside its DICOM folders."""
    for name in ("a", "b"):
        scan = a_series(tmp_path / "patients" / name / "ct", seed=ord(name))
        write_seg(tmp_path / "patients" / name / "seg.dcm", scan, MASKS[0], "BINARY", ["Liver"])
        volume = a_series(tmp_path / "beside" / "images" / name, seed=ord(name) + 2)
        (tmp_path / "beside" / "labels").mkdir(exist_ok=True)
        save(tmp_path / "beside" / "labels" / f"{name}.nrrd", replace(volume, array=MASKS[1]))
        (tmp_path / "zips").mkdir(exist_ok=True)
        with zipfile.ZipFile(tmp_path / "zips" / f"{name}.zip", "w") as archive:
            for file in (tmp_path / "patients" / name).rglob("*.dcm"):
                archive.write(file, file.relative_to(tmp_path))
    rows = [{"folder": str(tmp_path / name)} for name in ("patients", "beside", "zips")]
    cases = find_cases(LabelledData.model_validate({"folders": rows}), Path).data.cases
    assert len(cases) == 6
    assert {case.patient for case in cases} == {"folder1-a"}
    rows[1]["patients"] = {"b": "P7"}
    cases = find_cases(LabelledData.model_validate({"folders": rows}), Path).data.cases
    assert [c.name for c in cases if c.patient == "P7"] == ["folder2-b"]


def test_folders_of_dicom_are_paired_with_label_maps(tmp_path):
    volume = a_series(tmp_path / "images" / "a")
    (tmp_path / "labels").mkdir()
    save(tmp_path / "labels" / "a.nrrd", replace(volume, array=MASKS[1]))
    data = find_labelled_set(LabelledData(folder=str(tmp_path)), Path)
    assert data.cases[0].images == (tmp_path / "images" / "a",)
    assert np.array_equal(read_labelled(data.cases[0], data.classes).labels, MASKS[1])


@pytest.mark.parametrize(
    ("files", "images", "labels", "channels"),
    [
        (["a/image.nii.gz", "a/label.nii.gz"], "{case}/image.*", "{case}/label.*", ()),
        (["a.nrrd", "a.seg.nrrd"], "{case}.*", "{case}.seg.nrrd", ()),
        (["a.nii", "a_seg.nii"], "{case}.*", "{case}_seg.*", ()),
        (["a/CT.nrrd", "a/Mine.seg.nrrd"], "{case}/*.*", "{case}/*.seg.nrrd", ()),
        (["images/a.nii", "labels/a_seg.nii"], "images/{case}.*", "labels/{case}_seg.*", ()),
        (
            ["a/a_t1.nii.gz", "a/a_flair.nii.gz", "a/a_seg.nii.gz"],
            "{case}/{case}_{channel}.*",
            "{case}/{case}_seg.*",
            ("flair", "t1"),
        ),
        (
            ["imagesTr/a_0000.mha", "imagesTr/a_0001.mha", "labelsTr/a.mha"],
            "imagesTr/{case}_{channel}.*",
            "labelsTr/{case}.*",
            (),  # numbers name nothing
        ),
    ],
)
def test_usual_layouts_are_recognised(tmp_path, files, images, labels, channels):
    touch(tmp_path, *files)
    found = guess_pairs(tmp_path)
    assert (found.layout, found.data.channels) == (f"images: {images}, labels: {labels}", channels)
    assert [case.name for case in found.data.cases] == ["a"]
    assert not found.problems


def test_missing_and_surplus_channels_are_named(tmp_path):
    names = ("t1", "t1ce", "t2", "flair", "seg")
    touch(tmp_path / "named", *(f"{case}/{case}_{m}.nii.gz" for case in "ab" for m in names))
    (tmp_path / "named" / "b" / "b_t1ce.nii.gz").unlink()
    found = find(tmp_path / "named")
    assert messages(found) == ["b: lacks channel t1ce"]
    assert found.data.channels == ("flair", "t1", "t1ce", "t2")
    # By dataset.json.
    touch(tmp_path, *(f"imagesTr/a_000{i}.nii.gz" for i in range(3)), "labelsTr/a.nii.gz")
    content = {"channel_names": {"0": "T1", "1": "T2"}, "labels": {"background": 0, "x": 1}}
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    (text,) = messages(find(tmp_path))
    assert text.startswith("a: has 3 files")
    assert text.endswith("T1, T2")
    (tmp_path / "imagesTr" / "a_0002.nii.gz").unlink()
    touch(tmp_path, "imagesTr/b_0000.nii.gz", "labelsTr/b.nii.gz")
    assert messages(find(tmp_path)) == ["b: lacks channel 0001 (T2)"]


def test_folder_of_nothing_known_says_what_is(tmp_path):
    touch(tmp_path, "notes.txt")
    with pytest.raises(PumitError, match=r"dataset\.json, DICOM or Slicer scenes"):
        find(tmp_path)


def test_series_without_segmentations_are_named_as_such(tmp_path):
    a_series(tmp_path / "scans" / "ct")
    with pytest.raises(PumitError, match="'scans' has 1 DICOM series, but no DICOM-SEG"):
        find(tmp_path / "scans")
