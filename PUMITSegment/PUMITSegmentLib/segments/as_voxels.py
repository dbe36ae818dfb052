"""Conversion of surfaces, contours and label maps to voxels that clicks can correct."""

from __future__ import annotations

import numpy as np
import slicer
import vtk
from pumit.errors import PumitError, VolumeError
from pumit.geometry import Floats
from pumit.io.labels.planar_contours import fill_contours
from PUMITSlicerLib.labelmap_grid import emptyImage
from PUMITSlicerLib.mrml import VolumeFrame, ijkToRas, orientedImage, transformBetween
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP
from PUMITSegmentLib.segments.packed_mask import PreparedMask, prepare
from PUMITSegmentLib.segments.segment_list import newSegmentation, segmentIDs

PLANAR_CONTOUR = "Planar contour"


def canFill(segmentationNode, volumeNode) -> bool:
    """Return whether a segmentation has planar contours and the scan's parent transform."""
    isPlanar = segmentationNode.GetSegmentation().GetSourceRepresentationName() == PLANAR_CONTOUR
    nodes = (segmentationNode, volumeNode)
    first, second = (node.GetParentTransformNode() for node in nodes)
    return isPlanar and first is second


def fillContours(segmentationNode, volumeNode) -> None:
    """Convert a segmentation's contours to voxels on a scan's grid; nothing changes on failure.

    Raises:
        VolumeError: If contours are oblique to the scan's slices, or none encloses a voxel.
    """
    segmentation, frame = segmentationNode.GetSegmentation(), VolumeFrame(volumeNode)
    width, height, depth = volumeNode.GetImageData().GetDimensions()
    masks: dict[str, PreparedMask] = {}
    for segmentID in segmentIDs(segmentationNode):
        segment = segmentation.GetSegment(segmentID)
        worlds = _contoursWorld(segmentationNode, segment.GetRepresentation(PLANAR_CONTOUR))
        points = [frame.worldToIndex(world) for world in worlds]
        filled, _remarks = fill_contours(points, (depth, height, width), segment.GetName())
        masks[segmentID] = prepare(filled)
    if all(mask.box.isEmpty for mask in masks.values()):
        raise VolumeError(
            _(
                "No contour of {name} encloses a voxel of the scan; it was probably drawn on "
                "another scan."
            ).format(name=segmentationNode.GetName())
        )
    grid = ijkToRas(volumeNode)
    for segmentID, mask in masks.items():
        image = slicer.vtkOrientedImageData()
        isEmpty = mask.box.isEmpty
        image.DeepCopy(
            emptyImage(grid) if isEmpty else orientedImage(mask.voxels, grid, mask.box.start)
        )
        segment = segmentation.GetSegment(segmentID)
        segment.AddRepresentation(BINARY_LABELMAP, image)
        segment.SetLabelValue(1)


def _contoursWorld(segmentationNode, contours: vtk.vtkPolyData | None) -> list[Floats]:
    """Return the vertices of each closed contour, (N, 3) world RAS mm."""
    if contours is None or contours.GetPoints() is None:
        return []
    toWorld = transformBetween(segmentationNode.GetParentTransformNode(), None)
    points = np.array([toWorld.TransformPoint(p) for p in _rows(contours.GetPoints())])
    found = []
    for cells in (contours.GetLines(), contours.GetPolys()):
        corners = vtk.vtkIdList()
        cells.InitTraversal()
        while cells.GetNextCell(corners):
            index = [corners.GetId(i) for i in range(corners.GetNumberOfIds())]
            if len(index) > 3 and index[0] == index[-1]:
                index.pop()  # closed by repeating its first vertex
            if len(index) >= 3:
                found.append(points[index])
    return found


def _rows(points: vtk.vtkPoints) -> list[tuple[float, float, float]]:
    return [points.GetPoint(i) for i in range(points.GetNumberOfPoints())]


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
