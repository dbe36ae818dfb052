"""What is gone leaves nothing behind, and each sentence is true when it is read."""

import numpy as np
import slicer
import vtk
from loopback_server import TOKEN, start_server
from pumit.server.sessions.limits import Limits
from scripted_worker import box

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


def folders() -> list[str]:
    """Names of the folders of prompts in the subject hierarchy."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    items = vtk.vtkIdList()
    hierarchy.GetItemChildren(hierarchy.GetSceneItemID(), items, True)
    ids = [items.GetId(i) for i in range(items.GetNumberOfIds())]
    return [
        hierarchy.GetItemName(i)
        for i in ids
        if hierarchy.GetItemAttribute(i, "PUMITSegment.PromptFolder")
    ]


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
    assert folders() == []
    assert "updated" not in panel.ui.statusLabel.text
    assert not panel.ui.pointButton.checked


def test_a_segmentation_that_is_not_worked_on_takes_its_prompts_along_too(panel):
    panel.load()
    panel.click()
    panel.answer(A)
    left = panel.logic.segmentationNode
    panel.logic.parameters.segmentation = None
    panel.click((5, 5, 5))
    panel.answer(B)
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


def test_a_test_that_succeeds_connects(panel):
    from Qt import QtTest

    server = start_server(Limits())
    try:
        ui = panel.ui
        ui.computeSection.collapsed = False
        panel.frame.resize(panel.frame.width, 2500)
        ui.computeWhereSelector.currentIndex = 1
        ui.remoteUrlEdit.text = server.url
        ui.remoteTokenEdit.text = TOKEN
        ui.remoteTokenEdit.editingFinished.emit()
        assert "Not connected" in ui.computeStateLabel.text
        panel.press(ui.testButton)
        for _ in range(200):
            if not panel.logic.status.isWorking:
                break
            QtTest.QTest.qWait(50)
        assert "Not connected" not in ui.computeStateLabel.text
        assert ui.computeStateLabel.text == ui.statusLabel.text
        panel.logic.compute.stop()
        assert panel.logic.background.drain(30)
    finally:
        server.stop()


# --- undo -----------------------------------------------------------------------------------------
