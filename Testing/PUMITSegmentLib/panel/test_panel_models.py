"""Automatic segmentation and the tokenizer view, from the panel to a server and back."""

import pytest
import slicer
from model_panel import ModelPanel, ServedPanel
from panel_scene import opened
from PUMITSegmentLib.segments.provenance import provenanceOf

panel = opened(ModelPanel, ("loadModule",))
served = opened(ServedPanel, ("loadModule",))


@pytest.mark.slow
def test_a_long_run_is_cancelled_and_its_model_stays_chosen_when_the_worker_starts_again(panel):
    assert panel.workers.made == []
    panel.chooseModel("slow")
    assert panel.logic.parameters.automaticModel == "slow"
    panel.press(panel.ui.automaticButton)
    assert not panel.ui.automaticButton.enabled
    panel.wait(lambda: panel.ui.cancelButton.isVisible() and panel.ui.progressBar.value > 0)
    panel.press(panel.ui.cancelButton)
    assert "Cancelled" in panel.ui.statusLabel.text
    assert panel.ui.automaticButton.enabled
    assert panel.logic.background.drain(30)
    assert panel.logic.segmentationNode is None
    panel.logic.parameters.automaticModel = "organs"
    panel.logic.compute.stop()
    panel.wait(lambda: not panel.ui.automaticModelSelector.count)
    panel.logic.compute.ensureReady(lambda: None, panel.logic.showError)
    panel.wait(lambda: panel.ui.automaticModelSelector.count)
    assert panel.ui.automaticModelSelector.currentText == "organs"
    assert panel.logic.parameters.automaticModel == "organs"


def test_an_automatic_model_adds_its_structures_in_one_step(served):
    panel = served
    panel.chooseModel("organs")
    assert panel.ui.automaticButton.enabled
    assert "liver" in panel.ui.automaticLabel.text
    selector = panel.ui.automaticModelSelector
    names = [selector.itemText(i) for i in range(selector.count)]
    assert {"organs", "slow", "fake"} <= set(names)
    panel.press(panel.ui.automaticButton)
    panel.wait(lambda: "liver" in panel.segmentNames())
    assert "organs" in panel.ui.statusLabel.text
    segment = panel.logic.segmentationNode.GetSegmentation().GetSegment(panel.logic.segmentID)
    assert provenanceOf(segment).type == "AUTOMATIC"
    assert panel.mask(panel.logic.segmentID).any()
    panel.press(panel.ui.undoButton)
    assert panel.segmentNames() == []
    # Closing the scene during a run adds nothing.
    panel.press(panel.ui.automaticButton)
    slicer.mrmlScene.Clear()
    assert panel.logic.background.drain(30)
    assert slicer.util.getNodesByClass("vtkMRMLSegmentationNode") == []


@pytest.mark.slow
def test_a_worker_killed_during_a_run_starts_again_with_the_next(panel):
    panel.chooseModel("slow")
    panel.press(panel.ui.automaticButton)
    panel.wait(lambda: panel.ui.progressBar.value > 0)
    panel.workers.made[-1]._process.kill()
    panel.wait(lambda: not panel.logic.status.isWorking)
    assert "The worker ended unexpectedly" in panel.status
    panel.chooseModel("organs")
    panel.press(panel.ui.automaticButton)
    panel.wait(lambda: "liver" in panel.segmentNames())
    panel.logic.compute.capabilities["models"] = []  # as before one was added elsewhere
    panel.ui.automaticSection.collapsed = True
    assert not panel.ui.automaticModelSelector.count
    panel.ui.automaticSection.collapsed = False
    panel.wait(lambda: panel.ui.automaticModelSelector.count)


def test_the_tokenizer_view_shows_what_comes_back(served):
    panel = served
    panel.ui.tokenizerSection.collapsed = False
    panel.wait(lambda: panel.ui.tokenizerButton.enabled)
    assert not panel.ui.familiarityBar.isVisible()
    panel.press(panel.ui.tokenizerButton)
    panel.wait(lambda: slicer.util.getNodesByClass("vtkMRMLPlotChartNode"))
    assert "knows this image half" in panel.ui.tokenizerLabel.text
    assert len(slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")) == 3
    bar = panel.ui.familiarityBar
    assert bar.isVisible()
    assert (bar.value, bar.format) == (50, "Familiar: 50 %")
    assert "differ more than expected" in bar.toolTip
    assert "0.25; usual -1.00 to 1.00" in bar.toolTip
    # Of one scan: it is not said of another.
    scan = panel.logic.volumeNode
    panel.logic.parameters.sourceVolume = panel.addScan("Other")
    panel.process()
    assert not bar.isVisible()
    assert "knows this image" not in panel.ui.tokenizerLabel.text
    panel.logic.parameters.sourceVolume = scan
    panel.process()
    assert bar.isVisible()
    # Nor do the views of a closed scene return.
    assert panel.ui.viewsBackButton.enabled
    slicer.mrmlScene.Clear()
    panel.process()
    assert not panel.ui.viewsBackButton.enabled
