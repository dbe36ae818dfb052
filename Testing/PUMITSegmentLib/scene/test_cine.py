"""A cine: every frame of a sequence has its own segments, and may continue from another frame's."""

from typing import Any

import numpy as np
import pytest
import slicer
from panel_scene import Panel, Viewed, opened
from pumit.prompts import MaskPrompt, PointPrompt
from PUMITSlicerLib.mrml import readVolume
from scripted_worker import SHAPE, box
from writing_scene import addSegmentation

A, B = box((5, 5, 5), (12, 12, 12)), box((6, 6, 6), (13, 13, 13))
FRAMES = 4


class Cine(Viewed):
    """The panel on a sequence of four frames with an axial view."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        super().__init__(loadModule, sliceView)
        self.logic.newSegment("Ventricle")
        self.segmentID = self.logic.segmentID
        self.press(self.ui.pointButton)

    def addScan(self, name: str = "Cine") -> Any:
        """A sequence in Slicer's browser, shown by its proxy node."""
        sequence = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode", name)
        sequence.SetIndexName("frame")
        for number in range(FRAMES):
            array = np.random.default_rng(number).normal(100, 20, SHAPE).astype(np.int16)
            node = slicer.vtkMRMLScalarVolumeNode()
            slicer.util.updateVolumeFromArray(node, array)
            sequence.SetDataNodeAtValue(node, str(number))
        self.browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", name)
        self.browser.SetAndObserveMasterSequenceNodeID(sequence.GetID())
        slicer.modules.sequences.logic().UpdateAllProxyNodes()
        return self.browser.GetProxyNode(sequence)

    def goTo(self, number: int) -> None:
        """Show a frame, as Slicer's slider does."""
        self.browser.SetSelectedItemNumber(number)
        self.process()

    def goOn(self) -> None:
        """Continue from another frame; what is answered is heard from now on."""
        self.press(self.ui.continueButton)
        self.worker.answered.clear()

    @property
    def prompts(self) -> list[Any]:
        return list(self.worker.requests[-1].prompts)

    def now(self) -> np.ndarray:
        return self.mask(self.segmentID)


fresh = opened(Cine)


@pytest.fixture
def cine(fresh: Cine) -> Cine:
    """With an answered click in the first frame."""
    fresh.clickAt((8, 8, 8), A)
    return fresh


def test_segments_prompts_and_steps_are_of_their_frame(cine):
    cine.goTo(1)
    assert not cine.now().any()  # nothing stale
    assert cine.logic.segmentID == cine.segmentID
    assert cine.logic.promptCount(cine.segmentID) == 0
    assert cine.ui.pointButton.checked
    assert not cine.ui.undoButton.enabled
    cine.view.clickAt((9, 9, 9))
    assert len(cine.prompts) == 1
    cine.answer(B)
    cine.goTo(0)
    np.testing.assert_array_equal(cine.now(), A)
    cine.goTo(1)
    np.testing.assert_array_equal(cine.now(), B)
    cine.press(cine.ui.undoButton)
    assert not cine.now().any()
    cine.goTo(0)
    assert cine.logic.promptCount(cine.segmentID) == 1
    cine.view.clickAt((11, 11, 8))
    assert len(cine.prompts) == 2
    cine.answer(A | B)
    cine.press(cine.ui.undoButton)
    np.testing.assert_array_equal(cine.now(), A)
    cine.press(cine.ui.undoButton)
    assert not cine.now().any()


@pytest.mark.parametrize("isPlacing", [True, False])
def test_another_frame_while_computing_is_no_edit_by_hand(cine, isPlacing):
    cine.view.clickAt((11, 11, 8))
    if not isPlacing:
        cine.logic.stopPlacing()
    cine.goTo(1)
    assert not cine.logic.canUndo
    cine.goTo(0)
    np.testing.assert_array_equal(cine.now(), A)
    cine.logic.undo()
    assert cine.status == "Undone: point inside, Ventricle."


def test_an_edit_by_hand_is_kept_also_after_another_frame(cine):
    cine.logic.stopPlacing()
    cine.editByHand(cine.segmentID, A | B)
    cine.goTo(1)
    cine.goTo(0)
    cine.logic.undo()
    np.testing.assert_array_equal(cine.now(), A)
    cine.logic.redo()
    np.testing.assert_array_equal(cine.now(), A | B)


def test_steps_are_of_their_frame_also_after_another_scan(cine):
    scan, other = cine.volumeNode, Panel.addScan(cine, "Another")
    cine.ui.sourceVolumeSelector.setCurrentNode(other)
    cine.process()
    cine.goTo(1)
    cine.ui.sourceVolumeSelector.setCurrentNode(scan)
    cine.process()
    cine.goTo(0)
    np.testing.assert_array_equal(cine.now(), A)
    cine.press(cine.ui.undoButton)
    assert not cine.now().any()


