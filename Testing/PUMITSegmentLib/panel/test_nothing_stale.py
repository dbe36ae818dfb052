"""What is gone leaves nothing behind, and each sentence is true when it is read."""

import numpy as np
import slicer
from scripted_worker import box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


# --- deleted in Data ------------------------------------------------------------------------------


def test_a_deleted_segmentation_takes_its_prompts_and_its_status_along(panel, sliceView):
    panel.load()
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    panel.press(panel.ui.pointButton)
    view.clickAt((14, 12, 10))
    panel.answer(A)
    panel.editByHand(panel.logic.segmentID, A | B)
    view.clickAt((10, 12, 10))  # with a mask that was painted as a prompt
    panel.answer(B)
    panel.panel.flash._drawn.timeout.emit()
    assert panel.panel.flash.node is not None
    slicer.mrmlScene.RemoveNode(panel.logic.segmentationNode)
    panel.process()
    assert panel.panel.flash.node is None  # what the click changed
    assert slicer.util.getNodesByClass("vtkMRMLMarkupsNode") == []
    priors = slicer.util.getNodesByClass("vtkMRMLScriptedModuleNode")
    assert [node for node in priors if node.GetAttribute("PUMITSegment.PromptKind")] == []
    assert "updated" not in panel.ui.statusLabel.text
    assert not panel.ui.pointButton.checked


def test_a_segmentation_that_is_not_worked_on_takes_its_prompts_along_too(panel):
    panel.load()
    panel.clickFor(A)
    left = panel.logic.segmentationNode
    panel.logic.parameters.segmentation = None
    panel.clickFor(B, (5, 5, 5))
    slicer.mrmlScene.RemoveNode(left)
    assert len(slicer.util.getNodesByClass("vtkMRMLMarkupsNode")) == 1
    assert panel.logic.promptCount(panel.logic.segmentID) == 1


# --- what is said ---------------------------------------------------------------------------------


def test_cancel_says_whether_a_prompt_stays(panel):
    from Qt import QtTest

    panel.load()
    panel.click()
    panel.worker.requests[-1].watch.report(0.4)
    assert not panel.ui.cancelButton.isVisible()
    QtTest.QTest.qWait(900)
    assert panel.ui.progressBar.isVisible()
    assert panel.ui.progressBar.value == 40
    panel.press(panel.ui.cancelButton)
    assert not panel.ui.progressBar.isVisible()
    assert panel.logic.promptCount(panel.logic.segmentID) == 1
    assert "nothing was changed" not in panel.ui.statusLabel.text
    assert "prompt stays" in panel.ui.statusLabel.text
    panel.press(panel.ui.updateButton)  # as it says
    panel.answer(A)
    assert np.array_equal(panel.mask(panel.logic.segmentID), A)
    panel.press(panel.ui.checkHereButton)
    panel.logic.cancel()
    assert "Cancelled" in panel.ui.statusLabel.text
    assert "prompt" not in panel.ui.statusLabel.text
