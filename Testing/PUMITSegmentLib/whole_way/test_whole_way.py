"""The whole way for real: scan, segment, clicks in a slice view, worker, correction, undo, file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.program.waiting import waitFor
from open_panel import SHAPE, SPACING_DHW, OpenPanel, ball, ballScan, centredOrigin
from pumit.evaluation.metrics import dice


def addScan() -> Any:
    import slicer

    node = slicer.util.addVolumeFromArray(ballScan())
    node.SetName("Ball")
    node.SetSpacing(*SPACING_DHW[::-1])
    node.SetOrigin(*centredOrigin(SHAPE, SPACING_DHW))
    return node


@pytest.mark.slow
def test_scan_click_segment_correct_undo_export(
    loadModule: Any, sliceView: Any, tmp_path: Path
) -> None:
    opened = OpenPanel(loadModule, sliceView, addScan())
    ui, logic, press = opened.ui, opened.logic, opened.press

    press(ui.newSegmentButton)
    press(ui.pointButton)
    assert logic.isPlacing
    opened.view.clickAt((4.0, 3.0, 0.0))
    assert logic.promptCount(logic.segmentID) == 1
    first = opened.waitForMask()
    assert dice(first, ball()) > 0.8, logic.status.current.text

    # A correction that says what does not belong.
    press(ui.negativeButton)
    opened.view.clickAt((30.0, 30.0, 0.0))
    assert logic.promptCount(logic.segmentID) == 2
    second = opened.waitForMask()
    assert dice(second, ball()) > 0.8

    press(ui.pointButton)
    assert not logic.isPlacing
    press(ui.undoButton)
    assert np.array_equal(logic.maskOf(logic.segmentID), first)
    assert logic.promptCount(logic.segmentID) == 1
    press(ui.undoButton)
    assert not logic.maskOf(logic.segmentID).any()
    assert logic.promptCount(logic.segmentID) == 0
    for _ in range(2):
        press(ui.redoButton)
    assert np.array_equal(logic.maskOf(logic.segmentID), second)
    assert not logic.isComputing

    ui.exportSection.collapsed = False
    ui.exportFormatSelector.currentIndex = 1
    ui.exportFolderEdit.currentPath = str(tmp_path)
    assert ui.exportButton.enabled, ui.exportMissingLabel.text
    press(ui.exportButton)
    waitFor(lambda: list(tmp_path.glob("*.seg.nrrd")))
    opened.gui.exit()
