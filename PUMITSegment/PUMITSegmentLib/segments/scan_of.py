"""Which scan a segmentation is of, also after that scan was deleted."""

from __future__ import annotations

import slicer

from PUMITSegmentLib.segments.segment_list import adoptGrid

# Name of the scan. Slicer forgets the reference to a volume that is deleted.
_SCAN_NAME = "PUMITSegment.ScanName"


def scanOf(segmentationNode):
    """Return the scan that a segmentation refers to, or None."""
    role = segmentationNode.GetReferenceImageGeometryReferenceRole()
    return segmentationNode.GetNodeReference(role)


def recordScanName(segmentationNode) -> None:
    """Keep the name of the scan that a segmentation refers to, for when that is deleted."""
    volumeNode = scanOf(segmentationNode)
    if volumeNode is not None:
        segmentationNode.SetAttribute(_SCAN_NAME, volumeNode.GetName() or "?")


def scanName(segmentationNode) -> str:
    """Name of the scan that a segmentation is of; empty where that is not known."""
    volumeNode = scanOf(segmentationNode)
    if volumeNode is not None:
        return volumeNode.GetName() or "?"
    return segmentationNode.GetAttribute(_SCAN_NAME) or ""


def isOfAnotherScan(segmentationNode, volumeNode) -> bool:
    """Whether a segmentation is known to be of a scan other than this one."""
    own = scanOf(segmentationNode)
    if own is not None:
        return own is not volumeNode
    return bool(scanName(segmentationNode))


def claim(segmentationNode, volumeNode) -> None:
    """Let a segmentation be of a scan, if it is of none yet; an empty one takes its grid, too."""
    if not isOfAnotherScan(segmentationNode, volumeNode):
        assignScan(segmentationNode, volumeNode)


def assignScan(segmentationNode, volumeNode) -> None:
    """Let a segmentation be of a scan, if it is still empty or its own scan is not there."""
    adoptGrid(segmentationNode, volumeNode)
    if scanOf(segmentationNode) is None:
        role = segmentationNode.GetReferenceImageGeometryReferenceRole()
        segmentationNode.SetNodeReferenceID(role, volumeNode.GetID())
        changed = slicer.vtkMRMLSegmentationNode.ReferenceImageGeometryChangedEvent
        segmentationNode.InvokeEvent(changed)
    recordScanName(segmentationNode)


def segmentationsOf(volumeNode) -> list:
    """Segmentations that refer to a scan, in the scene's order; hidden nodes are left out."""
    return [
        node
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
        if scanOf(node) is volumeNode and not node.GetHideFromEditors()
    ]
