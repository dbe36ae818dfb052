"""A segmentation that is loaded from a file is offered to the scan that it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from daily_panel import A, Daily


def saved(daily: Daily, folder: Path) -> str:
    """The liver in a file, and in the scene no more."""
    path = str(folder / "kept.seg.nrrd")
    assert slicer.util.saveNode(daily.logic.segmentationNode, path)
    daily.logic.stopPlacing()
    slicer.mrmlScene.RemoveNode(daily.logic.segmentationNode)
    daily.process()
    return path


def test_a_loaded_result_is_corrected_by_the_next_click(daily: Daily, tmp_path: Path) -> None:
    """Friction 12: it was offered to no scan, and had to be chosen by hand."""
    node = slicer.util.loadSegmentation(saved(daily, tmp_path))
    daily.process()
    assert daily.status == f"{node.GetName()} was loaded. Does it belong to CT abdomen?"
    daily.press(daily.ui.firstChoiceButton)
    assert daily.logic.segmentationNode is node
    assert daily.ui.segmentationSelector.currentNode() is node
    daily.press(daily.ui.pointButton)
    daily.view.clickAt((15, 15, 8))
    assert np.array_equal(daily.worker.requests[-1].prompts[0].mask, A)


@pytest.mark.parametrize("change", ["spacing", "origin", "crop"])
def test_what_does_not_fit_is_not_offered(daily: Daily, tmp_path: Path, change: str) -> None:
    path = saved(daily, tmp_path)
    if change == "spacing":
        daily.volumeNode.SetSpacing(1.0, 1.0, 2.0)
    elif change == "origin":
        daily.volumeNode.SetOrigin(0.4, 0.0, 0.0)
    else:
        array: Any = slicer.util.arrayFromVolume(daily.volumeNode)[:7].copy()
        slicer.util.updateVolumeFromArray(daily.volumeNode, array)
    slicer.util.loadSegmentation(path)
    daily.process()
    assert "was loaded" not in daily.status


def test_a_segmentation_of_our_own_is_not_asked_about(daily: Daily) -> None:
    daily.logic.parameters.segmentation = None
    daily.logic.newSegment("Spleen")
    daily.process()
    assert "was loaded" not in daily.status
