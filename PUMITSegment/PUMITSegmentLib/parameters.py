"""Parameter node of the module. Settings of this computer are not in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import slicer
from slicer.parameterNodeWrapper import parameterNodeWrapper

from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.segments.writer import OverwriteMode


@parameterNodeWrapper
class SegmentParameters:
    """Parameter node wrapper of the module.

    Attributes:
        segmentID: The selected segment; empty for none.
        isOneEach: Whether each positive point starts a new segment.
        automaticRegion: Region of automatic segmentation; None for the whole scan.
        automaticModel: Model that segments without prompts; empty for the first available.
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
    if TYPE_CHECKING:  # added by the wrapper
        parameterNode: Any


def nodeOf(parameters: SegmentParameters, name: str):
    """Return the node that a parameter references, or None.

    The attribute would still return a node during the scene's notification of its removal: Slicer
    caches it until the parameter node itself is modified.
    """
    return parameters.parameterNode.GetNodeReference(name)
