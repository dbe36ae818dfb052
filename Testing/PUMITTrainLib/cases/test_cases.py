"""Cases from the scene, files, folders and bundles; what the user changes of them."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from pumit.errors import PumitError
from pumit.io.labels.label_source import read_labels, read_scan
from PUMITSlicerLib.mrml import ijkToRas, orientedImage
from PUMITSlicerLib.scan_of import recordScanName
from PUMITTrainLib.cases.case_row import ClassRow
from PUMITTrainLib.cases.scene_snapshot import snapshot, snapshotKey
from train_scene import goodCase
from vtk.util.numpy_support import numpy_to_vtk
from writing_scene import addBendingTransform, addMatrixTransform, addStudy, moveUnder, rigid


def names(train: Any) -> list[str]:
    return [row.name for row in train.logic.cases.rows]


def request(train: Any) -> dict[str, Any]:
    """The key `data` that `pumit data` was given."""
    train.read()
    return train.programs.last.config["data"]


def test_labels_are_offered_with_the_volume_they_were_made_on(train, scene):
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


def test_volumes_of_one_study_and_grid_are_channels(train, scene):
    t2, t1 = train.addVolume("T2"), train.addVolume("T1")
    label = train.addSegmentation(t2)
    addStudy(t1, t2, label)
    (pair,) = train.logic.cases.offeredPairs()
    assert pair.volumes == (t1, t2)


def test_a_segmentation_of_a_deleted_scan_is_not_that_of_another_one(train, scene):
    """The labels of one patient became those of the next, whose scan was the only one."""
    first = train.addVolume("CT")
    label = train.addSegmentation(first)
    recordScanName(label)  # as PUMIT Segment does
    scene.RemoveNode(first)
    second = train.addVolume("CT", seed=1)
    assert not train.logic.cases.offeredPairs()
    train.logic.cases.addScenePair((second,), label)  # chosen by the user
    assert names(train) == ["CT"]


def test_no_file_of_a_case_is_that_of_another_one(train, scene):
    """The image of one patient became a channel of another one's, which was kept."""
    t1, t2 = train.addVolume("A"), train.addVolume("B")
    addStudy(t1, t2, train.addSegmentation(t1))
    for name in ("A_1", "A-label", "A.seg", "a_1"):
        train.addSegmentation(train.addVolume(name), f"drawn on {name}")
    assert train.logic.cases.addAllOffered() == 5
    files = [f for case in request(train)["cases"] for f in (*case["images"], case["label"])]
    assert len({file.lower() for file in files}) == len(files) == 11


def test_a_patient_of_the_scene_stays_the_same_after_it_was_saved(train, scene, tmp_path, failures):
    """Two scans of one patient were learnt from and tested on."""

    def add(name: str, patient: str) -> str:
        """Add a scan of a patient, and return whose its case is."""
        hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
        item = hierarchy.GetItemByName(patient)
        item = item or hierarchy.CreateSubjectItem(hierarchy.GetSceneItemID(), patient)
        node = train.addVolume(name)
        label = train.addSegmentation(node, f"{name} label")
        for each in (node, label):
            hierarchy.SetItemParent(hierarchy.GetItemByDataNode(each), item)
        train.logic.cases.addScenePair((node,), label)
        return train.logic.cases.rows[-1].patient

    assert [add("one", "P"), add("two", "Q")] == ["patient 1", "patient 2"]
    train.logic.cases.remove(("", "one"))
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    hierarchy.RemoveItem(hierarchy.GetItemByName("P"))
    assert slicer.util.saveScene(str(tmp_path / "scene.mrb"))
    with failures.expected("DataNodeCache"):  # items get other numbers
        scene.Clear(0)
        slicer.util.loadScene(str(tmp_path / "scene.mrb"))
        assert names(train) == ["two"]
        assert [add("three", "Q"), add("four", "R")] == ["patient 2", "patient 1"]


def test_scene_and_files_share_a_list_that_the_scene_keeps(train, tmp_path):
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


