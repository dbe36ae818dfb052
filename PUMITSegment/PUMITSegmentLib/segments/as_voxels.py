"""What was loaded as surfaces, contours or a label map, made voxels that clicks correct."""

from __future__ import annotations

import slicer
from pumit.errors import PumitError
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.contours import canFill, fillContours
from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP
from PUMITSegmentLib.segments.segment_list import newSegmentation, segmentIDs


def isOfVoxels(segmentationNode) -> bool:
    """Whether a segmentation's segments are voxels, or it has none yet."""
    source = segmentationNode.GetSegmentation().GetSourceRepresentationName()
    return source == BINARY_LABELMAP or not segmentIDs(segmentationNode)


def canRead(segmentationNode, volumeNode) -> bool:
    """Whether masks of a segmentation can be read on the grid of a scan, if there is one."""
    return volumeNode is not None and isOfVoxels(segmentationNode)


def makeVoxels(segmentationNode, volumeNode) -> None:
    """Make voxels of surfaces or contours, on a scan's grid; from now on they are what counts.

    Raises:
        PumitError: If they cannot be converted; nothing is changed then.
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
    """Label maps of the scene that hold something, in its order."""
    nodes = slicer.util.getNodesByClass("vtkMRMLLabelMapVolumeNode")
    return [n for n in nodes if n.GetImageData() is not None and not n.GetHideFromEditors()]


def segmentationFromLabelMap(labelMapNode, volumeNode):
    """Return a new segmentation of a scan with a segment for each label.

    Raises:
        PumitError: If the label map holds no label.
    """
    node = newSegmentation(volumeNode)
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    if not logic.ImportLabelmapToSegmentationNode(labelMapNode, node) or not segmentIDs(node):
        slicer.mrmlScene.RemoveNode(node)
        raise PumitError(
            _("The label map {name} holds no label.").format(name=labelMapNode.GetName())
        )
    return node
