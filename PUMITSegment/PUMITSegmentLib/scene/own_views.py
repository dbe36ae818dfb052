"""Limiting segments and prompts to the views of their own scan, as in compare layouts."""

from __future__ import annotations

import slicer

from PUMITSegmentLib.prompts.tag import promptNodesOf

# Distinguishes our limits from the user's.
_OURS = "PUMITSegment.OwnViews"


def limitToViews(segmentationNode, viewIDs: list[str]) -> None:
    """Limit a segmentation and its prompts to some views; an empty list means all.

    Limits that the user set in another module are kept.

    Args:
        viewIDs: IDs of slice and 3D view nodes.
    """
    for node in (segmentationNode, *promptNodesOf(segmentationNode)):
        for index in range(getattr(node, "GetNumberOfDisplayNodes", int)()):
            _limit(node.GetNthDisplayNode(index), viewIDs)


def limitNothing() -> None:
    """Remove all limits that were set here."""
    for display in slicer.util.getNodesByClass("vtkMRMLDisplayNode"):
        if display.GetAttribute(_OURS):
            _limit(display, [])


def _limit(display, viewIDs: list[str]) -> None:
    if display is None:
        return
    present, ours = list(display.GetViewNodeIDs()), display.GetAttribute(_OURS) or ""
    if present == viewIDs or " ".join(present) != ours:
        return
    modified = display.StartModify()
    display.RemoveAllViewNodeIDs()
    for viewID in viewIDs:
        display.AddViewNodeID(viewID)
    display.SetAttribute(_OURS, " ".join(viewIDs) or None)
    display.EndModify(modified)
