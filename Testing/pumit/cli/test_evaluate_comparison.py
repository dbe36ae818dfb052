"""`pumit evaluate --predictions --labels` compares two folders of label maps."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from pumit.evaluation.folder_comparison import compared_masks, pair_of_files
from pumit.evaluation.metrics import dice
from pumit.export.dicom_series import write_dicom_series
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.write import write_segmentation
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume

SPACING = (3.0, 1.0, 1.0)


def labels(shift: int = 0) -> np.ndarray:
    array = np.zeros((6, 12, 14), dtype=np.uint8)
    array[1:4, 2 + shift : 7 + shift, 3:9] = 1
    array[2:5, 8:11, 3:12] = 2
    return array


def save(array: np.ndarray, path: Path, origin: float = 0.0) -> None:
    image = SimpleITK.GetImageFromArray(array)
    image.SetSpacing(SPACING[::-1])
    image.SetOrigin((origin, 0.0, 0.0))
    path.parent.mkdir(exist_ok=True)
    SimpleITK.WriteImage(image, str(path))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str | Path, ...]:
    """Case a is shifted by a voxel of 1 mm, b is right."""
    for case, shift in (("a", 1), ("b", 0)):
        save(labels(shift), tmp_path / "predictions" / f"{case}.nii.gz")
        save(labels(), tmp_path / "labels" / f"{case}.nrrd")
    return "--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels"


def rows_of(run: Any, *options: Any) -> list[dict[str, Any]]:
    ran = run("evaluate", *options, "--json")
    return [json.loads(line) for line in ran.out.splitlines()[:-1]]


def test_rows_are_written_in_millimetres(run, folders, tmp_path):
    ran = run("evaluate", *folders, "-o", tmp_path / "rows.json")
    result = json.loads((tmp_path / "rows.json").read_text())
    rows = {(row["case"], row["label"]): row for row in result["rows"]}
    assert list(rows) == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]
    assert rows["a", "1"]["dice"] == pytest.approx(0.8)
    assert rows["a", "1"]["hd_mm"] == rows["a", "1"]["hd95_mm"] == 1.0
    assert rows["b", "1"]["assd_mm"] == 0.0
    assert result["mean"]["1"]["dice"]["mean"] == pytest.approx(0.9)
    assert result["failed"] == {}
    assert ran.out.splitlines()[-1].startswith("mean")


def test_predictions_of_nnunets_images_belong_to_the_labels_of_their_cases(run, folders, tmp_path):
    for file in (tmp_path / "predictions").iterdir():
        file.rename(file.with_name(file.name.replace(".", "_0000.", 1)))
    run("evaluate", *folders, "-o", tmp_path / "rows.json")
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["case"] for row in rows} == {"a", "b"}


def test_rows_are_written_as_a_table(run, folders, tmp_path):
    empty = labels()
    empty[empty == 2] = 0
    save(empty, tmp_path / "predictions" / "b.nii.gz")
    run("evaluate", *folders, "-o", tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert (rows[3]["case"], rows[3]["label"], rows[3]["dice"]) == ("b", "2", "0.0")
    assert rows[3]["hd_mm"] == ""


def test_masks_of_photographs_are_compared(run, tmp_path):
    for folder in ("predictions", "labels"):
        (tmp_path / folder).mkdir()
        image = SimpleITK.GetImageFromArray(labels()[2])
        SimpleITK.WriteImage(image, str(tmp_path / folder / "photo.png"))
    given = ("--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels")
    ran = run("evaluate", *given)
    assert "MAE 0.0000, AP at IoU 0.50 to 0.95 1.0000" in ran.out


def test_cases_that_cannot_be_compared_are_one_line_each(run, folders):
    predictions, truths = folders[1], folders[3]
    save(labels(), predictions / "moved.nii.gz", origin=0.7)
    save(labels(), truths / "moved.nii.gz")
    save(labels(), truths / "only.nii.gz")
    (predictions / "torn.mha").write_bytes(b"ObjectType = Image\n")
    save(labels(), truths / "torn.mha")
    ran = run("evaluate", *folders, status=2)
    assert ran.err.count("\n") == 1
    assert "3 of 5" in ran.err
    lines = {line.split(":")[0]: line for line in ran.out.splitlines()[-3:]}
    assert "grid" in lines["moved"]
    assert "no prediction" in lines["only"]
    assert "torn" in lines
    ran = run("evaluate", *folders, "--json", status=2)
    assert len(ran.out.splitlines()) == 5
    assert sorted(json.loads(ran.out.splitlines()[-1])["failed"]) == ["moved", "only", "torn"]


def test_named_segments_are_matched_by_name(run, tmp_path):
    volume = Volume(labels(), SPACING)
    for folder, order in (("predictions", (2, 1)), ("labels", (1, 2))):
        names = {1: "liver", 2: "spleen"}
        segments = tuple(Segment(names[i], labels() == i) for i in order)
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "a.seg.nrrd"
        write_seg_nrrd(Segmentation(volume, segments, Algorithm("a", "1")), path)
    folders = "--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels"
    rows = rows_of(run, *folders)
    assert [(row["label"], row["dice"]) for row in rows] == [("liver", 1.0), ("spleen", 1.0)]
    save(labels(), tmp_path / "predictions" / "b.nii.gz")
    (tmp_path / "labels" / "a.seg.nrrd").rename(tmp_path / "labels" / "b.seg.nrrd")
    rows = rows_of(run, *folders, "--only", "b")
    assert [(row["label"], row["dice"]) for row in rows] == [("liver", 1.0), ("spleen", 1.0)]


def test_spellings_of_a_name_are_one_class(run, tmp_path):
    """Slicer's colour tables and segmentations write one name differently."""
    predictions, truths = tmp_path / "predictions", tmp_path / "labels"
    save(labels(), predictions / "a.nii.gz")
    (predictions / "a_ColorTable.ctbl").write_text("1 kidney_left\n2 Tumour\n")
    truths.mkdir()
    names = {"tumour": 2, "Kidney_Left": 1}
    segments = tuple(Segment(name, labels() == value) for name, value in names.items())
    made = Segmentation(Volume(labels(), SPACING), segments, Algorithm("x", "1"))
    write_seg_nrrd(made, truths / "a.seg.nrrd")
    given = "--predictions", predictions, "--labels", truths
    rows = rows_of(run, *given)
    assert [(row["label"], row["dice"]) for row in rows] == [("Kidney_Left", 1), ("tumour", 1)]
    classes = {"labels": {"background": 0, "tumour": 1, "kidney_left": 2}}
    (tmp_path / "dataset.json").write_text(json.dumps(classes))
    rows = rows_of(run, *given, "--classes", tmp_path / "dataset.json")
    assert [(row["label"], row["dice"]) for row in rows] == [("tumour", 1), ("kidney_left", 1)]


