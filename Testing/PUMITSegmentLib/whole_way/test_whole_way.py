"""The whole way for real: series, clicks in a view, worker, correction, undo, name, DICOM-SEG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_scene import loadSeries
from harness.program.waiting import waitFor
from open_panel import SHAPE, SPACING_DHW, OpenPanel, ball, ballScan, centredOrigin
from pumit.evaluation.metrics import dice
from pumit.export.dicom_series import write_dicom_series
from pumit.io.labels.label_source import read_labels
from pumit.volume import Volume


def series(folder: Path) -> Path:
    """The ball as a DICOM series."""
    write_dicom_series(Volume(ballScan(), SPACING_DHW, centredOrigin(SHAPE, SPACING_DHW)), folder)
    return folder


@pytest.mark.slow
def test_scan_click_segment_correct_undo_export(
    loadModule: Any, sliceView: Any, tmp_path: Path
) -> None:
    from Qt import QtCore, QtTest

    folder = series(tmp_path / "scan")
    opened = OpenPanel(loadModule, sliceView, loadSeries(folder, None))
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

    press(ui.termEdit)
    QtTest.QTest.keyClicks(ui.termEdit, "liver")
    QtTest.QTest.keyClick(ui.termEdit, QtCore.Qt.Key_Return)
    ui.exportSection.collapsed = False
    ui.exportFolderEdit.currentPath = str(tmp_path)
    assert ui.exportFormatSelector.currentText.startswith("DICOM-SEG")
    assert ui.exportButton.enabled, ui.exportMissingLabel.text
    press(ui.exportButton)
    waitFor(lambda: list(tmp_path.glob("[!.]*.dcm")))  # not the file that is being written
    opened.gui.exit()
    (file,) = tmp_path.glob("[!.]*.dcm")
    found = read_labels(file, Volume.read(folder))
    assert [segment.name for segment in found.segments] == ["Liver"]
    assert np.array_equal(found.mask(found.segments[0]), second)
