"""A segmentation that is loaded from a file is offered to the scan that it fits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import slicer
from daily_panel import A, Daily
from PUMITSegmentLib.scene.same_patient import kinship, vouch
from PUMITSlicerLib.scan_of import scanOf
from scripted_worker import box
from two_patients import FRAME, OTHER_FRAME, Questions, nodes, stateDicom


def saved(daily: Daily, folder: Path) -> str:
    """The liver in a file, and in the scene no more."""
    path = str(folder / "kept.seg.nrrd")
    assert slicer.util.saveNode(daily.logic.segmentationNode, path)
    daily.logic.stopPlacing()
    slicer.mrmlScene.RemoveNode(daily.logic.segmentationNode)
    daily.process()
    return path


def test_a_loaded_result_is_corrected_by_the_next_click(daily, tmp_path):
    """Friction 12: it was offered to no scan, and had to be chosen by hand."""
    node = slicer.util.loadSegmentation(saved(daily, tmp_path))
    daily.process()
    assert daily.status == f"{node.GetName()} was loaded. Does it belong to CT abdomen?"
    daily.press(daily.ui.firstChoiceButton)
    assert daily.logic.segmentationNode is node
    assert daily.ui.segmentationSelector.currentNode() is node
    daily.press(daily.ui.pointButton)
    daily.view.clickAt((15, 15, 8))
    assert np.array_equal(daily.worker.requests[-1].prompts[0].mask, A)


def test_what_does_not_fit_is_not_offered(daily, tmp_path):
    path, scan = saved(daily, tmp_path), daily.volumeNode
    for depth, spacing, origin in ((20, 2.0, 0.0), (20, 1.0, 0.4), (7, 1.0, 0.0)):
        scan.SetSpacing(1.0, 1.0, spacing)
        scan.SetOrigin(origin, 0.0, 0.0)
        array = slicer.util.arrayFromVolume(scan)[:depth].copy()
        slicer.util.updateVolumeFromArray(scan, array)
        node = slicer.util.loadSegmentation(path)
        daily.process()
        assert "was loaded" not in daily.status
        slicer.mrmlScene.RemoveNode(node)


def test_a_segmentation_of_our_own_is_not_asked_about(daily):
    daily.logic.parameters.segmentation = None
    daily.logic.newSegment("Spleen")
    daily.process()
    assert "was loaded" not in daily.status


def loaded(path: str, scan: Any = None) -> Any:
    """The result in the scene again; of a scan, as Slicer's DICOM reader finds it."""
    node = slicer.util.loadSegmentation(path)
    if scan is not None:
        node.SetReferenceImageGeometryParameterFromVolumeNode(scan)
    return node


def takeIt(daily: Daily, node: Any) -> None:
    daily.press(daily.ui.firstChoiceButton)
    assert daily.logic.segmentationNode is node
    assert [each.GetName() for each in nodes("vtkMRMLSegmentationNode")] == [node.GetName()]


def test_a_result_of_the_scan_is_offered(daily, tmp_path):
    """A DICOM-SEG names its scan. A click would have begun another segmentation beside it."""
    node = loaded(saved(daily, tmp_path), daily.volumeNode)
    daily.process()
    assert daily.status == f"{node.GetName()} belongs to CT abdomen. Correct it with clicks?"
    takeIt(daily, node)


def test_what_was_loaded_in_another_module_is_offered(daily, tmp_path):
    path = saved(daily, tmp_path)
    daily.gui.exit()
    node = loaded(path, daily.volumeNode)
    daily.process()
    daily.gui.enter()
    daily.process()
    takeIt(daily, node)


def test_what_was_loaded_before_its_scan_is_offered_with_it(daily, tmp_path):
    path = saved(daily, tmp_path)
    slicer.mrmlScene.RemoveNode(daily.volumeNode)
    node = loaded(path)
    daily.process()
    assert "was loaded" not in daily.status
    daily.load()
    daily.logic.parameters.sourceVolume = daily.volumeNode
    daily.process()
    takeIt(daily, node)


# --- what DICOM states of a loaded segmentation ---------------------------------------------------


