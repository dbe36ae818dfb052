"""Logic of PUMIT Segment: turns the scene's prompts into masks, with undo for every step."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pumit.errors import PumitError
from PUMITSlicerLib.readable_parameters import readableParameters
from PUMITSlicerLib.status import StatusBoard
from PUMITSlicerLib.terms import newSegment
from slicer.i18n import tr as _
from slicer.ScriptedLoadableModule import ScriptedLoadableModuleLogic

from PUMITSegmentLib.automatic import FoundStructures
from PUMITSegmentLib.check_here import CheckHere
from PUMITSegmentLib.collaborators import Collaborators, localCollaborators
from PUMITSegmentLib.masks.answer import Answer, Mask
from PUMITSegmentLib.masks.query import queryOf
from PUMITSegmentLib.masks.requests import MaskRequests
from PUMITSegmentLib.masks.step_words import segmentOfStep, stepInWords
from PUMITSegmentLib.masks.working_segmentation import WorkingSegmentation
from PUMITSegmentLib.next_step import nextStepInWords, whyNoSegment
from PUMITSegmentLib.parameters import SegmentParameters
from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.prompts.tag import PromptTag
from PUMITSegmentLib.reviewing import Reviewing
from PUMITSegmentLib.scene.continuing import Continuing
from PUMITSegmentLib.scene.reactions import SessionReactions
from PUMITSegmentLib.scene.session import SceneSession
from PUMITSegmentLib.scene.view_guard import ViewGuard
from PUMITSegmentLib.scene.write_permission import WritePermission, whyNotWritten
from PUMITSegmentLib.segments.at_place import showSegment
from PUMITSegmentLib.segments.packed_mask import PackedMask
from PUMITSegmentLib.segments.segment_list import (
    followingID,
    neighbourOf,
    newSegmentation,
    segmentIDs,
    segmentName,
)

logger = logging.getLogger(__name__)


class PUMITSegmentLogic(ScriptedLoadableModuleLogic):
    """Coordinator of prompts, predictions, masks and history, without widgets.

    The scene is the only state: selection and options are in the parameter node, prompts are
    markups nodes, masks are segments. `open` reads the scene and observes it; `close` removes all
    observers. Problems are reported in `status`, not raised.

    Args:
        collaborators: Parts that compute and write; by default a worker on this computer.

    Attributes:
        compute: The worker or the server.
        background: Threads whose results arrive on the GUI thread.
        listeners: Callbacks after any change that a panel shows.
        onAnswered: Callbacks after an answer was written, with the mask before and after.
        permission: Question before the segmentation of another scan is changed.
        guard: Check before segments are changed that their scan is shown.
        checkHere: Guide through the places where the selected segment should be checked.
        continuing: Propagation of segments from frame to frame of a sequence.
        reviewing: Review of a scan for another module.
    """

    def __init__(self, collaborators: Collaborators | None = None) -> None:
        super().__init__()
        parts = collaborators or localCollaborators()
        self.status = StatusBoard()
        self.compute = parts.compute
        self.background = parts.background
        self.listeners: list[Callable[[], None]] = []
        self.onAnswered: list[Callable[[PackedMask | None, PackedMask | None], None]] = []
        self._untold: bool | None = None  # within `tellingOnce`: whether a change is unreported
        self._parts = parts
        self.permission = WritePermission()
        self._requests = MaskRequests(
            *(parts.compute, parts.background, self.status),
            makeQuery=lambda segmentID: queryOf(self.working, segmentID),
            onMask=lambda delivery: reactions.onMask(delivery),
            prepare=Answer.of,
            asked=lambda: self.guard.asked(),
        )
        reactions = SessionReactions(self, self._requests)
        self._session = SceneSession(reactions, parts.writer)
        self.guard = ViewGuard(self, self._session)
        self.checkHere = CheckHere(self, self._requests, self._session.answerKey)
        self.continuing = Continuing(self, self._requests, lambda: self._session.frames)
        self.reviewing = Reviewing(self, parts.writer)

    # Current nodes

    def open(self) -> None:
        """Read the scene and start observing it."""
        self._session.open()

    def close(self) -> None:
        """Stop placing and computing, end the worker, and remove all observers."""
        self.checkHere.forget()
        self.continuing.close()
        self.reviewing.finish()
        self.listeners.clear()
        self.onAnswered.clear()
        self.status.listeners.clear()
        self._session.close()
        self._requests.close()
        self._parts.close()

    def enter(self) -> None:
        """Show the prompts when the module is entered."""
        self._session.setShown(True)
        if self.segmentID:
            with self.showingErrors():
                self.working.adoptManualEdits(self.segmentID)
        self.compute.checkInstalled()
        self.showNextStep()

    def exit(self) -> None:
        """Stop placing and hide the prompts when the module is left."""
        self.checkHere.forget()
        if self.working is not None:
            self.working.prompts.stopPlacing()
        self._session.setShown(False)

    def getParameterNode(self) -> SegmentParameters:
        """Return the parameter node wrapper."""
        return readableParameters(SegmentParameters, super().getParameterNode(), self.status)

    @property
    def parameters(self) -> SegmentParameters | None:
        """Parameter node; None while the scene changes or nothing is open."""
        return self._session.parameters

    @property
    def working(self) -> WorkingSegmentation | None:
        """The segmentation with its prompts and history, or None."""
        return self._session.working

    @property
    def volumeNode(self):
        """The scan, or None."""
        return self._session.volumeNode

    @property
    def segmentationNode(self):
        """The current segmentation, or None."""
        return self._session.segmentationNode

    @property
    def segmentID(self) -> str:
        """The selected segment; empty for none."""
        return self._session.segmentID

    @property
    def isComputing(self) -> bool:
        """Whether a mask is pending."""
        return self._requests.running is not None

    def promptCount(self, segmentID: str) -> int:
        """Return the number of prompts of a segment."""
        working = self.working
        return working.read(segmentID).count if working is not None else 0

    def maskOf(self, segmentID: str) -> Mask:
        """Return the mask of a segment, bool (D, H, W) on the scan's grid.

        Raises:
            PumitError: If there is no such segment, or no scan.
        """
        return self._parts.writer.read(self.segmentationNode, segmentID, self.volumeNode)

    # Segments

    def newSegment(self, name: str = "") -> str:
        """Add a segment and select it.

        Returns:
            Its ID; empty if it could not be added, for example without a scan.
        """
        working = self._ensureSegmentation(lambda: self.newSegment(name))
        if working is None:
            return ""
        segmentID = newSegment(working.node, name)
        working.recordNew(segmentID)
        self.selectSegment(segmentID)
        self.onSessionChanged()  # a first segment is selected before the step is recorded
        return segmentID

    @property
    def isNextObjectWanted(self) -> bool:
        """Whether the next positive point starts a new segment; it never does in an empty one."""
        placed, parameters = self.placed, self.parameters
        isPoint = placed is not None and placed.kind is PromptKind.POINT and placed.isPositive
        return isPoint and parameters.isOneEach and self.promptCount(self.segmentID) > 0

    def beginNextObject(self) -> bool:
        """Add a segment with the name and term of the selected one; return whether it was added."""
        segmentation = self.segmentationNode.GetSegmentation()
        last = segmentation.GetSegment(self.segmentID)
        name = re.sub(r" \d+$", "", last.GetName()) if not last.GetNameAutoGenerated() else ""
        segmentID = self.newSegment(name)
        if segmentID:
            segmentation.GetSegment(segmentID).SetTerminology(last.GetTerminology() or "")
        return bool(segmentID)

    def addFound(self, found: FoundStructures) -> None:
        """Add an automatic model's result as segments; can be undone.

        Raises:
            PumitError: If a segment cannot be written; then none is added.
        """
        working = self._ensureSegmentation(lambda: self.addFound(found))
        if working is None:
            return
        added = working.addFound(found, self.parameters.overwriteMode)
        # A user who is placing prompts continues with the selected segment.
        if added and not (self.isPlacing or self.isComputing):
            self.selectSegment(added[0])
        if added:
            showSegment(working.node, added[0])
        self.status.note(found.sentence())
        self.onSessionChanged()

    def takeResult(self, segmentationNode, volumeNode) -> None:
        """Use a new segmentation of a scan, now or once that scan is chosen."""
        self._session.takeResult(segmentationNode, volumeNode)

    def removeSegment(self, segmentID: str) -> None:
        """Remove a segment with its prompts; can be undone."""
        working = self.working
        isThere = working is not None and segmentID in segmentIDs(working.node)
        if not isThere or not self.guard.allows(lambda: self.removeSegment(segmentID)):
            return
        self._requests.forget(segmentID)
        following = neighbourOf(working.node, segmentID)
        with self.showingErrors():
            working.removeSegment(segmentID)
        self.selectSegment(following)

    def selectSegment(self, segmentID: str) -> None:
        """Select a segment: its prompts are shown, and new prompts belong to it."""
        if self.parameters is not None:
            self.parameters.segmentID = segmentID

    def selectFollowingSegment(self, step: int) -> None:
        """Select the segment this many rows further."""
        self.selectSegment(followingID(self.segmentationNode, self.segmentID, step))

    # Prompts

    @property
    def placed(self) -> PromptTag | None:
        """Prompt that a click in a view places now, or None."""
        return self.working.prompts.placed if self.working is not None else None

    @property
    def isPlacing(self) -> bool:
        """Whether a click in a view places a prompt."""
        return self.placed is not None

    def startPlacing(self, kind: PromptKind) -> bool:
        """Let clicks in the views place prompts of one kind for the selected segment.

        Without a segment, one is added.

        Returns:
            Whether prompts can be placed; if not, the status shows why.
        """
        working = self._ensureSegmentation(lambda: self.startPlacing(kind))
        if working is None or not (self.segmentID or self.newSegment()):
            return False
        self.parameters.promptKind = kind
        self.openScan()
        with self.showingErrors():
            working.adoptManualEdits(self.segmentID)
            working.prompts.startPlacing(kind, self.segmentID, self.parameters.isPositive)
        self.showNextStep()
        self.onSessionChanged()
        return working.prompts.isPlacing

    def openScan(self) -> None:
        """Open the scan in the worker before the first prompt."""
        self._parts.warmUp(lambda: self._requests.openScan(self.segmentID))

    def stopPlacing(self) -> None:
        """Stop placing prompts."""
        if self.isPlacing:
            shown = self.status.current
            self.working.prompts.stopPlacing()
            if self.status.current is shown:  # nothing was drawn
                self.showNextStep()
            self.onSessionChanged()

    def setPositive(self, isPositive: bool) -> None:
        """Make the next prompt positive or negative."""
        if self.parameters is None or self.parameters.isPositive == isPositive:
            return
        self.parameters.isPositive = isPositive
        if self.isPlacing:
            self.startPlacing(self.parameters.promptKind)

    def update(self) -> None:
        """Segment the selected segment now."""
        if self.volumeNode is None:
            self.status.problem(_("Choose a scan first."))
        elif not self.segmentID:
            self.status.problem(_("Add a segment first."))
        elif not self.promptCount(self.segmentID):
            self.status.problem(_("Add a prompt first, such as a point inside the structure."))
        elif self.mayWrite(self.update):
            with self.showingErrors():
                self.working.adoptManualEdits(self.segmentID)
                self._requests.request(self.segmentID)

    @property
    def answerCount(self) -> int:
        """Number of different answers to the prompts of the selected segment."""
        if self.working is None or not self.segmentID:
            return 1
        return self.working.prompts.choice(self.segmentID).count

    def showAnotherAnswer(self) -> None:
        """Show the next answer to a first prompt, cyclically."""
        if self.volumeNode is None or not self.segmentID or self.isComputing:
            return
        if not self.mayWrite(self.showAnotherAnswer):
            return
        with self.showingErrors():
            self.working.adoptManualEdits(self.segmentID)
            if self.working.chooseAnother(self.segmentID):
                self._requests.request(self.segmentID)
            else:
                self.status.waiting(_("There is no other answer; click where it is wrong."))
        self.onSessionChanged()

    def cancel(self) -> None:
        """Cancel the running work; the scene is unchanged."""
        self.status.cancel()

    def showError(self, error: Exception) -> None:
        """Show an error; log the traceback of an internal one."""
        if isinstance(error, PumitError):
            self.status.problem(str(error))
            return
        logger.error("Work failed", exc_info=error)
        words = _("Internal error ({kind}); see the log.")
        self.status.problem(words.format(kind=type(error).__name__))

    # Steps

    def reset(self, segmentID: str | None = None) -> None:
        """Remove prompts and mask of one segment, or of all; can be undone."""
        working = self.working
        if working is None or self.volumeNode is None:
            return
        if not self.mayWrite(lambda: self.reset(segmentID)):
            return
        ids = segmentIDs(working.node) if segmentID is None else [segmentID]
        for each in ids:
            self._requests.forget(each)
        with self.showingErrors():
            working.reset(ids)
            self.status.waiting(_("Prompts and masks removed; Undo restores them."))
        self.onSessionChanged()

    @property
    def canUndo(self) -> bool:
        """Whether there is a step to undo."""
        return self.working is not None and self.working.canUndo

    @property
    def canRedo(self) -> bool:
        """Whether there is a step to redo."""
        return self.working is not None and self.working.canRedo

    def undo(self) -> bool:
        """Undo the last change of prompts and masks; return whether there was one."""
        return self.canUndo and self._step(True)

    def redo(self) -> bool:
        """Redo the last undone change; return whether there was one."""
        return self.canRedo and self._step(False)

    def _step(self, isUndo: bool) -> bool:
        if not self.guard.allows(self.undo if isUndo else self.redo):
            return False
        text = _("Undone: {step}, {name}.") if isUndo else _("Redone: {step}, {name}.")
        self._requests.cancel()
        changes = self.working.upcoming(isUndo)
        segmentID = segmentOfStep(changes)
        name = segmentName(self.segmentationNode, segmentID)
        with self.showingErrors():
            unanswered = (self.working.undo() if isUndo else self.working.redo()) or []
            if segmentID in segmentIDs(self.segmentationNode):
                self.selectSegment(segmentID)
            name = name or segmentName(self.segmentationNode, segmentID)
            self.status.note(text.format(step=stepInWords(changes), name=name))
            if self.parameters.updateAutomatically:
                for segmentID in unanswered:
                    if self.promptCount(segmentID):
                        self._requests.request(segmentID)
        self._session.onSegmentsChanged()
        return True

    def onSessionChanged(self) -> None:
        """Notify the listeners, or defer it to the end of `tellingOnce`."""
        if self._untold is not None:
            self._untold = True
            return
        if self.status.current.text == "":
            self.showNextStep()
        for listener in list(self.listeners):
            listener()

    @contextmanager
    def tellingOnce(self) -> Iterator[None]:
        """Notify the listeners only once, at the end of the block."""
        if self._untold is not None:
            yield
            return
        self._untold = False
        try:
            yield
        finally:
            isUntold, self._untold = self._untold, None
            if isUntold:
                self.onSessionChanged()

    # Between the parts

    def _ensureSegmentation(self, goOn: Callable[[], object]) -> WorkingSegmentation | None:
        reason = whyNoSegment(self.volumeNode)
        if reason:
            self.status.problem(reason)
        if reason or not self.guard.allows(goOn):
            return None
        if self.working is None:
            self.parameters.segmentation = newSegmentation(self.volumeNode)
        return self.working if self.mayWrite(goOn) else None

    def mayWrite(self, goOn: Callable[[], object] = lambda: None) -> bool:
        """Return whether the segmentation may be changed from this scan; ask the user if needed."""
        if not self.guard.allows(goOn):
            return False
        node, volumeNode = self.segmentationNode, self.volumeNode
        with self.showingErrors():
            if self.permission.request(node, volumeNode):
                return True
            self.status.problem(whyNotWritten(node, volumeNode))
        return False

    @contextmanager
    def showingErrors(self) -> Iterator[None]:
        """Show `PumitError`s in the status instead of raising them."""
        try:
            yield
        except PumitError as error:
            self.status.problem(str(error))

    def showNextStep(self) -> None:
        """Show what the user can do next, unless work is in progress."""
        if not self.status.isWorking:
            shown = self.status.current
            words = nextStepInWords(self)
            if self.status.current is shown:  # counting prompts may have rejected one
                self.status.waiting(words)
