"""What the Segment Editor's masking settings mean for the next mask, in words."""

from __future__ import annotations

import slicer
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.segment_list import segmentName


def maskingInWords(segmentationNode) -> str:
    """Say where masks may be written; empty where that is everywhere.

    Args:
        segmentationNode: The segmentation whose segment may be the mask; or None.
    """
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
