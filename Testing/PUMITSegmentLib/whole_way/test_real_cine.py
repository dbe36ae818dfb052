"""A cine for real: a ring that beats, prompts in its first frame, and the shipped weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import slicer
from harness.program.waiting import waitFor
from open_panel import OpenPanel, centredOrigin
from pumit.evaluation.metrics import dice

SHAPE, SPACING_DHW = (12, 64, 64), (6.0, 1.5, 1.5)
# Radius of the blood pool in each frame, mm: it contracts and fills again.
RADII_MM = (24.0, 21.0, 18.0, 21.0)
# Middle of a pool along a row, mm, where it has a neighbour, and its size in parts of one alone.
APART_MM, SMALLER = 16.0, 0.75


def distance(across_mm: float = 0.0) -> np.ndarray:
    """Distance of each voxel from a middle, mm, (D, H, W); along slices it counts half."""
    steps = np.array(SPACING_DHW) * (0.5, 1.0, 1.0)
    middle = (np.array(SHAPE)[:, None, None, None] - 1) / 2
    offset = (np.indices(SHAPE) - middle) * steps[:, None, None, None]
    offset[2] -= across_mm
    return np.sqrt((offset**2).sum(axis=0))


def pool(frame: int, hasNeighbour: bool = False) -> np.ndarray:
    """What is inside the ring in a frame, (D, H, W); one of two."""
    if hasNeighbour:
        return distance(APART_MM) < SMALLER * RADII_MM[frame]
    return distance() < RADII_MM[frame]


def addCine(hasNeighbour: bool = False) -> tuple[Any, Any]:
    """One or two bright pools in dark rings in noise; the browser, and the volume it shows."""
    sequence = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode", "Cine")
    sequence.SetIndexName("frame")
    for frame, radius in enumerate(RADII_MM):
        far = distance()
        if hasNeighbour:
            far, radius = np.minimum(distance(APART_MM), distance(-APART_MM)), SMALLER * radius
        clean = np.select([far < radius, far < radius + 9.0], [180.0, 60.0], 110.0)
        noise = np.random.default_rng(frame).normal(0, 12, SHAPE)
        node = slicer.vtkMRMLScalarVolumeNode()
        node.SetSpacing(*SPACING_DHW[::-1])
        node.SetOrigin(*centredOrigin(SHAPE, SPACING_DHW))
        slicer.util.updateVolumeFromArray(node, (clean + noise).astype(np.int16))
        sequence.SetDataNodeAtValue(node, str(frame))
    browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", "Cine")
    browser.SetAndObserveMasterSequenceNodeID(sequence.GetID())
    slicer.modules.sequences.logic().UpdateAllProxyNodes()
    return browser, browser.GetProxyNode(sequence)


def oneClick(opened: OpenPanel) -> None:
    opened.view.clickAt((2.0, 3.0, 3.0))


def outsideClick(opened: OpenPanel) -> None:
    """The two pools touch: a click finds both, and one outside holds the other off."""
    opened.view.clickAt((APART_MM, 0.0, 3.0))
    opened.waitForMask()
    opened.press(opened.ui.negativeButton)
    opened.view.clickAt((-APART_MM, 0.0, 3.0))


def painted(opened: OpenPanel) -> None:
    """As the Segment Editor writes what a brush paints, and a click inside."""
    logic = opened.logic
    slicer.util.updateSegmentBinaryLabelmapFromArray(
        pool(0).astype(np.uint8), logic.segmentationNode, logic.segmentID, logic.volumeNode
    )
    slicer.app.processEvents()
    oneClick(opened)


# How the first frame is segmented.
STARTS: dict[str, Callable[[OpenPanel], None]] = {
    "one click": oneClick,
    "a click outside": outsideClick,
    "painted": painted,
}


@pytest.mark.slow
def test_a_beating_ring_is_followed_to_the_end(loadModule, sliceView):
    opened = OpenPanel(loadModule, sliceView, addCine()[1])
    logic = opened.logic
    for start, draw in STARTS.items():
        hasNeighbour = start == "a click outside"
        slicer.mrmlScene.Clear()
        browser, volumeNode = addCine(hasNeighbour)
        slicer.app.processEvents()
        opened.view.show(volumeNode)
        opened.press(opened.ui.newSegmentButton)
        opened.press(opened.ui.pointButton)
        draw(opened)
        assert opened.waitForMask().any(), (start, logic.status.current.text)
        opened.press(opened.ui.continueAllButton)
        last = len(RADII_MM) - 1
        waitFor(lambda: browser.GetSelectedItemNumber() == last and not logic.isComputing)  # noqa: B023

        found = []
        for number in range(len(RADII_MM)):
            browser.SetSelectedItemNumber(number)
            slicer.app.processEvents()
            found.append(round(dice(logic.maskOf(logic.segmentID), pool(number, hasNeighbour)), 3))
        assert min(found) > 0.91, (start, found)
    opened.gui.exit()