def test_what_changed_flashes_in_its_own_frame_only(cine):
    cine.clickAt((11, 11, 8), A | B)
    cine.panel.flash._drawn.timeout.emit()
    assert cine.panel.flash.node is not None
    cine.goTo(1)
    assert cine.panel.flash.node is None


def test_an_answer_for_a_frame_that_is_left_is_not_written(fresh):
    fresh.view.clickAt((8, 8, 8))
    late = fresh.worker.requests[-1]
    fresh.goTo(1)
    late.answer(A)
    assert not fresh.now().any()
    fresh.goTo(0)
    assert not fresh.now().any()
    fresh.press(fresh.ui.updateButton)
    assert len(fresh.prompts) == 1
    fresh.answer(A)
    np.testing.assert_array_equal(fresh.now(), A)


def test_a_frame_starts_from_the_last_ones_mask(cine):
    cine.clickAt((6, 6, 6), A)
    assert cine.ui.continueButton.text == "Continue to 2"
    cine.goTo(1)
    assert cine.ui.continueButton.text == "Continue from 1"
    cine.goOn()
    cine.answer(B)
    # In its own frame one click finds something else, so it is not believed in this one.
    ((_click,), (prior,)) = cine.worker.answered
    assert isinstance(prior, MaskPrompt)
    np.testing.assert_array_equal(prior.mask, A)
    assert "propagated from another frame" in cine.status
    np.testing.assert_array_equal(cine.now(), B)
    # What clicks correct is the answer, and not what was in the frame before.
    cine.view.clickAt((12, 12, 12))
    prior = cine.prompts[0]
    assert isinstance(prior, MaskPrompt)
    np.testing.assert_array_equal(prior.mask, B)
    cine.answer(A | B)
    cine.press(cine.ui.undoButton)
    cine.press(cine.ui.undoButton)
    assert all(word in cine.status for word in ("Undone", "frame", "Ventricle"))
    assert not cine.now().any()


def test_what_one_click_made_is_clicked_again(cine):
    """A network that is given a mask keeps most of it, also of what has contracted."""

    def prompts_sent() -> list[Any]:
        return [type(prompt) for prompts in cine.worker.answered for prompt in prompts]

    cine.press(cine.ui.continueAllButton)
    (click,) = cine.prompts
    # Its innermost voxel, LPS.
    assert click == PointPrompt((-8.0, -8.0, 8.0))
    cine.worker.answered.clear()
    cine.answer(B)
    assert prompts_sent() == [PointPrompt, MaskPrompt]
    np.testing.assert_array_equal(cine.worker.answered[1][0].mask, B)
    np.testing.assert_array_equal(cine.now(), B)
    cine.process()
    # So is what followed it, for as long as no one corrects it.
    assert cine.browser.GetSelectedItemNumber() == 2
    assert cine.prompts == [PointPrompt((-9.0, -9.0, 9.0))]
    cine.logic.cancel()
    cine.goTo(1)
    cine.view.clickAt((12, 12, 12))
    assert [type(prompt) for prompt in cine.prompts] == [MaskPrompt, PointPrompt]
    cine.answer(A | B)
    cine.goTo(2)
    cine.press(cine.ui.resetSegmentButton)
    cine.goOn()
    cine.answer(B)
    ((_click,), (prior,)) = cine.worker.answered
    np.testing.assert_array_equal(prior.mask, A | B)


def test_what_took_more_than_a_click_is_clicked_in_its_own_frame_first(cine):
    scans: list[np.ndarray] = []
    setVolume = cine.worker.set_volume
    cine.worker.set_volume = lambda volume: (scans.append(volume.array), setVolume(volume))
    cine.editByHand(cine.segmentID, A)
    cine.clickAt((6, 6, 6), A)
    first = np.array(readVolume(cine.volumeNode).array)
    cine.goTo(1)
    cine.goOn()
    scans.clear()
    cine.answer(A)
    kinds = [[type(prompt) for prompt in prompts] for prompts in cine.worker.answered]
    assert kinds == [[PointPrompt], [PointPrompt], [MaskPrompt]]
    assert [np.array_equal(scan, first) for scan in scans[-2:]] == [True, False]
    assert "last frame's mask" not in cine.status


def test_a_click_that_finds_another_structure_is_not_believed(cine):
    cine.goTo(1)
    cine.goOn()
    cine.answer(box((11, 11, 11), (17, 17, 17)))
    ((_click,), (prior,)) = cine.worker.answered
    assert isinstance(prior, MaskPrompt)
    np.testing.assert_array_equal(prior.mask, A)