def chosen(daily: Daily, folder: Path, patient: str = "", instances: str = "") -> Any:
    """The result in the scene again, with what Slicer's DICOM reader states of it, and in use."""
    node = loaded(saved(daily, folder))
    if patient:
        stateDicom(daily.volumeNode, "P-7710", name="Doe^Jo")
        stateDicom(node, patient, name="Seven^S")
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    item = hierarchy.GetItemByDataNode(node)
    hierarchy.SetItemAttribute(item, "DICOM.ReferencedInstanceUIDs", instances)
    daily.volumeNode.SetAttribute("DICOM.instanceUIDs", "1.2.1 1.2.2 1.2.3")
    daily.logic.parameters.segmentation = node
    daily.process()
    return node


def clickIn(daily: Daily) -> bool:
    """Choose Point and click in the view; whether that asked for a mask."""
    before = len(daily.worker.requests)
    daily.press(daily.ui.pointButton)
    daily.view.clickAt((15, 15, 8))
    return len(daily.worker.requests) > before


ANSWERS = (("No", False), ("Yes", True))  # and whether a mask is asked for


def test_a_segmentation_that_refers_to_another_series_is_asked_about(daily, tmp_path, monkeypatch):
    """A DICOM-SEG of March, chosen with the scan of June, was taken for one of June."""
    node = chosen(daily, tmp_path, instances="1.3.1 1.3.2")
    for answer, isAsked in ANSWERS:
        questions = Questions(monkeypatch, answer)
        assert clickIn(daily) is isAsked
        assert questions.texts == [
            f'"{node.GetName()}" belongs to a scan that is not loaded. '
            'Edit it on the scan "CT abdomen" instead?'
        ]
        assert (scanOf(node) is daily.volumeNode) is isAsked


def test_a_segmentation_that_refers_to_the_scan_is_not_asked_about(daily, tmp_path, monkeypatch):
    questions = Questions(monkeypatch, "No")
    chosen(daily, tmp_path, instances="1.2.3 1.2.2")
    assert clickIn(daily)
    assert questions.texts == []


def test_a_label_under_another_identifier_of_the_patient_is_asked_about(
    daily, tmp_path, monkeypatch
):
    """It was refused: a scan and its label that were anonymised differently were a dead end."""
    node = chosen(daily, tmp_path, "P-0007", instances="1.3.1 1.3.2")
    for answer, isAsked in ANSWERS:
        questions = Questions(monkeypatch, answer)
        assert clickIn(daily) is isAsked
        (text,) = questions.texts
        for name in ("Seven S (P-0007)", "Doe Jo (P-7710)", "refers to other images"):
            assert name in text
        assert (scanOf(node) is daily.volumeNode) is isAsked
        assert isAsked is ("another patient" not in daily.status)


def test_a_label_of_another_patient_that_names_a_scan_is_refused(daily, tmp_path, monkeypatch):
    """Its scan was deleted, and one answer would have given its voxels this patient's headers."""
    questions = Questions(monkeypatch, "Yes")
    node = chosen(daily, tmp_path, "P-0007")
    node.SetAttribute("PUMITSegment.ScanName", "CT of Seven")
    assert not clickIn(daily)
    assert questions.texts == []
    assert "another patient" in daily.status


def test_a_segmentation_of_another_patient_elsewhere_is_refused(daily, tmp_path, monkeypatch):
    questions = Questions(monkeypatch, "Yes")
    node = chosen(daily, tmp_path, "P-0007")
    daily.volumeNode.SetOrigin(0.4, 0.0, 0.0)
    assert not clickIn(daily)
    assert questions.texts == []
    assert scanOf(node) is None
    assert "another patient" in daily.status


PLACEHOLDERS = [
    *(
        "",
        " ",
        "Anonymous",
        "ANONYMIZED^PATIENT",
        "anon",
        "0",
        "0000",
        "unknown",
        "UNKNOWN^",
        "N/A",
    ),
    *("none", "XXXX", "1", "123456", "PatientID", "de-identified", "No Name", "test"),
]


@pytest.fixture
def scans(scene: Any) -> list[Any]:
    return [
        slicer.util.addVolumeFromArray(np.zeros((2, 3, 4), np.int16), name=name)
        for name in ("First", "Second")
    ]


