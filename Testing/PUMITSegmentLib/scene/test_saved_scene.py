"""A scene that an earlier version has saved goes on: segments, prompts, and the next click.

`saved/scene.mrb` is what version 0.1.0 saved at commit 0dac706: a generated scan, a liver of two
clicks and a spleen of one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from panel_scene import Panel
from scripted_worker import box

SCENE = Path(__file__).resolve().parents[1] / "saved" / "scene.mrb"
LIVER, SPLEEN = box((5, 5, 5), (13, 13, 13)), box((13, 13, 13), (18, 18, 18))
CORRECTED = box((5, 5, 5), (12, 12, 12))


def test_a_scene_of_an_earlier_version_goes_on(panel: Panel) -> None:
    import slicer

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
