"""From a DICOM series to a first DICOM-SEG: the presses that the page counts, and the worker."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.program.waiting import waitFor
from pumit.export.dicom_series import write_dicom_series
from pumit.volume import Volume

MODULE = Path(__file__).resolve().parents[3] / "PUMITSegment" / "PUMITSegment.py"
SHAPE, SPACING = (48, 64, 64), (2.0, 1.5, 1.5)


def ball() -> np.ndarray:
    """A ball about the middle of the scan, (D, H, W)."""
    offset = np.indices(SHAPE) - (np.array(SHAPE)[:, None, None, None] - 1) / 2
    return ((offset * np.array(SPACING)[:, None, None, None]) ** 2).sum(axis=0) < 20.0**2


def series(folder: Path) -> Path:
    """A bright ball about the origin, in noise, as a DICOM series."""
    noise = np.random.default_rng(0).normal(0, 12, SHAPE)
    array = (np.where(ball(), 180, 40) + noise).astype(np.int16)
    first = [-(n - 1) / 2 * s for n, s in zip(SHAPE, SPACING, strict=True)][::-1]
    write_dicom_series(Volume(array, SPACING, (first[0], first[1], first[2])), folder)
    return folder


@pytest.mark.slow
def test_a_first_dicom_seg_takes_as_many_presses_as_the_page_says(
    loadModule: Any, sliceView: Any, tmp_path: Path, repository: Path
) -> None:
    import slicer
    from export_scene import loadSeries
    from pumit.io.labels.label_source import read_labels
    from Qt import QtCore, QtTest

    pressed = []

    def press(widget: Any) -> None:
        pressed.append(widget)
        QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton)

    folder = series(tmp_path / "scan")
    volumeNode = loadSeries(folder, None)
    frame = loadModule(MODULE).widgetRepresentation()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    ui, logic = gui.panel.ui, gui.logic
    view = sliceView("Red", "Axial")
    view.show(volumeNode)
    frame.resize(380, 900)
    frame.show()
    gui.enter()
    began = time.monotonic()

    press(ui.pointButton)
    view.clickAt((4.0, 3.0, 0.0))
    pressed.append(view)
    waitFor(lambda: not logic.isComputing)
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
    print(f"{time.monotonic() - began:.1f} s from the first press to the file")
    gui.exit()

    (file,) = tmp_path.glob("[!.]*.dcm")
    found = read_labels(file, Volume.read(folder))
    assert [segment.name for segment in found.segments] == ["Liver"]
    mask, truth = found.mask(found.segments[0]), ball()
    assert 2 * (mask & truth).sum() / (mask.sum() + truth.sum()) > 0.8
    page = (repository / "docs" / "explanation" / "daily_use.md").read_text(encoding="utf-8")
    (stated,) = re.findall(r"^\| Click, name, export \| (\d+) presses", page, re.MULTILINE)
    assert len(pressed) == int(stated)
