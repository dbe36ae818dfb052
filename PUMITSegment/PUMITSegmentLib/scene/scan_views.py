"""What the views show of the scan that is worked on: its voxels, and no other scan's segments."""

from __future__ import annotations

import numpy as np
import slicer

from PUMITSegmentLib.segments.scan_of import isOfAnotherScan


class ScanViews:
    """Visibility of scans: one is shown with its segmentations, those of other scans are hidden."""

    def __init__(self) -> None:
        # What was hidden here; what the user hid stays hidden.
        self._hiddenIDs: set[str] = set()
        # A scan that had no voxels when it was to be shown; a view fitted to it shows nothing.
        self._emptyID = ""

    def show(self, volumeNode, segmentationNode) -> None:
        """Show a scan in all slice views, without the segmentations of other scans.

        Args:
            volumeNode: The scan.
            segmentationNode: The segmentation that is worked on with it, which is shown; or None.
        """
        if segmentationNode is not None:
            segmentationNode.SetDisplayVisibility(True)
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
            if not isOfAnotherScan(node, volumeNode):
                self.showAgain(node)
            elif node.GetDisplayVisibility():
                node.SetDisplayVisibility(False)
                self._hiddenIDs.add(node.GetID())
        self._emptyID = "" if _hasVoxels(volumeNode) else volumeNode.GetID()
        if not self._emptyID:
            _showInSlices(volumeNode)

    def showFilled(self, volumeNode) -> None:
        """Show a scan in all slice views that was chosen before it had voxels."""
        if volumeNode.GetID() == self._emptyID and _hasVoxels(volumeNode):
            self._emptyID = ""
            _showInSlices(volumeNode)

    def showAgain(self, segmentationNode) -> None:
        """Show a segmentation that was hidden here."""
        if segmentationNode.GetID() in self._hiddenIDs:
            self._hiddenIDs.discard(segmentationNode.GetID())
            segmentationNode.SetDisplayVisibility(True)


def _hasVoxels(volumeNode) -> bool:
    image = volumeNode.GetImageData()
    return image is not None and image.GetNumberOfPoints() > 0


def _showInSlices(volumeNode) -> None:
    logics = slicer.app.applicationLogic().GetSliceLogics()
    for i in range(logics.GetNumberOfItems()):
        logic = logics.GetItemAsObject(i)
        layers = logic.GetSliceCompositeNode()
        # An image that overlays another one is shown already.
        if layers is None or volumeNode.GetID() in (
            layers.GetBackgroundVolumeID(),
            layers.GetForegroundVolumeID(),
        ):
            continue
        before = slicer.mrmlScene.GetNodeByID(layers.GetBackgroundVolumeID() or "-")
        layers.SetBackgroundVolumeID(volumeNode.GetID())
        if before is None or not np.allclose(_bounds(before), _bounds(volumeNode), atol=1.0):
            logic.FitSliceToBackground()


def _bounds(volumeNode) -> list[float]:
    bounds = [0.0] * 6
    volumeNode.GetRASBounds(bounds)
    return bounds
