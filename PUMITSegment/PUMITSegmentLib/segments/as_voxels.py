"""Conversion of surfaces, contours and label maps to voxels that clicks can correct."""

from __future__ import annotations

import slicer
from pumit.errors import PumitError
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.contours import canFill, fillContours
from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP
from PUMITSegmentLib.segments.segment_list import newSegmentation, segmentIDs


def isOfVoxels(segmentationNode) -> bool:
    """Return whether a segmentation's segments are label maps, or it has none yet."""
    source = segmentationNode.GetSegmentation().GetSourceRepresentationName()
    return source == BINARY_LABELMAP or not segmentIDs(segmentationNode)


def canRead(segmentationNode, volumeNode) -> bool:
    """Return whether masks of a segmentation can be read on the grid of a scan."""
    return volumeNode is not None and isOfVoxels(segmentationNode)


def makeVoxels(segmentationNode, volumeNode) -> None:
    """Convert surfaces or contours to voxels on a scan's grid, the new source representation.

    Raises:
        PumitError: If they cannot be converted; then nothing is changed.
    """
    segmentation = segmentationNode.GetSegmentation()
    isFilled = canFill(segmentationNode, volumeNode)
    if isFilled:
        fillContours(segmentationNode, volumeNode)
    segmentationNode.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
    if not isFilled and not segmentation.CreateRepresentation(BINARY_LABELMAP):
        raise PumitError(
            _(
                "{name} cannot be converted to voxels; convert it in the module Segmentations, "
                "or use a new segmentation."
            ).format(name=segmentationNode.GetName())
        )
    segmentation.SetSourceRepresentationName(BINARY_LABELMAP)


def labelMapNodes() -> list:
    """Return the non-empty label maps of the scene."""
    nodes = slicer.util.getNodesByClass("vtkMRMLLabelMapVolumeNode")
    return [n for n in nodes if n.GetImageData() is not None and not n.GetHideFromEditors()]


def segmentationFromLabelMap(labelMapNode, volumeNode):
    """Create a segmentation of a scan with a segment for each label.

    Raises:
        PumitError: If the label map has no label.
    """
    node = newSegmentation(volumeNode)
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    if not logic.ImportLabelmapToSegmentationNode(labelMapNode, node) or not segmentIDs(node):
        slicer.mrmlScene.RemoveNode(node)
        raise PumitError(
            _("The label map {name} holds no label.").format(name=labelMapNode.GetName())
        )
    return node
