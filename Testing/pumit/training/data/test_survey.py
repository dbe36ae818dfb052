"""A data set is inspected case by case; one bad case hides no other."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_scans import SPACING, ball_and_box, write, write_pairs
from PIL import Image
from pumit.errors import PumitError
from pumit.training.data.checks import examine
from pumit.training.data.labelled_set import find_cases, find_labelled_set
from pumit.training.data.survey import CaseReport, DataSurvey, SetReport
from pumit.training.data.thumbnail import SIDE, write_thumbnail
from pumit.training.recipes.labelled import LabelledData
from pumit.volume import Volume

CLASSES = {"ball": 1, "box": 2}


def look(
    folder: Path, thumbnails: Path | None = None, **data: Any
) -> tuple[dict[str, CaseReport], SetReport]:
    survey = DataSurvey(
        find_cases(LabelledData(folder=str(folder), **data), Path), thumbnails=thumbnails
    )
    return {report.case: report for report in survey.reports()}, survey.summary()


def test_good_cases_are_measured(tmp_path):
    reports, summary = look(write_pairs(tmp_path, 2), classes=CLASSES)
    counts = np.bincount(ball_and_box(0)[1].ravel())
    assert asdict(reports["case_0"]) == {
        "case": "case_0",
        "patient": "",
        "images": [str(tmp_path / "images" / "case_0.nii.gz")],
        "label": [str(tmp_path / "labels" / "case_0.nii.gz")],
        "thumbnail": None,
        "spacing_mm": SPACING,
        "shape": (14, 30, 28),
        "channels": 1,
        "classes": {"ball": counts[1], "box": counts[2]},
        "problems": [],
        "doubts": [],
        "folder": "",
        "in_folder": "",
        "is_unlabelled": False,
        "unreviewed": "",
        "is_confirmed": False,
        "part": "",
    }
    assert (summary.cases, summary.usable, summary.problems, summary.doubts) == (2, 2, [], [])
    assert summary.in_cases == {"ball": 2, "box": 2}
    json.dumps(asdict(summary))
    # Classes that no one names grow with the cases.
    labels = ball_and_box(0)[1]
    write(tmp_path / "labels" / "case_0.nii.gz", np.where(labels == 2, 0, labels).astype(np.uint8))
    found, grown = look(tmp_path)
    assert list(found["case_0"].classes) == ["class 1"]
    assert [row["name"] for row in grown.classes] == ["class 1", "class 2"]
    assert grown.in_cases == {"class 1": 2, "class 2": 1}
    assert grown.doubts == ["case_0: has no class 2"]
    write_pairs(tmp_path, 2)
    _, summary = look(tmp_path, classes={**CLASSES, "rib": 3})
    assert "no case has any rib" in summary.doubts
    reports, _ = look(tmp_path, classes={"all": [1, 2], "box": [2]})  # regions share voxels
    assert reports["case_0"].classes == {"all": counts[1] + counts[2], "box": counts[2]}


def test_every_bad_case_is_named_next_to_the_good_ones(tmp_path):
    write_pairs(tmp_path, 9)
    image, labels = ball_and_box(1)
    (tmp_path / "images" / "case_0.nii.gz").write_bytes(b"nothing")
    write(tmp_path / "labels" / "case_1.nii.gz", labels, (2.0, 1.0, 1.2))
    labels[0, 0, 0] = 7
    write(tmp_path / "labels" / "case_2.nii.gz", labels)
    write(tmp_path / "images" / "case_3.nii.gz", ball_and_box(8)[0])
    write(tmp_path / "labels" / "case_4.nii.gz", np.zeros_like(labels))
    write(tmp_path / "images" / "case_5.nii.gz", image, (25.0, 1.0, 1.0))
    write(tmp_path / "labels" / "case_5.nii.gz", ball_and_box(1)[1], (25.0, 1.0, 1.0))
    (tmp_path / "labels" / "case_6.nii.gz").unlink()
    (tmp_path / "images" / "case_7.nii.gz").unlink()
    reports, summary = look(tmp_path, classes=CLASSES)
    assert "not an image" in reports["case_0"].problems[0]
    assert "spacing 2 x 1 x 1.2 mm instead of 2 x 1 x 1 mm" in reports["case_1"].problems[0]
    assert reports["case_2"].problems == ["no class is named for the label values 7"]
    assert reports["case_8"].problems == ["is the same image as case_3; remove one"]
    assert reports["case_4"].doubts == ["its label map is empty"]
    assert (reports["case_6"].is_unlabelled, reports["case_6"].problems) == (True, [])
    assert "has a label and no image" in reports["case_7"].problems[0]
    late = "spacing 25 x 1 x 1 mm where 2 x 1 x 1 mm is usual"
    assert summary.found_late == {"case_5": {"problems": [], "doubts": [late]}}
    assert (summary.cases, summary.usable, summary.unlabelled) == (8, 3, 1)
    assert len(summary.problems) == 5
    assert str(tmp_path) not in json.dumps(asdict(summary))


def test_a_name_of_a_colour_table_without_a_class_is_asked_about(tmp_path):
    """Its voxels are neither background nor, as they were without the table, a class by value."""
    write_pairs(tmp_path, 2)
    table = tmp_path / "labels" / "case_0_ColorTable.ctbl"
    table.write_text("1 ball\n2 crate\n3 spine\n")
    reports, summary = look(tmp_path, classes=CLASSES)
    (problem,) = reports["case_0"].problems
    assert problem.startswith("no class has the colour table's names crate; name each")
    assert (summary.usable, summary.may_be_same) == (1, [("crate", "box")])
    reports, summary = look(
        tmp_path, classes=[{"name": "ball"}, {"name": "box", "segments": ["crate"]}]
    )
    assert summary.usable == 2
    counts = np.bincount(ball_and_box(0)[1].ravel())
    assert reports["case_0"].classes == {"ball": counts[1], "box": counts[2]}
    table.write_text("1 ball\n2 background\n")
    reports, summary = look(tmp_path, classes=CLASSES)
    assert (summary.usable, reports["case_0"].classes["ball"]) == (2, counts[1])


def test_what_training_refuses_is_what_the_survey_calls_a_problem(tmp_path):
    """Doubts of the one are warnings of the other, in the same words."""
    write_pairs(tmp_path, 3)
    write(tmp_path / "labels" / "case_1.nii.gz", np.zeros_like(ball_and_box(1)[1]))
    data: dict[str, Any] = {"folder": str(tmp_path), "classes": CLASSES}
    _, summary = look(tmp_path, classes=CLASSES)
    assert tuple(summary.doubts) == examine(find_labelled_set(LabelledData(**data), Path)).warnings
    write(tmp_path / "images" / "case_2.nii.gz", ball_and_box(0)[0])
    _, summary = look(tmp_path, classes=CLASSES)
    with pytest.raises(PumitError) as raised:
        examine(find_labelled_set(LabelledData(**data), Path))
    assert summary.problems[0] in str(raised.value)


def test_thumbnail_shows_the_labels_in_their_colours(tmp_path):
    reports, summary = look(write_pairs(tmp_path, 1), tmp_path, classes=CLASSES)
    picture = np.asarray(Image.open(str(reports["case_0"].thumbnail)))
    assert max(picture.shape[:2]) == SIDE
    saturated = np.ptp(picture.astype(float), axis=-1) > 20
    assert 0 < saturated.mean() < 0.5
    colors = np.array([summary.colors[name] for name in CLASSES])
    assert picture[saturated].mean(axis=0).argmax() in colors.argmax(axis=1)
    assert colors.max() <= 1


def test_thumbnails_keep_proportions_and_have_the_head_on_top(tmp_path):
    """Thick slices from front to back; what is bright lies towards the head."""
    for shape in ((1, 20, 30), (3, 1, 20, 20)):
        write_thumbnail(tmp_path / "a.png", Volume(np.zeros(shape)), None, [])
        size = Image.open(tmp_path / "a.png").size
        assert max(size) == SIDE
        assert size[0] * shape[-2] == pytest.approx(size[1] * shape[-1], rel=0.05)
    array = np.zeros((4, 20, 20))
    array[:, 12:] = 1
    direction = np.column_stack([(1, 0, 0), (0, 0, 1), (0, 1, 0)])
    volume = Volume(array, (5.0, 1.0, 1.0), (0, 0, 0), direction)
    write_thumbnail(tmp_path / "a.png", volume, None, [])
    picture = np.asarray(Image.open(tmp_path / "a.png"))
    assert picture[:40].mean() > 200 > 50 > picture[-40:].mean()


def test_survey_loads_no_torch():
    code = "import sys, pumit.training.data.survey, pumit.cli.data; print('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[4] / "PUMITSegment"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
    assert run.stdout.strip() == "False"
