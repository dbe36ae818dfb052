"""Showing the current scan in the views, without segments of other scans."""

from __future__ import annotations

import numpy as np
import slicer
from PUMITSlicerLib.scan_of import isOfAnotherScan, scanOf

from PUMITSegmentLib.prompts.tag import promptNodesOf
from PUMITSegmentLib.scene.shown_scan import isSeen, shownScans
from PUMITSegmentLib.segments.scan_of import segmentationsOf

# Distinguish our limits and what we hid from the user's, also in a saved scene.
_OURS, _HIDDEN = "PUMITSegment.OwnViews", "PUMITSegment.Hidden"


def limitToViews(segmentationNode, viewIDs: list[str]) -> None:
    """Limit a segmentation and its prompts to some views; an empty list means all.

    Limits that the user set in another module are kept.
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


class ScanViews:
    """Visibility of scans: one is shown with its segmentations, those of other scans are hidden."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset for another scene."""
        # Scan that had no voxels when it was to be shown: fitting a view to it would show nothing.
        self._emptyID = ""

    def show(self, volumeNode, segmentationNode) -> None:
        """Show a scan in all slice views, without the segmentations of other scans."""
        if segmentationNode is not None:
            segmentationNode.SetDisplayVisibility(True)
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
            if not isOfAnotherScan(node, volumeNode):
                self.showAgain(node)
            else:
                self.hide(node)
        self._emptyID = "" if _hasVoxels(volumeNode) else volumeNode.GetID()
        if not self._emptyID:
            _showInSlices(volumeNode)

    def showAlone(self, volumeNode, sliceNode=None) -> None:
        """Show only this scan in a slice view; in all of them for None."""
        for logic in _openSlices():
            if sliceNode in (None, logic.GetSliceNode()):
                _showAlone(volumeNode, logic)

    def follow(self, volumeNode) -> bool:
        """Show a scan's segmentations while some view shows it; return whether one does.

        Each is drawn in the views that show its scan, and in 3D. If the views show no scan at all,
        the segmentations are shown without such a limit.
        """
        slices = [logic.GetSliceNode() for logic in _openSlices()]
        shown = [each for each in slices if each.IsMappedInLayout() and shownScans(each)]
        isShown = not shown or any(isSeen(volumeNode, each) for each in shown)
        for node in segmentationsOf(volumeNode):
            (self.showAgain if isShown else self.hide)(node)
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
            scan = scanOf(node)
            if scan is not None and not node.GetHideFromEditors():
                limitToViews(node, _viewsOf(scan, shown))
        return isShown

    def showFilled(self, volumeNode) -> None:
        """Show a scan that had no voxels when it was chosen."""
        if volumeNode.GetID() == self._emptyID and _hasVoxels(volumeNode):
            self._emptyID = ""
            _showInSlices(volumeNode)

    def seenOf(self, volumeNodes: list) -> list:
        """Return the scans that a slice view shows."""
        slices = [logic.GetSliceNode() for logic in _openSlices()]
        return [node for node in volumeNodes if any(isSeen(node, each) for each in slices)]

    def hide(self, segmentationNode) -> None:
        """Hide a segmentation whose scan is not shown."""
        if segmentationNode.GetDisplayVisibility():
            segmentationNode.SetDisplayVisibility(False)
            segmentationNode.GetDisplayNode().SetAttribute(_HIDDEN, "1")

    def showAgain(self, segmentationNode) -> None:
        """Show a segmentation that was hidden here; those hidden by the user stay hidden."""
        display = segmentationNode.GetDisplayNode()
        if display is not None and display.GetAttribute(_HIDDEN):
            display.SetAttribute(_HIDDEN, None)
            segmentationNode.SetDisplayVisibility(True)


def _viewsOf(volumeNode, sliceNodes: list) -> list[str]:
    """Return the slice views that show a scan and all 3D views; [] if all or none show it."""
    own = [each.GetID() for each in sliceNodes if isSeen(volumeNode, each)]
    if not own or len(own) == len(sliceNodes):
        return []
    return own + [each.GetID() for each in slicer.util.getNodesByClass("vtkMRMLViewNode")]


def _hasVoxels(volumeNode) -> bool:
    image = volumeNode.GetImageData()
    return image is not None and image.GetNumberOfPoints() > 0


def _showInSlices(volumeNode) -> None:
    """Show a scan in all slice views, unless some show it already."""
    slices = [logic.GetSliceNode() for logic in _openSlices()]
    if not any(each.IsMappedInLayout() and isSeen(volumeNode, each) for each in slices):
        for logic in _openSlices():
            _showAlone(volumeNode, logic)


def _showAlone(volumeNode, logic) -> None:
    layers = logic.GetSliceCompositeNode()
    before = slicer.mrmlScene.GetNodeByID(layers.GetBackgroundVolumeID() or "-")
    modified = layers.StartModify()
    layers.SetBackgroundVolumeID(volumeNode.GetID())
    layers.SetForegroundVolumeID(None)
    layers.EndModify(modified)
    if before is None or not np.allclose(_bounds(before), _bounds(volumeNode), atol=1.0):
        logic.FitSliceToBackground()


def _openSlices() -> list:
    logics = slicer.app.applicationLogic().GetSliceLogics()
    found = [logics.GetItemAsObject(i) for i in range(logics.GetNumberOfItems())]
    return [logic for logic in found if logic.GetSliceCompositeNode() is not None]


def _bounds(volumeNode) -> list[float]:
    bounds = [0.0] * 6
    volumeNode.GetRASBounds(bounds)
    return bounds
