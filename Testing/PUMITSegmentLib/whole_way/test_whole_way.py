"""The whole way for real: scan, segment, clicks in a slice view, worker, correction, undo, file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.program.waiting import waitFor
from pumit.evaluation.metrics import dice

MODULE = Path(__file__).resolve().parents[3] / "PUMITSegment" / "PUMITSegment.py"
SHAPE, SPACING_DHW, RADIUS_MM = (48, 64, 64), (2.0, 1.5, 1.5), 20.0


def ball() -> np.ndarray:
    """A ball about the middle of the scan, (D, H, W)."""
    offset = np.indices(SHAPE) - (np.array(SHAPE)[:, None, None, None] - 1) / 2
    return ((offset * np.array(SPACING_DHW)[:, None, None, None]) ** 2).sum(axis=0) < RADIUS_MM**2


def addScan() -> Any:
    """A bright ball about the origin, in noise."""
    import slicer

    noise = np.random.default_rng(0).normal(0, 12, SHAPE)
    node = slicer.util.addVolumeFromArray((np.where(ball(), 180, 40) + noise).astype(np.int16))
    node.SetName("Ball")
    node.SetSpacing(*SPACING_DHW[::-1])
    middle = [-(n - 1) / 2 * s for n, s in zip(SHAPE, SPACING_DHW, strict=True)]
    node.SetOrigin(*middle[::-1])
    return node


@pytest.mark.slow
def test_scan_click_segment_correct_undo_export(
    loadModule: Any, sliceView: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    import slicer
    from Qt import QtCore, QtTest

    module = loadModule(MODULE)
    frame = module.widgetRepresentation()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    ui, logic = gui.panel.ui, gui.logic
    volumeNode = addScan()
    view = sliceView("Red", "Axial")
    view.show(volumeNode)
    frame.resize(380, 900)
    frame.show()
    gui.enter()

    QtTest.QTest.mouseClick(ui.newSegmentButton, QtCore.Qt.LeftButton)
    QtTest.QTest.mouseClick(ui.pointButton, QtCore.Qt.LeftButton)
    assert logic.isPlacing
    view.clickAt((4.0, 3.0, 0.0))
    assert logic.promptCount(logic.segmentID) == 1
    waitFor(lambda: not logic.isComputing)
    first = logic.maskOf(logic.segmentID)
    assert dice(first, ball()) > 0.8, logic.status.current.text

    # A correction that says what does not belong.
    QtTest.QTest.mouseClick(ui.negativeButton, QtCore.Qt.LeftButton)
    view.clickAt((30.0, 30.0, 0.0))
    assert logic.promptCount(logic.segmentID) == 2
    waitFor(lambda: not logic.isComputing)
    second = logic.maskOf(logic.segmentID)
    assert dice(second, ball()) > 0.8

    QtTest.QTest.mouseClick(ui.pointButton, QtCore.Qt.LeftButton)
    assert not logic.isPlacing
    QtTest.QTest.mouseClick(ui.undoButton, QtCore.Qt.LeftButton)
    assert np.array_equal(logic.maskOf(logic.segmentID), first)
    assert logic.promptCount(logic.segmentID) == 1
    QtTest.QTest.mouseClick(ui.undoButton, QtCore.Qt.LeftButton)
    assert not logic.maskOf(logic.segmentID).any()
    assert logic.promptCount(logic.segmentID) == 0
    for _ in range(2):
        QtTest.QTest.mouseClick(ui.redoButton, QtCore.Qt.LeftButton)
    assert np.array_equal(logic.maskOf(logic.segmentID), second)
    assert not logic.isComputing

    ui.exportSection.collapsed = False
    ui.exportFormatSelector.currentIndex = 1
    ui.exportFolderEdit.currentPath = str(tmp_path)
    assert ui.exportButton.enabled, ui.exportMissingLabel.text
    QtTest.QTest.mouseClick(ui.exportButton, QtCore.Qt.LeftButton)
    waitFor(lambda: list(tmp_path.glob("*.seg.nrrd")))
    gui.exit()
