"""What a careless user does to the scene while the module works on it."""

import gc
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
import vtk
from found_structures import found
from PUMITSegmentLib.prompts.tag import PromptKind, promptNodesOf
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.segment_list import newSegmentation, segmentIDs
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib.status import Activity
from scripted_worker import box
from writing_scene import addMatrixTransform, moveUnder, rigid

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


def isShown(node: Any) -> bool:
    return bool(node.GetDisplayVisibility()) and not node.GetLocked()


# --- what is worked on changes --------------------------------------------------------------------


def test_prompts_of_a_segmentation_that_was_left_are_out_of_the_way(made):
    made.clickFor(A)
    left = made.logic.segmentationNode
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    other = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Other")
    made.logic.parameters.segmentation = other
    assert not isShown(points)
    made.logic.parameters.segmentation = left
    assert isShown(points)
    assert made.logic.promptCount(made.logic.segmentID) == 1


@pytest.mark.parametrize("how", ["delete", "close"])
def test_ctrl_click_after_a_segmentation_is_gone_does_not_end_slicer(panel, sliceView, how):
    """Slicer's slice view remembers the display that Ctrl and a drag changed, by its address."""
    panel.load()
    panel.clickFor(A)
    panel.logic.stopPlacing()
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    view.click(*view.rasToXy((8, 8, 10)), control=True)
    display = vtk.vtkWeakReference()
    display.Set(panel.logic.segmentationNode.GetDisplayNode())
    if how == "delete":
        slicer.mrmlScene.RemoveNode(panel.logic.segmentationNode)
    else:
        slicer.mrmlScene.Clear()
    panel.process()
    gc.collect()
    assert display.Get() is not None
    view.click(*view.rasToXy((8, 8, 10)), control=True)


@pytest.mark.parametrize("what", ["parameters", "segmentation"])
def test_deleting_a_node_while_a_box_is_drawn(panel, sliceView, what):
    panel.load()
    panel.clickFor(A)
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    panel.logic.startPlacing(PromptKind.BOX_3D)
    view.click(*view.rasToXy((8, 8, 10)))
    node = panel.logic.segmentationNode
    if what == "parameters":
        node = panel.logic.parameters.parameterNode
    slicer.mrmlScene.RemoveNode(node)
    panel.process()
    assert not panel.logic.isPlacing
    assert slicer.util.getNodesByClass("vtkMRMLMarkupsROINode") == []
    panel.clickFor(B)
    assert np.array_equal(panel.mask(panel.logic.segmentID), B)


def test_the_first_scan_is_chosen_though_a_label_map_comes_before_it(made):
    slicer.mrmlScene.Clear()
    slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode")
    made.logic.close()
    scan = made.addScan()
    made.logic.open()
    assert made.logic.volumeNode is scan


def test_a_volume_without_voxels_is_said_to_be_so(made):
    empty = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "Empty")
    made.logic.parameters.sourceVolume = empty
    assert made.logic.newSegment() == ""
    assert made.logic.status.current.activity is Activity.PROBLEM
    assert "no voxels" in made.status
    made.logic.parameters.sourceVolume = made.volumeNode
    made.clickFor(A)
    empty_again = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "Empty")
    made.logic.parameters.sourceVolume = empty_again
    made.logic.reset()
    made.logic.removeSegment(made.logic.segmentID)
    made.logic.undo()


def test_a_scan_that_is_made_first_and_filled_then_is_shown_once_it_is_filled(panel, sliceView):
    view = sliceView("Red", "Axial")
    panel.load()
    view.show(panel.volumeNode)
    slicer.mrmlScene.RemoveNode(panel.volumeNode)
    panel.process()
    made = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "Next patient")
    panel.process()
    assert panel.logic.volumeNode is made  # the only one there is
    assert view.sliceNode.GetFieldOfView()[0] < 1e6
    slicer.util.updateVolumeFromArray(made, np.zeros(A.shape, np.int16))
    panel.process()
    assert view.compositeNode.GetBackgroundVolumeID() == made.GetID()
    assert view.sliceNode.GetFieldOfView()[0] == pytest.approx(30, abs=30)


# --- answers are shown as they are ----------------------------------------------------------------


def test_an_answer_that_is_empty_or_kept_out_by_masking_is_not_called_an_update(made):
    made.click()
    made.answer(np.zeros_like(A))
    assert "nothing was found" in made.status
    segmentEditorNode().SetSourceVolumeIntensityMask(True)
    segmentEditorNode().SetSourceVolumeIntensityMaskRange(-1000, -900)
    made.clickFor(A, (12, 12, 12))
    assert "masking" in made.status


