"""The example: generated patients that someone without scans can train on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import slicer
from pumit.volume import Volume
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib import generated_scan
from PUMITSlicerLib.generated_scan import generatedScan
from PUMITTrainLib.cases.example_cases import ORGANS
from PUMITTrainLib.cases.scene_pairs import scenePairs
from shown_panel import ShownPanel


@pytest.fixture
def smallScans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans of a few voxels: the real ones take seconds."""

    def make(patient: int = 0) -> Any:
        masks = {name: np.zeros((8, 20, 24), bool) for name in generated_scan.ORGANS}
        for place, mask in enumerate(masks.values()):
            mask[2:6, 2 * place, 6 : 8 + 2 * patient] = True
        array = np.full((8, 20, 24), patient, np.int16)
        return generated_scan.GeneratedScan(Volume(array, (3.0, 2.0, 2.0), (5, 6, 7)), masks)

    monkeypatch.setattr(generated_scan, "generatedScan", make)


@pytest.mark.usefixtures("smallScans")
def test_the_example_is_offered_on_an_empty_scene_and_becomes_pairs(shown: ShownPanel) -> None:
    shown.press(shown.ui.exampleButton)
    assert "Making scan 1 of 6" in shown.ui.statusLabel.text
    assert shown.logic.background.drain(60)
    pairs = scenePairs()
    assert [pair.volumes[0].GetName() for pair in pairs] == [f"Example {i}" for i in range(1, 7)]
    segmentation = pairs[2].label.GetSegmentation()
    names = [segmentation.GetNthSegment(i).GetName() for i in range(4)]
    assert names == ["liver", "spleen", "left kidney", "right kidney"]
    assert "Liver" in segmentation.GetNthSegment(0).GetTerminology()
    sizes = [
        int(SegmentWriter().read(pairs[2].label, segmentID, pairs[2].volumes[0]).sum())
        for segmentID in segmentation.GetSegmentIDs()
    ]
    assert sizes == [4 * 4] * 4
    assert [bool(pair.label.GetDisplayVisibility()) for pair in pairs] == [True] + [False] * 5
    shown.logic.cases.offered = pairs
    shown.refresh()
    assert not shown.ui.exampleButton.isVisible()
    assert shown.ui.addCasesButton.enabled


@pytest.mark.usefixtures("smallScans")
def test_the_example_can_be_cancelled(shown: ShownPanel) -> None:
    shown.press(shown.ui.exampleButton)
    shown.press(shown.ui.exampleButton)
    shown.logic.status.cancel()
    assert shown.logic.background.drain(60)
    assert len(slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")) == 0
    shown.refresh()
    assert shown.ui.exampleButton.enabled


@pytest.mark.slow
def test_patients_are_not_alike_and_their_organs_lie_apart() -> None:
    pytest.importorskip("scipy")
    first, second = generatedScan(1), generatedScan(2)
    for name in ORGANS:
        a, b = first.masks[name], second.masks[name]
        dice = 2.0 * (a & b).sum() / (a.sum() + b.sum())
        assert 0.3 < dice < 0.95, name
    assert np.sum([second.masks[name] for name in ORGANS], axis=0).max() == 1
