"""Masks into and out of the segments of a scene, through the Segment Editor's logic.

The Segment Editor's logic does so on whole volumes: 200 to 500 ms at 512 x 512 x 150. Here the box
around the old and the new mask becomes the segment's image. The logic takes from others.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import slicer
from pumit.errors import PumitError, VolumeError
from pumit.segmentation import Mask
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.labelmap_grid import Box, GridMap, imageGrid, padded, sampled
from PUMITSlicerLib.mrml import ijkToRas, moveBeside
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.editable_area import EditableArea, visibleSegmentIDs
from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP
from PUMITSegmentLib.segments.prepared_mask import PreparedMask, prepare
from PUMITSegmentLib.segments.segment_on_grid import SegmentOnGrid, referenceGrid
from PUMITSegmentLib.segments.surface_refresh import SurfaceRefresh


class OverwriteMode(enum.Enum):
    """Rule for other segments where a segment is written.

    STOP leaves out what others have; NONE overlaps; VISIBLE takes from visible ones, ALL from all.
    """

    STOP = "stop"
    NONE = "none"
    VISIBLE = "visible"
    ALL = "all"

    @property
    def takesFromOthers(self) -> bool:
        """Whether other segments may change."""
        return self.value in ("visible", "all")


class SegmentWriter:
    """Writer of masks into segments, and reader of segments as masks.

    The editable area that a user set in the Segment Editor holds: inside it the mask replaces the
    segment, outside it the segment keeps what it had. The Segment Editor's own node is only read.

    A segment that is written gets its own layer, so that no other segment is touched, and no
    large shared layer is gone through. Slicer joins layers again where it saves a segmentation.

    Args:
        background: Threads that make 3D surfaces again after a write, while the old ones stay;
            without it `write` waits for Slicer to make them.

    Attributes:
        surfaces: The 3D surfaces of what was written.
    """

    def __init__(self, background: Background | None = None) -> None:
        self._isWriting = False
        self.surfaces = SurfaceRefresh(background, self.writing)
        # In no scene: it only tells the logic the overwrite mode.
        self._settings = slicer.vtkMRMLSegmentEditorNode()
        self._logic = slicer.vtkSlicerSegmentEditorLogic()
        self._logic.SetSegmentEditorNode(self._settings)

    @property
    def isWriting(self) -> bool:
        """Whether segments change because of `write`, and not by hand."""
        return self._isWriting

    def write(
        self,
        segmentationNode,
        segmentID: str,
        mask: Mask | PreparedMask,
        volumeNode,
        overwrite: OverwriteMode = OverwriteMode.NONE,
    ) -> bool:
        """Replace a segment by a mask, inside the editable area.

        The mask is placed in world space, whatever transforms volume and segmentation are under
        and whatever grid the segmentation has; it is resampled only if the grids differ.

        Args:
            segmentationNode: Binary labelmaps must be its source representation. Without any
                content and reference geometry, it takes the volume's, and its transform.
            segmentID: An existing segment.
            mask: bool, (D, H, W), on the volume's grid; or what `prepare` made of it.
            volumeNode: The volume that the mask belongs to.
            overwrite: Rule for other segments under the mask.

        Returns:
            Whether the segment is the mask now, voxel by voxel: on the same grid, with nothing kept
            as it was or left to other segments.

        Raises:
            PumitError: If the segment is gone, the segmentation holds surfaces, the mask is not
                on the volume's grid, or the editable area names a missing segment.
        """
        prepared = mask if isinstance(mask, PreparedMask) else prepare(mask)
        _segment(segmentationNode, segmentID)
        if prepared.shape != _shape(volumeNode):
            raise VolumeError(
                _("The mask does not fit the volume: {mask}, not {volume} voxels.").format(
                    mask=prepared.shape, volume=_shape(volumeNode)
                )
            )
        area = EditableArea.ofSegmentEditor(segmentationNode)
        changed = [segmentID]
        if overwrite.takesFromOthers:
            changed = list(segmentationNode.GetSegmentation().GetSegmentIDs())
        with self.writing(segmentationNode), self.surfaces.postponed(segmentationNode, changed):
            _adopt(segmentationNode, volumeNode)
            # 1. The mask on the grid of the segmentation, without what other segments keep.
            target = SegmentOnGrid(segmentationNode, segmentID, volumeNode)
            box, new = target.placed(prepared)
            isWhole = area.isEverything and np.array_equal(new, prepared.voxels.view(bool))
            if overwrite is OverwriteMode.STOP:
                kept = new & target.others(box)
                if kept.any():
                    isWhole, new = False, new & ~kept
            # 2. Outside of the editable area the segment stays as it was.
            held, final = box, new
            if not area.isEverything:
                whole = box.united(target.box)
                editable = area.on(whole, target.grid, segmentationNode, segmentID, volumeNode)
                new = padded(new, box, whole)
                new &= editable
                # What the segment has where it may not change: inside, without what is editable.
                final = target.voxels(whole)
                final &= ~editable
                final |= new
                box, held = whole, Box.around(final, whole.start)
                final = final[held.within(whole)]
            # 3. Write it, and take the voxels from other segments where that is chosen.
            if target.isOnlyVoxels:
                target.replace(held, final)
            else:  # what was made from the voxels is to be made again by Slicer
                target.empty()
                self._add(target, held, final, OverwriteMode.NONE)
            taken, contested = target.contested(
                box, new, _givingWay(segmentationNode, segmentID, overwrite)
            )
            if not taken.isEmpty:
                self._add(target, taken, contested, overwrite)
        return isWhole

    def read(self, segmentationNode, segmentID: str, volumeNode, frame=None) -> Mask:
        """Return a segment as a mask on a volume's grid, wherever both lie in the world.

        Args:
            segmentationNode: The segmentation, under any transform.
            segmentID: An existing segment.
            volumeNode: The volume, under any transform.
            frame: The segmentation in another frame of a sequence; None for the present one.

        Returns:
            bool, (D, H, W): for each of the volume's voxels, whether its centre is inside.

        Raises:
            PumitError: If the segment is gone or the segmentation holds surfaces.
            VolumeError: If the volume has no voxels.
        """
        return self.readPart(segmentationNode, segmentID, volumeNode, frame).whole()

    def readPart(self, segmentationNode, segmentID: str, volumeNode, frame=None) -> PreparedMask:
        """As `read`, but only the part of the volume that the segment may lie in."""
        segment = _segment(frame or segmentationNode, segmentID)
        shape = _shape(volumeNode)
        image = segment.GetRepresentation(BINARY_LABELMAP)
        nodes = (segmentationNode.GetParentTransformNode(), volumeNode.GetParentTransformNode())
        grids = (imageGrid(image), ijkToRas(volumeNode))
        box = GridMap(*grids, *nodes).covering(Box.ofImage(image))
        box = box.cut(Box((0, 0, 0), shape))
        values = sampled(image, box, GridMap(*grids[::-1], *nodes[::-1]))
        return PreparedMask(shape, box, (values == segment.GetLabelValue()).view(np.uint8))

    @contextmanager
    def writing(self, segmentationNode) -> Iterator[None]:
        """Let a segmentation tell of all its changes in the block once, at the end."""
        wasWriting, self._isWriting = self._isWriting, True
        # Views follow once, at the end.
        wasModifying = segmentationNode.StartModify()
        try:
            yield
        finally:
            segmentationNode.EndModify(wasModifying)
            self._isWriting = wasWriting

    def _add(self, target: SegmentOnGrid, box: Box, voxels: Mask, overwrite: OverwriteMode) -> None:
        node = slicer.vtkMRMLSegmentEditorNode
        modes = {
            OverwriteMode.NONE: node.OverwriteNone,
            OverwriteMode.VISIBLE: node.OverwriteVisibleSegments,
            OverwriteMode.ALL: node.OverwriteAllSegments,
        }
        self._settings.SetOverwriteMode(modes[overwrite])
        self._logic.ModifySegmentByLabelmap(
            target.segmentationNode,
            target.segmentID,
            target.image(box, voxels),
            slicer.vtkSlicerSegmentEditorLogic.ModificationModeAdd,
            False,
            False,
        )


def _givingWay(segmentationNode, segmentID: str, overwrite: OverwriteMode) -> list[str]:
    """Ids of the other segments that lose what the mask takes."""
    others: list[str] = []
    if overwrite is OverwriteMode.VISIBLE:
        others = visibleSegmentIDs(segmentationNode)
    elif overwrite is OverwriteMode.ALL:
        others = list(segmentationNode.GetSegmentation().GetSegmentIDs())
    return [other for other in others if other != segmentID]


def _adopt(segmentationNode, volumeNode) -> None:
    """Give a segmentation without content and geometry those of the volume."""
    if referenceGrid(segmentationNode.GetSegmentation()) is not None:
        return
    # The transform first: the geometry is taken relative to it.
    segmentationNode.SetAndObserveTransformNodeID(volumeNode.GetTransformNodeID())
    segmentationNode.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
    moveBeside(segmentationNode, volumeNode)


def _segment(segmentationNode, segmentID: str):
    if segmentationNode is None:
        raise PumitError(_("There is no segmentation; choose one or add one."))
    segmentation = segmentationNode.GetSegmentation()
    segment = segmentation.GetSegment(segmentID)
    if segment is None:
        raise PumitError(_("The segment is no longer there; choose another one or add one."))
    isSource = segmentation.GetSourceRepresentationName() == BINARY_LABELMAP
    if not isSource or segment.GetRepresentation(BINARY_LABELMAP) is None:
        raise PumitError(
            _(
                "This segmentation is made of surfaces; in the module Segmentations, under "
                '"Representations", make "Binary labelmap" its source, or use a new segmentation.'
            )
        )
    return segment


def noVoxels() -> str:
    """Return what is wrong with a volume that was added, and not filled (yet)."""
    return _("The volume has no voxels; choose another one.")


def _shape(volumeNode) -> tuple[int, int, int]:
    image = volumeNode.GetImageData() if volumeNode is not None else None
    if image is None:
        raise VolumeError(noVoxels())
    width, height, depth = image.GetDimensions()
    return (depth, height, width)
