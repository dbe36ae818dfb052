"""Advice on the user's next step."""

from __future__ import annotations

from PUMITSlicerLib.label_layers import isEmptySegment
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.segments.editable_area import EditableArea
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.rating import ratingOf
from PUMITSegmentLib.segments.segment_list import segmentName
from PUMITSegmentLib.segments.writer import noVoxels


def nextStepInWords(selection) -> str:
    """Return one sentence on the next step from a scan to a segment."""
    if selection.volumeNode is None:
        return _("Load a scan, or choose one.")
    if not selection.segmentID:
        return _("Add a segment, or choose Point to start one.")
    words = _("{name}: pick a tool, such as Point, then click in a slice view.")
    isWaiting = selection.book.isUnanswered(selection.segmentID)
    isCounted = isWaiting or selection.placed is None
    count = selection.promptCount(selection.segmentID) if isCounted else 0
    segment = selection.segmentationNode.GetSegmentation().GetSegment(selection.segmentID)
    isAnswered = segment is not None and provenanceOf(segment).type != "MANUAL" and not isWaiting
    isEmpty = count and isEmptySegment(selection.segmentationNode, selection.segmentID)
    if isEmpty and isAnswered:
        words = _("{name} is empty: move its click or mark, add another one, or press Update.")
    elif isEmpty:
        words = _("{name} is empty: its click or mark is not computed yet; press Update.")
        if count > 1:
            words = _(
                "{name} is empty: {count} clicks or marks are not computed yet; press Update."
            )
        words = words.replace("{count}", str(count))
    elif count and isWaiting:
        words = _("{name}: its latest click or mark is not computed yet; press Update or Undo.")
    isDepthNext = selection.book.prompts.isDepthNext
    if selection.placed is not None and (isDepthNext or not (isWaiting and count)):
        kind, isFlat = selection.placed.kind, selection.book.prompts.isFlat
        isBox = kind is PromptKind.BOX_3D
        words = _placing()[PromptKind.BOX_2D if isBox and isFlat else kind]
        if isDepthNext:
            words = _(
                "{name}: set the depth of the box. In another view, click where the box ends, or "
                "drag from one end to the other."
            )
    name = segmentName(selection.segmentationNode, selection.segmentID)
    rating = ratingOf(segment) if segment is not None else None
    return words.format(name=name if rating is None else f"{name} ({rating.inWords()})")


def _placing() -> dict[PromptKind, str]:
    """Return what clicks place now."""
    return {
        PromptKind.POINT: _("{name}: click in a slice view; Ctrl+click places an outside point."),
        PromptKind.BOX_3D: _(
            "{name}: drag between two opposite corners in one slice view, or click them; set the "
            "depth in another view then."
        ),
        PromptKind.BOX_2D: _(
            "{name}: drag between two opposite corners in one slice view, or click them."
        ),
        PromptKind.SCRIBBLE: _("{name}: draw a line in a slice view."),
        PromptKind.LASSO: _("{name}: draw around the structure in a slice view."),
    }


def whyNoSegment(volumeNode) -> str:
    """Return why no segment can be added to a scan, or ""."""
    if volumeNode is None:
        return _("Choose a scan first: load one with Add data, or Sample Data.")
    return noVoxels() if volumeNode.GetImageData() is None else ""


def exclusionInWords(segmentationNode, segmentID: str, isFilled: bool) -> str:
    """Return one sentence after a negative box was drawn.

    Args:
        isFilled: Whether the segment has voxels now.
    """
    words = (
        _("{name}: the voxels in the box are removed, and stay out.")
        if isFilled
        else _("{name}: nothing is segmented in the box. Add a prompt inside the structure.")
    )
    return words.format(name=segmentName(segmentationNode, segmentID))


def whyEmpty(segmentationNode, segmentID: str, isFound: bool) -> str:
    """Return why a segment is empty after an answer, if no other segment is the reason.

    Args:
        isFound: Whether the answer itself has voxels.
    """
    if not isFound:
        words = _("{name}: nothing was found there; move the prompt, or add another one.")
    elif not EditableArea.ofSegmentEditor(segmentationNode).isEverything:
        words = _("{name} is empty: the Segment Editor's masking allows no part of the result.")
    else:
        words = _(
            "{name} is empty: the voxels of this segmentation are too large for the result; use a "
            "new segmentation."
        )
    return words.format(name=segmentName(segmentationNode, segmentID))
