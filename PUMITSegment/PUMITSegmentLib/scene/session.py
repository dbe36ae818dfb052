"""Current scan, segmentation and segment, kept consistent with the scene."""

from __future__ import annotations

from typing import Protocol

import slicer
from pumit.errors import PumitError
from PUMITSlicerLib.mrml import volumeKey

from PUMITSegmentLib.masks.working_segmentation import WorkingSegmentation
from PUMITSegmentLib.parameters import SegmentParameters, nodeOf
from PUMITSegmentLib.prompts.folder import removePrompts
from PUMITSegmentLib.prompts.segment_prompts import SegmentPrompts
from PUMITSegmentLib.prompts.tag import promptNodesOf
from PUMITSegmentLib.scene.frames import keepPerFrame
from PUMITSegmentLib.scene.kept_frames import KeptFrames
from PUMITSegmentLib.scene.own_views import limitNothing
from PUMITSegmentLib.scene.scan_views import ScanViews
from PUMITSegmentLib.scene.watch import SceneWatch
from PUMITSegmentLib.segments.scan_of import (
    isOfAnotherScan,
    recordScanName,
    scanName,
    scanOf,
    segmentationsOf,
)
from PUMITSegmentLib.segments.segment_list import adoptGrid, segmentIDs
from PUMITSegmentLib.segments.writer import SegmentWriter


class SessionOwner(Protocol):
    """Interface of a listener to a session."""

    def getParameterNode(self) -> SegmentParameters:
        """Return the parameter node wrapper, creating the node if needed."""

    def cancelWork(self, reason: str) -> None:
        """Cancel running requests whose scan or segmentation is changing or gone."""

    def onPromptsChanged(self, segmentID: str, prompts: SegmentPrompts) -> None:
        """React when the user changed prompts."""

    def onPlacingChanged(self) -> None:
        """React when the kind of prompt that clicks place changes, or placing stops."""

    def placeAgain(self) -> None:
        """Keep the prompt tool active after another scan was chosen."""

    def onSegmentsGone(self, remaining: list[str]) -> None:
        """React when segments were removed."""

    def onSegmentShown(self) -> None:
        """React when another segment is selected, or none."""

    def forgetScene(self) -> None:
        """Clear data by node ID: in another scene the IDs name other nodes."""

    def showError(self, error: Exception) -> None:
        """Show an error of the current selection."""

    def onSessionChanged(self) -> None:
        """React to a change that a panel shows."""


