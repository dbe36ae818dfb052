"""Editable area of the Segment Editor's masking settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import slicer
import vtk
from pumit.errors import PumitError
from pumit.geometry import Array, Floats
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box, GridMap, sampled
from PUMITSlicerLib.mrml import ijkToRas
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.occupied import occupied
from PUMITSegmentLib.segments.segment_list import segmentName

_TAG = "SegmentEditor"


def segmentEditorNode():
    """Return the Segment Editor's parameter node, created as the Segment Editor does."""
    name = "vtkMRMLSegmentEditorNode"
    node = slicer.mrmlScene.GetSingletonNode(_TAG, name)
    if node is None:
        node = slicer.mrmlScene.CreateNodeByClass(name)  # has the user's defaults
        node.UnRegister(None)
        node.SetSingletonTag(_TAG)
        node = slicer.mrmlScene.AddNode(node)
    return node


@dataclass(frozen=True)
class EditableArea:
    """Settings under "Masking" in the Segment Editor.

    Attributes:
        mode: One of vtkMRMLSegmentationNode's EditAllowed...
        maskSegmentID: Segment that the mode refers to, or "".
        intensities: Lowest and highest intensity that may change, or None for all.
    """

    mode: int
    maskSegmentID: str = ""
    intensities: tuple[float, float] | None = None

    @staticmethod
    def ofSegmentEditor(segmentationNode) -> EditableArea:
        """Read the settings for a segmentation.

        Raises:
            PumitError: If they refer to a segment that this segmentation does not have.
        """
        node = segmentEditorNode()
        mode, segmentID = node.GetMaskMode(), node.GetMaskSegmentID() or ""
        if mode == slicer.vtkMRMLSegmentationNode.EditAllowedInsideSingleSegment:
            isOurs = node.GetSegmentationNode() in (None, segmentationNode)
            if not isOurs or segmentationNode.GetSegmentation().GetSegment(segmentID) is None:
                raise PumitError(
                    _(
                        "The Segment Editor's editable area is a segment that this segmentation "
                        'does not have; choose it again in the Segment Editor, under "Masking".'
                    )
                )
        intensities = None
        if node.GetSourceVolumeIntensityMask():
            low, high = node.GetSourceVolumeIntensityMaskRange()
            intensities = (low, high)
        return EditableArea(mode, segmentID, intensities)

    @property
    def isEverything(self) -> bool:
        """Whether every voxel may change."""
        everywhere = slicer.vtkMRMLSegmentationNode.EditAllowedEverywhere
        return self.mode == everywhere and self.intensities is None

    def on(self, box: Box, grid: Floats, segmentationNode, segmentID: str, volumeNode) -> Mask:
        """Return where a segment may change.

        Args:
            box: Box of the result, on `grid`.
            grid: Matrix from (i, j, k) to the segmentation's RAS.

        Returns:
            bool, of the shape of `box`.
        """
        if self.mode == slicer.vtkMRMLSegmentationNode.EditAllowedEverywhere:
            allowed = np.ones(box.shape, dtype=bool)
        else:
            allowed = self._bySegments(box, grid, segmentationNode, segmentID)
        if self.intensities is not None:
            low, high = self.intensities
            values = _intensities(box, grid, segmentationNode, volumeNode)
            allowed &= _within(values, low, high)
        return allowed

    def _bySegments(self, box: Box, grid: Floats, segmentationNode, segmentID: str) -> Mask:
        modes = slicer.vtkMRMLSegmentationNode
        everyID = list(segmentationNode.GetSegmentation().GetSegmentIDs())
        named = {
            modes.EditAllowedInsideAllSegments: everyID,
            modes.EditAllowedOutsideAllSegments: everyID,
            modes.EditAllowedInsideVisibleSegments: visibleSegmentIDs(segmentationNode),
            modes.EditAllowedOutsideVisibleSegments: visibleSegmentIDs(segmentationNode),
            modes.EditAllowedInsideSingleSegment: [self.maskSegmentID],
        }[self.mode]
        isOutside = self.mode in (
            modes.EditAllowedOutsideAllSegments,
            modes.EditAllowedOutsideVisibleSegments,
        )
        if isOutside:  # a segment does not mask itself
            named = [other for other in named if other != segmentID]
        inside = occupied(segmentationNode.GetSegmentation(), named, box, grid)
        return ~inside if isOutside else inside


