"""A cine for real: a ring that beats, a click in its first frame, and the shipped weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.program.waiting import waitFor
from pumit.evaluation.metrics import dice

MODULE = Path(__file__).resolve().parents[3] / "PUMITSegment" / "PUMITSegment.py"
SHAPE, SPACING_DHW = (12, 96, 96), (6.0, 1.5, 1.5)
# Radius of the blood pool in each frame, mm: it contracts and fills again.
RADII_MM = (24.0, 21.0, 18.0, 16.0, 18.0, 22.0)


def distance() -> np.ndarray:
    """Distance of each voxel from the scan's middle, mm, (D, H, W); along slices it counts half."""
    steps = np.array(SPACING_DHW) * (0.5, 1.0, 1.0)
    middle = (np.array(SHAPE)[:, None, None, None] - 1) / 2
    offset = (np.indices(SHAPE) - middle) * steps[:, None, None, None]
    return np.sqrt((offset**2).sum(axis=0))


def pool(frame: int) -> np.ndarray:
    """What is inside the ring in a frame, (D, H, W)."""
    return distance() < RADII_MM[frame]


def addCine() -> tuple[Any, Any]:
    """A bright pool in a dark ring in noise; the browser, and the volume that it shows."""
    import slicer

    sequence = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode", "Cine")
    sequence.SetIndexName("frame")
    for frame, radius in enumerate(RADII_MM):
        far = distance()
        clean = np.select([far < radius, far < radius + 9.0], [180.0, 60.0], 110.0)
        noise = np.random.default_rng(frame).normal(0, 12, SHAPE)
        node = slicer.vtkMRMLScalarVolumeNode()
        node.SetSpacing(*SPACING_DHW[::-1])
        middle = [-(n - 1) / 2 * s for n, s in zip(SHAPE, SPACING_DHW, strict=True)]
        node.SetOrigin(*middle[::-1])
        slicer.util.updateVolumeFromArray(node, (clean + noise).astype(np.int16))
        sequence.SetDataNodeAtValue(node, str(frame))
    browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", "Cine")
    browser.SetAndObserveMasterSequenceNodeID(sequence.GetID())
    slicer.modules.sequences.logic().UpdateAllProxyNodes()
    return browser, browser.GetProxyNode(sequence)


@pytest.mark.slow
def test_one_click_follows_a_beating_ring_to_the_end(loadModule: Any, sliceView: Any) -> None:
    pytest.importorskip("torch")
    import slicer
    from Qt import QtCore, QtTest

    frame = loadModule(MODULE).widgetRepresentation()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    ui, logic = gui.panel.ui, gui.logic
    browser, volumeNode = addCine()
    view = sliceView("Red", "Axial")
    view.show(volumeNode)
    frame.resize(380, 900)
    frame.show()
    gui.enter()

    QtTest.QTest.mouseClick(ui.newSegmentButton, QtCore.Qt.LeftButton)
    QtTest.QTest.mouseClick(ui.pointButton, QtCore.Qt.LeftButton)
    view.clickAt((2.0, 3.0, 3.0))
    waitFor(lambda: not logic.isComputing)
    assert logic.maskOf(logic.segmentID).any(), logic.status.current.text
    QtTest.QTest.mouseClick(ui.continueAllButton, QtCore.Qt.LeftButton)
    last = len(RADII_MM) - 1
    waitFor(lambda: browser.GetSelectedItemNumber() == last and not logic.isComputing)

    found = []
    for number in range(len(RADII_MM)):
        browser.SetSelectedItemNumber(number)
        slicer.app.processEvents()
        found.append(round(dice(logic.maskOf(logic.segmentID), pool(number)), 3))
    gui.exit()
    assert min(found) > 0.94, found
