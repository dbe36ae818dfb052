"""Segments of each frame of a sequence, such as a cine, in Slicer's sequence browser.

The browser shows a frame in its proxy nodes: the scan is one, and the segmentation becomes another.
So every frame has its own masks, which are played, saved and loaded like any sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import slicer
from pumit.volume import Volume
from PUMITSlicerLib.label_layers import isEmptySegment
from PUMITSlicerLib.mrml import readVolume

from PUMITSegmentLib.segments.segment_list import segmentIDs

# Attribute of the segmentation's sequence: frame whose prompts are in the scene.
_PROMPTED = "PUMITSegment.PromptedFrame"


@dataclass(frozen=True)
class Frame:
    """Frame that a sequence browser shows.

    Attributes:
        number: Index, from 0.
    """

    browser: Any
    number: int
    count: int

    def sequenceOf(self, segmentationNode):
        """Return the sequence with a segmentation's frames, or None."""
        if segmentationNode is None or not self.browser.IsProxyNodeID(segmentationNode.GetID()):
            return None
        return self.browser.GetSequenceNode(segmentationNode)

    def segmentationAt(self, segmentationNode, number: int):
        """Return the segmentation of a frame; None if nothing was segmented there."""
        sequence = self.sequenceOf(segmentationNode)
        if sequence is None or not 0 <= number < self.count:
            return None
        value = self.browser.GetMasterSequenceNode().GetNthIndexValue(number)
        return sequence.GetDataNodeAtValue(value, True)


def frameOf(volumeNode) -> Frame | None:
    """Return the frame that a scan shows; None if it is not a sequence."""
    if volumeNode is None:
        return None
    for browser in slicer.util.getNodesByClass("vtkMRMLSequenceBrowserNode"):
        if browser.IsProxyNodeID(volumeNode.GetID()):
            count = browser.GetNumberOfItems()
            if count > 1 and browser.GetSequenceNode(volumeNode).GetNumberOfDataNodes() > 1:
                return Frame(browser, browser.GetSelectedItemNumber(), count)
    return None


def readVolumeAt(frame: Frame, volumeNode, number: int) -> Volume:
    """Return the voxels of another frame with the geometry of the scan that is shown.

    Args:
        volumeNode: Its scan, the browser's proxy node.
        number: Index of the other frame.
    """
    sequence = frame.browser.GetSequenceNode(volumeNode)
    value = frame.browser.GetMasterSequenceNode().GetNthIndexValue(number)
    voxels = readVolume(sequence.GetDataNodeAtValue(value, True)).array
    return replace(readVolume(volumeNode), array=voxels)


def keepPerFrame(segmentationNode, volumeNode) -> None:
    """Give an empty segmentation separate masks in each frame of a scan.

    One with segments is not changed: its masks may be meant for every frame.
    """
    frame = frameOf(volumeNode)
    if frame is None or segmentIDs(segmentationNode) or frame.sequenceOf(segmentationNode):
        return
    browser, master = frame.browser, frame.browser.GetMasterSequenceNode()
    sequence = slicer.mrmlScene.AddNewNodeByClass(
        "vtkMRMLSequenceNode", slicer.mrmlScene.GenerateUniqueName(segmentationNode.GetName())
    )
    sequence.SetIndexName(master.GetIndexName())
    sequence.SetIndexUnit(master.GetIndexUnit())
    sequence.SetIndexType(master.GetIndexType())
    sequence.SetDataNodeAtValue(segmentationNode, master.GetNthIndexValue(frame.number))
    browser.AddSynchronizedSequenceNode(sequence)
    # Not copied from the previous frame: those masks would be stale.
    browser.SetMissingItemMode(sequence, browser.MissingItemCreateFromDefault)
    browser.SetOverwriteProxyName(sequence, False)
    browser.AddProxyNode(segmentationNode, sequence, False)
    browser.SetSaveChanges(sequence, True)
    setPromptedFrame(segmentationNode, frame)


def promptedFrame(segmentationNode, frame: Frame) -> int | None:
    """Return the frame whose prompts are in the scene; None without frames."""
    sequence = frame.sequenceOf(segmentationNode)
    if sequence is None:
        return None
    text = sequence.GetAttribute(_PROMPTED) or ""
    return int(text) if text.isdecimal() else frame.number


def setPromptedFrame(segmentationNode, frame: Frame) -> None:
    """Record the frame whose prompts are in the scene."""
    frame.sequenceOf(segmentationNode).SetAttribute(_PROMPTED, str(frame.number))


def neighbourFrame(segmentationNode, frame: Frame, latest: int | None) -> int | None:
    """Return the frame to propagate from: the last shown, or a neighbour, that has a segment."""
    for number in (latest, frame.number - 1, frame.number + 1):
        if number is not None and number != frame.number:
            other = frame.segmentationAt(segmentationNode, number)
            if other is not None and any(not isEmptySegment(other, i) for i in segmentIDs(other)):
                return number
    return None
