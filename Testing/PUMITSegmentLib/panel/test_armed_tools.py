"""Tools that are pressed place what they show, and one that places nothing is not pressed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from panel_scene import Viewed, opened
from pumit.segmentation import UncertainRegion
from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName
from scripted_worker import box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


class Armed(Viewed):
    """The panel with a view, with one answered click and Point still pressed."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        super().__init__(loadModule, sliceView)
        self.interaction = slicer.app.applicationLogic().GetInteractionNode()
        self.selection = slicer.app.applicationLogic().GetSelectionNode()
        self.clickFirst((8, 8, 8), A)

    @property
    def isSlicerPlacing(self) -> bool:
        return bool(self.interaction.GetCurrentInteractionMode() == self.interaction.Place)

    @property
    def pressed(self) -> list[str]:
        """Tools that are shown pressed."""
        return [kind.name for kind, b in self.panel.promptSection.kindButtons.items() if b.checked]

    def checkHere(self) -> None:
        self.press(self.ui.checkHereButton)
        places = (UncertainRegion((-5.0, -8.0, 9.0), 0.4, 2.0, None),)
        self.worker.requests[-1].answer(A, places)
        self.process()
        assert "doubtful place" in self.ui.statusLabel.text


armed = opened(Armed)


# --- after Check here -----------------------------------------------------------------------------


def test_point_stays_pressed_after_check_here_places_and_can_be_ended(armed):
    armed.checkHere()
    assert armed.isSlicerPlacing
    assert armed.pressed == ["POINT"]
    armed.press(armed.ui.negativeButton)
    armed.view.clickAt((14, 12, 10))
    assert armed.polarities() == [True, False]
    armed.logic.stopPlacing()  # as Esc does
    assert not armed.isSlicerPlacing
    assert armed.pressed == []


def test_a_box_that_was_chosen_before_check_here_is_still_drawn(armed):
    armed.press(armed.ui.box3dButton)
    armed.checkHere()
    assert armed.pressed == ["BOX_3D"]
    armed.view.click(*armed.view.rasToXy((4, 4, 9)))
    armed.view.click(*armed.view.rasToXy((14, 14, 9)))
    armed.logic.stopPlacing()  # as deep as it is
    assert len(armed.worker.requests[-1].prompts) == 2


def test_undo_that_brings_prompts_back_leaves_the_tool_as_it_is(armed):
    first = armed.logic.segmentID
    armed.press(armed.ui.newSegmentButton)
    armed.logic.removeSegment(first)
    armed.press(armed.ui.pointButton)
    armed.press(armed.ui.pointButton)
    assert armed.isSlicerPlacing == (armed.pressed == ["POINT"])
    armed.press(armed.ui.undoButton)
    assert armed.isSlicerPlacing == (armed.pressed == ["POINT"])
    assert armed.logic.isPlacing == armed.isSlicerPlacing


@pytest.mark.parametrize("kind", ["SCRIBBLE", "LASSO", "BOX_2D", "BOX_3D"])
def test_undo_cancels_what_was_begun_and_no_step(armed, kind):
    segmentID, requests = armed.logic.segmentID, len(armed.worker.requests)
    armed.press(armed.panel.promptSection.kindButtons[PromptKind[kind]])
    armed.view.clickAt((14, 12, 10))
    if kind == "BOX_3D":  # both corners, without a depth
        armed.view.clickAt((20, 18, 10))
    assert armed.logic.undo()
    assert len(armed.worker.requests) == requests
    assert armed.logic.promptCount(segmentID) == 1
    assert armed.pressed == [kind]
    assert armed.logic.undo()
    assert armed.logic.promptCount(segmentID) == 0


# --- placing that ends or begins elsewhere --------------------------------------------------------


def test_slicers_mouse_toolbar_ends_a_tool(armed):
    for kind in ("POINT", "BOX_2D", "LASSO"):
        armed.logic.stopPlacing()
        armed.press(armed.panel.promptSection.kindButtons[PromptKind[kind]])
        assert armed.pressed == [kind]
        armed.interaction.SwitchToViewTransformMode()
        assert armed.pressed == []
        assert "then click in a slice view" in armed.ui.statusLabel.text


