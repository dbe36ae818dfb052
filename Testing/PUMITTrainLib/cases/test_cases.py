"""Cases from the scene, files, folders and bundles; what the user changes of them."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import slicer
from PUMITTrainLib.cases.case_row import ClassRow
from train_scene import goodCase


def names(train: Any) -> list[str]:
    return [row.name for row in train.logic.cases.rows]


def request(train: Any) -> dict[str, Any]:
    """The key `data` that `pumit data` was given."""
    train.logic.cases.check()
    train.settle()
    return train.programs.last.config["data"]


def test_labels_are_offered_with_the_volume_they_were_made_on(train: Any, scene: Any) -> None:
    first, second = train.addVolume("CT"), train.addVolume("MR")
    label = train.addSegmentation(second, "Segmentation")
    (pair,) = train.logic.cases.offeredPairs()
    assert (pair.volumes, pair.label) == ((second,), label)
    assert pair.title == "MR: Segmentation"
    label.SetNodeReferenceID(label.GetReferenceImageGeometryReferenceRole(), None)
    assert not train.logic.cases.offeredPairs()
    label.SetName("CT-label")
    (pair,) = train.logic.cases.offeredPairs()
    assert pair.volumes == (first,)
    train.logic.cases.addScenePair(pair.volumes, pair.label)
    assert not train.logic.cases.offeredPairs()


def test_volumes_of_one_study_and_grid_are_channels(train: Any, scene: Any) -> None:
    t2, t1 = train.addVolume("T2"), train.addVolume("T1")
    label = train.addSegmentation(t2)
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    study = hierarchy.CreateStudyItem(hierarchy.GetSceneItemID(), "Study")
    for node in (t1, t2, label):
        hierarchy.SetItemParent(hierarchy.GetItemByDataNode(node), study)
    (pair,) = train.logic.cases.offeredPairs()
    assert pair.volumes == (t1, t2)


def test_scene_and_files_share_a_list_that_the_scene_keeps(train: Any, tmp_path: Path) -> None:
    train.addCases(1)
    train.logic.cases.addFiles([tmp_path / "scan0.nii.gz"], tmp_path / "scan0-label.nii.gz")
    assert names(train) == ["scan0", "scan0_2"]
    train.reopen()
    assert names(train) == ["scan0", "scan0_2"]
    data = request(train)
    assert [case["name"] for case in data["cases"]] == ["scan0_2", "scan0"]
    assert data["cases"][0]["image"] == str(tmp_path / "scan0.nii.gz")
    train.logic.cases.remove(("", "scan0"))
    assert names(train) == ["scan0_2"]


def test_deleted_node_is_said_and_others_are_read(train: Any, scene: Any) -> None:
    train.addCases(2)
    scene.RemoveNode(scene.GetFirstNodeByName("scan0"))
    first, _second = train.logic.cases.rows
    assert first.state.value == "bad"
    assert [case["name"] for case in request(train)["cases"]] == ["scan1"]


def test_left_out_case_is_neither_written_nor_read(train: Any) -> None:
    train.addCases(2)
    train.logic.cases.setExcluded(("", "scan0"), True)
    train.logic.cases.setPatient(("", "scan1"), " P7 ")
    (case,) = request(train)["cases"]
    assert (case["name"], case["patient"]) == ("scan1", "P7")
    assert [row.state.value for row in train.logic.cases.rows] == ["excluded", "unchecked"]
    train.logic.cases.setExcluded(("", "scan0"), False)
    assert len(train.logic.cases.kept) == 2


def test_unchanged_scene_case_is_written_once(train: Any) -> None:
    train.addCases(2)
    files = [Path(case["label"]) for case in request(train)["cases"]]
    train.answerCheck()
    times = [file.stat().st_mtime_ns for file in files]
    node = slicer.mrmlScene.GetFirstNodeByName("label1")
    node.GetSegmentation().GetNthSegment(0).SetName("spleen")
    request(train)
    changed = [file.stat().st_mtime_ns != t for file, t in zip(files, times, strict=True)]
    assert changed == [False, True]


def test_folder_knows_what_is_left_out_and_whose_a_scan_is(train: Any, tmp_path: Path) -> None:
    folder = str(tmp_path)
    train.logic.parameters.imagePattern = "images/{case}.nii.gz"
    train.logic.cases.setFolder(tmp_path)
    data = request(train)
    assert data == {"folders": [{"folder": folder, "images": "images/{case}.nii.gz"}]}
    call = train.programs.last
    for name in ("a", "b", "c"):
        call.emit({**goodCase(name), "folder": folder, "in_folder": name})
    call.end()
    assert names(train) == ["a", "b", "c"]
    train.logic.cases.remove((folder, "a"))
    train.logic.cases.setExcluded((folder, "c"), True)
    train.logic.cases.setPatient((folder, "b"), "P7")
    assert names(train) == ["b", "c"]
    changed = {**data["folders"][0], "leave_out": ["a", "c"], "patients": {"b": "P7"}}
    assert train.logic.cases.config() == {"folders": [changed]}


def test_problems_are_shown_by_case_and_of_all(train: Any) -> None:
    train.addCases(2)
    request(train)
    call = train.programs.last
    call.emit({**goodCase("scan0"), "problems": ["The label is empty."]})
    call.emit({**goodCase("scan1"), "doubts": ["Its voxels are ten times as large."]})
    problems = ["scan0: The label is empty.", "Nothing can be learnt."]
    late = {"scan1": {"problems": [], "doubts": ["It has no spleen."]}}
    summary = {"classes": [], "problems": problems, "doubts": ["Few."], "found_late": late}
    call.emit({"summary": summary})
    call.end()
    cases = train.logic.cases
    assert [row.state.value for row in cases.rows] == ["bad", "doubtful"]
    assert cases.rows[1].doubts[-1] == "It has no spleen."
    assert re.findall(r"\d+", cases.sentence) == ["2", "2", "1"]
    assert cases.problems == ("Nothing can be learnt.",)
    assert "scan0: The label is empty." in train.logic.runs.whyNoStart
    assert cases.excludeBad() == 1
    assert train.logic.runs.whyNoStart == "Nothing can be learnt."


def test_cases_of_which_none_can_be_used_are_read(train: Any) -> None:
    """`pumit data` then fails, after its summary."""
    train.addCases(1)
    request(train)
    call = train.programs.last
    call.emit({**goodCase("scan0"), "unreviewed": "made by hippo"})
    call.emit({"summary": {"classes": [], "problems": [], "doubts": []}})
    call.end(2, "None of 1 case can be used.")
    assert train.status == "The cases were read."


def test_two_classes_of_one_name_are_said_before_a_plan(train: Any) -> None:
    train.addCases(1)
    request(train)
    train.programs.last.emit({**goodCase("scan0")})
    train.programs.last.emit({"summary": {"classes": [], "problems": [], "doubts": []}})
    train.programs.last.end()
    cases = train.logic.cases
    for name in ("liver", "spleen"):
        cases.addClass(ClassRow(name))
    assert "called" not in train.logic.runs.whyNoStart
    cases.setClass(1, ClassRow("Liver"))
    assert train.logic.runs.whyNoStart == (
        "Two classes are called Liver: rename one in the table of classes."
    )


def test_nothing_is_said_of_cases_that_are_gone(train: Any) -> None:
    """F15: "The cases were read." stayed after every source was removed."""
    train.addCases(1)
    request(train)
    train.programs.last.end()
    assert train.status == "The cases were read."
    for source in train.logic.cases.sources:
        train.logic.cases.removeSource(source)
    assert train.status == "There is no case left; add some first."


def test_check_that_fails_or_is_cancelled_is_said(train: Any) -> None:
    train.addCases(1)
    request(train)
    assert train.logic.cases.isChecking
    train.logic.cancel()
    assert train.programs.last.isCancelled
    assert not train.logic.cases.isChecking
    request(train)
    train.programs.last.end(2, "There is no folder 'x'; correct data.folder.")
    assert "data.folder" in train.status
    assert not train.logic.cases.isChecking


def test_edited_classes_travel_and_can_be_undone(train: Any) -> None:
    train.addCases(1)
    request(train)
    train.answerCheck()
    cases = train.logic.cases
    cases.setClass(0, ClassRow("Liver", (1,), ("hepar",), "", (1.0, 0.5, 0.0)))
    cases.addClass(ClassRow("whole", (1, 2)))
    assert cases.config()["classes"] == [
        {"name": "Liver", "value": 1, "segments": ["hepar"], "color_rgb": [1.0, 0.5, 0.0]},
        {"name": "whole", "values": [1, 2]},
    ]
    cases.removeClass(1)
    assert [row.name for row in cases.classes] == ["Liver"]
    cases.resetClasses()
    assert [row.name for row in cases.classes] == ["liver"]


def test_a_value_that_had_no_name_leaves_none_behind(train: Any) -> None:
    train.addCases(1)
    request(train)
    call = train.programs.last
    call.emit({**goodCase("scan0"), "classes": {"class 1": 48}})
    call.emit({"summary": {"classes": [{"name": "class 1", "value": 1}]}})
    call.end()
    train.logic.cases.setClass(0, ClassRow("liver", (1,)))
    assert train.logic.cases.classes == (ClassRow("liver", (1,)),)
    assert train.logic.cases.namesRead(train.logic.cases.classes[0]) == {"class 1"}


SCENE = """<MRML>
<Volume id="vtkMRMLScalarVolumeNode1" name="CT" references="storage:S1;"/>
<Segmentation id="vtkMRMLSegmentationNode1" name="Organs"
 references="storage:S2;referenceImageGeometryRef:vtkMRMLScalarVolumeNode1;"/>
