"""Segments of a segmentation node: creation, IDs, names and neighbours."""

from __future__ import annotations

import slicer
from PUMITSlicerLib.mrml import moveBeside
from slicer.i18n import tr as _


def newSegmentation(volumeNode) -> object:
    """Add a segmentation node for a scan: on its grid, under its transform, in the same study."""
    scene = slicer.mrmlScene
    name = scene.GenerateUniqueName(_("{scan} segmentation").format(scan=volumeNode.GetName()))
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", name)
    node.CreateDefaultDisplayNodes()
    adoptGrid(node, volumeNode)
    moveBeside(node, volumeNode)
    return node


def adoptGrid(segmentationNode, volumeNode) -> None:
    """Give an empty segmentation the scan's grid and parent transform."""
    if segmentIDs(segmentationNode):
        return
    segmentationNode.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
    segmentationNode.SetAndObserveTransformNodeID(volumeNode.GetTransformNodeID())
    if segmentationNode.GetDisplayNode() is None:
        segmentationNode.CreateDefaultDisplayNodes()


def segmentIDs(segmentationNode) -> list[str]:
    """Return the IDs of all segments, in the order of the table."""
    if segmentationNode is None:
        return []
    segmentation = segmentationNode.GetSegmentation()
    return [segmentation.GetNthSegmentID(i) for i in range(segmentation.GetNumberOfSegments())]


def segmentName(segmentationNode, segmentID: str) -> str:
    """Return the name of a segment; "" if there is none."""
    if segmentationNode is None or not segmentID:
        return ""
    segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
    return segment.GetName() if segment is not None else ""


def segmentNames(segmentationNode) -> dict[str, str]:
    """Return the names of all segments by ID."""
    return {each: segmentName(segmentationNode, each) for each in segmentIDs(segmentationNode)}


def neighbourOf(segmentationNode, segmentID: str) -> str:
    """Return the segment to select when this one is removed: the next, else the previous."""
    ids = segmentIDs(segmentationNode)
    if segmentID not in ids:
        return ids[0] if ids else ""
    place = ids.index(segmentID)
    others = ids[place + 1 :] + ids[:place][::-1]
    return others[0] if others else ""


def followingID(segmentationNode, segmentID: str, step: int) -> str:
    """Return the segment `step` rows further, cyclically; "" if there is none."""
    ids = segmentIDs(segmentationNode)
    if not ids:
        return ""
    if segmentID not in ids:
        return ids[0]
    return ids[(ids.index(segmentID) + step) % len(ids)]