def test_deleted_node_is_said_and_others_are_read(train, scene):
    train.addCases(2)
    scene.RemoveNode(scene.GetFirstNodeByName("scan0"))
    first, _second = train.logic.cases.rows
    assert first.state.value == "bad"
    assert [case["name"] for case in request(train)["cases"]] == ["scan1"]


def test_left_out_case_is_neither_written_nor_read(train):
    train.addCases(2)
    train.logic.cases.setExcluded(("", "scan0"), True)
    train.logic.cases.setPatient(("", "scan1"), " P7 ")
    (case,) = request(train)["cases"]
    assert (case["name"], case["patient"]) == ("scan1", "P7")
    assert [row.state.value for row in train.logic.cases.rows] == ["excluded", "unchecked"]
    train.logic.cases.setExcluded(("", "scan0"), False)
    assert len(train.logic.cases.kept) == 2


def test_unchanged_scene_case_is_written_once(train):
    train.addCases(2)
    files = [Path(case["label"]) for case in request(train)["cases"]]
    train.answerCheck()
    times = [file.stat().st_mtime_ns for file in files]
    node = slicer.mrmlScene.GetFirstNodeByName("label1")
    node.GetSegmentation().GetNthSegment(0).SetName("spleen")
    request(train)
    changed = [file.stat().st_mtime_ns != t for file, t in zip(files, times, strict=True)]
    assert changed == [False, True]


def test_folder_knows_what_is_left_out_and_whose_a_scan_is(train, tmp_path):
    folder = str(tmp_path)
    train.logic.parameters.imagePattern = "images/{case}.nii.gz"
    train.logic.cases.setFolder(tmp_path)
    data = request(train)
    assert data == {"folders": [{"folder": folder, "images": "images/{case}.nii.gz"}]}
    found = [{**goodCase(name), "folder": folder, "in_folder": name} for name in "abc"]
    train.answerRead(*found)
    assert names(train) == ["a", "b", "c"]
    train.logic.cases.remove((folder, "a"))
    train.logic.cases.setExcluded((folder, "c"), True)
    train.logic.cases.setPatient((folder, "b"), "P7")
    assert names(train) == ["b", "c"]
    changed = {**data["folders"][0], "leave_out": ["a", "c"], "patients": {"b": "P7"}}
    assert train.logic.cases.config() == {"folders": [changed]}


def test_cases_are_read_once_for_a_change_and_again_for_one_made_meanwhile(train, monkeypatch):
    train.addCases()
    cases, reads, seen = train.logic.cases, [], []
    read = type(cases)._readRows
    monkeypatch.setattr(type(cases), "_readRows", lambda table: reads.append(1) or read(table))

    def look():
        seen.append((len(cases.rows), len(cases.kept)))

    def remove():
        train.logic.listeners.remove(remove)
        cases.remove(cases.rows[0].key)

    train.logic.listeners += [look, remove, look]
    train.logic._notifyChanged()
    assert (seen[0], seen[-1]) == ((2, 2), (1, 1))
    reads.clear()
    train.logic._notifyChanged()
    assert len(reads) == 1


def test_problems_are_shown_by_case_and_of_all(train):
    train.addCases(2)
    request(train)
    bad = {**goodCase("scan0"), "problems": ["The label is empty."]}
    odd = {**goodCase("scan1"), "doubts": ["Its voxels are ten times as large."]}
    problems = ["scan0: The label is empty.", "Nothing can be learnt."]
    late = {"scan1": {"problems": [], "doubts": ["It has no spleen."]}}
    train.answerRead(bad, odd, problems=problems, doubts=["Few."], found_late=late)
    cases = train.logic.cases
    assert [row.state.value for row in cases.rows] == ["bad", "doubtful"]
    assert cases.rows[1].doubts[-1] == "It has no spleen."
    assert re.findall(r"\d+", cases.sentence) == ["2", "2", "1"]
    assert cases.problems == ("Nothing can be learnt.",)
    assert "scan0: The label is empty." in train.logic.runs.whyNoStart
    assert cases.excludeBad() == 1
    assert train.logic.runs.whyNoStart == "Nothing can be learnt."


