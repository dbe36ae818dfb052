"""Segments of a segmentation node: new ones, their names, and what is selected after one goes."""

from __future__ import annotations

import slicer
from PUMITSlicerLib.mrml import moveBeside
from slicer.i18n import tr as _


def newSegmentation(volumeNode) -> object:
    """Get a segmentation node for a scan: on its grid, under its transform, in the same study."""
    scene = slicer.mrmlScene
    name = scene.GenerateUniqueName(_("{scan} segmentation").format(scan=volumeNode.GetName()))
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", name)
    node.CreateDefaultDisplayNodes()
    adoptGrid(node, volumeNode)
    moveBeside(node, volumeNode)
    return node


def adoptGrid(segmentationNode, volumeNode) -> None:
    """Give a segmentation that is still empty the scan's grid and parent transform."""
    if segmentIDs(segmentationNode):
        return
    segmentationNode.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
    segmentationNode.SetAndObserveTransformNodeID(volumeNode.GetTransformNodeID())
    if segmentationNode.GetDisplayNode() is None:
        segmentationNode.CreateDefaultDisplayNodes()


def segmentIDs(segmentationNode) -> list[str]:
    """IDs of all segments, in the order of the table."""
    if segmentationNode is None:
        return []
    segmentation = segmentationNode.GetSegmentation()
    return [segmentation.GetNthSegmentID(i) for i in range(segmentation.GetNumberOfSegments())]


def segmentName(segmentationNode, segmentID: str) -> str:
    """Name of a segment; empty where there is none."""
    if segmentationNode is None or not segmentID:
        return ""
    segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
    return segment.GetName() if segment is not None else ""


def segmentNames(segmentationNode) -> dict[str, str]:
    """Names of all segments by their IDs."""
    return {each: segmentName(segmentationNode, each) for each in segmentIDs(segmentationNode)}


def neighbourOf(segmentationNode, segmentID: str) -> str:
    """Which segment to select when this one goes: the next one, else the one before."""
    ids = segmentIDs(segmentationNode)
    if segmentID not in ids:
        return ids[0] if ids else ""
    place = ids.index(segmentID)
    others = ids[place + 1 :] + ids[:place][::-1]
    return others[0] if others else ""


def followingID(segmentationNode, segmentID: str, step: int) -> str:
    """Get the segment that lies `step` rows further, round the end; empty where there is none."""
    ids = segmentIDs(segmentationNode)
    if not ids:
        return ""
    if segmentID not in ids:
        return ids[0]
    return ids[(ids.index(segmentID) + step) % len(ids)]
