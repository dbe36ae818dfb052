"""Assignment of segmentations to scans."""

from __future__ import annotations

import slicer
from PUMITSlicerLib.scan_of import isOfAnotherScan, recordScanName, scanOf

from PUMITSegmentLib.segments.segment_list import adoptGrid


def claim(segmentationNode, volumeNode) -> None:
    """Assign a segmentation without a scan to this one; an empty one also gets its grid."""
    if not isOfAnotherScan(segmentationNode, volumeNode):
        assignScan(segmentationNode, volumeNode)


def assignScan(segmentationNode, volumeNode) -> None:
    """Assign a segmentation to a scan if it is empty or its own scan is missing."""
    adoptGrid(segmentationNode, volumeNode)
    if scanOf(segmentationNode) is None:
        role = segmentationNode.GetReferenceImageGeometryReferenceRole()
        segmentationNode.SetNodeReferenceID(role, volumeNode.GetID())
        changed = slicer.vtkMRMLSegmentationNode.ReferenceImageGeometryChangedEvent
        segmentationNode.InvokeEvent(changed)
    recordScanName(segmentationNode)


def segmentationsOf(volumeNode) -> list:
    """Return the segmentations that reference a scan, in scene order, without hidden nodes."""
    return [
        node
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
        if scanOf(node) is volumeNode and not node.GetHideFromEditors()
    ]
