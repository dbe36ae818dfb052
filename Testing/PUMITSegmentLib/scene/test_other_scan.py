"""Another scan brings its own segmentation: nothing of one patient is written into another's."""

import numpy as np
import pytest
import slicer
from found_structures import found
from panel_scene import opened
from two_patients import A, B, Questions, TwoPatients, nodes
from writing_scene import addSegmentation

patients = opened(TwoPatients)


@pytest.fixture
def yes(patients: TwoPatients, monkeypatch: pytest.MonkeyPatch) -> Questions:
    return Questions(monkeypatch, "Yes")


@pytest.fixture
def no(patients: TwoPatients, monkeypatch: pytest.MonkeyPatch) -> Questions:
    return Questions(monkeypatch, "No")


# --- a scan and its segmentation ------------------------------------------------------------------


def test_a_click_on_the_next_patient_leaves_the_last_ones_liver_alone(patients):
    before = patients.liverVoxels()
    second = patients.addPatient()
    assert patients.logic.isPlacing
    patients.choose(second)
    assert not patients.logic.isPlacing
    assert not patients.ui.pointButton.checked
    interaction = slicer.app.applicationLogic().GetInteractionNode()
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    assert patients.logic.segmentationNode is None
    assert patients.ui.segmentationSelector.currentNode() is None
    patients.clickFirst((14, 12, 10), B)
    assert np.array_equal(patients.liverVoxels(), before)
    assert patients.logic.segmentationNode is not patients.first
    assert np.array_equal(patients.mask(patients.logic.segmentID), B)
    assert patients.segment().GetName() == "Liver"


def test_a_scribble_that_another_scan_ends_is_not_computed(patients):
    patients.press(patients.ui.scribbleButton)
    patients.view.clickAt((14, 12, 10))
    patients.choose(patients.addPatient())
    assert not patients.logic.isComputing
    assert patients.status.startswith("Add a segment")


def test_a_deleted_patients_segmentation_is_not_given_to_the_next(patients):
    before = patients.liverVoxels()
    slicer.mrmlScene.RemoveNode(patients.volumeNode)
    patients.process()
    second = patients.addPatient()
    assert patients.logic.volumeNode is second  # the selector takes the only scan
    assert patients.logic.segmentationNode is None
    patients.volumeNode = second
    patients.view.show(second)
    patients.clickFirst((14, 12, 10), B)
    assert np.array_equal(patients.liverVoxels(), before)


def test_a_loaded_segmentation_stays_with_the_patient_it_was_chosen_for(patients, tmp_path):
    path = str(tmp_path / "liver.seg.nrrd")
    slicer.util.saveNode(patients.first, path)
    loaded = slicer.util.loadSegmentation(path)  # refers to no scan
    patients.ui.segmentationSelector.setCurrentNode(loaded)
    assert patients.logic.segmentationNode is loaded
    slicer.mrmlScene.RemoveNode(patients.volumeNode)
    patients.process()
    patients.addPatient()
    assert patients.logic.segmentationNode is None


def test_a_segmentation_that_was_loaded_before_its_scan_goes_on_with_it(patients, tmp_path):
    path = str(tmp_path / "liver.seg.nrrd")
    slicer.util.saveNode(patients.first, path)
    slicer.mrmlScene.Clear()
    patients.process()
    loaded = slicer.util.loadSegmentation(path)
    patients.ui.segmentationSelector.setCurrentNode(loaded)
    patients.volumeNode = patients.addPatient()
    assert patients.logic.segmentationNode is loaded
    patients.clickFor(B)
    assert np.array_equal(patients.mask(patients.logic.segmentID), B)


def test_a_patient_deleted_while_another_is_loaded_takes_its_segmentation_along(patients):
    patients.addPatient()
    slicer.mrmlScene.RemoveNode(patients.volumeNode)
    patients.process()
    assert patients.logic.volumeNode is not None
    assert patients.logic.segmentationNode is None