def test_bad_folders_are_one_line(refused, folders, tmp_path):
    one, other = (next(Path(folder).iterdir()) for folder in folders[1::2])
    assert "give another name" in refused(
        "evaluate", "--predictions", one, "--labels", other, "-o", other
    )
    assert "--predictions and --labels" in refused("evaluate")
    assert "--labels" in refused("evaluate", *folders[:2])
    assert "no folder of cases" in refused("evaluate", tmp_path, *folders)
    assert ".md is for clicks" in refused("evaluate", *folders, "-o", tmp_path / "rows.md")
    assert "There is no file or folder" in refused("evaluate", *folders[:3], tmp_path / "none")
    assert "holds no" in refused("evaluate", *folders[:3], tmp_path)
    assert "name contains 'c'" in refused("evaluate", *folders, "--only", "c")
    for path in list(folders[1].iterdir()):
        path.rename(path.with_name(f"p_{path.name}"))
    assert "rename" in refused("evaluate", *folders)


def flipped(array: np.ndarray, path: Path) -> None:
    """Store voxels the other way round along two axes, each at its own place."""
    d, _, w = array.shape
    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(array[::-1, :, ::-1]))
    image.SetSpacing(SPACING[::-1])
    image.SetOrigin(((w - 1) * SPACING[2], 0.0, (d - 1) * SPACING[0]))
    image.SetDirection((-1.0, 0, 0, 0, 1, 0, 0, 0, -1))
    SimpleITK.WriteImage(image, str(path))