def test_all_frames_that_follow_are_segmented(cine):
    cine.press(cine.ui.continueAllButton)
    for number, mask in ((1, B), (2, A), (3, B)):
        assert cine.browser.GetSelectedItemNumber() == number
        cine.answer(mask)
        cine.process()
    assert "2 to 4" in cine.status
    for number, mask in ((0, A), (1, B), (2, A), (3, B)):
        cine.goTo(number)
        np.testing.assert_array_equal(cine.now(), mask)


def test_a_run_through_the_frames_is_cancelled_and_stops_where_nothing_is_found(cine):
    cine.press(cine.ui.continueAllButton)
    cine.answer(None)
    cine.process()
    assert cine.browser.GetSelectedItemNumber() == 1
    assert "nothing was found" in cine.status
    count = len(cine.worker.requests)
    cine.clickAt((9, 9, 9), B)
    cine.process()
    assert cine.browser.GetSelectedItemNumber() == 1
    assert len(cine.worker.requests) == count + 1
    # Or where it is cancelled.
    cine.press(cine.ui.continueAllButton)
    cine.logic.cancel()
    cine.process()
    assert cine.browser.GetSelectedItemNumber() == 2
    assert not cine.now().any()
    assert not cine.logic.isComputing


def test_a_new_segment_is_in_every_frame_that_is_shown(fresh):
    fresh.goTo(1)
    spleen = fresh.logic.newSegment("Spleen")
    fresh.goTo(0)
    assert fresh.logic.segmentID == spleen
    fresh.goTo(3)
    names = [
        fresh.logic.segmentationNode.GetSegmentation().GetSegment(i).GetName()
        for i in (fresh.segmentID, spleen)
    ]
    assert names == ["Ventricle", "Spleen"]
    assert fresh.ui.frameRow.visible
    fresh.logic.parameters.sourceVolume = Panel.addScan(fresh, "Plain")  # without frames
    assert not fresh.ui.frameRow.visible
    assert not fresh.ui.frameLabel.visible


def test_a_segmentation_that_was_there_is_the_same_in_all_frames(fresh):
    node, brain = addSegmentation(fresh.volumeNode, ["Brain"]), "Brain"
    slicer.util.updateSegmentBinaryLabelmapFromArray(
        A.astype(np.uint8), node, brain, fresh.volumeNode
    )
    fresh.logic.parameters.segmentation = node
    fresh.goTo(2)
    np.testing.assert_array_equal(fresh.mask(brain), A)
    assert not fresh.ui.continueButton.enabled


def heightOfSurface(cine: Cine) -> float:
    """How far the surface that is shown in 3D reaches from foot to head, mm; 0 without one."""
    segment = cine.logic.segmentationNode.GetSegmentation().GetSegment(cine.segmentID)
    surface = segment.GetRepresentation("Closed surface")
    if surface is None or not surface.GetNumberOfPoints():
        return 0.0
    bounds = surface.GetBounds()
    return float(bounds[5] - bounds[4])


def test_a_frame_that_is_left_early_has_its_own_surface_when_it_is_shown_again(cine):
    background = cine.logic.background
    cine.press(cine.ui.show3DButton)
    background.drain()
    small = heightOfSurface(cine)
    assert small == pytest.approx(7, abs=1.5)
    cine.view.clickAt((11, 11, 8))
    cine.answer(A | box((12, 5, 5), (18, 12, 12)))
    cine.goTo(1)  # before the new surface is made
    background.drain()
    cine.process()
    assert heightOfSurface(cine) == 0  # not that of the other frame
    # What is shown in 3D in one frame is shown in the next.
    assert cine.ui.show3DButton.checked
    cine.clickAt((9, 9, 9), B)
    background.drain()
    assert heightOfSurface(cine) == pytest.approx(7, abs=1.5)
    cine.goTo(0)
    background.drain()
    cine.process()
    assert heightOfSurface(cine) == pytest.approx(small + 6, abs=0.5)
    # Nor is it shown again where it was hidden since.
    cine.press(cine.ui.show3DButton)
    cine.goTo(1)
    assert not cine.ui.show3DButton.checked


def test_frames_are_saved_with_the_scene(cine, tmp_path):
    # Friction 11: it was grey in the frame that was clicked, and one had to step first.
    assert cine.ui.continueButton.enabled
    cine.press(cine.ui.continueButton)
    assert cine.browser.GetSelectedItemNumber() == 1
    cine.answer(B)
    assert cine.ui.continueButton.text == "Continue to 3"
    cine.reopen(tmp_path / "cine.mrb")
    (cine.browser,) = slicer.util.getNodesByClass("vtkMRMLSequenceBrowserNode")
    cine.volumeNode = cine.logic.volumeNode
    np.testing.assert_array_equal(cine.now(), B)
    cine.goTo(0)
    np.testing.assert_array_equal(cine.now(), A)
