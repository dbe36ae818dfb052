"""Reactions of the logic to changes of the scene."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PUMITSlicerLib.status import Activity
from slicer.i18n import tr as _

from PUMITSegmentLib.masks.written import WrittenAnswers
from PUMITSegmentLib.next_step import exclusionInWords
from PUMITSegmentLib.prompts.outside_image import refusalText
from PUMITSegmentLib.scene.write_permission import whyNotWritten

if TYPE_CHECKING:
    from PUMITSegmentLib.masks.requests import Delivery, MaskRequests
    from PUMITSegmentLib.parameters import SegmentParameters
    from PUMITSegmentLib.prompts.segment_prompts import SegmentPrompts


class SessionReactions:
    """Reactions of the logic to the events of a `SceneSession`."""

    def __init__(self, logic, requests: MaskRequests) -> None:
        self._logic = logic
        self._requests = requests
        self._written = WrittenAnswers(logic)
        # Number of prompts of each segment outside the image at the last check.
        self._outsideCounts: dict[tuple[str, str], int] = {}

    def getParameterNode(self) -> SegmentParameters:
        """Return the parameter node wrapper, creating the node if needed."""
        return self._logic.getParameterNode()

    def showError(self, error: Exception) -> None:
        """Show an error of the current selection."""
        self._logic.showError(error)

    def forgetScene(self) -> None:
        """Clear data by node ID: in another scene the IDs name other nodes."""
        self._outsideCounts.clear()
        self._logic.permission.forget()

    def cancelWork(self, reason: str) -> None:
        """Cancel running requests whose scan or segmentation is changing or gone."""
        logic = self._logic
        if logic.isComputing:
            self._requests.cancel()
            if reason == "voxels":
                logic.status.waiting(
                    _("The image has changed; press Update to segment the new image.")
                )
            else:
                logic.showNextStep()

    def onPromptsChanged(self, segmentID: str, prompts: SegmentPrompts) -> None:
        """Update the mask after its prompts changed."""
        logic = self._logic
        working, volumeNode = logic.working, logic.volumeNode
        with logic.showingErrors():
            if volumeNode is not None and not logic.guard.allows():
                working.refusePrompts(segmentID)
                self.onSessionChanged()
                return
            if volumeNode is not None and self._refuseOutside(segmentID, prompts):
                self.onSessionChanged()
                return
            isOnlyExcluded = self._requests.running != segmentID and working.isOnlyExcluded(
                segmentID, prompts
            )
            working.adoptManualEdits(segmentID, isPrompted=True)
            working.recordPrompts(segmentID)
            if volumeNode is None:
                logic.status.problem(_("Choose a scan first."))
            elif not logic.permission.isGiven(working.node, volumeNode):
                # No dialog here: a drag may be in progress.
                logic.status.problem(whyNotWritten(working.node, volumeNode))
            elif isOnlyExcluded and logic.parameters.updateAutomatically:
                isFilled = working.exclude(segmentID)
                logic.status.note(exclusionInWords(working.node, segmentID, isFilled))
            elif not working.read(segmentID).count:
                self._requests.forget(segmentID)
                working.empty(segmentID)
                logic.showNextStep()
            elif logic.parameters.updateAutomatically:
                self._requests.request(segmentID)
            else:
                logic.status.waiting(_("Press Update to compute the segment."))
        self.onSessionChanged()

    def onMask(self, delivery: Delivery) -> None:
        """Write an answer, and report the result."""
        with self._logic.tellingOnce():
            self._written.write(delivery, lambda: self._requests.request(delivery.segmentID))
            self.onSessionChanged()

    def _refuseOutside(self, segmentID: str, prompts: SegmentPrompts) -> bool:
        """Undo placing or moving a prompt outside the image; return whether there was one.

        Prompts that were outside before, such as those of a loaded scene, are not refused.
        """
        key = (self._logic.segmentationNode.GetID(), segmentID)
        isRefused = len(prompts.outside) > self._outsideCounts.get(key, 0)
        if isRefused:
            self._logic.working.refusePrompts(segmentID)
            self._logic.status.problem(refusalText(prompts.outside[-1]))
            prompts = self._logic.working.read(segmentID)
        self._outsideCounts[key] = len(prompts.outside)
        return isRefused

    def onPlacingChanged(self) -> None:
        """Show the prompt tool that is active in Slicer."""
        logic = self._logic
        placed = logic.placed
        if placed is not None and logic.parameters is not None:
            logic.parameters.promptKind = placed.kind
            logic.parameters.isPositive = placed.isPositive
        isDepthNext = placed is not None and logic.working.prompts.isDepthNext
        if isDepthNext or logic.status.current.activity is Activity.WAITING:
            logic.showNextStep()
        self.onSessionChanged()

    def placeAgain(self) -> None:
        """Keep the prompt tool active after another scan was chosen."""
        self._logic.startPlacing(self._logic.parameters.promptKind)

    def onSegmentsGone(self, remaining: list[str]) -> None:
        """Cancel requests for segments that were removed."""
        if self._requests.running is not None and self._requests.running not in remaining:
            self._requests.forget(self._requests.running)

    def onSegmentShown(self) -> None:
        """Continue placing for the newly selected segment."""
        logic = self._logic
        if logic.segmentID and logic.volumeNode is not None:
            key = (logic.segmentationNode.GetID(), logic.segmentID)
            self._outsideCounts[key] = len(logic.working.read(logic.segmentID).outside)
        if logic.isPlacing and logic.segmentID:
            logic.startPlacing(logic.parameters.promptKind)
        logic.showNextStep()

    def onSessionChanged(self) -> None:
        """Notify the listeners."""
        self._logic.onSessionChanged()
