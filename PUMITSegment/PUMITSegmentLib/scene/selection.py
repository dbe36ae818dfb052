"""Selected scan, segmentation and segment, kept consistent with the scene."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import slicer
import vtk
from PUMITSlicerLib.mrml import volumeKey
from PUMITSlicerLib.scan_of import isOfAnotherScan, recordScanName, scanName, scanOf
from PUMITSlicerLib.scene_observer import SceneObserver
from PUMITSlicerLib.status import StatusBoard

from PUMITSegmentLib.masks.book import BookState, SegmentBook
from PUMITSegmentLib.next_step import nextStepInWords
from PUMITSegmentLib.parameters import SegmentParameters, nodeOf
from PUMITSegmentLib.prompts.folder import removePrompts
from PUMITSegmentLib.prompts.tag import PromptTag, promptNodesOf
from PUMITSegmentLib.scene.frames import KeptFrames, keepPerFrame
from PUMITSegmentLib.scene.scan_views import ScanViews, limitNothing
from PUMITSegmentLib.scene.view_guard import ViewGuard
from PUMITSegmentLib.segments.scan_of import segmentationsOf
from PUMITSegmentLib.segments.segment_list import adoptGrid, followingID, segmentIDs
from PUMITSegmentLib.segments.writer import SegmentWriter


class SceneWatch(SceneObserver):
    """Observer of the scene, the parameter node, the scan and the segmentation."""

    def __init__(self, listener: Any) -> None:
        super().__init__(listener)
        self._volumeNode = None
        self._segmentationNode = None
        self._deletedDisplays: list[Any] = []

    def watchScene(self) -> None:
        """Start observing the scene."""
        super().watchScene()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeAboutToBeRemovedEvent, self._onNodeAboutToBeRemoved)
        self.addObserver(scene, scene.NodeRemovedEvent, self._onNodeRemoved)

    def watchVolume(self, node: Any) -> None:
        """Observe this scan instead of the previous one; None for none."""
        callbacks = {
            slicer.vtkMRMLVolumeNode.ImageDataModifiedEvent: self._onVoxelsModified,
            vtk.vtkCommand.ModifiedEvent: self._onVolumeModified,
        }
        self._volumeNode = self._instead(self._volumeNode, node, callbacks)

    def watchSegmentation(self, node: Any) -> None:
        """Observe this segmentation instead of the previous one; None for none."""
        segmentation = slicer.vtkSegmentation
        callbacks = {
            segmentation.SourceRepresentationModified: self._onMasksModified,
            segmentation.SegmentAdded: self._onSegmentsChanged,
            segmentation.SegmentRemoved: self._onSegmentsChanged,
            segmentation.SegmentModified: self._onSegmentsChanged,
        }
        self._segmentationNode = self._instead(self._segmentationNode, node, callbacks)

    def close(self) -> None:
        """Remove all observers."""
        super().close()
        self._volumeNode = self._segmentationNode = None

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAboutToBeRemoved(self, caller: Any, event: str, node: Any) -> None:
        # A slice view of Slicer keeps the address of the display node that Ctrl+drag made
        # transparent (vtkMRMLSliceIntersectionWidget::StartActionSegmentationDisplayNode) and reads
        # it at the next Ctrl+click: Slicer would crash if that was freed. The nodes kept here are
        # small.
        if node.IsA("vtkMRMLSegmentationDisplayNode"):
            self._deletedDisplays.append(node)
        self._listener.onNodeAboutToBeRemoved(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller: Any, event: str, node: Any) -> None:
        self._listener.onNodeRemoved(node)

    def _onVoxelsModified(self, caller: Any, event: str) -> None:
        self._listener.onVoxelsModified()

    def _onVolumeModified(self, caller: Any, event: str) -> None:
        self._listener.onVolumeModified()

    def _onMasksModified(self, caller: Any, event: str) -> None:
        # Events collected during a modification do not name the segment.
        self._listener.onMasksModified()

    def _onSegmentsChanged(self, caller: Any, event: str) -> None:
        self._listener.onSegmentsChanged()


# Segmentations that are not selected and whose steps are kept, each up to the limit of a history.
_MOST_LEFT = 4


class Selection:
    """The scan, the segmentation and the selected segment of the parameter node.

    Those who react to the scene set the callbacks; the selection knows none of them.

    Attributes:
        parameters: Parameter node; None while the scene changes or nothing is open.
        book: The segmentation with its prompts and history, or None.
        segmentID: The selected segment; empty for none.
        guard: Check before segments are changed that their scan is shown.
        listeners: Callbacks after any change that a panel shows.
        onPrompts: Callback with the segment ID after the user changed its prompts.
        onPlacing: Callback when the kind of prompt that clicks place changes, or placing stops.
        onScanWhilePlacing: Callback after another scan was chosen while prompts were placed.
        onSegment: Callback after another segment is selected, or none.
        onSegments: Callback with the segments that remain after some changed elsewhere.
        onEdited: Callback after masks may have been changed elsewhere.
        onLeaving: Callback before the scan or segmentation changes or goes; with True if only the
            scan's voxels changed.
        onSceneLeft: Callback when the scene goes: in another scene, IDs name other nodes.
    """

    def __init__(
        self,
        status: StatusBoard,
        writer: SegmentWriter,
        makeParameters: Callable[[], SegmentParameters],
    ) -> None:
        self.status = status
        self._writer = writer
        self._makeParameters = makeParameters
        self._watch = SceneWatch(self)
        self.views = ScanViews()
        self.guard = ViewGuard(self)
        self._isFollowing = False
        # While the scene is read, its own scan and segmentation are kept.
        self._isAttaching = False
        # Last used segmentation of each scan.
        self._latestIDs: dict[str, str] = {}
        # Last selected segment and history of each segmentation that is not selected.
        self._left: dict[Any, tuple[str, BookState]] = {}
        # Whether the segmentation was chosen before any scan.
        self._isWithoutScan = False
        self._isShown = self._isScanShown = True
        self.frames = KeptFrames()
        # Prompts of each segmentation that is being deleted; its deletion may cause another's.
        self._orphans: dict = {}
        self.parameters: SegmentParameters | None = None
        self.volumeNode: Any = None
        self.book: SegmentBook | None = None
        self.segmentID = ""
        self._isSilent = False
        self.listeners: list[Callable[[], None]] = []
        self.onPrompts: Callable[[str], None] = lambda segmentID: None
        self.onPlacing = self.onSegment = lambda: None
        self.onScanWhilePlacing: Callable[[], object] = lambda: None
        self.onSegments: Callable[[list[str]], None] = lambda remaining: None
        self.onLeaving: Callable[[bool], None] = lambda isImageChanged: None
        self.onEdited = self.onSceneLeft = lambda: None

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
        return self.book.node if self.book else None

    @property
    def placed(self) -> PromptTag | None:
        """Prompt that a click in a view places now, or None."""
        return self.book.prompts.placed if self.book is not None else None

    @property
    def isPlacing(self) -> bool:
        """Whether a click in a view places a prompt."""
        return self.placed is not None

    def promptCount(self, segmentID: str) -> int:
        """Return the number of prompts of a segment."""
        return self.book.read(segmentID).count if self.book is not None else 0

    def selectSegment(self, segmentID: str) -> None:
        """Select a segment: its prompts are shown, and new prompts belong to it."""
        if self.parameters is not None:
            self.parameters.segmentID = segmentID

    def selectFollowingSegment(self, step: int) -> None:
        """Select the segment this many rows further."""
        self.selectSegment(followingID(self.segmentationNode, self.segmentID, step))

    def changed(self) -> None:
        """Notify the listeners; within `tellingOnce`, at its end."""
        if self._isSilent:
            return
        if self.status.current.text == "":
            self.showNextStep()
        for listener in list(self.listeners):
            listener()

    @contextmanager
    def tellingOnce(self) -> Iterator[None]:
        """Notify the listeners once, at the end of the block; of nested ones, of the outermost."""
        wasSilent, self._isSilent = self._isSilent, True
        try:
            yield
        finally:
            self._isSilent = wasSilent
            self.changed()

    def showNextStep(self) -> None:
        """Show what the user can do next, unless work is in progress."""
        if not self.status.isWorking:
            shown = self.status.current
            words = nextStepInWords(self)
            if self.status.current is shown:  # counting prompts may have rejected one
                self.status.waiting(words)

    def answerKey(self) -> tuple:
        """Return a key of the selected segment's prompts and scan."""
        if self.book is None or self.volumeNode is None or not self.segmentID:
            return ()
        snapshot = self.book.read(self.segmentID).snapshot
        return (self.segmentationNode.GetID(), self.segmentID, snapshot, volumeKey(self.volumeNode))

    def _attach(self) -> None:
        limitNothing()  # the scene may have been saved with other views
        self.parameters = self._makeParameters()
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
        self.onSegment()

    def _detach(self) -> None:
        self.onLeaving(False)
        self._watch.watchParameterNode(None)
        self._watch.watchVolume(None)
        self._closeWorking()
        self.views.forget()
        self._latestIDs, self._left, self.frames = {}, {}, KeptFrames()
        self.guard.permission.forget()
        self.onSceneLeft()
        self.parameters = self.volumeNode = None

    def onSceneAboutToChange(self) -> None:
        """Detach from the scene before it is closed or loaded."""
        self._detach()
        self.changed()

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
            self.onLeaving(False)
            self._closeWorking()
            self.parameters.segmentID = ""
            self.onSegment()
        self._left = {
            each: left
            for each, left in self._left.items()
            if node not in (each, left[1].volumeNode)
        }
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
            wasPlacing = self.book is not None and self.book.prompts.isPlacing
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
            self.onScanWhilePlacing()
        self.changed()

    def takeResult(self, segmentationNode, volumeNode) -> None:
        """Use a new segmentation of a scan: at once if the scan is current, else once it is."""
        self._latestIDs[volumeNode.GetID()] = segmentationNode.GetID()
        if volumeNode is self.volumeNode:
            self.parameters.segmentation = segmentationNode
        else:
            self.views.hide(segmentationNode)

    def onVoxelsModified(self) -> None:
        """React when the scan's voxels changed, such as to another frame of a sequence."""
        self.onLeaving(True)
        self.views.showFilled(self.volumeNode)
        if self.book is None:
            return
        self.book.setVolume(self.volumeNode)
        self._followFrame()
        self._snapshotSelected()  # on another grid its state was cleared

    def onVolumeModified(self) -> None:
        """React when the scan was moved under its segments, such as by "Center volume"."""
        if self.book is not None and not self.book.isOnGrid:
            self.onVoxelsModified()

    def _followFrame(self) -> None:
        """Restore prompts and history of the frame that is shown now."""
        if self.frames.follow(self.book):
            self._writer.surfaces.followFrame(self.book.node)
            self._snapshotSelected()
            self.onSegment()
            self.changed()

    def onMasksModified(self) -> None:
        """Note that a segment may have been edited manually."""
        book = self.book
        if book is None or not book.noteChange():
            return
        self.onEdited()
        # Edits made while prompts are placed must precede the next prompt.
        if book.prompts.isPlacing:
            book.adoptManualEdits(self.segmentID)

    def onSegmentsChanged(self) -> None:
        """React to segments that were added, removed or renamed elsewhere."""
        if self.book is None or self.parameters is None:
            return
        self.book.recordRemoved()
        ids = segmentIDs(self.book.node)
        self.onSegments(ids)
        if self.segmentID not in ids:
            self.parameters.segmentID = ids[0] if ids else ""
        self.changed()

    def _openVolume(self, volumeNode) -> None:
        if self.book is not None:
            self.book.prompts.stopPlacing()  # may finish a scribble, and request its mask
        self.onLeaving(False)
        if volumeNode is not None and not self._isAttaching:
            self._bringSegmentation(volumeNode)
        self._isWithoutScan = self._isWithoutScan and volumeNode is None
        self.volumeNode = volumeNode
        self._watch.watchVolume(volumeNode)
        if self.book is not None:
            if volumeNode is not None and not isOfAnotherScan(self.book.node, volumeNode):
                adoptGrid(self.book.node, volumeNode)
            self.book.setVolume(volumeNode)
        self._snapshotSelected()
        self.onSegment()

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
        self.onLeaving(False)
        self._closeWorking()
        if node is None:
            self.parameters.segmentID = ""
            self.onSegment()
            return
        if self.volumeNode is not None:
            if not isOfAnotherScan(node, self.volumeNode):
                adoptGrid(node, self.volumeNode)
                keepPerFrame(node, self.volumeNode)
            self._latestIDs[self.volumeNode.GetID()] = node.GetID()
        self._isWithoutScan = self.volumeNode is None
        recordScanName(node)
        self.views.showAgain(node)
        self.book = SegmentBook(node, self.volumeNode, self._writer, self.onPrompts, self.onPlacing)
        # The scene may have been saved during placing.
        self.book.prompts.disarm()
        self._watch.watchSegmentation(node)
        chosen = self.parameters.segmentID
        latestID, state = self._left.pop(node, (chosen, None))
        isResumed = state is not None and self.book.resume(state)
        self.frames.follow(self.book)
        if isResumed:
            self.book.recordRemoved()
        ids = segmentIDs(node)
        order = [each for each in (latestID, chosen, *ids) if each in ids]
        self.parameters.segmentID = next(iter(order), "")
        self._showSegment(self.parameters.segmentID)

    def _closeWorking(self) -> None:
        self._watch.watchSegmentation(None)
        book, latestID = self.book, self.segmentID
        self.book, self.segmentID = None, ""
        if book is None:
            return
        self._left[book.node] = (latestID, book.state)
        for oldest in list(self._left)[:-_MOST_LEFT]:
            del self._left[oldest]
        # Unfinished prompts are removed from the scene, which must not open anything again.
        wasFollowing, self._isFollowing = self._isFollowing, True
        try:
            if not slicer.mrmlScene.IsClosing():
                # Nothing would react to prompts that are moved from now on.
                book.prompts.showOnly(None)
            book.close()
        finally:
            self._isFollowing = wasFollowing

    def _showSegment(self, segmentID: str) -> None:
        self.segmentID = segmentID
        self._showPrompts()
        self.parameters.isPositive = True
        self._snapshotSelected()
        self.onSegment()

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
        if self.book is not None:
            isShown = self._isShown and self._isScanShown
            self.book.prompts.showOnly((isShown and self.segmentID) or None)

    def _snapshotSelected(self) -> None:
        """Record the selected segment's initial state."""
        if self.book is not None and self.segmentID:
            with self.status.showingErrors():
                self.book.snapshot(self.segmentID)