def test_an_answer_that_is_lost_on_a_coarse_grid_says_so(made):
    coarse = made.addScan("Coarse")
    coarse.SetSpacing(100, 100, 100)
    made.logic.parameters.sourceVolume = coarse
    made.logic.newSegment()
    made.logic.newSegment()
    lumpy = made.logic.segmentationNode
    made.logic.parameters.sourceVolume = made.volumeNode
    made.logic.parameters.segmentation = lumpy
    made.logic.permission.confirm = lambda question: True
    made.clickFor(A)
    assert "too large" in made.status, slicer.util.arrayFromVolume(coarse).shape


# --- steps ----------------------------------------------------------------------------------------


def test_what_is_found_meanwhile_does_not_take_the_prompts(made):
    made.click()
    clicked = made.logic.segmentID
    made.logic.addFound(found(A, B))
    assert made.logic.segmentID == clicked
    made.answer(B)
    assert "100 % of the result" in made.status
    made.logic.parameters.overwriteMode = OverwriteMode.NONE
    made.logic.update()
    made.answer(B)
    assert np.array_equal(made.mask(clicked), B)
    made.logic.stopPlacing()
    made.logic.addFound(found(A))
    assert made.logic.segmentID != clicked


def test_placing_alone_does_not_turn_a_found_structure_into_a_drawn_one(made):
    made.logic.addFound(found(A))
    segment = made.logic.segmentationNode.GetSegmentation().GetSegment(made.logic.segmentID)
    before = provenanceOf(segment)
    made.logic.startPlacing(PromptKind.POINT)
    assert provenanceOf(segment) == before
    made.click()
    assert len(made.worker.requests[-1].prompts) == 2  # what was found continues


# --- what is typed and named ----------------------------------------------------------------------


def test_names_are_shown_as_they_are_and_not_as_markup(panel):
    from Qt import QtCore, QtWidgets

    panel.load()
    panel.click()
    segment = panel.logic.segmentationNode.GetSegmentation().GetSegment(panel.logic.segmentID)
    segment.SetName("<img src=x> & <b>T</b>umour")
    panel.clickFor(A, (3, 3, 3))
    label = panel.ui.statusLabel
    assert "<b>T</b>umour" in label.text
    labels = panel.panel.widget.findChildren(QtWidgets.QLabel)
    rich = [w.name for w in labels if w.name in vars(panel.ui) and w.wordWrap]
    rich = [n for n in rich if getattr(panel.ui, n).textFormat != QtCore.Qt.PlainText]
    assert set(rich) <= {"helpLabel", "shortcutsLabel"}
    # Nor does a long one widen the panel.
    width = panel.panel.widget.minimumSizeHint.width()
    for text in ("x" * 150, "C:\\Users\\" + "abcdefghijklmnop\\" * 9):
        panel.logic.status.done(text)
        panel.process()
        assert panel.panel.widget.minimumSizeHint.width() == width


def test_an_empty_structure_says_nothing(panel):
    from Qt import QtCore, QtTest

    panel.load()
    panel.press(panel.ui.newSegmentButton)
    before = panel.ui.statusLabel.text
    for text in ("", "   "):
        panel.ui.termEdit.text = text
        QtTest.QTest.keyClick(panel.ui.termEdit, QtCore.Qt.Key_Return)
        assert panel.ui.statusLabel.text == before
    panel.ui.termEdit.text = "x" * 300
    QtTest.QTest.keyClick(panel.ui.termEdit, QtCore.Qt.Key_Return)
    assert "is not in the list of structures" in panel.ui.statusLabel.text
    assert len(panel.ui.statusLabel.text) < 100


def test_a_home_folder_that_is_typed_is_the_users(panel):
    panel.ui.exportFolderEdit.currentPath = "~/scans"
    assert panel.panel.exportSection.choice.folder == Path.home() / "scans"
    panel.ui.exportFolderEdit.currentPath = "scans"
    assert panel.panel.exportSection.choice.folder.is_absolute()


def test_a_segment_that_was_removed_elsewhere_comes_back_only_by_undo(made):
    made.clickFor(A)
    gone = made.logic.segmentID
    made.segment(B, ras=(3, 3, 3))
    segmentation = made.logic.segmentationNode.GetSegmentation()
    segmentation.RemoveSegment(gone)
    assert segmentIDs(made.logic.segmentationNode) == [made.logic.segmentID]
    made.logic.undo()
    assert np.array_equal(made.mask(gone), A)
    assert made.logic.promptCount(gone) == 1
    made.logic.redo()
    assert segmentation.GetSegment(gone) is None
    while made.logic.canUndo:
        made.logic.undo()
    while made.logic.canRedo:
        made.logic.redo()
    assert segmentation.GetSegment(gone) is None
    assert np.array_equal(made.mask(made.logic.segmentID), B & ~A)