@contextmanager
def editingAnywhere() -> Iterator[None]:
    """Disable the masking settings inside the block, without an event.

    Undo restores voxels regardless of masking that was set since.
    """
    node = segmentEditorNode()
    mode, isMasked = node.GetMaskMode(), node.GetSourceVolumeIntensityMask()
    wasSilent = node.GetDisableModifiedEvent()
    node.SetDisableModifiedEvent(True)
    node.SetMaskMode(slicer.vtkMRMLSegmentationNode.EditAllowedEverywhere)
    node.SetSourceVolumeIntensityMask(False)
    try:
        yield
    finally:
        node.SetMaskMode(mode)
        node.SetSourceVolumeIntensityMask(isMasked)
        node.SetDisableModifiedEvent(wasSilent)


def maskingInWords(segmentationNode) -> str:
    """Describe where masks may be written; "" if everywhere."""
    editor = slicer.mrmlScene.GetSingletonNode("SegmentEditor", "vtkMRMLSegmentEditorNode")
    if editor is None:
        return ""
    parts = []
    area = _areas(segmentationNode, editor).get(editor.GetMaskMode())
    if area:
        parts.append(area)
    if editor.GetSourceVolumeIntensityMask():
        low, high = editor.GetSourceVolumeIntensityMaskRange()
        parts.append(_("where the intensity is {low:g} to {high:g}").format(low=low, high=high))
    if not parts:
        return ""
    return _("The Segment Editor allows edits only {where}.").format(where=_(" and ").join(parts))


def visibleSegmentIDs(segmentationNode) -> list[str]:
    """Return the visible segments, as the Segment Editor counts them."""
    if segmentationNode.GetDisplayNode() is None:
        segmentationNode.CreateDefaultDisplayNodes()
    display = segmentationNode.GetDisplayNode()
    everyID = segmentationNode.GetSegmentation().GetSegmentIDs()
    return [segmentID for segmentID in everyID if display.GetSegmentVisibility(segmentID)]


def _areas(segmentationNode, editor) -> dict[int, str]:
    node = slicer.vtkMRMLSegmentationNode
    return {
        node.EditAllowedInsideAllSegments: _("inside all segments"),
        node.EditAllowedInsideVisibleSegments: _("inside visible segments"),
        node.EditAllowedOutsideAllSegments: _("outside of all segments"),
        node.EditAllowedOutsideVisibleSegments: _("outside of visible segments"),
        node.EditAllowedInsideSingleSegment: _("inside the segment {name}").format(
            name=segmentName(segmentationNode, editor.GetMaskSegmentID() or "")
        ),
    }


def _within(values: Array, low: float, high: float) -> Mask:
    if values.dtype.kind in "iu":  # integer comparisons are many times faster
        limits = np.iinfo(values.dtype)
        low, high = max(np.ceil(low), limits.min), min(np.floor(high), limits.max)
        if low > high:
            return np.zeros(values.shape, dtype=bool)
        low, high = int(low), int(high)
    result = values >= low
    result &= values <= high
    return result


def _intensities(box: Box, grid: Floats, segmentationNode, volumeNode):
    """Return the first component of a volume on a box of a segmentation's grid, linear."""
    image = volumeNode.GetImageData()
    if image.GetNumberOfScalarComponents() > 1:
        extract = vtk.vtkImageExtractComponents()
        extract.SetInputData(image)
        extract.SetComponents(0)
        extract.Update()
        image = extract.GetOutput()
    parents = segmentationNode.GetParentTransformNode(), volumeNode.GetParentTransformNode()
    toVolume = GridMap(grid, ijkToRas(volumeNode), *parents)
    background = volumeNode.GetImageBackgroundScalarComponentAsDouble(0)
    return sampled(image, box, toVolume, isLinear=True, background=background)
