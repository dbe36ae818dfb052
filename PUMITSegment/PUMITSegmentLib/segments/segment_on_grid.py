"""Segment on the grid of its segmentation: its voxels, those of others, and their replacement."""

from __future__ import annotations

import math

import numpy as np
import slicer
from pumit.errors import PumitError
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box, GridMap, emptyImage, imageGrid, sampled
from PUMITSlicerLib.mrml import ijkToRas, orientedImage, orientedImageArray
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP, occupants, occupied
from PUMITSegmentLib.segments.packed_mask import PreparedMask
from PUMITSegmentLib.segments.rating import review

# VTK aborts the program if an allocation fails. On the scan's own grid no mask is larger than the
# scan, which is in memory already.
_MOST_VOXELS = 1 << 30
# Part of the smaller one of two segments in the larger one, from which it is nested. Contours of
# neighbours share voxels too.
_NESTED = 0.5
# Voxels of one grid are off by less.
_SAME_VOXELS = 1e-2


class SegmentOnGrid:
    """Segment to be written, on the grid of its segmentation."""

    def __init__(self, segmentationNode, segmentID: str, volumeNode) -> None:
        self.segmentationNode = segmentationNode
        self.segmentID = segmentID
        self.segmentation = segmentationNode.GetSegmentation()
        self.segment = self.segmentation.GetSegment(segmentID)
        reference = referenceGrid(self.segmentation)
        self.grid = imageGrid(reference)
        self.start = Box.ofImage(reference).start
        nodes = (segmentationNode.GetParentTransformNode(), volumeNode.GetParentTransformNode())
        self._toVolume = GridMap(self.grid, ijkToRas(volumeNode), *nodes)
        self._fromVolume = GridMap(ijkToRas(volumeNode), self.grid, *nodes[::-1])

    @property
    def box(self) -> Box:
        """Bounding box of the current segment."""
        image = self.segment.GetRepresentation(BINARY_LABELMAP)
        box = Box.ofImage(image)
        if self._sharing() and not box.isEmpty:
            box = Box.around(orientedImageArray(image) == self.segment.GetLabelValue(), box.start)
        # Both under the segmentation's own parent transform.
        return GridMap(imageGrid(image), self.grid, None, None).covering(box)

    def voxels(self, box: Box) -> Mask:
        """Return the current segment on a box."""
        return occupied(self.segmentation, [self.segmentID], box, self.grid)

    def kept(self, box: Box, voxels: Mask) -> Mask:
        """Return where other segments keep voxels of a mask: those that this one does not share.

        A segment that contains this one, or is in it, as a PTV and its GTV, keeps nothing.
        """
        ids = set(self.segmentation.GetSegmentIDs()) - {self.segmentID}
        found = voxels & occupied(self.segmentation, ids, box, self.grid)
        if not found.any():
            return found
        holders = occupants(self.segmentation, ids, box, self.grid, found)
        ids -= {other for other in holders if self._isNested(other)}
        found &= occupied(self.segmentation, ids, box, self.grid)
        found &= ~self.voxels(box)
        return found

    def _isNested(self, other: str) -> bool:
        """Return whether another segment is mostly in this one, or this one in it."""
        own = self.voxels(self.box)
        common = np.count_nonzero(own & occupied(self.segmentation, [other], self.box, self.grid))
        segment = self.segmentation.GetSegment(other)
        image = segment.GetRepresentation(BINARY_LABELMAP)
        count = np.count_nonzero(orientedImageArray(image) == segment.GetLabelValue())
        # Its voxels may be larger or smaller than those of this grid.
        size = count * abs(np.linalg.det(imageGrid(image)) / np.linalg.det(self.grid))
        return bool(common > _NESTED * min(np.count_nonzero(own), size))

    def contested(self, box: Box, voxels: Mask, others: list[str]) -> tuple[Box, Mask]:
        """Return the part of a mask that these others occupy too, cropped."""
        if not others or box.isEmpty:
            return Box((0, 0, 0), (0, 0, 0)), np.zeros((0, 0, 0), dtype=bool)
        common = occupied(self.segmentation, others, box, self.grid)
        common &= voxels
        found = Box.around(common, box.start)
        return found, common[found.within(box)]

    def placed(self, prepared: PreparedMask) -> tuple[Box, Mask]:
        """Resample a mask of the volume to a box of this grid."""
        box = self._fromVolume.covering(prepared.box)
        if math.prod(box.shape) > max(_MOST_VOXELS, math.prod(prepared.shape)):
            raise PumitError(
                _(
                    "The voxels of this segmentation are far smaller than those of the scan, and "
                    "the mask needs too many of them; use a new segmentation."
                )
            )
        image = orientedImage(prepared.voxels, np.eye(4), prepared.box.start)
        return box, sampled(image, box, self._toVolume).view(bool)

    @property
    def isOnlyVoxels(self) -> bool:
        """Whether the segment has no derived representation that would have to be updated."""
        names: list[str] = []
        self.segment.GetContainedRepresentationNames(names)
        return set(names) <= {BINARY_LABELMAP}

    def image(self, box: Box, voxels: Mask):
        """Return voxels on a box of this grid as an image, without a copy."""
        if box.isEmpty:  # an empty mask gets a few voxels, so that a surface can be computed
            d, h, w = self.start
            box = Box(self.start, (d + 2, h + 2, w + 2))
            voxels = np.zeros(box.shape, dtype=bool)
        return orientedImage(voxels, self.grid, box.start)

    def replace(self, box: Box, voxels: Mask) -> None:
        """Replace the segment's voxels, in its own layer, with one event for observers."""
        logic = slicer.vtkSlicerSegmentationsModuleLogic
        review(self.segment, None)
        if logic.GetSegmentStatus(self.segment) == logic.NotStarted:
            logic.SetSegmentStatus(self.segment, logic.InProgress)
        image = slicer.vtkOrientedImageData()
        image.DeepCopy(self.image(box, voxels))  # owned by the scene: users paint into it
        self._setImage(image)
        events = slicer.vtkSegmentation
        for event in (events.SourceRepresentationModified, events.RepresentationModified):
            self.segmentation.InvokeEvent(event, self.segmentID)

    def empty(self) -> None:
        """Remove every voxel from the segment, and give it its own layer.

        `vtkSegmentation::ClearSegment` would lose the surfaces of all segments, and the logic's own
        replacement of a segment converts its surface twice.
        """
        self._setImage(emptyImage(self.grid))

    def _setImage(self, new) -> None:
        image = self.segment.GetRepresentation(BINARY_LABELMAP)
        if self._sharing() and self.segment.GetLabelValue() in orientedImageArray(image):
            self.segmentation.SeparateSegmentLabelmap(self.segmentID)
        self.segment.AddRepresentation(BINARY_LABELMAP, new)
        self.segment.SetLabelValue(1)  # the value in the mask, so no conversion is needed

    def _sharing(self) -> bool:
        ids: list[str] = []
        self.segmentation.GetSegmentIDsSharingBinaryLabelmapRepresentation(
            self.segmentID, ids, False
        )
        return bool(ids)