<VolumeArchetypeStorage id="S1" fileName="Data/CT.nrrd"/>
<SegmentationStorage id="S2" fileName="Data/Organs.seg.nrrd"/>
</MRML>"""


def test_bundle_gives_its_pairs(train: Any, tmp_path: Path) -> None:
    path = tmp_path / "scene.mrb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scene/scene.mrml", SCENE)
    train.logic.cases.addBundle(path)
    train.settle()
    (case,) = train.logic.cases.config()["cases"]
    assert case == {"name": "CT", "image": f"{path}#CT", "label": f"{path}#Organs"}


@pytest.mark.parametrize("content", [b"", b"no bundle"])
def test_broken_bundle_is_said(train: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "scene.mrb"
    path.write_bytes(content)
    train.logic.cases.addBundle(path)
    train.settle()
    assert train.logic.status.current.activity.value == "problem"
    assert not train.logic.cases.rows


def test_scene_close_forgets_the_cases_and_leaves_no_draft(train: Any, scene: Any) -> None:
    train.addCases(2)
    request(train)
    call = train.programs.last
    scene.Clear(0)
    train.settle()
    assert call.isCancelled
    assert not train.logic.cases.rows
    assert not train.logic.cases.isChecking
    assert not list(train.root.iterdir())


def test_run_keeps_no_file_of_a_case_that_was_left_out(train: Any) -> None:
    train.addCases(2)
    folder = Path(request(train)["cases"][0]["label"]).parent
    train.answerCheck()
    assert len(list(folder.iterdir())) == 4
    train.logic.cases.setExcluded(("", "scan0"), True)
    train.logic.planning.make()
    train.settle()
    assert {file.name for file in folder.iterdir()} == {"scan1.nrrd", "scan1.seg.nrrd"}
    train.logic.planning.cancel()
    train.logic.cases.remove(("", "scan0"))
    (pair,) = train.logic.cases.offeredPairs()
    train.logic.cases.remove(("", "scan1"))
    train.logic.cases.addScenePair(pair.volumes, pair.label)
    (case,) = request(train)["cases"]
    assert sorted(folder.iterdir()) == sorted(Path(f) for f in (*case["images"], case["label"]))


def test_draft_of_a_slicer_that_was_killed_is_swept(train: Any) -> None:
    dead, alive = train.root / "dead", train.root / "alive"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
    (dead / ".draft").write_text("4194305 then")
    train.addCases(1)
    request(train)
    train.answerCheck()
    mine = train.logic._check.draft.folder
    (alive / ".draft").write_text((mine / ".draft").read_text())
    train.reopen()
    assert not dead.exists()
    assert alive.exists()
    assert not mine.exists()
