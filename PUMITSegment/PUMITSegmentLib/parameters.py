"""What the scene remembers of the panel. Settings of this computer are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import slicer
from slicer.parameterNodeWrapper import parameterNodeWrapper

from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.segments.writer import OverwriteMode


@parameterNodeWrapper
class SegmentParameters:
    """Typed view of the module's parameter node.

    Attributes:
        sourceVolume: The scan.
        segmentation: Segmentation that keeps the segments and their prompts.
        segmentID: The selected segment; empty for none.
        updateAutomatically: Whether each change of prompts asks for a new mask.
        isOneEach: Whether each click inside begins a segment.
        overwriteMode: Rule for a segment that meets another one.
        promptKind: Kind of the next prompt.
        isPositive: Whether the next prompt says where the segment is.
        automaticRegion: Region of automatic segmentation; None for the whole scan.
        automaticModel: The model that segments without prompts; empty for the first there is.
    """

    sourceVolume: slicer.vtkMRMLScalarVolumeNode
    segmentation: slicer.vtkMRMLSegmentationNode
    segmentID: str = ""
    updateAutomatically: bool = True
    isOneEach: bool = False
    overwriteMode: OverwriteMode = OverwriteMode.STOP
    promptKind: PromptKind = PromptKind.POINT
    isPositive: bool = True
    automaticRegion: slicer.vtkMRMLMarkupsROINode
    automaticModel: str = ""
    if TYPE_CHECKING:  # of the wrapper
        parameterNode: Any


def nodeOf(parameters: SegmentParameters, name: str):
    """Return the node that a parameter names, or None.

    Read through the attribute, a node is still given out while the scene tells that it was
    removed: Slicer remembers what it has read until the parameter node itself is modified.
    """
    return parameters.parameterNode.GetNodeReference(name)
