"""A scene that an earlier version has saved continues: segments, prompts, and the next click.

`saved/scene.mrb` is what version 0.1.0 saved at commit 0dac706: a generated scan, a liver of two
clicks and a spleen of one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import slicer
from panel_scene import Panel
from scripted_worker import box

SCENE = Path(__file__).resolve().parents[1] / "saved" / "scene.mrb"
LIVER, SPLEEN = box((5, 5, 5), (13, 13, 13)), box((13, 13, 13), (18, 18, 18))
CORRECTED = box((5, 5, 5), (12, 12, 12))


def test_a_scene_of_an_earlier_version_goes_on(panel: Panel) -> None:
    slicer.util.loadScene(str(SCENE))
    panel.process()
    segmentation = panel.logic.segmentationNode.GetSegmentation()
    liver, spleen = (segmentation.GetNthSegmentID(i) for i in range(2))
    assert segmentation.GetNumberOfSegments() == 2
    assert np.array_equal(panel.mask(liver), LIVER)
    assert np.array_equal(panel.mask(spleen), SPLEEN)

    panel.logic.selectSegment(liver)
    panel.click((10, 10, 6))
    prompts = [prompt.point_lps for prompt in panel.worker.requests[-1].prompts]
    assert prompts == [(-14, -12, 10), (-8, -8, 8), (-10, -10, 6)]
    panel.answer(CORRECTED)
    assert np.array_equal(panel.mask(liver), CORRECTED)
    panel.logic.undo()
    assert np.array_equal(panel.mask(liver), LIVER)
    assert np.array_equal(panel.mask(spleen), SPLEEN)


@pytest.mark.parametrize(
    ("clicks", "words"),
    [
        (1, "Liver is empty: its click or mark is not computed yet; press Update."),
        (2, "Liver is empty: 2 clicks or marks are not computed yet; press Update."),
    ],
)
def test_a_prompt_that_was_not_computed_is_said(
    panel: Panel, tmp_path: Path, clicks: int, words: str
) -> None:
    """F16: a scene saved during a computation opened with "choose Point", and 0 mL."""
    panel.load()
    segmentID = panel.logic.newSegment("Liver")
    for number in range(clicks):
        panel.click((14 + number, 12, 10))
    panel.logic.stopPlacing()
    scene = str(tmp_path / "scene.mrb")
    assert slicer.util.saveScene(scene)
    slicer.mrmlScene.Clear(0)
    slicer.util.loadScene(scene)
    panel.process()
    assert panel.status == words
    panel.press(panel.ui.updateButton)
    panel.answer(CORRECTED)
    assert np.array_equal(panel.mask(segmentID), CORRECTED)
