"""From a change of prompts to a request, and from its answer to the written mask."""

from __future__ import annotations

from collections.abc import Callable

from pumit.errors import PromptError
from PUMITSlicerLib.mrml import volumeKey
from PUMITSlicerLib.status import Choice
from slicer.i18n import tr as _

from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.masks.book import Answer
from PUMITSegmentLib.masks.query import queryOf
from PUMITSegmentLib.masks.requests import Delivery, MaskRequests
from PUMITSegmentLib.next_step import exclusionInWords, whyEmpty
from PUMITSegmentLib.prompts.segment_prompts import SegmentPrompts, refusalText
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.scene.write_permission import whyNotWritten
from PUMITSegmentLib.segments.editable_area import EditableArea
from PUMITSegmentLib.segments.packed_mask import PackedMask
from PUMITSegmentLib.segments.rating import AS_ANSWERED, Rating, percent
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName
from PUMITSegmentLib.segments.writer import OverwriteMode


class ClickRequests(MaskRequests):
    """Requests for the masks of the selected segmentation, and its answers.

    A click changes the prompts of a segment (`_onPrompts`), which are recorded for undo and
    requested; the answer is written (`_onAnswer`), and the listeners of the selection are notified.
    The reported rating applies to the written mask. If other segments keep more than a tenth of an
    answer, the message names them, with buttons for the two other overwrite rules.

    Attributes:
        onAnswered: Callbacks after an answer was written, with the mask before and after.
    """

    def __init__(self, selection: Selection, parts: Collaborators) -> None:
        super().__init__(
            *(parts.compute, parts.background, selection.status),
            makeQuery=lambda segmentID: queryOf(selection.book, segmentID),
            onMask=self._onAnswer,
            prepare=Answer.of,
            asked=selection.guard.asked,
        )
        self._selection = selection
        self._parts = parts
        self.onAnswered: list[Callable[[PackedMask | None, PackedMask | None], None]] = []
        # Number of prompts of each segment outside the image at the last check.
        self._outsideCounts: dict[tuple[str, str], int] = {}
        selection.onPrompts = self._onPrompts
        selection.onEdited = self._onEdited
        selection.onLeaving = self._onLeaving
        selection.onSegments = self._onSegments
        selection.onSceneLeft = self._outsideCounts.clear

    @property
    def isComputing(self) -> bool:
        """Whether a mask is pending."""
        return self.running is not None

    def warmUp(self) -> None:
        """Open the scan in the worker before the first prompt."""
        self._parts.warmUp(lambda: self.openScan(self._selection.segmentID))

    def noteOutside(self) -> None:
        """Note the prompts of the selected segment outside the image: they are not refused."""
        selection, segmentID = self._selection, self._selection.segmentID
        if segmentID and selection.volumeNode is not None:
            key = (selection.segmentationNode.GetID(), segmentID)
            self._outsideCounts[key] = len(selection.book.read(segmentID).outside)

    def _onPrompts(self, segmentID: str) -> None:
        """Request the mask of a segment after its prompts changed."""
        selection, book = self._selection, self._selection.book
        volumeNode = selection.volumeNode
        with self._status.showingErrors():
            if volumeNode is not None and not selection.guard.allows():
                book.refusePrompts(segmentID)
            else:
                try:
                    prompts = book.read(segmentID)
                except PromptError:  # such as a point that a script has moved to infinity
                    book.refusePrompts(segmentID)
                    raise
                if volumeNode is None or not self._refuseOutside(segmentID, prompts):
                    self._onAccepted(segmentID, prompts)
        selection.changed()

    def _onAccepted(self, segmentID: str, prompts: SegmentPrompts) -> None:
        selection, book, status = self._selection, self._selection.book, self._status
        volumeNode = selection.volumeNode
        isOnlyExcluded = self.running != segmentID and book.isOnlyExcluded(segmentID, prompts)
        book.adoptManualEdits(segmentID, isPrompted=True)
        book.recordPrompts(segmentID)
        if volumeNode is None:
            status.problem(_("Choose a scan first."))
        elif not selection.guard.permission.isGiven(book.node, volumeNode):
            # No dialog here: a drag may be in progress.
            status.problem(whyNotWritten(book.node, volumeNode))
        elif isOnlyExcluded and selection.parameters.updateAutomatically:
            isFilled = book.exclude(segmentID)
            status.note(exclusionInWords(book.node, segmentID, isFilled))
        elif not book.read(segmentID).count:
            self.forget(segmentID)
            book.empty(segmentID)
            selection.showNextStep()
        elif selection.parameters.updateAutomatically:
            self.request(segmentID)
        else:
            self.forget(segmentID)  # its answer would be taken for that to these prompts
            status.waiting(_("Press Update to compute the segment."))

    def _refuseOutside(self, segmentID: str, prompts: SegmentPrompts) -> bool:
        """Undo placing or moving a prompt outside the image; return whether there was one.

        Prompts that were outside before, such as those of a loaded scene, are not refused.
        """
        book = self._selection.book
        key = (book.node.GetID(), segmentID)
        isRefused = len(prompts.outside) > self._outsideCounts.get(key, 0)
        if isRefused:
            book.refusePrompts(segmentID)
            self._status.problem(refusalText(prompts.outside[-1]))
            prompts = book.read(segmentID)
        self._outsideCounts[key] = len(prompts.outside)
        return isRefused

    def _onLeaving(self, isImageChanged: bool) -> None:
        """Cancel requests whose scan or segmentation is changing or gone."""
        if isImageChanged:
            self.noteOutside()
        if not self.isComputing:
            return
        self.cancel()
        if isImageChanged:
            self._sayImageChanged()
        else:
            self._selection.showNextStep()

    def _sayImageChanged(self) -> None:
        self._status.waiting(_("The image has changed; press Update to segment the new image."))

    def _onEdited(self) -> None:
        """Cancel the requests of segments that were edited: their answers would erase the edit."""
        book = self._selection.book
        words = _("{name} was edited by hand: its computation is cancelled. Press Update to go on.")
        with self._status.showingErrors():
            for segmentID in self.pendingMasks:
                if book.adoptManualEdits(segmentID, isPrompted=True):
                    self.forget(segmentID)
                    if not self.isComputing:
                        self._status.waiting(words.format(name=segmentName(book.node, segmentID)))

    def _onSegments(self, remaining: list[str]) -> None:
        for segmentID in [*self.pendingMasks, self.running]:
            if segmentID is not None and segmentID not in remaining:
                self.forget(segmentID)

    # Answers

    def _onAnswer(self, delivery: Delivery) -> None:
        with self._selection.tellingOnce():
            self._write(delivery, lambda: self.request(delivery.segmentID))

    def _write(
        self,
        delivery: Delivery,
        again: Callable[[], None],
        overwrite: OverwriteMode | None = None,
    ) -> None:
        """Write an answer to the scan it was requested for, and report its quality."""
        selection, segmentID = self._selection, delivery.segmentID
        if not self._selection.guard.allowsAnswer(delivery.asked, again):
            return
        # Other spacing, or voxels that a script changed in place, are announced by no event.
        if delivery.query.volumeKey != volumeKey(selection.volumeNode):
            self._sayImageChanged()
            return
        model = (self._parts.compute.capabilities or {}).get("model") or {}
        overwrite = overwrite or selection.parameters.overwriteMode
        with self._status.showingErrors():
            book, quality = selection.book, delivery.answer.quality
            before = book.present(segmentID)
            kept = book.answer(segmentID, delivery.prepared, overwrite, model, quality)
            self._say(delivery, kept, overwrite)
            for listener in self.onAnswered:
                listener(before, book.present(segmentID))

    def _say(self, delivery: Delivery, kept: float, overwrite: OverwriteMode) -> None:
        status, book, segmentID = self._status, self._selection.book, delivery.segmentID
        isFound = delivery.prepared.packed.box is not None
        name = segmentName(book.node, segmentID)
        held = {}
        if isFound and kept < AS_ANSWERED and overwrite is OverwriteMode.STOP:
            held = book.holders(segmentID, delivery.prepared)
        if sum(held.values()) > (1 - kept) / 2:
            other, share = next(iter(held.items()))
            names = {"name": name, "other": segmentName(book.node, other)}
            words = (
                _("{name}: {percent} % of the result overlaps {other} and was not added.")
                if kept
                else _("{name} is empty: {percent} % of the result belongs to {other}.")
            )
            choices = self._otherWays(delivery, book.present(segmentID))
            status.caution(words.format(**names, percent=percent(share)), *choices)
        elif not kept:
            status.waiting(whyEmpty(book.node, segmentID, isFound))
        elif kept < AS_ANSWERED and not EditableArea.ofSegmentEditor(book.node).isEverything:
            words = _("{name}: the Segment Editor's masking allows only {percent} % of the result.")
            status.caution(words.format(name=name, percent=percent(kept)))
        elif delivery.isMaskKept:
            words = _(
                "{name}: not found by a click in this frame; its mask was propagated from another "
                "frame. Check it."
            )
            status.caution(words.format(name=name))
        else:
            self._sayRating(delivery, name, Rating.ofAnswer(delivery.answer.quality, kept))

    def _sayRating(self, delivery: Delivery, name: str, rating: Rating) -> None:
        spacing_mm = self._selection.volumeNode.GetSpacing()[::-1]
        choice, shown = delivery.answer.choice, ""
        if choice.count > 1:
            shown = _("Answer {number} of {count} (O: another).")
            shown = " " + shown.format(number=choice.number, count=choice.count)
        if delivery.answer.may_be_too_large(delivery.query.prompts, spacing_mm):
            words = _("{name}: {word}. {hint}")
            hint = _("This may be more than you meant: draw a box or a stroke.")
            word = rating.inWords()
            self._status.caution(words.format(name=name, word=word, hint=hint) + shown)
            return
        words = _("{name}: {word} (updated in {seconds:.1f} s).")
        self._status.result(
            rating.activity,
            words.format(name=name, word=rating.inWords(), seconds=delivery.seconds) + shown,
        )

    def _otherWays(self, delivery: Delivery, written) -> tuple[Choice, ...]:
        """Return buttons that write the same answer by another rule, if it is still unchanged."""

        def write(overwrite: OverwriteMode) -> None:
            selection, segmentID = self._selection, delivery.segmentID
            book = selection.book
            if book is not None and segmentID in segmentIDs(book.node):
                with selection.status.showingErrors():
                    book.adoptManualEdits(segmentID)
                if book.present(segmentID) is written:
                    self._write(delivery, lambda: write(overwrite), overwrite)
                    selection.changed()
                    return
            selection.showNextStep()

        return (
            Choice(_("Take it"), lambda: write(OverwriteMode.ALL)),
            Choice(_("Overlap"), lambda: write(OverwriteMode.NONE)),
        )
