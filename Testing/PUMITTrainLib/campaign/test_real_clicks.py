"""The loop with the worker and the weights that ship: it begins with the next scan in advance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_module import CLASSES, makeLab, makeScan
from harness.program.waiting import waitFor
from pumit.campaign import Campaign

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_clicks_on_two_scans_one_after_the_other(
    loadModule: Any, mainWindow: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    import slicer

    loadModule(REPOSITORY / "PUMITSegment" / "PUMITSegment.py")
    loadModule(REPOSITORY / "PUMITTrain" / "PUMITTrain.py")
    segment = slicer.util.getModuleWidget("PUMITSegment").logic
    train = slicer.util.getModuleWidget("PUMITTrain").logic
    campaign = Campaign.create(tmp_path / "campaign", [makeLab(tmp_path / "lab", 3)], CLASSES[:1])
    campaign.change_settings(order="list")
    slicer.util.selectModule("PUMITTrain")
    train.campaign.open(campaign.folder)
    waitFor(lambda: train.campaign.view is not None)
    train.checking.openNext()
    for number in range(2):
        waitFor(lambda number=number: segment.reviewing.isShown and train.checking.isChecking)
        assert segment.reviewing.scan.given.name == f"scan{number:02d}"
        _volume, labels = makeScan(number)
        clickInside(segment, labels > 0)
        waitFor(lambda: not segment.isComputing)
        assert segment.maskOf(segment.segmentID).any(), segment.status.current.text
        segment.stopPlacing()
        if number == 0:  # the worker runs by now
            waitFor(lambda: segment.reviewing._ahead is not None)
        name = segment.reviewing.scan.given.name
        train.checking.accept()
        waitFor(lambda name=name: campaign.scan(name).stored_state == "accepted")
    assert campaign.scan("scan00").clicks == 1
    train.checking.putAway()
    waitFor(lambda: not train.background.isBusy)
    slicer.util.getModuleWidget("PUMITTrain").exit()


def clickInside(logic: Any, mask: np.ndarray) -> None:
    """Click in the middle of what is drawn, as a view does."""
    import slicer
    from PUMITSegmentLib.prompts.kinds import PromptKind
    from PUMITSlicerLib.mrml import VolumeFrame

    assert logic.startPlacing(PromptKind.POINT), logic.status.current.text
    frame = VolumeFrame(logic.volumeNode)
    middle = np.argwhere(mask).mean(axis=0).round()
    (ras,) = frame.lpsToWorld(frame.indexToLps([middle])).tolist()
    selection = slicer.mrmlScene.GetNodeByID("vtkMRMLSelectionNodeSingleton")
    slicer.mrmlScene.GetNodeByID(selection.GetActivePlaceNodeID()).AddControlPoint(*ras)