def test_voxels_at_the_same_places_are_compared_however_they_are_stored(run, folders):
    """As `pumit data` takes a label map for its scan."""
    predictions, truths = folders[1], folders[3]
    save(labels(), truths / "c.nii.gz")
    flipped(labels(), predictions / "c.nii.gz")
    rows = rows_of(run, *folders, "--only", "c")
    assert [(row["label"], row["dice"]) for row in rows] == [("1", 1.0), ("2", 1.0)]


def test_hidden_files_and_pictures_beside_label_maps_are_no_cases(run, folders):
    for folder in (folders[1], folders[3]):
        (folder / "._a.nii.gz").write_bytes(b"\0\5\26\7")
    for name in ("a.png", "overview.png"):
        (folders[1] / name).write_bytes(b"a picture")
    assert run("evaluate", *folders).err == ""


def test_dicom_images_beside_label_maps_are_no_cases(run, refused, folders, tmp_path):
    series = tmp_path / "series"
    write_dicom_series(Volume(labels().astype(np.int16), SPACING), series)
    slices = sorted(series.iterdir())
    for file in slices:
        (folders[3] / f"{file.stem}.dcm").write_bytes(file.read_bytes())
    assert run("evaluate", *folders).err == ""
    # A damaged object stays a case, so that its line says what is wrong.
    (folders[1] / "torn.dcm").write_bytes(slices[0].read_bytes()[:200])
    save(labels(), folders[3] / "torn.nrrd")
    assert "torn: " in run("evaluate", *folders, status=2).out
    for file in folders[3].glob("*.nrrd"):
        file.unlink()
    assert "labels holds no labels" in refused("evaluate", *folders).replace("'", "")


def test_two_files_are_compared_whatever_they_are_called(run, folders, tmp_path):
    pair = ("--predictions", folders[1] / "a.nii.gz", "--labels", folders[3] / "b.nrrd")
    ran = run("evaluate", *pair, "--nsd", 0.5, "--places", 9, "--json")
    first, second, last = (json.loads(line) for line in ran.out.splitlines())
    assert (first["case"], first["label"]) == ("b", "1")
    assert first["dice"] == pytest.approx(0.8)
    voxels = 3 * 5 * 6
    assert first["true_ml"] == first["predicted_ml"] == pytest.approx(voxels * 3 / 1000)
    # Of each surface the voxels in the two rows that differ are a millimetre away.
    assert 0 < first["nsd"] < 1
    assert second["nsd"] == second["dice"] == 1.0
    assert last["mean"]["1"]["nsd"]["mean"] == first["nsd"]
    places = last["places"]
    assert {place["is_missing"] for place in places} == {True, False}
    assert {place["label"] for place in places} == {"1"}
    out = tmp_path / "result.json"
    told = run("evaluate", *pair, "--nsd", 0.5, "--places", 1, "-o", out).out
    assert told.count(" mm deep") == 1
    written = json.loads(out.read_text())
    assert written["masks"] == last["masks"]
    assert len(written["places"]) == 1