@pytest.mark.parametrize("isFilled", [True, False])
def test_a_segment_is_not_removed_while_undo_could_not_bring_it_back(made, isFilled):
    """Without a scan nothing happened and nothing was said, or an exception was raised."""
    segmentID = made.logic.newSegment("Liver")
    if isFilled:
        made.clickFor(A)
    slicer.mrmlScene.RemoveNode(made.volumeNode)
    made.logic.removeSegment(segmentID)
    assert made.status == "Choose a scan first."
    assert made.logic.segmentID == segmentID


def test_a_segment_of_surfaces_is_removed_only_once_it_is_converted(made):
    segmentID = made.segment(A, "Liver")
    node = made.logic.segmentationNode
    node.CreateClosedSurfaceRepresentation()
    node.GetSegmentation().SetSourceRepresentationName("Closed surface")
    made.logic.removeSegment(segmentID)
    assert segmentIDs(node) == [segmentID]
    assert "surfaces" in made.status
    made.logic.permission.confirm = lambda question: True
    made.logic.removeSegment(segmentID)
    assert segmentIDs(node) == []
    made.logic.undo()
    assert made.mask(segmentID).any()


def test_prompts_follow_a_scan_that_was_moved_while_another_segmentation_was_chosen(made):
    made.clickFor(A)
    made.logic.stopPlacing()
    (point,) = made.worker.requests[-1].prompts
    first = made.logic.segmentationNode
    made.logic.parameters.segmentation = newSegmentation(made.volumeNode)
    transform = addMatrixTransform(rigid((5, 0, 0)))
    for node in (made.volumeNode, first):
        moveUnder(node, transform)
    made.logic.parameters.segmentation = first
    made.logic.update()
    assert made.worker.requests[-1].prompts == [point]


def test_a_name_survives_undo_and_redo_of_the_segment_itself(made):
    segmentID = made.logic.newSegment()
    segmentation = made.logic.segmentationNode.GetSegmentation()
    segmentation.GetSegment(segmentID).SetName("Liver")
    made.logic.undo()
    assert made.logic.segmentID == ""
    assert segmentation.GetSegment(segmentID) is None
    made.logic.redo()
    assert segmentation.GetSegment(segmentID).GetName() == "Liver"


def test_tags_of_other_programs_survive_undo_of_the_removal(made):
    segmentID = made.segment(A, "Liver")
    segmentation = made.logic.segmentationNode.GetSegmentation()
    segmentation.GetSegment(segmentID).SetTag("DICOM.TrackingIdentifier", "lesion 1")
    made.logic.removeSegment(segmentID)
    made.logic.undo()
    value = vtk.mutable("")
    segmentation.GetSegment(segmentID).GetTag("DICOM.TrackingIdentifier", value)
    assert value == "lesion 1"
    assert made.mask(segmentID).any()


# --- other modules --------------------------------------------------------------------------------


def test_prompts_of_a_scene_loaded_from_another_module_wait(panel, tmp_path):
    panel.load()
    panel.clickFor(A)
    path = str(tmp_path / "scene.mrb")
    slicer.util.saveScene(path)
    panel.gui.exit()
    slicer.mrmlScene.Clear()
    slicer.util.loadScene(path)
    panel.process()
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    assert not isShown(points)
    panel.gui.enter()
    assert isShown(points)


def test_tab_goes_through_the_panel_from_top_to_bottom(panel):
    from Qt import QtCore

    sections = [name for name in vars(panel.ui) if name.endswith("Section")]
    for name in sections:
        getattr(panel.ui, name).collapsed = False
    panel.frame.resize(420, 3000)
    for _ in range(5):
        panel.process()
    order, widget = [], panel.ui.inputSection
    for _ in range(1000):
        isStop = widget.isVisible() and int(widget.focusPolicy) & int(QtCore.Qt.TabFocus)
        if widget.name in vars(panel.ui) and isStop:
            place = widget.mapTo(panel.panel.widget, QtCore.QPoint(0, 0))
            order.append((place.y(), widget.name))
        widget = widget.nextInFocusChain()
        if widget is panel.ui.inputSection:
            break
    assert len(order) > 20
    for before, after in itertools.pairwise(order):
        assert after[0] > before[0] - 12, (before, after)  # a row's controls differ by some pixels


def test_nothing_is_placed_once_the_scan_is_gone(made):
    made.click()
    assert made.logic.isPlacing
    slicer.mrmlScene.RemoveNode(made.volumeNode)
    assert not made.logic.isPlacing
    assert "scan" in made.status


def test_a_point_that_is_moved_nowhere_is_named_and_put_back(made):
    made.click()
    (node,) = promptNodesOf(made.logic.segmentationNode, made.logic.segmentID)
    place = node.GetNthControlPointPosition(0)
    node.SetNthControlPointPosition(0, float("inf"), 0.0, 0.0)
    assert "three finite" in made.status
    (node,) = promptNodesOf(made.logic.segmentationNode, made.logic.segmentID)
    assert node.GetNthControlPointPosition(0) == place