def test_a_right_click_a_deleted_node_and_another_markup_end_point(armed):
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    for end in (
        lambda: armed.view.click(250, 250, "Right"),
        lambda: slicer.mrmlScene.RemoveNode(points),
    ):
        assert armed.isSlicerPlacing
        end()
        assert not armed.isSlicerPlacing
        assert armed.pressed == []
        armed.press(armed.ui.pointButton)
    line = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsLineNode", "Ruler")
    slicer.modules.markups.logic().SetActiveList(line)
    assert armed.isSlicerPlacing
    assert armed.pressed == []


def test_placing_that_slicer_begins_in_our_list_is_shown(armed):
    armed.press(armed.ui.negativeButton)
    armed.view.clickAt((14, 12, 10))
    armed.logic.stopPlacing()
    armed.press(armed.ui.positiveButton)
    nodes = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    (outside,) = [node for node in nodes if node.GetName().endswith("-")]
    slicer.modules.markups.logic().SetActiveList(outside)
    armed.interaction.SwitchToPersistentPlaceMode()
    assert armed.pressed == ["POINT"]
    assert armed.ui.negativeButton.checked
    armed.press(armed.ui.pointButton)
    assert not armed.isSlicerPlacing


# --- saved and reopened ---------------------------------------------------------------------------


def reopen(armed: Armed, path: Path) -> None:
    armed.reopen(path)
    (armed.volumeNode,) = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
    armed.view.show(armed.volumeNode)


def test_a_scene_that_was_saved_with_point_pressed_opens_with_nothing_pressed(armed, tmp_path):
    reopen(armed, tmp_path / "scene.mrb")
    assert not armed.isSlicerPlacing
    assert armed.pressed == []
    count = len(armed.worker.requests)
    armed.view.clickAt((14, 12, 10))
    assert len(armed.worker.requests) == count
    assert armed.logic.promptCount(armed.logic.segmentID) == 1
    assert np.array_equal(armed.mask(armed.logic.segmentID), A)


def test_a_tool_that_placed_nothing_yet_is_not_saved(armed, tmp_path):
    for button in ("pointButton", "box3dButton", "lassoButton"):
        armed.press(armed.ui.newSegmentButton)
        armed.logic.stopPlacing()
        armed.press(getattr(armed.ui, button))
        reopen(armed, tmp_path / f"{button}.mrb")
        names = [node.GetName() for node in slicer.util.getNodesByClass("vtkMRMLMarkupsNode")]
        assert names == ["Segment_1 +"]
        displays = slicer.util.getNodesByClass("vtkMRMLMarkupsDisplayNode")
        assert len(displays) == 2  # that of the points, and of their outline


def test_a_file_saved_with_point_pressed_is_not_armed_for_who_opens_it_elsewhere(armed, tmp_path):
    armed.gui.exit()
    armed.gui.enter()
    armed.press(armed.ui.pointButton)
    slicer.mrmlScene.Commit(str(tmp_path / "scene.mrml"))
    assert 'currentInteractionMode="Place"' not in (tmp_path / "scene.mrml").read_text()
    assert armed.isSlicerPlacing  # saving disturbs no one
    armed.view.clickAt((14, 12, 10))
    assert armed.polarities() == [True, True]
    armed.logic.stopPlacing()
    slicer.mrmlScene.Commit(str(tmp_path / "later.mrml"))
    assert "currentInteractionMode" in (tmp_path / "later.mrml").read_text()