def test_places_of_each_class_are_listed(run, folders, tmp_path):
    empty = labels()
    empty[empty == 2] = 0
    save(empty, tmp_path / "predictions" / "a.nii.gz")
    both = labels(1)
    both[both == 2] = 0
    save(both, tmp_path / "predictions" / "b.nii.gz")
    told = run("evaluate", *folders, "--places", 1).out
    assert told.count("b: too little 2 at") == told.count("a: too little 2 at") == 1
    assert told.count("b: ") == 2  # of each class


def test_one_file_and_a_folder_are_not_compared(refused, folders, tmp_path):
    line = refused("evaluate", "--predictions", folders[1] / "a.nii.gz", *folders[2:])
    assert "a.nii.gz is a file and labels a folder; give two files or two folders" in line
    line = refused("evaluate", *folders[:3], folders[3] / "a.nrrd")
    assert "a.nrrd is a file and predictions a folder" in line
    for wrong in ("none.nii.gz", "none"):
        pair = ("--predictions", folders[1] / wrong, "--labels", folders[3] / "b.nrrd")
        assert f"There is no file or folder '{wrong}' of predictions" in refused("evaluate", *pair)
    assert "--places is for a comparison" in refused("evaluate", folders[1], "--places", 3)
    for option in (["--gestures"], ["--human"], ["--pictures", tmp_path / "p"]):
        assert f"{option[0]} is for simulated clicks" in refused("evaluate", *folders, *option)
    table = ["-o", tmp_path / "clicks.csv"]
    assert ".csv is for a comparison" in refused("evaluate", folders[1], *table)


