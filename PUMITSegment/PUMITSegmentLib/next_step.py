"""What the user can do next, in words."""

from __future__ import annotations

from PUMITSlicerLib.label_layers import isEmptySegment
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.segments.editable_area import EditableArea
from PUMITSegmentLib.segments.rating import ratingOf
from PUMITSegmentLib.segments.segment_list import segmentName
from PUMITSegmentLib.segments.writer import noVoxels


def nextStepInWords(logic) -> str:
    """One sentence on the way from a scan to a segment.

    Args:
        logic: The module's logic.
    """
    if logic.volumeNode is None:
        return _("Load a scan, or choose one.")
    if not logic.segmentID:
        return _("Add a segment, or choose Point to start one.")
    words = _("{name}: pick a tool, such as Point, then click in a slice view.")
    count = logic.promptCount(logic.segmentID) if logic.placed is None else 0
    if count and isEmptySegment(logic.segmentationNode, logic.segmentID):
        words = _("{name} is empty: its click or mark is not computed yet; press Update.")
        if count > 1:
            words = _(
                "{name} is empty: {count} clicks or marks are not computed yet; press Update."
            )
        words = words.replace("{count}", str(count))
    if logic.placed is not None:
        words = _placing()[logic.placed.kind]
        if logic.working.prompts.isDepthNext:
            words = _(
                "{name}: set the depth of the box. In another view, click where the box ends, or "
                "drag from one end to the other."
            )
    name = segmentName(logic.segmentationNode, logic.segmentID)
    segment = logic.segmentationNode.GetSegmentation().GetSegment(logic.segmentID)
    rating = ratingOf(segment) if segment is not None else None
    return words.format(name=name if rating is None else f"{name} ({rating.inWords()})")


def _placing() -> dict[PromptKind, str]:
    """Return what clicks do now."""
    return {
        PromptKind.POINT: _("{name}: click in a slice view; Ctrl+click places an outside point."),
        PromptKind.BOX_3D: _(
            "{name}: click two opposite corners in one slice view; set the depth in another view "
            "then."
        ),
        PromptKind.BOX_2D: _("{name}: click two opposite corners in one slice view."),
        PromptKind.SCRIBBLE: _("{name}: draw a line in a slice view."),
        PromptKind.LASSO: _("{name}: draw around the structure in a slice view."),
    }


def whyNoSegment(volumeNode) -> str:
    """Why there can be no segment on a scan; empty where there can."""
    if volumeNode is None:
        return _("Choose a scan first: load one with Add data, or Sample Data.")
    return noVoxels() if volumeNode.GetImageData() is None else ""


def exclusionInWords(segmentationNode, segmentID: str, isFilled: bool) -> str:
    """One sentence after a box outside was drawn.

    Args:
        segmentationNode: The segmentation.
        segmentID: The segment.
        isFilled: Whether the segment holds something now.
    """
    words = (
        _("{name}: the voxels in the box are removed, and stay out.")
        if isFilled
        else _("{name}: nothing is segmented in the box. Add a prompt inside the structure.")
    )
    return words.format(name=segmentName(segmentationNode, segmentID))


def whyEmpty(segmentationNode, segmentID: str, isFound: bool) -> str:
    """One sentence on a segment that is empty after an answer, though no other segment has it.

    Args:
        segmentationNode: The segmentation.
        segmentID: The segment.
        isFound: Whether the answer itself holds something.
    """
    if not isFound:
        words = _("{name}: nothing was found there; move the prompt, or add another one.")
    elif not EditableArea.ofSegmentEditor(segmentationNode).isEverything:
        words = _("{name} is empty: the Segment Editor's masking allows nothing of what was found.")
    else:
        words = _(
            "{name} is empty: the voxels of this segmentation are too large for what was found; "
            "use a new segmentation."
        )
    return words.format(name=segmentName(segmentationNode, segmentID))
