"""Logic of PUMIT Segment: turns the scene's prompts into masks, with undo for every step."""

from __future__ import annotations

from operator import attrgetter

from PUMITSlicerLib.scene_observer import readableParameters
from PUMITSlicerLib.status import StatusBoard
from slicer.ScriptedLoadableModule import ScriptedLoadableModuleLogic

from PUMITSegmentLib.check_here import CheckHere
from PUMITSegmentLib.collaborators import Collaborators, localCollaborators
from PUMITSegmentLib.masks.book import Mask
from PUMITSegmentLib.parameters import SegmentParameters
from PUMITSegmentLib.reviewing import Reviewing
from PUMITSegmentLib.scene.click_requests import ClickRequests
from PUMITSegmentLib.scene.continuing import Continuing
from PUMITSegmentLib.scene.segment_actions import SegmentActions
from PUMITSegmentLib.scene.selection import Selection


class PUMITSegmentLogic(ScriptedLoadableModuleLogic):
    """Coordinator of prompts, predictions, masks and history, without widgets.

    The scene is the only state: selection and options are in the parameter node, prompts are
    markups nodes, masks are segments. `open` reads the scene and observes it; `close` removes all
    observers. Problems are reported in `status`, not raised.

    The logic only puts its parts together; scripts, and other modules, also find their properties
    and actions here. No part knows the logic.

    Args:
        collaborators: Parts that compute and write; by default a worker on this computer.

    Attributes:
        parts: The worker or the server, threads, and the writer of masks.
        selection: The selected scan, segmentation and segment.
        requests: Requests for masks, and their answers.
        actions: The user's actions on segments and prompts.
        reviewing: Review of a scan for another module.
        checkHere: Guide through the places where the selected segment should be checked.
        continuing: Propagation of segments from frame to frame of a sequence.
    """

    def __init__(self, collaborators: Collaborators | None = None) -> None:
        super().__init__()
        self.parts = parts = collaborators or localCollaborators()
        self.status = StatusBoard()
        self.selection = Selection(self.status, parts.writer, self.getParameterNode)
        self.requests = ClickRequests(self.selection, parts)
        self.actions = SegmentActions(self.selection, self.requests)
        self.reviewing = Reviewing(self.selection, self.requests, parts)
        self.checkHere = CheckHere(self.selection, self.requests, self.reviewing, parts.compute)
        self.continuing = Continuing(self.selection, self.requests)

    def open(self) -> None:
        """Read the scene and start observing it."""
        self.selection.open()

    def close(self) -> None:
        """Stop placing and computing, end the worker, and remove all observers."""
        self.checkHere.forget()
        self.continuing.close()
        self.reviewing.finish()
        self.selection.listeners.clear()
        self.requests.onAnswered.clear()
        self.status.listeners.clear()
        self.selection.close()
        self.requests.close()
        self.parts.close()

    def enter(self) -> None:
        """Show the prompts when the module is entered."""
        selection = self.selection
        selection.setShown(True)
        if selection.segmentID:
            with self.status.showingErrors():
                selection.book.adoptAllEdits()
                selection.book.adoptManualEdits(selection.segmentID)
        self.parts.compute.checkInstalled()
        selection.showNextStep()

    def exit(self) -> None:
        """Stop placing and hide the prompts when the module is left."""
        self.checkHere.forget()
        if self.selection.book is not None:
            self.selection.book.prompts.stopPlacing()
        self.selection.setShown(False)

    def getParameterNode(self) -> SegmentParameters:
        """Return the parameter node wrapper."""
        return readableParameters(SegmentParameters, super().getParameterNode(), self.status)

    def maskOf(self, segmentID: str) -> Mask:
        """Return the mask of a segment, bool (D, H, W) on the scan's grid.

        Raises:
            PumitError: If there is no such segment, or no scan.
        """
        selection = self.selection
        return self.parts.writer.read(selection.segmentationNode, segmentID, selection.volumeNode)

    # Properties and actions of the parts, under the names that scripts use.

    compute = property(attrgetter("parts.compute"))
    background = property(attrgetter("parts.background"))
    parameters = property(attrgetter("selection.parameters"))
    volumeNode = property(attrgetter("selection.volumeNode"))
    segmentationNode = property(attrgetter("selection.segmentationNode"))
    segmentID = property(attrgetter("selection.segmentID"))
    working = property(attrgetter("selection.book"))
    guard = property(attrgetter("selection.guard"))
    listeners = property(attrgetter("selection.listeners"))
    promptCount = property(attrgetter("selection.promptCount"))
    selectSegment = property(attrgetter("selection.selectSegment"))
    selectFollowingSegment = property(attrgetter("selection.selectFollowingSegment"))
    placed = property(attrgetter("selection.placed"))
    isPlacing = property(attrgetter("selection.isPlacing"))
    onSessionChanged = property(attrgetter("selection.changed"))
    permission = property(attrgetter("selection.guard.permission"))
    startPlacing = property(attrgetter("actions.startPlacing"))
    stopPlacing = property(attrgetter("actions.stopPlacing"))
    setPositive = property(attrgetter("actions.setPositive"))
    newSegment = property(attrgetter("actions.newSegment"))
    addFound = property(attrgetter("actions.addFound"))
    removeSegment = property(attrgetter("actions.removeSegment"))
    reset = property(attrgetter("actions.reset"))
    canUndo = property(attrgetter("actions.canUndo"))
    canRedo = property(attrgetter("actions.canRedo"))
    undo = property(attrgetter("actions.undo"))
    redo = property(attrgetter("actions.redo"))
    isComputing = property(attrgetter("requests.isComputing"))
    onAnswered = property(attrgetter("requests.onAnswered"))
    update = property(attrgetter("actions.update"))
    answerCount = property(attrgetter("actions.answerCount"))
    showAnotherAnswer = property(attrgetter("actions.showAnotherAnswer"))
    cancel = property(attrgetter("status.cancel"))
    showError = property(attrgetter("status.showError"))