def test_cases_of_which_none_can_be_used_are_read(train):
    """`pumit data` then fails, after its summary."""
    train.addCases(1)
    request(train)
    call = train.programs.last
    call.emit({**goodCase("scan0"), "unreviewed": "made by hippo"})
    call.emit({"summary": {"classes": [], "problems": [], "doubts": []}})
    call.end(2, "None of 1 case can be used.")
    assert train.status == "The cases were read."


def test_two_classes_of_one_name_are_said_before_a_plan(train):
    train.addCases(1)
    request(train)
    train.answerRead(goodCase("scan0"))
    cases = train.logic.cases
    for name in ("liver", "spleen"):
        cases.addClass(ClassRow(name))
    assert "called" not in train.logic.runs.whyNoStart
    cases.setClass(1, ClassRow("Liver"))
    assert train.logic.runs.whyNoStart == (
        "Two classes are called Liver: rename one in the table of classes."
    )


def test_nothing_is_said_of_cases_that_are_gone(train):
    """F15: "The cases were read." stayed after every source was removed."""
    train.addCases(1)
    request(train)
    train.programs.last.end()
    assert train.status == "The cases were read."
    for source in train.logic.cases.sources:
        train.logic.cases.removeSource(source)
    assert train.status == "There is no case left; add some first."


def test_check_that_fails_or_is_cancelled_is_said(train):
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


def test_edited_classes_travel_and_can_be_undone(train):
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


def test_a_value_that_had_no_name_leaves_none_behind(train):
    train.addCases(1)
    request(train)
    case = {**goodCase("scan0"), "classes": {"class 1": 48}}
    train.answerRead(case, classes=[{"name": "class 1", "value": 1}])
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


def test_bundle_gives_its_pairs(train, tmp_path):
    path = tmp_path / "scene.mrb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scene/scene.mrml", SCENE)
    train.logic.cases.addBundle(path)
    train.settle()
    (case,) = train.logic.cases.config()["cases"]
    assert case == {"name": "CT", "image": f"{path}#CT", "label": f"{path}#Organs"}


@pytest.mark.parametrize("content", [b"", b"no bundle"])
def test_broken_bundle_is_said(train, tmp_path, content):
    path = tmp_path / "scene.mrb"
    path.write_bytes(content)
    train.logic.cases.addBundle(path)
    train.settle()
    assert train.logic.status.current.activity.value == "problem"
    assert not train.logic.cases.rows


def test_scene_close_forgets_the_cases_and_leaves_no_draft(train, scene):
    train.addCases(2)
    request(train)
    call = train.programs.last
    scene.Clear(0)
    train.settle()
    assert call.isCancelled
    assert not train.logic.cases.rows
    assert not train.logic.cases.isChecking
    assert not list(train.root.iterdir())


def test_run_keeps_no_file_of_a_case_that_was_left_out(train):
    train.addCases(2)
    folder = Path(request(train)["cases"][0]["label"]).parent
    train.answerCheck()
    assert len(list(folder.iterdir())) == 4
    train.logic.cases.setExcluded(("", "scan0"), True)
    train.plan()
    assert {file.name for file in folder.iterdir()} == {"scan1.nrrd", "scan1.seg.nrrd"}
    train.logic.planning.cancel()
    train.logic.cases.remove(("", "scan0"))
    (pair,) = train.logic.cases.offeredPairs()
    train.logic.cases.remove(("", "scan1"))
    train.logic.cases.addScenePair(pair.volumes, pair.label)
    (case,) = request(train)["cases"]
    assert sorted(folder.iterdir()) == sorted(Path(f) for f in (*case["images"], case["label"]))


def test_draft_of_a_slicer_that_was_killed_is_swept(train):
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


