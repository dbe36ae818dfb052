"""From a DICOM series to a first DICOM-SEG, in as few presses as possible, with the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.program.waiting import waitFor
from open_panel import SHAPE, SPACING_DHW, OpenPanel, ball, ballScan, centredOrigin
from pumit.evaluation.metrics import dice
from pumit.export.dicom_series import write_dicom_series
from pumit.volume import Volume


def series(folder: Path) -> Path:
    """The ball as a DICOM series."""
    write_dicom_series(Volume(ballScan(), SPACING_DHW, centredOrigin(SHAPE, SPACING_DHW)), folder)
    return folder


@pytest.mark.slow
def test_a_first_dicom_seg_takes_five_presses(
    loadModule: Any, sliceView: Any, tmp_path: Path
) -> None:
    from export_scene import loadSeries
    from pumit.io.labels.label_source import read_labels
    from Qt import QtCore, QtTest

    pressed = []

    def press(widget: Any) -> None:
        pressed.append(widget)
        opened.press(widget)

    folder = series(tmp_path / "scan")
    opened = OpenPanel(loadModule, sliceView, loadSeries(folder, None))
    ui, view = opened.ui, opened.view

    press(ui.pointButton)
    view.clickAt((4.0, 3.0, 0.0))
    pressed.append(view)
    opened.waitForMask()
    press(ui.termEdit)
    QtTest.QTest.keyClicks(ui.termEdit, "liver")
    QtTest.QTest.keyClick(ui.termEdit, QtCore.Qt.Key_Return)
    ui.exportSection.collapsed = False
    pressed.append(ui.exportSection)  # its heading
    ui.exportFolderEdit.currentPath = str(tmp_path)
    assert ui.exportFormatSelector.currentText.startswith("DICOM-SEG")
    assert ui.exportButton.enabled, ui.exportMissingLabel.text
    press(ui.exportButton)
    waitFor(lambda: list(tmp_path.glob("[!.]*.dcm")))  # not the file that is being written
    opened.gui.exit()

    (file,) = tmp_path.glob("[!.]*.dcm")
    found = read_labels(file, Volume.read(folder))
    assert [segment.name for segment in found.segments] == ["Liver"]
    assert dice(found.mask(found.segments[0]), ball()) > 0.8
    assert len(pressed) == 5
