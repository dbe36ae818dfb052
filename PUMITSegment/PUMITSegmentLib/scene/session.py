"""What of the scene is worked on, followed through whatever happens to the scene."""

from __future__ import annotations

from typing import Protocol

import slicer
from pumit.errors import PumitError
from PUMITSlicerLib.mrml import volumeKey

from PUMITSegmentLib.masks.working_segmentation import WorkingSegmentation
from PUMITSegmentLib.parameters import SegmentParameters, nodeOf
from PUMITSegmentLib.prompts.folder import removePrompts
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
        """Return the typed parameter node, made where there is none."""

    def cancelWork(self, reason: str) -> None:
        """Cancel what is computed: what it is for is gone, or about to go."""

    def onPromptsChanged(self, segmentID: str) -> None:
        """React when the user changed prompts."""

    def onPlacingChanged(self) -> None:
        """Clicks in the views place something else, or nothing any more."""

    def placeAgain(self) -> None:
        """Keep the tool that was in the hand before another scan was chosen."""

    def onSegmentsGone(self, remaining: list[str]) -> None:
        """Segments were removed."""

    def onSegmentShown(self) -> None:
        """Another segment is selected, or none."""

    def forgetScene(self) -> None:
        """React when the IDs of another scene's nodes name other nodes."""

    def showError(self, error: Exception) -> None:
        """Say what is wrong with what is selected."""

    def onSessionChanged(self) -> None:
        """Something changed that a panel shows."""


class SceneSession:
    """The scan, the segmentation and the selected segment of the parameter node.

    Args:
        owner: Listener of the session.
        writer: Writer and reader of masks.

    Attributes:
        parameters: Parameters in the scene; None while the scene changes or nothing is open.
        volumeNode: The scan, or None.
        working: The segmentation with its prompts and history, or None.
        segmentID: The selected segment; empty for none.
        frames: Prompts and steps of the frames of a sequence that are not shown.
        views: What the views show of the scan.
    """

    def __init__(self, owner: SessionOwner, writer: SegmentWriter) -> None:
        self._owner = owner
        self._writer = writer
        self._watch = SceneWatch(self)
        self.views = ScanViews()
        self._isFollowing = False
        # While the scene is taken up, its own choice of scan and segmentation counts.
        self._isAttaching = False
        # The segmentation that was last worked on, for each scan.
        self._latestIDs: dict[str, str] = {}
        # Whether the segmentation was chosen before any scan was.
        self._isWithoutScan = False
        self._isShown = self._isScanShown = True
        self.frames = KeptFrames()
        # Prompts of each segmentation that is being deleted; one may go because another does.
        self._orphans: dict = {}
        self.parameters: SegmentParameters | None = None
        self.volumeNode = None
        self.working: WorkingSegmentation | None = None
        self.segmentID = ""

    def open(self) -> None:
        """Take up what the scene holds, and follow it."""
        self._watch.watchScene()
        self._attach()

    def close(self) -> None:
        """Let go, and leave no observer."""
        self._detach()
        self._watch.close()

    @property
    def segmentationNode(self):
        """The segmentation, or None."""
        return self.working.node if self.working else None

    def answerKey(self) -> tuple:
        """Equal as long as the selected segment answers the same prompts on the same scan."""
        if self.working is None or self.volumeNode is None or not self.segmentID:
            return ()
        snapshot = self.working.prompts.snapshot(self.segmentID)
        return (self.segmentationNode.GetID(), self.segmentID, snapshot, volumeKey(self.volumeNode))

    def _attach(self) -> None:
        limitNothing()  # a scene was saved with other views
        self.parameters = self._owner.getParameterNode()
        self._watch.watchParameterNode(self.parameters.parameterNode)
        if nodeOf(self.parameters, "sourceVolume") is None:
            volumes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
            scans = [node for node in volumes if not node.IsA("vtkMRMLLabelMapVolumeNode")]
            if scans:
                # What the user looks at, and not what was loaded before it.
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
        """Let go of everything: the scene is closed, or read."""
        self._detach()
        self._owner.onSessionChanged()

    def onSceneChanged(self) -> None:
        """Take up what the scene holds now, and what the views show of it."""
        if self.parameters is None:
            self._attach()
            self.followViews()

    def onNodeAboutToBeRemoved(self, node) -> None:
        """Note whose prompts go with a segmentation that is deleted."""
        if self.parameters is not None and node.IsA("vtkMRMLSegmentationNode"):
            self._orphans[node] = promptNodesOf(node)

    def onNodeRemoved(self, node) -> None:
        """Let go of a node that was deleted."""
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
        """Act upon parameters that changed."""
        parameters = self.parameters
        if parameters is None or self._isFollowing:
            return
        # What is done here changes parameters again.
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
        """Work on a new segmentation of a scan; of one that is not chosen, once it is."""
        self._latestIDs[volumeNode.GetID()] = segmentationNode.GetID()
        if volumeNode is self.volumeNode:
            self.parameters.segmentation = segmentationNode
        else:
            self.views.hide(segmentationNode)

    def onVoxelsModified(self) -> None:
        """React when the scan shows something else, such as another frame of a sequence."""
        self._owner.cancelWork("voxels")
        self.views.showFilled(self.volumeNode)
        if self.working is None:
            return
        self.working.setVolume(self.volumeNode)
        self._followFrame()

    def _followFrame(self) -> None:
        """Bring the prompts and steps of the frame that is shown now."""
        if self.frames.follow(self.working):
            self._writer.surfaces.followFrame(self.working.node)
            self._snapshotSelected()
            self._owner.onSegmentShown()
            self._owner.onSessionChanged()

    def onMasksModified(self) -> None:
        """Note that a segment may have been edited by hand."""
        working = self.working
        # Edits while prompts are placed must come before the next prompt.
        if working is not None and working.noteChange() and working.prompts.isPlacing:
            working.adoptManualEdits(self.segmentID)

    def onSegmentsChanged(self) -> None:
        """Follow segments that were added, removed or renamed elsewhere."""
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
        """Choose the segmentation of a scan, or none yet."""
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
        """Whether a segmentation may stay chosen for a scan that was not chosen before."""
        if scanName(segmentationNode):
            return scanOf(segmentationNode) is volumeNode
        # Of no scan yet: what was chosen with another one holds that one's segments.
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
        # A scene may have been saved while someone placed something.
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
        # What is not finished is removed from the scene, which must not open anything again.
        wasFollowing, self._isFollowing = self._isFollowing, True
        try:
            if not slicer.mrmlScene.IsClosing():
                # Nothing would follow a prompt that is moved from now on.
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
        """Show the prompts of the selected segment, or none: another module is open."""
        self._isShown = isShown
        self._showPrompts()
        if not isShown:  # no one follows what the views show
            limitNothing()

    def followViews(self) -> None:
        """Show segments and prompts while some view shows their scan, and not over another one."""
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
        """Look at the selected segment, before anything is done to it."""
        if self.working is None or not self.segmentID:
            return
        try:
            self.working.snapshot(self.segmentID)
        except PumitError as error:
            self._owner.showError(error)