COS, SIN = np.cos(0.3), np.sin(0.3)
MOVE = rigid((10.5, -3.0, 7.25), [[COS, -SIN, 0], [SIN, COS, 0], [0, 0, 1]])
OBLIQUE = ((0.36, 0.48, -0.8), (-0.8, 0.6, 0.0), (0.48, 0.64, 0.6))


def place(node: Any, spacing: tuple[float, ...] = (0.7, 0.9, 2.5)) -> None:
    """An oblique, anisotropic grid away from the origin."""
    node.SetIJKToRASDirections(*(value for row in OBLIQUE for value in row))
    node.SetSpacing(*spacing)
    node.SetOrigin(-31.25, 47.5, 12.125)


def masks(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Two rugged segments that overlap, and one without a voxel."""
    rng = np.random.default_rng(3)
    liver, tumour = np.zeros(shape, bool), np.zeros(shape, bool)
    liver[1:4, 2:7, 3:9] = rng.random((3, 5, 6)) > 0.3
    tumour[2:5, 4:8, 5:10] = rng.random((3, 4, 5)) > 0.3
    assert (liver & tumour).any()
    return {"Liver": liver, "Tumour": tumour, "Nothing": np.zeros(shape, bool)}


def written(train: Any, volumes: list[Any], label: Any, folder: Path) -> tuple[Any, Any]:
    """Return a case as the core reads it: its image, and its labels on the same grid."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = snapshot("case", volumes, label).write(folder)
    image = read_scan(images)
    return image, read_labels(labels, image)


@pytest.mark.parametrize("isMoved", [False, True], ids=["still", "moved"])
def test_oblique_case_is_written_voxel_by_voxel(train, tmp_path, isMoved):
    volumeNode = train.addVolume("Scan")
    place(volumeNode)
    world = MOVE if isMoved else np.eye(4)
    if isMoved:
        moveUnder(volumeNode, addMatrixTransform(world))
    array = slicer.util.arrayFromVolume(volumeNode).copy()
    given = masks(array.shape)
    node = train.addSegmentation(volumeNode, **given)
    before = volumeNode.GetMTime(), node.GetMTime()
    image, labels = written(train, [volumeNode], node, tmp_path)

    np.testing.assert_array_equal(image.array, array)
    np.testing.assert_allclose(image.spacing_mm, (2.5, 0.9, 0.7), atol=1e-9)
    matrix = np.diag([-1.0, -1.0, 1.0, 1.0]) @ world @ ijkToRas(volumeNode)
    np.testing.assert_allclose(image.origin_lps, matrix[:3, 3], atol=1e-6)
    steps = image.direction * np.array(image.spacing_mm[::-1])
    np.testing.assert_allclose(steps, matrix[:3, :3], atol=1e-6)
    segments = {segment.name: segment for segment in labels.segments}
    assert set(segments) == set(given)
    for name, mask in given.items():
        np.testing.assert_array_equal(maskOf(labels, segments[name]), mask)
    assert (volumeNode.GetMTime(), node.GetMTime()) == before


def maskOf(labels: Any, segment: Any) -> np.ndarray:
    array = labels.volume.array
    layer = array if array.ndim == 3 else array[segment.layer]
    return layer == segment.value


def test_segmentation_on_another_grid_is_brought_to_the_scan(train, tmp_path):
    volumeNode, other = (
        train.addVolume("Scan", shape=(6, 8, 10)),
        train.addVolume("Fine", shape=(12, 16, 20)),
    )
    other.SetSpacing(0.5, 0.5, 0.5)
    other.SetOrigin(-0.25, -0.25, -0.25)
    mask = np.zeros((12, 16, 20), bool)
    mask[4:8, 4:12, 6:14] = True
    node = train.addSegmentation(other, liver=mask)
    _image, labels = written(train, [volumeNode], node, tmp_path)
    expected = np.zeros((6, 8, 10), bool)
    expected[2:4, 2:6, 3:7] = True
    np.testing.assert_array_equal(maskOf(labels, labels.segments[0]), expected)
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLScalarVolumeNode") == 2


def test_label_map_node_keeps_its_values(train, tmp_path):
    volumeNode = train.addVolume("Scan")
    place(volumeNode)
    values = np.zeros(slicer.util.arrayFromVolume(volumeNode).shape, np.uint8)
    values[2:4, 3:6, 2:9] = 7
    label = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode", "Scan-label")
    label.CopyOrientation(volumeNode)
    slicer.util.updateVolumeFromArray(label, values)
    _image, labels = written(train, [volumeNode], label, tmp_path)
    np.testing.assert_array_equal(labels.volume.array, values)


def test_channels_get_a_file_each(train, tmp_path):
    volumes = [train.addVolume("T1", seed=1), train.addVolume("T2", seed=2)]
    image, _labels = written(train, volumes, train.addSegmentation(volumes[0]), tmp_path)
    assert image.array.shape == (2, 6, 9, 11)
    assert (image.array[0] != image.array[1]).any()


def test_empty_segmentation_is_all_background(train, tmp_path):
    volumeNode = train.addVolume()
    nothing = np.zeros((6, 9, 11), bool)
    node = train.addSegmentation(volumeNode, liver=nothing)
    _image, labels = written(train, [volumeNode], node, tmp_path)
    assert not labels.volume.array.any()


def test_what_cannot_be_taken_is_refused_in_words(train, scene):
    volumeNode = train.addVolume("Scan")
    node = train.addSegmentation(volumeNode)
    shear = np.eye(4)
    shear[0, 1] = 0.5
    moveUnder(volumeNode, addMatrixTransform(shear))
    with pytest.raises(PumitError, match=r"Scan: .*not perpendicular"):
        snapshot("case", [volumeNode], node)
    moveUnder(volumeNode, addBendingTransform())
    with pytest.raises(PumitError, match=r"Scan .* transform"):
        snapshot("case", [volumeNode], node)
    with pytest.raises(PumitError, match="deleted"):
        snapshot("case", [volumeNode], None)


def test_a_change_of_voxels_or_place_is_seen(train, scene):
    volumeNode = train.addVolume()
    node = train.addSegmentation(volumeNode)
    keys = [snapshotKey([volumeNode], node)]
    assert keys[0] == snapshotKey([volumeNode], node)
    transform = addMatrixTransform(np.eye(4))
    volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    keys.append(snapshotKey([volumeNode], node))
    slicer.util.updateTransformMatrixFromArray(transform, MOVE)
    keys.append(snapshotKey([volumeNode], node))
    node.GetSegmentation().GetNthSegment(0).SetName("spleen")
    keys.append(snapshotKey([volumeNode], node))
    slicer.util.arrayFromVolume(volumeNode)[0] = 3
    slicer.util.arrayFromVolumeModified(volumeNode)
    keys.append(snapshotKey([volumeNode], node))
    assert len(set(keys)) == len(keys)


def test_label_values_above_16_bits_are_kept(train, tmp_path):
    """As those of some atlases; they were cut, and their segments empty."""
    volumeNode = train.addVolume("Scan")
    mask = np.zeros(slicer.util.arrayFromVolume(volumeNode).shape, bool)
    mask[2:4, 3:6, 2:9] = True
    node = train.addSegmentation(volumeNode, region=mask)
    image = slicer.vtkOrientedImageData()
    image.DeepCopy(orientedImage(mask, ijkToRas(volumeNode)))
    image.GetPointData().SetScalars(numpy_to_vtk((mask * np.uint32(70_001)).ravel(), deep=True))
    segment = node.GetSegmentation().GetNthSegment(0)
    segment.SetLabelValue(70_001)
    segment.AddRepresentation("Binary labelmap", image)
    _image, labels = written(train, [volumeNode], node, tmp_path)
    np.testing.assert_array_equal(maskOf(labels, labels.segments[0]), mask)
