"""Offer to use a loaded segmentation with the current scan, if it is of it or on its grid."""

from __future__ import annotations

from typing import Any

import slicer
import vtk
from PUMITSlicerLib.scan_of import isOfAnotherScan, scanName, scanOf
from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status import Activity, Choice
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.scene.same_patient import Kinship, kinship, nameWithPatient
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.segment_on_grid import isOnGridOf


class OfferedSegmentation(VTKObservationMixin):
    """Offer of segmentations that were loaded, in this module or another, before the scan or after.

    Without a segmentation in use, any that fits the scan is offered when the module or the scan is
    opened. One that is added while the module is open is always offered.
    """

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self._status = selection.status
        self._added: list = []
        self._scan: Any = None
        # A reader adds the node first, then its content and name.
        self._timer = singleShot(self._offer)

    def open(self) -> None:
        """Start observing the scene."""
        self.close()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeAddedEvent, self._onNodeAdded)
        self._selection.listeners.append(self._onSelection)
        self._onSelection()

    def close(self) -> None:
        """Stop observing the scene."""
        self.removeObservers()
        if self._onSelection in self._selection.listeners:
            self._selection.listeners.remove(self._onSelection)
        self._timer.stop()
        self._added, self._scan = [], None

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller, event, node) -> None:
        if node.IsA("vtkMRMLSegmentationNode") and not slicer.mrmlScene.IsImporting():
            self._added.append(node)
            self._timer.start()

    def _onSelection(self) -> None:
        if self._selection.volumeNode is not self._scan:
            self._scan = self._selection.volumeNode
            self._timer.start()

    def _offer(self) -> None:
        added, self._added = self._added, []
        scan, used = self._selection.volumeNode, self._selection.segmentationNode
        if used is None and self._status.current.activity is Activity.WAITING:
            added = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
        fitting = [node for node in added if node is not used and _mayBeOf(node, scan)]
        if not fitting or self._status.isWorking:
            return
        node = fitting[-1]
        names = {"name": node.GetName(), "scan": nameWithPatient(scan)}

        def take() -> None:
            if node.GetScene() is not None and self._selection.volumeNode is scan:
                self._selection.parameters.segmentation = node
                if self._selection.guard.mayWrite(take):
                    self._selection.showNextStep()

        if scanOf(node) is scan:
            words, yes = _("{name} belongs to {scan}. Correct it with clicks?"), _("Yes")
        else:
            words = _("{name} was loaded. Does it belong to {scan}?")
            yes = _("Yes, correct it here")
        self._status.caution(words.format(**names), Choice(yes, take))


def _mayBeOf(segmentationNode, scan) -> bool:
    isThere = segmentationNode.GetScene() is not None and not segmentationNode.GetHideFromEditors()
    if scan is None or not isThere or not segmentIDs(segmentationNode):
        return False
    if scanName(segmentationNode):
        return scanOf(segmentationNode) is scan
    isOther = kinship(segmentationNode, scan) is Kinship.OTHER
    isOther = isOther or isOfAnotherScan(segmentationNode, scan)  # of the patient, as DICOM refers
    return not isOther and isOnGridOf(segmentationNode, scan)
