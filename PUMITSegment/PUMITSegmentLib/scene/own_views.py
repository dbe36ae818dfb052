"""Segments and prompts drawn in the views of their own scan only, as in compare layouts."""

from __future__ import annotations

import slicer

from PUMITSegmentLib.prompts.tag import promptNodesOf

# Tells what was limited here from what the user limited.
_OURS = "PUMITSegment.OwnViews"


def limitToViews(segmentationNode, viewIDs: list[str]) -> None:
    """Draw a segmentation and its prompts in some views; in all of them where none is given.

    What the user limited to views in another module stays as it is.

    Args:
        segmentationNode: The segmentation.
        viewIDs: IDs of slice and 3D view nodes.
    """
    for node in (segmentationNode, *promptNodesOf(segmentationNode)):
        for index in range(getattr(node, "GetNumberOfDisplayNodes", int)()):
            _limit(node.GetNthDisplayNode(index), viewIDs)


def limitNothing() -> None:
    """Draw everything that was limited here in all views again."""
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