def test_the_chosen_scan_is_shown_with_its_segmentation_and_no_other(patients):
    first = patients.volumeNode
    second = patients.addPatient()
    patients.choose(second)
    assert patients.view.compositeNode.GetBackgroundVolumeID() == second.GetID()
    assert not patients.first.GetDisplayVisibility()
    patients.clickFor(B)
    patients.logic.stopPlacing()
    own = patients.logic.segmentationNode
    patients.choose(first)
    assert patients.logic.segmentationNode is patients.first
    assert np.array_equal(patients.mask(patients.liver), A)
    assert patients.view.compositeNode.GetBackgroundVolumeID() == first.GetID()
    assert patients.first.GetDisplayVisibility()
    patients.choose(second)
    assert patients.logic.segmentationNode is own


def test_a_segmentation_that_the_user_hid_stays_hidden_with_its_scan(patients):
    first = patients.volumeNode
    other = addSegmentation(first)
    other.SetDisplayVisibility(False)
    patients.choose(patients.addPatient())
    patients.choose(first)
    assert not other.GetDisplayVisibility()
    assert patients.logic.segmentationNode is patients.first


def test_what_was_hidden_for_another_scan_is_shown_with_its_own_after_loading(patients, tmp_path):
    addSegmentation(patients.volumeNode)
    first = patients.volumeNode.GetName()
    patients.choose(patients.addPatient())

    def visible() -> list[bool]:
        return [bool(node.GetDisplayVisibility()) for node in nodes("vtkMRMLSegmentationNode")]

    assert visible() == [False, False]
    patients.reopen(tmp_path / "scene.mrb")
    assert visible() == [False, False]
    patients.choose(slicer.util.getNode(first))
    assert visible() == [True, True]


def test_an_image_that_overlays_the_chosen_scan_stays_where_it_is(patients):
    first = patients.volumeNode
    second = patients.addPatient("PET")
    patients.view.compositeNode.SetForegroundVolumeID(second.GetID())
    patients.view.compositeNode.SetForegroundOpacity(0.5)
    patients.choose(second)
    assert patients.view.compositeNode.GetBackgroundVolumeID() == first.GetID()


def test_an_empty_segmentation_goes_on_with_the_scan(patients):
    second = patients.addPatient()
    patients.choose(second)
    empty = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Empty")
    patients.logic.parameters.segmentation = empty
    patients.clickFor(B)
    assert patients.logic.segmentationNode is empty
    assert np.array_equal(patients.mask(patients.logic.segmentID), B)


# --- into the segmentation of another scan --------------------------------------------------------


def onTheFirstOnes(patients: TwoPatients) -> None:
    """The second patient's scan with the first one's segmentation."""
    patients.choose(patients.addPatient())
    patients.ui.segmentationSelector.setCurrentNode(patients.first)
    patients.process()
    assert patients.logic.segmentationNode is patients.first


def test_a_no_writes_nothing_into_the_segmentation_of_another_scan(patients, no):
    before = patients.liverVoxels()
    onTheFirstOnes(patients)
    patients.press(patients.ui.pointButton)
    assert "CT abdomen" in no.texts[0]
    assert "Second patient" in no.texts[0]
    assert not patients.logic.isPlacing
    assert not patients.ui.pointButton.checked
    patients.press(patients.ui.newSegmentButton)
    patients.press(patients.ui.updateButton)
    patients.logic.addFound(found(B))
    assert len(no.texts) == 4
    assert np.array_equal(patients.liverVoxels(), before)
    assert patients.first.GetSegmentation().GetNumberOfSegments() == 1
    assert "Second patient" in patients.ui.statusLabel.text


def test_a_yes_is_requested_once_and_not_of_a_prompt_that_is_moved(patients, yes):
    onTheFirstOnes(patients)
    count = len(patients.worker.requests)
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    points.SetNthControlPointPosition(0, 10, 10, 10)
    assert len(patients.worker.requests) == count
    assert yes.texts == []  # no question while the mouse drags something
    assert "CT abdomen" in patients.ui.statusLabel.text
    patients.press(patients.ui.pointButton)
    patients.view.clickAt((14, 12, 10))
    patients.clickAt((15, 12, 10), B)
    assert len(yes.texts) == 1
    assert np.array_equal(patients.mask(patients.liver), B)


