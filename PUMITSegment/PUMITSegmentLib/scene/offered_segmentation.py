"""Offer to use a newly loaded segmentation with the current scan if their grids match."""

from __future__ import annotations

import numpy as np
import slicer
import vtk
from PUMITSlicerLib.labelmap_grid import Box, imageGrid
from PUMITSlicerLib.mrml import ijkToRas
from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status import Choice
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.scene.same_patient import Kinship, kinship, nameWithPatient
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.scan_of import scanName
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.segment_on_grid import referenceGrid

_SAME_MM = 1e-2


class OfferedSegmentation(VTKObservationMixin):
    """Observer of segmentations that are added to the scene while the module is open."""

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self._status = selection.status
        self._added: list = []
        # A reader adds the node first, then its content and name.
        self._timer = singleShot(self._offer)

    def open(self) -> None:
        """Start observing the scene."""
        self.close()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeAddedEvent, self._onNodeAdded)

    def close(self) -> None:
        """Stop observing the scene."""
        self.removeObservers()
        self._timer.stop()
        self._added = []

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller, event, node) -> None:
        if node.IsA("vtkMRMLSegmentationNode") and not slicer.mrmlScene.IsImporting():
            self._added.append(node)
            self._timer.start()

    def _offer(self) -> None:
        added, self._added = self._added, []
        scan = self._selection.volumeNode
        fitting = [node for node in added if _isOfNoScan(node) and isOnGridOf(node, scan)]
        if not fitting or self._status.isWorking:
            return
        node = fitting[-1]
        names = {"name": node.GetName(), "scan": nameWithPatient(scan)}

        def take() -> None:
            if node.GetScene() is not None and self._selection.volumeNode is scan:
                self._selection.parameters.segmentation = node
                if self._selection.guard.mayWrite(take):
                    self._selection.showNextStep()

        words = _("{name} was loaded. Does it belong to {scan}?").format(**names)
        self._status.caution(words, Choice(_("Yes, correct it here"), take))


def _isOfNoScan(segmentationNode) -> bool:
    isThere = segmentationNode.GetScene() is not None and not segmentationNode.GetHideFromEditors()
    return isThere and bool(segmentIDs(segmentationNode)) and not scanName(segmentationNode)


def isOnGridOf(segmentationNode, volumeNode) -> bool:
    """Return whether a segmentation is on a scan's grid, within it, and may be of its patient."""
    if volumeNode is None or volumeNode.GetImageData() is None:
        return False
    reference = referenceGrid(segmentationNode.GetSegmentation())
    if reference is None or kinship(segmentationNode, volumeNode) is Kinship.OTHER:
        return False
    box, whole = Box.ofImage(reference), Box.ofImage(volumeNode.GetImageData())
    # The file may contain a part of the grid, with its own origin and extent.
    steps = np.linalg.inv(ijkToRas(volumeNode)) @ imageGrid(reference)
    start = steps @ [*box.start[::-1], 1.0]
    stop = steps @ [*(n - 1 for n in box.stop[::-1]), 1.0]
    isAligned = np.allclose(steps[:3, :3], np.eye(3), atol=_SAME_MM)
    isOnVoxels = np.allclose(start, np.rint(start), atol=_SAME_MM)
    ends = np.array(whole.stop[::-1]) - 1
    isInside = (start[:3] > -_SAME_MM).all() and (stop[:3] < ends + _SAME_MM).all()
    return bool(isAligned and isOnVoxels and isInside)
