"""Scan of a segmentation, known also after that scan was deleted."""

from __future__ import annotations

import slicer

# Name of the scan. Slicer drops the reference to a deleted volume.
_SCAN_NAME = "PUMITSegment.ScanName"
# Attribute of a loaded DICOM-SEG or RTSTRUCT in the subject hierarchy.
_REFERRED = "DICOM.ReferencedInstanceUIDs"


def scanOf(segmentationNode):
    """Return the scan that a segmentation references, or None."""
    role = segmentationNode.GetReferenceImageGeometryReferenceRole()
    return segmentationNode.GetNodeReference(role)


def recordScanName(segmentationNode) -> None:
    """Store the name of the referenced scan, in case the scan is deleted."""
    volumeNode = scanOf(segmentationNode)
    if volumeNode is not None:
        segmentationNode.SetAttribute(_SCAN_NAME, volumeNode.GetName() or "?")


def scanName(segmentationNode) -> str:
    """Return the name of a segmentation's scan; "" if unknown."""
    volumeNode = scanOf(segmentationNode)
    if volumeNode is not None:
        return volumeNode.GetName() or "?"
    return segmentationNode.GetAttribute(_SCAN_NAME) or ""


def isOfAnotherScan(segmentationNode, volumeNode) -> bool:
    """Return whether a segmentation is known to belong to another scan."""
    own = scanOf(segmentationNode)
    if own is not None:
        return own is not volumeNode
    return bool(scanName(segmentationNode)) or _refersElsewhere(segmentationNode, volumeNode)


def _refersElsewhere(segmentationNode, volumeNode) -> bool:
    """Return whether DICOM refers a segmentation to images, and to none of this scan."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    item = hierarchy.GetItemByDataNode(segmentationNode) if hierarchy is not None else 0
    referred = set(hierarchy.GetItemAttribute(item, _REFERRED).split()) if item else set()
    own = set((volumeNode.GetAttribute("DICOM.instanceUIDs") or "").split())
    return bool(referred and own) and referred.isdisjoint(own)