def test_the_question_says_that_voxels_are_too_large(patients, no):
    """A PET's segment, corrected on the CT, keeps the PET's voxels."""
    onTheFirstOnes(patients)
    patients.press(patients.ui.pointButton)
    assert "mm" not in no.texts[0]
    patients.volumeNode.SetSpacing(0.25, 0.25, 1.0)
    patients.press(patients.ui.pointButton)
    assert "keep their size, 1 x 1 x 1 mm" in no.texts[1]
    assert "are 0.25 x 0.25 x 1 mm" in no.texts[1]


def test_a_yes_does_not_count_in_the_next_scene(patients, yes):
    onTheFirstOnes(patients)
    patients.press(patients.ui.pointButton)
    ids = (patients.first.GetID(), patients.volumeNode.GetID())
    slicer.mrmlScene.Clear()
    patients.process()
    patients.choose(patients.addPatient("Third patient"))
    patients.press(patients.ui.newSegmentButton)
    patients.first = patients.logic.segmentationNode
    onTheFirstOnes(patients)
    assert (patients.first.GetID(), patients.volumeNode.GetID()) == ids
    patients.press(patients.ui.pointButton)
    assert len(yes.texts) == 2
    assert "Third patient" in yes.texts[1]


def test_the_segmentation_of_a_deleted_scan_is_requested_about_too(patients, no):
    slicer.mrmlScene.RemoveNode(patients.volumeNode)
    patients.addPatient()
    patients.ui.segmentationSelector.setCurrentNode(patients.first)
    patients.press(patients.ui.pointButton)
    assert "CT abdomen" in no.texts[0]
    assert not patients.logic.isPlacing


def test_choosing_a_scan_keeps_the_tool(patients):
    """Friction 10: going to and fro between PET and CT, Point was pressed again each time."""
    first, second = patients.volumeNode, patients.addPatient()
    patients.choose(second)
    assert not patients.logic.isPlacing  # nothing there that a click could belong to
    patients.press(patients.ui.pointButton)
    liver = patients.logic.segmentID
    patients.choose(first)
    assert patients.ui.pointButton.checked
    assert patients.logic.placed.segmentID == patients.liver
    patients.choose(second)
    assert patients.ui.pointButton.checked
    assert patients.logic.placed.segmentID == liver
    patients.logic.stopPlacing()
    patients.choose(first)
    assert not patients.logic.isPlacing


def test_going_back_brings_segment_steps_and_the_pending_click(patients):
    logic, first = patients.logic, patients.volumeNode
    patients.press(patients.ui.newSegmentButton)
    spleen = logic.segmentID
    patients.clickAt((9, 9, 9), B & ~A)
    patients.view.clickAt((10, 10, 10))
    assert logic.isComputing
    second = patients.addPatient()
    patients.choose(second)
    assert not logic.isComputing
    patients.press(patients.ui.pointButton)  # which continues with the scan
    patients.choose(first)
    assert logic.isPlacing
    assert logic.segmentID == spleen
    assert "not computed yet" in patients.status
    assert "Undo" in patients.status
    patients.press(patients.ui.undoButton)
    assert logic.promptCount(spleen) == 1
    assert np.array_equal(patients.mask(spleen), B & ~A)
    patients.press(patients.ui.redoButton)
    patients.answer(A | B)
    assert np.array_equal(patients.mask(spleen), B & ~A)  # kept off the liver
    while logic.undo():
        pass
    assert logic.promptCount(patients.liver) == 0


def test_steps_are_forgotten_with_the_scan_and_on_another_one(patients):
    logic, scan = patients.logic, patients.volumeNode
    second = patients.addPatient()
    patients.choose(second)
    logic.parameters.segmentation = patients.first
    assert not logic.canUndo
    patients.choose(scan)
    assert not logic.canUndo
    patients.clickFor(A)
    patients.choose(second)
    selection = logic.selection
    assert patients.first in selection._left
    slicer.mrmlScene.RemoveNode(scan)
    assert patients.first not in selection._left
    logic.parameters.segmentation = patients.first
    assert not logic.canUndo