def test_a_scene_of_an_earlier_version_is_disarmed(armed, tmp_path):
    empty = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "Segment_1 -")
    (points,) = [
        node
        for node in slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
        if node is not empty
    ]
    for name in points.GetAttributeNames():
        empty.SetAttribute(name, points.GetAttribute(name))
    empty.SetAttribute("PUMITSegment.PromptKey", "another")
    empty.SetNodeReferenceID("PUMITSegment.segmentation", armed.logic.segmentationNode.GetID())
    armed.selection.SetActivePlaceNodeID(points.GetID())
    armed.interaction.SetSaveWithScene(True)
    armed.interaction.SwitchToPersistentPlaceMode()
    armed.interaction.SetSaveWithScene(True)
    reopen(armed, tmp_path / "scene.mrb")
    assert not armed.isSlicerPlacing
    assert armed.pressed == []
    assert armed.selection.GetActivePlaceNodeID() is None
    assert len(slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")) == 1


def test_an_empty_list_goes_when_placing_ends(armed):
    armed.press(armed.ui.newSegmentButton)
    armed.press(armed.ui.negativeButton)
    armed.press(armed.ui.positiveButton)
    armed.logic.stopPlacing()
    names = [node.GetName() for node in slicer.util.getNodesByClass("vtkMRMLMarkupsNode")]
    assert names == ["Segment_1 +"]


# --- several objects, and which side is placed ---------------------------------------------------


def test_each_click_begins_a_segment_where_that_is_wanted(armed):
    def names() -> list[str]:
        node = armed.logic.segmentationNode
        return [segmentName(node, each) for each in segmentIDs(node)]

    segmentation = armed.logic.segmentationNode.GetSegmentation()
    first = segmentation.GetSegment(armed.logic.segmentID)
    first.SetName("Metastasis")
    first.SetNameAutoGenerated(False)
    armed.press(armed.ui.oneEachCheckBox)
    assert len(names()) == 1
    for place in ((13, 13, 8), (16, 9, 8)):
        armed.view.clickAt(place)
        armed.answer(B)
        assert armed.pressed == ["POINT"]
    assert names() == ["Metastasis", "Metastasis 2", "Metastasis 3"]
    assert [armed.logic.promptCount(each) for each in segmentIDs(armed.logic.segmentationNode)] == [
        *(1, 1, 1)
    ]
    # Outside corrects the last one.
    armed.view.click(*armed.view.rasToXy((14, 9, 8)), control=True)
    assert len(names()) == 3
    assert armed.logic.promptCount(armed.logic.segmentID) == 2
    armed.logic.newSegment("Node")
    armed.view.clickAt((5, 5, 8))  # an empty one takes the click itself
    assert names()[3:] == ["Node"]
    armed.answer(A)
    armed.process()


def test_pointer_and_view_show_inside_or_outside(armed):
    from PUMITSegmentLib.scene.view_gate import pointer
    from Qt import QtCore

    view = slicer.app.layoutManager().sliceWidget("Red").sliceView()

    def shown() -> str:
        cursor = view.cursor
        if cursor.shape() != QtCore.Qt.BitmapCursor:
            return "usual"
        image = cursor.pixmap().toImage()
        sides = [True, False]
        return str([s for s in sides if pointer(s).pixmap().toImage() == image])

    views = armed.panel.viewStatus._overlay.views
    actor = next(each.actor for each in views if each.sliceNode is armed.view.sliceNode)
    assert shown() == "[True]"
    assert "OUTSIDE" not in actor.GetInput()
    armed.press(armed.ui.negativeButton)
    assert shown() == "[False]"
    assert actor.GetInput().startswith("OUTSIDE, CT abdomen\n")
    armed.press(armed.ui.scribbleButton)
    assert shown() == "[False]"
    armed.press(armed.ui.positiveButton)
    assert shown() == "[True]"
    assert "OUTSIDE" not in actor.GetInput()
    armed.press(armed.ui.scribbleButton)  # not pressed any more
    assert shown() == "usual"
    armed.press(armed.ui.pointButton)
    armed.view.show(slicer.util.addVolumeFromArray(np.zeros((8, 8, 8), np.int16)))
    armed.process()
    assert shown() == "usual"  # over another scan
    armed.view.show(armed.volumeNode)
    armed.process()
    assert shown() != "usual"
    armed.panel.exit()
    assert shown() == "usual"


def test_a_click_on_the_point_of_an_object_begins_no_other_one(armed):
    armed.press(armed.ui.oneEachCheckBox)
    armed.clickAt((13, 13, 8), B)
    segments = segmentIDs(armed.logic.segmentationNode)
    x, y = armed.view.rasToXy((13, 13, 8))
    armed.view.drag((x, y), (x + 15, y + 15))
    armed.view.click(x, y)
    armed.view.click(x + 3, y - 3)
    armed.process()
    assert segmentIDs(armed.logic.segmentationNode) == segments
    assert [armed.logic.promptCount(each) for each in segments] == [1] * len(segments)
    assert armed.status == "This object has its point already; click on another one."
    armed.view.click(x + 40, y)
    armed.answer(B)
    assert len(segmentIDs(armed.logic.segmentationNode)) == len(segments) + 1
    armed.process()
