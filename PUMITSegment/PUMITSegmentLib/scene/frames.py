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

from PUMITSegmentLib.masks.book import SegmentBook, Steps
from PUMITSegmentLib.prompts.snapshot import PromptSnapshot
from PUMITSegmentLib.prompts.tag import promptNodesOf, tagOf
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.surface_refresh import CLOSED_SURFACE

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
    """Return the voxels of another frame with the geometry of the scan that is shown."""
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


@dataclass(frozen=True)
class _Kept:
    """Prompts and history of a frame that is not shown."""

    steps: Steps
    prompts: dict[str, PromptSnapshot]


class KeptFrames:
    """Store of the prompts and history of the frames that are not shown.

    Masks are in the sequence browser and not here. This store is not saved with the scene; the
    masks are, and clicks can correct them.

    Attributes:
        latest: The frame that was shown before this one; None if unknown.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], _Kept] = {}
        self.latest: int | None = None

    def prompts(self, segmentationNode, number: int, segmentID: str) -> PromptSnapshot:
        """Return the stored prompts of a segment in a frame that is not shown, if any."""
        kept = self._kept.get((segmentationNode.GetID(), number))
        prompts = kept.prompts if kept is not None else {}
        return prompts.get(segmentID, PromptSnapshot())

    def follow(self, book: SegmentBook) -> bool:
        """Switch to the frame that is shown now; return whether it changed."""
        node, frame = book.node, frameOf(book.volumeNode)
        left = promptedFrame(node, frame) if frame is not None else None
        if frame is None or left is None or left == frame.number:
            return False
        self.latest = left
        prompted = {tag.segmentID for each in promptNodesOf(node) if (tag := tagOf(each, node))}
        prompts = {each: book.prompts.snapshot(each) for each in prompted}
        kept = self._kept.pop((node.GetID(), frame.number), None)
        steps = book.swapHistory(kept.steps if kept is not None else None)
        self._kept[node.GetID(), left] = _Kept(steps, prompts)
        before = frame.segmentationAt(node, left)
        _bringSegments(node, before)
        _bringSurfaces(node, before)
        snapshots = kept.prompts if kept is not None else {}
        for segmentID in prompted | snapshots.keys():
            book.prompts.restore(segmentID, snapshots.get(segmentID, PromptSnapshot()))
        setPromptedFrame(node, frame)
        return True


def _bringSegments(node, left) -> None:
    """Add the previous frame's segments to a frame, empty if it lacks them."""
    existing = segmentIDs(node)
    for segmentID in segmentIDs(left):
        if segmentID not in existing:
            Appearance.of(left, segmentID).addTo(node, segmentID)


def _bringSurfaces(node, left) -> None:
    """Show a frame in 3D if and only if the previous one was."""
    wasShown, isShown = (
        each.GetSegmentation().ContainsRepresentation(CLOSED_SURFACE) for each in (left, node)
    )
    if wasShown and not isShown:
        node.CreateClosedSurfaceRepresentation()
    elif isShown and not wasShown:
        node.RemoveClosedSurfaceRepresentation()