class SceneSession:
    """The scan, the segmentation and the selected segment of the parameter node.

    Args:
        owner: Listener of the session.
        writer: Writer and reader of masks.

    Attributes:
        parameters: Parameter node; None while the scene changes or nothing is open.
        volumeNode: The scan, or None.
        working: The segmentation with its prompts and history, or None.
        segmentID: The selected segment; empty for none.
        frames: Prompts and history of the frames of a sequence that are not shown.
        views: Display of the scan in the views.
    """

    def __init__(self, owner: SessionOwner, writer: SegmentWriter) -> None:
        self._owner = owner
        self._writer = writer
        self._watch = SceneWatch(self)
        self.views = ScanViews()
        self._isFollowing = False
        # While the scene is read, its own scan and segmentation are kept.
        self._isAttaching = False
        # Last used segmentation of each scan.
        self._latestIDs: dict[str, str] = {}
        # Whether the segmentation was chosen before any scan.
        self._isWithoutScan = False
        self._isShown = self._isScanShown = True
        self.frames = KeptFrames()
        # Prompts of each segmentation that is being deleted; its deletion may cause another's.
        self._orphans: dict = {}
        self.parameters: SegmentParameters | None = None
        self.volumeNode = None
        self.working: WorkingSegmentation | None = None
        self.segmentID = ""

    def open(self) -> None:
        """Read the scene and start observing it."""
        self._watch.watchScene()
        self._attach()

    def close(self) -> None:
        """Close the session and remove all observers."""
        self._detach()
        self._watch.close()

    @property
    def segmentationNode(self):
        """The segmentation, or None."""
        return self.working.node if self.working else None

    def answerKey(self) -> tuple:
        """Return a key of the selected segment's prompts and scan."""
        if self.working is None or self.volumeNode is None or not self.segmentID:
            return ()
        snapshot = self.working.read(self.segmentID).snapshot
        return (self.segmentationNode.GetID(), self.segmentID, snapshot, volumeKey(self.volumeNode))

    def _attach(self) -> None:
        limitNothing()  # the scene may have been saved with other views
        self.parameters = self._owner.getParameterNode()
        self._watch.watchParameterNode(self.parameters.parameterNode)
        if nodeOf(self.parameters, "sourceVolume") is None:
            volumes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
            scans = [node for node in volumes if not node.IsA("vtkMRMLLabelMapVolumeNode")]
            if scans:
                # Prefer a scan that is shown over one that was loaded earlier.
                self.parameters.sourceVolume = (self.views.seenOf(scans) or scans)[0]
        self._isAttaching = True
        try:
            self.onParametersModified()
        finally:
            self._isAttaching = False
        self._owner.onSegmentShown()

    def _detach(self) -> None:
        self._owner.cancelWork("")
        self._watch.watchParameterNode(None)
        self._watch.watchVolume(None)
        self._closeWorking()
        self.views.forget()
        self._latestIDs, self.frames = {}, KeptFrames()
        self._owner.forgetScene()
        self.parameters = self.volumeNode = None

    def onSceneAboutToChange(self) -> None:
        """Detach from the scene before it is closed or loaded."""
        self._detach()
        self._owner.onSessionChanged()

    def onSceneChanged(self) -> None:
        """Attach to the scene after it was closed or loaded."""
        if self.parameters is None:
            self._attach()
            self.followViews()

    def onNodeAboutToBeRemoved(self, node) -> None:
        """Remember the prompts of a segmentation that is about to be removed."""
        if self.parameters is not None and node.IsA("vtkMRMLSegmentationNode"):
            self._orphans[node] = promptNodesOf(node)

    def onNodeRemoved(self, node) -> None:
        """React to the removal of a node."""
        if self.parameters is None:
            return
        if node is self.parameters.parameterNode:
            self._detach()
            self._attach()
            return
        if node is self.segmentationNode:
            self._owner.cancelWork("")
            self._closeWorking()
            self.parameters.segmentID = ""
            self._owner.onSegmentShown()
        if node.IsA("vtkMRMLSegmentationNode"):
            removePrompts(self._orphans.pop(node, []))
        if node in (self.volumeNode, self.segmentationNode) or not node.GetHideFromEditors():
            self.onParametersModified()

    def onParametersModified(self) -> None:
        """Apply changed parameters."""
        parameters = self.parameters
        if parameters is None or self._isFollowing:
            return
        # The code below modifies parameters itself.
        self._isFollowing = True
        try:
            wasPlacing = self.working is not None and self.working.prompts.isPlacing
            volumeNode = nodeOf(parameters, "sourceVolume")
            isAnotherScan = volumeNode is not self.volumeNode
            if isAnotherScan:
                self._openVolume(volumeNode)
            segmentationNode = nodeOf(parameters, "segmentation")
            if segmentationNode is not self.segmentationNode:
                self._openSegmentation(segmentationNode)
            if isAnotherScan and volumeNode is not None and not self._isAttaching:
                self.views.show(volumeNode, self.segmentationNode)
            if parameters.segmentID != self.segmentID:
                self._showSegment(parameters.segmentID)
        finally:
            self._isFollowing = False
        if isAnotherScan and wasPlacing and self.segmentID and not self._isAttaching:
            self._owner.placeAgain()
        self._owner.onSessionChanged()

    def takeResult(self, segmentationNode, volumeNode) -> None:
        """Use a new segmentation of a scan: at once if the scan is current, else once it is."""
        self._latestIDs[volumeNode.GetID()] = segmentationNode.GetID()
        if volumeNode is self.volumeNode:
            self.parameters.segmentation = segmentationNode
        else:
            self.views.hide(segmentationNode)

    def onVoxelsModified(self) -> None:
        """React when the scan's voxels changed, such as to another frame of a sequence."""
        self._owner.cancelWork("voxels")
        self.views.showFilled(self.volumeNode)
        if self.working is None:
            return
        self.working.setVolume(self.volumeNode)
        self._followFrame()

    def _followFrame(self) -> None:
        """Restore prompts and history of the frame that is shown now."""
        if self.frames.follow(self.working):
            self._writer.surfaces.followFrame(self.working.node)
            self._snapshotSelected()
            self._owner.onSegmentShown()
            self._owner.onSessionChanged()

    def onMasksModified(self) -> None:
        """Note that a segment may have been edited manually."""
        working = self.working
        # Edits made while prompts are placed must precede the next prompt.
        if working is not None and working.noteChange() and working.prompts.isPlacing:
            working.adoptManualEdits(self.segmentID)

    def onSegmentsChanged(self) -> None:
        """React to segments that were added, removed or renamed elsewhere."""
        if self.working is None or self.parameters is None:
            return
        self.working.recordRemoved()
        ids = segmentIDs(self.working.node)
        self._owner.onSegmentsGone(ids)
        if self.segmentID not in ids:
            self.parameters.segmentID = ids[0] if ids else ""
        self._owner.onSessionChanged()

    def _openVolume(self, volumeNode) -> None:
        self._owner.cancelWork("")
        if self.working is not None:
            self.working.prompts.stopPlacing()
        if volumeNode is not None and not self._isAttaching:
            self._bringSegmentation(volumeNode)
        self._isWithoutScan = self._isWithoutScan and volumeNode is None
        self.volumeNode = volumeNode
        self._watch.watchVolume(volumeNode)
        if self.working is not None:
            if volumeNode is not None and not isOfAnotherScan(self.working.node, volumeNode):
                adoptGrid(self.working.node, volumeNode)
            self.working.setVolume(volumeNode)
        self._snapshotSelected()
        self._owner.onSegmentShown()

    def _bringSegmentation(self, volumeNode) -> None:
        """Select the segmentation of a scan, or none."""
        chosen = nodeOf(self.parameters, "segmentation")
        if chosen is not None and self._canGoOn(chosen, volumeNode):
            return
        own = segmentationsOf(volumeNode)
        latestID = self._latestIDs.get(volumeNode.GetID())
        latest = [node for node in own if node.GetID() == latestID]
        self.parameters.segmentation = (latest or own or [None])[-1]
        self._closeWorking()
        self.parameters.segmentID = ""

    def _canGoOn(self, segmentationNode, volumeNode) -> bool:
        """Return whether a segmentation may stay selected for a newly chosen scan."""
        if scanName(segmentationNode):
            return scanOf(segmentationNode) is volumeNode
        # Without a scan yet; one that was selected with another scan has that scan's segments.
        return self._isWithoutScan or not segmentIDs(segmentationNode)

    def _openSegmentation(self, node) -> None:
        self._owner.cancelWork("")
        self._closeWorking()
        if node is None:
            self.parameters.segmentID = ""
            self._owner.onSegmentShown()
            return
        if self.volumeNode is not None:
            if not isOfAnotherScan(node, self.volumeNode):
                adoptGrid(node, self.volumeNode)
                keepPerFrame(node, self.volumeNode)
            self._latestIDs[self.volumeNode.GetID()] = node.GetID()
        self._isWithoutScan = self.volumeNode is None
        recordScanName(node)
        self.views.showAgain(node)
        self.working = WorkingSegmentation(
            node,
            self.volumeNode,
            self._writer,
            self._owner.onPromptsChanged,
            self._owner.onPlacingChanged,
        )
        # The scene may have been saved during placing.
        self.working.prompts.disarm()
        self._watch.watchSegmentation(node)
        self.frames.follow(self.working)
        ids = segmentIDs(node)
        if self.parameters.segmentID not in ids:
            self.parameters.segmentID = ids[0] if ids else ""
        self._showSegment(self.parameters.segmentID)

    def _closeWorking(self) -> None:
        self._watch.watchSegmentation(None)
        working, self.working, self.segmentID = self.working, None, ""
        if working is None:
            return
        # Unfinished prompts are removed from the scene, which must not open anything again.
        wasFollowing, self._isFollowing = self._isFollowing, True
        try:
            if not slicer.mrmlScene.IsClosing():
                # Nothing would react to prompts that are moved from now on.
                working.prompts.showOnly(None)
            working.close()
        finally:
            self._isFollowing = wasFollowing

    def _showSegment(self, segmentID: str) -> None:
        self.segmentID = segmentID
        self._showPrompts()
        self.parameters.isPositive = True
        self._snapshotSelected()
        self._owner.onSegmentShown()

    def setShown(self, isShown: bool) -> None:
        """Show the selected segment's prompts, or hide all while another module is open."""
        self._isShown = isShown
        self._showPrompts()
        if not isShown:  # the views are not observed then
            limitNothing()

    def followViews(self) -> None:
        """Show segments and prompts only while some view shows their scan."""
        if not self._isShown:
            return
        isShown = self.volumeNode is None or self.views.follow(self.volumeNode)
        if isShown is not self._isScanShown:
            self._isScanShown = isShown
            self._showPrompts()

    def _showPrompts(self) -> None:
        if self.working is not None:
            isShown = self._isShown and self._isScanShown
            self.working.prompts.showOnly((isShown and self.segmentID) or None)

    def _snapshotSelected(self) -> None:
        """Record the selected segment's initial state."""
        if self.working is None or not self.segmentID:
            return
        try:
            self.working.snapshot(self.segmentID)
        except PumitError as error:
            self._owner.showError(error)