def test_labels_without_a_common_class_are_remarked(run, tmp_path, caplog):
    save(labels(), tmp_path / "true.nii.gz")
    save(labels() // 2 * 255, tmp_path / "binary.nii.gz")
    run(
        "evaluate",
        "--predictions",
        tmp_path / "binary.nii.gz",
        "--labels",
        tmp_path / "true.nii.gz",
    )
    (message,) = caplog.messages
    assert message.startswith("No class has voxels in both.")
    assert "of the predictions: 255; of the labels: 1, 2" in message


@pytest.fixture
def dicom(tmp_path: Path) -> tuple[Volume, Any]:
    """A DICOM scan in the folder `scans/a`, and a function that saves labels of it."""
    (tmp_path / "scans").mkdir()
    scan = write_dicom_series(
        Volume(labels().astype(np.int16), SPACING, (5.0, 6.0, 7.0)), tmp_path / "scans" / "a"
    )

    def save_labels(path: Path, array: np.ndarray) -> Path:
        path.parent.mkdir(exist_ok=True)
        segments = tuple(Segment(n, array == i) for i, n in enumerate(("x", "y"), start=1))
        write_segmentation(Segmentation(scan, segments, Algorithm("a", "1")), path)
        return path

    return scan, save_labels


@pytest.mark.parametrize("suffix", [".dcm", ".labelmap.dcm", ".rtstruct.dcm"])
@pytest.mark.parametrize("other", [".seg.nrrd", ".nii.gz"])
def test_dicom_labels_are_compared_on_the_grid_of_a_label_map(run, dicom, tmp_path, suffix, other):
    _, save_labels = dicom
    shifted = save_labels(tmp_path / "one" / f"a{suffix}", labels(1))
    save_labels(tmp_path / "two" / f"a{other}", labels())
    one, two = tmp_path / "one", tmp_path / "two"
    for given in ((one, two), (two, one), (shifted, two / f"a{other}")):
        rows = rows_of(run, "--predictions", given[0], "--labels", given[1])
        assert [row["dice"] for row in rows] == [pytest.approx(0.8), 1.0]
        assert [row["label"] for row in rows] == ["x", "y"]


def test_dicom_labels_on_both_sides_need_their_scan(run, refused, dicom, tmp_path):
    _, save_labels = dicom
    for case, shift in (("a", 1), ("b", 0)):
        save_labels(tmp_path / "one" / f"{case}.dcm", labels(shift))
        save_labels(tmp_path / "two" / f"{case}.rtstruct.dcm", labels())
    given = ("--predictions", tmp_path / "one", "--labels", tmp_path / "two")
    assert "give their scan with --scan" in refused("evaluate", *given)
    # Two series in one folder: each object names its own.
    write_dicom_series(Volume(labels().astype(np.int16)), tmp_path / "scans" / "b2")
    rows = rows_of(run, *given, "--scan", tmp_path / "scans")
    assert [row["dice"] for row in rows] == [pytest.approx(0.8), 1.0, 1.0, 1.0]
    assert "--scan is for a comparison" in refused("evaluate", tmp_path, "--scan", tmp_path)


def test_label_maps_need_no_scan_of_a_folder(run, dicom, folders):
    """As some cases are label maps, and others DICOM."""
    _, save_labels = dicom
    scans = folders[1].parent / "scans"
    write_dicom_series(Volume(labels().astype(np.int16)), scans / "b2")
    for folder, suffix in ((folders[1], ".dcm"), (folders[3], ".rtstruct.dcm")):
        save_labels(folder / f"c{suffix}", labels())
    rows = rows_of(run, *folders, "--scan", scans)
    assert [row["case"] for row in rows] == ["a", "a", "b", "b", "c", "c"]


def test_dicom_labels_outside_of_the_other_grid_are_refused(run, refused, dicom, tmp_path):
    scan, save_labels = dicom
    whole = save_labels(tmp_path / "whole.dcm", labels())
    inside = labels()[:3]
    volume = Volume(inside, SPACING, scan.origin_lps, scan.direction)
    made = Segmentation(volume, (Segment("x", inside == 1),), Algorithm("a", "1"))
    write_seg_nrrd(made, tmp_path / "part.seg.nrrd")
    given = ("--predictions", tmp_path / "part.seg.nrrd", "--labels", whole)
    line = refused("evaluate", *given)
    assert "In the labels, DICOM-SEG:" in line
    assert "--scan" in line
    rows = rows_of(run, *given, "--scan", tmp_path / "scans" / "a")
    assert [row["label"] for row in rows] == ["x", "y"]


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("name", ["a.nrrd", "a.seg.nrrd"])
def test_two_label_maps_that_differ_are_told_apart_without_a_scan(refused, tmp_path, name, scan):
    """Their own grids are compared, whatever scan is given."""
    volume = Volume(labels(), SPACING)
    made = Segmentation(volume, (Segment("x", labels() == 1),), Algorithm("a", "1"))
    write_segmentation(made, tmp_path / name)
    save(labels()[:3], tmp_path / "b.nrrd")
    given = ("--predictions", tmp_path / name, "--labels", tmp_path / "b.nrrd")
    line = refused("evaluate", *given, *(("--scan", tmp_path / name) if scan else ()))
    assert "resample the prediction." in line or line.endswith("resample it onto the labels.\n")
    assert "image's" not in line
    assert "scan" not in line


def test_a_label_map_is_taken_before_the_same_in_dicom(run, dicom, folders):
    _, save_labels = dicom
    save_labels(folders[1] / "a.dcm", labels())
    assert len(rows_of(run, *folders)) == 4


def test_the_ignore_label_of_a_data_set_is_no_class(run, folders, tmp_path):
    unknown = labels()
    unknown[labels(1) != labels()] = 5  # all errors are where the truth is unknown
    save(unknown, tmp_path / "labels" / "a.nrrd")
    content = {"labels": {"background": 0, "x": 1, "y": 2, "ignore": 5}}
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    for named, given in (("12", ()), ("xy", ("--classes", tmp_path / "dataset.json"))):
        rows = rows_of(run, *folders, *given)
        assert [(r["case"], r["label"], r["dice"]) for r in rows] == [
            (case, label, 1.0) for case in "ab" for label in named
        ]


def test_a_damaged_data_set_beside_the_labels_stops_nothing(run, folders, tmp_path, caplog):
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0,')
    assert len(rows_of(run, *folders)) == 4
    assert "value to ignore, it is scored as a class: Cannot read dataset.json" in caplog.text


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("names_it_too", [False, True])
def test_a_segment_of_unknown_voxels_is_no_class(tmp_path, overlaps, names_it_too):
    volume, unknown = Volume(labels(), SPACING), labels(1) != labels()
    for name, array in (("predicted", labels(1)), ("true", labels())):
        segments = [Segment("x", (array == 1) & ~(unknown & (name == "true" and not overlaps)))]
        segments += [Segment("Ignore", unknown)] if name == "true" else []
        if names_it_too and name == "predicted":
            segments.append(Segment("unknown", array == 2))
        made = Segmentation(volume, tuple(segments), Algorithm("m", "1"))
        write_seg_nrrd(made, tmp_path / f"{name}.seg.nrrd", is_reviewed=True)
    pair = pair_of_files(tmp_path / "predicted.seg.nrrd", tmp_path / "true.seg.nrrd")
    (row,) = compared_masks(pair)
    assert (row.label, dice(row.prediction, row.truth)) == ("x", 1.0)


def test_segmentations_that_are_cropped_to_their_segments_are_compared(run, tmp_path):
    """As Slicer saves them: each cut to what is drawn in it."""
    for name, shift, part in (
        ("predictions", 1, (slice(0, 5), slice(1, 12))),
        ("labels", 0, (slice(1, 6), slice(2, 12))),
    ):
        (tmp_path / name).mkdir()
        inside = labels(shift)[part]
        origin = (5.0, 7.0 + part[1].start, 9.0 + 3.0 * part[0].start)
        volume = Volume(inside, SPACING, origin)
        segments = tuple(Segment(n, inside == i) for i, n in enumerate(("x", "y"), start=1))
        path = tmp_path / name / "a.seg.nrrd"
        write_seg_nrrd(Segmentation(volume, segments, Algorithm("a", "1")), path)
    options = ("--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels")
    rows = rows_of(run, *options)
    assert [row["dice"] for row in rows] == [pytest.approx(0.8), 1.0]


def test_labels_that_are_unreviewed_are_no_reference(tmp_path, caplog):
    volume = Volume(labels(), SPACING)
    for name in ("prediction", "truth"):
        segments = (Segment("x", labels() == 1),)
        made = Segmentation(volume, segments, Algorithm("hippo", "1", "AUTOMATIC"))
        write_seg_nrrd(made, tmp_path / f"{name}.seg.nrrd")
    pair = pair_of_files(tmp_path / "prediction.seg.nrrd", tmp_path / "truth.seg.nrrd")
    assert [dice(each.prediction, each.truth) for each in compared_masks(pair)] == [1.0]
    (message,) = caplog.messages
    assert message.startswith("Labels of a case are made by hippo, not reviewed")


def test_a_comparison_by_value_of_named_classes_is_told(run, tmp_path, caplog):
    grid = Volume(labels(), SPACING)
    named = [("spleen", labels() == 2), ("liver", labels() == 1)]
    algorithm = Algorithm("someone", "1")
    for folder in ("predictions", "labels"):
        (tmp_path / folder).mkdir()
    for count in (2, 1):
        segments = tuple(Segment(name, mask) for name, mask in named[-count:])
        made = Segmentation(grid, segments, algorithm)
        write_seg_nrrd(made, tmp_path / "predictions" / "a.seg.nrrd")
        save(labels() if count == 2 else labels() % 2, tmp_path / "labels" / "a.nrrd")
        caplog.clear()
        run("evaluate", "--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels")
        told = [record.message for record in caplog.records if "--classes" in record.message]
        assert len(told) == count - 1  # a single class has no other value
    save(labels() * 0, tmp_path / "labels" / "a.nrrd")
    run("evaluate", "--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels")
    assert "--classes" not in caplog.text
