"""Sets the Segment Editor's masking aside for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import slicer

from PUMITSegmentLib.segments.editable_area import segmentEditorNode


@contextmanager
def editingAnywhere() -> Iterator[None]:
    """Let what is written inside of the block be written everywhere; nobody is told.

    Taking back a step restores what was there, whatever masking the user has set since.
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
