"""Lassos by real clicks; exports and views that come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import slicer
from daily_panel import A, B, Daily
from PUMITSegmentLib.reconstruction import ViewsBefore
from scripted_worker import SHAPE, box

# --- lassos ---------------------------------------------------------------------------------------


def lasso(daily: Daily, middle: tuple[float, float], radius: float) -> None:
    """Draw around a place on the slice at 8 mm, click by click."""
    daily.press(daily.ui.lassoButton)
    daily.view.sliceNode.JumpSliceByOffsetting(0, 0, 8)
    for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
        place = middle[0] + radius * np.cos(angle), middle[1] + radius * np.sin(angle)
        daily.view.click(*daily.view.rasToXy((*place, 8)))
    daily.view.click(*daily.view.rasToXy((*middle, 8)), button="Right")


def test_a_lasso_is_what_was_drawn_in_its_slice(daily: Daily) -> None:
    daily.press(daily.ui.newSegmentButton)
    lasso(daily, (20, 16), 4.2)
    daily.answer(box((6, 14, 18), (11, 22, 27)))
    found = daily.mask(daily.logic.segmentID)
    h, w = np.indices(SHAPE[1:])
    expected = (h - 16) ** 2 + (w - 20) ** 2 < 4.2**2
    assert (found[8] != expected).sum() <= 6
    assert np.array_equal(found[7], box((6, 14, 18), (11, 22, 27))[7])
    daily.press(daily.ui.pointButton)
    daily.view.clickAt((25, 20, 8))
    daily.answer(box((6, 14, 18), (11, 22, 27)))
    assert daily.mask(daily.logic.segmentID)[8, 20, 25]


def test_a_lasso_after_a_click_adds_to_the_segment(daily: Daily) -> None:
    lasso(daily, (20, 16), 3.2)
    daily.answer(A)
    found = daily.mask(daily.liver)
    assert found[A].all()
    assert found[8, 16, 20]


def test_a_lasso_before_an_edit_by_hand_binds_no_more(daily: Daily) -> None:
    daily.press(daily.ui.newSegmentButton)
    lasso(daily, (20, 16), 3.2)
    daily.answer(box((6, 14, 18), (11, 19, 23)))
    daily.logic.stopPlacing()
    daily.editByHand(daily.logic.segmentID, B)
    daily.press(daily.ui.pointButton)
    daily.view.clickAt((16, 16, 16))
    daily.answer(B)
    assert np.array_equal(daily.mask(daily.logic.segmentID), B)


# --- export and reconstruction --------------------------------------------------------------------


def test_an_export_has_the_name_given_and_its_folder_opens(
    daily: Daily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import qt

    ui = daily.ui
    ui.exportSection.collapsed = False
    ui.exportFolderEdit.currentPath = str(tmp_path)
    ui.exportNameEdit.text = "liver of today"
    ui.exportFormatSelector.currentIndex = 1
    assert not ui.openFolderButton.enabled
    daily.press(ui.exportButton)
    assert daily.logic.background.drain(120)
    assert [path.name for path in tmp_path.iterdir()] == ["liver of today.seg.nrrd"]
    shown: list[str] = []
    monkeypatch.setattr(
        qt.QDesktopServices, "openUrl", lambda url: shown.append(url.toLocalFile()) or True
    )
    ui.openFolderButton.click()
    assert shown == [str(tmp_path)]


def test_the_views_before_a_reconstruction_come_back(daily: Daily) -> None:
    layout = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLLayoutNode")
    arrangement, composite = layout.GetViewArrangement(), daily.view.compositeNode
    other = daily.addScan("Reconstructed")
    before = ViewsBefore()
    layout.SetViewArrangement(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpPlotView)
    composite.SetBackgroundVolumeID(other.GetID())
    composite.SetForegroundVolumeID(other.GetID())
    slicer.mrmlScene.RemoveNode(other)
    before.restore()
    assert layout.GetViewArrangement() == arrangement
    assert composite.GetBackgroundVolumeID() == daily.volumeNode.GetID()
    assert composite.GetForegroundVolumeID() is None