def referenceGrid(segmentation):
    """Return an image without voxels on a segmentation's grid; None if it has no grid yet."""
    text = slicer.vtkSlicerSegmentEditorLogic.GetReferenceImageGeometryStringFromSegmentation(
        segmentation
    )
    if not text:
        return None
    image = slicer.vtkOrientedImageData()
    slicer.vtkSegmentationConverter.DeserializeImageGeometry(text, image, False)
    return image


def isOnGridOf(segmentationNode, volumeNode) -> bool:
    """Return whether a segmentation is on a scan's grid, and within it."""
    if volumeNode is None or volumeNode.GetImageData() is None:
        return False
    reference = referenceGrid(segmentationNode.GetSegmentation())
    if reference is None:
        return False
    box, whole = Box.ofImage(reference), Box.ofImage(volumeNode.GetImageData())
    # The file may contain a part of the grid, with its own origin and extent.
    steps = np.linalg.inv(ijkToRas(volumeNode)) @ imageGrid(reference)
    start = steps @ [*box.start[::-1], 1.0]
    stop = steps @ [*(n - 1 for n in box.stop[::-1]), 1.0]
    isAligned = np.allclose(steps[:3, :3], np.eye(3), atol=_SAME_VOXELS)
    isOnVoxels = np.allclose(start, np.rint(start), atol=_SAME_VOXELS)
    ends = np.array(whole.stop[::-1]) - 1
    isInside = (start[:3] > -_SAME_VOXELS).all() and (stop[:3] < ends + _SAME_VOXELS).all()
    return bool(isAligned and isOnVoxels and isInside)