def relation(scans: list[Any]) -> str:
    there, back = kinship(*scans), kinship(*reversed(scans))
    assert there is back
    return there.name


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("P-7710", FRAME), ("P-7710", FRAME), "SAME"),
        (("P-7710", FRAME), ("P-7710", OTHER_FRAME), "UNKNOWN"),
        (("P-7710", FRAME), ("P-7711", FRAME), "OTHER"),
        (("P-7710", FRAME), ("P-7711", ""), "OTHER"),
        (("P-7710", FRAME), ("", FRAME), "UNKNOWN"),
    ],
)
def test_dicom_decides(scans, first, second, expected):
    stateDicom(scans[0], *first)
    stateDicom(scans[1], *second)
    assert relation(scans) == expected


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_states_nothing(scans, text):
    for node in scans:
        stateDicom(node, text, FRAME)
    assert relation(scans) == "UNKNOWN"


def test_headers_in_the_database_are_asked_and_two_statements_are_none(scans, monkeypatch):
    stated = {"0010,0020": "P-7710", "0020,0052": FRAME}
    database = SimpleNamespace(isOpen=True, instanceValue=lambda uid, tag: stated.get(tag, ""))
    monkeypatch.setattr(slicer, "dicomDatabase", database, raising=False)
    for node in scans:
        node.SetAttribute("DICOM.instanceUIDs", "1.2.3.4 1.2.3.5")
    assert relation(scans) == "SAME"
    stateDicom(scans[1], "P-7711", FRAME)  # moved below another patient by hand
    assert relation(scans) == "UNKNOWN"


def test_the_word_of_the_user_is_saved_with_the_scene(scans, tmp_path):
    assert relation(scans) == "UNKNOWN"
    vouch(*scans)
    vouch(*scans)
    assert relation(scans) == "SAME"
    path = str(tmp_path / "scene.mrb")
    assert slicer.util.saveScene(path)
    slicer.mrmlScene.Clear()
    slicer.util.loadScene(path)
    assert relation([slicer.util.getNode(name) for name in ("First", "Second")]) == "SAME"


def test_the_word_of_the_user_does_not_join_two_patients(scans):
    vouch(*scans)
    stateDicom(scans[0], "P-7710", FRAME)
    stateDicom(scans[1], "P-7711", FRAME)
    assert relation(scans) == "OTHER"


SCENE = Path(__file__).resolve().parents[1] / "saved" / "scene.mrb"
LIVER, SPLEEN = box((5, 5, 5), (13, 13, 13)), box((13, 13, 13), (18, 18, 18))
CORRECTED = box((5, 5, 5), (12, 12, 12))


def test_a_scene_of_an_earlier_version_goes_on(panel):
    slicer.util.loadScene(str(SCENE))
    panel.process()
    segmentation = panel.logic.segmentationNode.GetSegmentation()
    liver, spleen = (segmentation.GetNthSegmentID(i) for i in range(2))
    assert segmentation.GetNumberOfSegments() == 2
    assert np.array_equal(panel.mask(liver), LIVER)
    assert np.array_equal(panel.mask(spleen), SPLEEN)

    panel.logic.selectSegment(liver)
    panel.click((10, 10, 6))
    prompts = [prompt.point_lps for prompt in panel.worker.requests[-1].prompts]
    assert prompts == [(-14, -12, 10), (-8, -8, 8), (-10, -10, 6)]
    panel.answer(CORRECTED)
    assert np.array_equal(panel.mask(liver), CORRECTED)
    panel.logic.undo()
    assert np.array_equal(panel.mask(liver), LIVER)
    assert np.array_equal(panel.mask(spleen), SPLEEN)


@pytest.mark.parametrize(
    ("clicks", "words"),
    [
        (1, "Liver is empty: its click or mark is not computed yet; press Update."),
        (2, "Liver is empty: 2 clicks or marks are not computed yet; press Update."),
    ],
)
def test_a_prompt_that_was_not_computed_is_said(panel, tmp_path, clicks, words):
    """F16: a scene saved during a computation opened with "choose Point", and 0 mL."""
    panel.load()
    segmentID = panel.logic.newSegment("Liver")
    for number in range(clicks):
        panel.click((14 + number, 12, 10))
    panel.logic.stopPlacing()
    panel.reopen(tmp_path / "scene.mrb")
    assert panel.status == words
    panel.press(panel.ui.updateButton)
    panel.answer(CORRECTED)
    assert np.array_equal(panel.mask(segmentID), CORRECTED)
