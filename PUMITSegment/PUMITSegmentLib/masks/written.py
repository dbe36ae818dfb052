"""Writing answers to their segments, and reporting the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PUMITSlicerLib.status import Choice
from slicer.i18n import tr as _

from PUMITSegmentLib.next_step import whyEmpty
from PUMITSegmentLib.segments.editable_area import EditableArea
from PUMITSegmentLib.segments.rating import AS_ANSWERED, Rating, percent
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName
from PUMITSegmentLib.segments.writer import OverwriteMode

if TYPE_CHECKING:
    from PUMITSegmentLib.masks.requests import Delivery


class WrittenAnswers:
    """Writer of the answers to prompts.

    The reported rating applies to the written mask. If other segments keep more than a tenth of an
    answer, the message names them, with buttons for the two other overwrite rules.
    """

    def __init__(self, logic) -> None:
        self._logic = logic

    def write(
        self,
        delivery: Delivery,
        again: Callable[[], None],
        overwrite: OverwriteMode | None = None,
    ) -> None:
        """Write an answer to the scan it was requested for, and report its quality.

        Args:
            again: Callback that repeats this once the scan is shown.
            overwrite: Rule for other segments; None for the panel's.
        """
        logic = self._logic
        if not logic.guard.allowsAnswer(delivery.asked, again):
            return
        model = (logic.compute.capabilities or {}).get("model") or {}
        segmentID, quality = delivery.segmentID, delivery.answer.quality
        overwrite = overwrite or logic.parameters.overwriteMode
        with logic.showingErrors():
            working = logic.working
            before = working.present(segmentID)
            kept = working.answer(segmentID, delivery.prepared, overwrite, model, quality)
            self._say(delivery, kept, overwrite)
            for listener in logic.onAnswered:
                listener(before, working.present(segmentID))

    def _say(self, delivery: Delivery, kept: float, overwrite: OverwriteMode) -> None:
        status, working, segmentID = self._logic.status, self._logic.working, delivery.segmentID
        isFound = delivery.prepared.packed.box is not None
        name = segmentName(working.node, segmentID)
        held = {}
        if isFound and kept < AS_ANSWERED and overwrite is OverwriteMode.STOP:
            held = working.holders(segmentID, delivery.prepared)
        if sum(held.values()) > (1 - kept) / 2:
            other, share = next(iter(held.items()))
            names = {"name": name, "other": segmentName(working.node, other)}
            words = (
                _("{name}: {percent} % of the result overlaps {other} and was not added.")
                if kept
                else _("{name} is empty: {percent} % of the result belongs to {other}.")
            )
            choices = self._otherWays(delivery, working.present(segmentID))
            status.caution(words.format(**names, percent=percent(share)), *choices)
        elif not kept:
            status.waiting(whyEmpty(working.node, segmentID, isFound))
        elif kept < AS_ANSWERED and not EditableArea.ofSegmentEditor(working.node).isEverything:
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
        spacing_mm = self._logic.volumeNode.GetSpacing()[::-1]
        choice, shown = delivery.answer.choice, ""
        if choice.count > 1:
            shown = _("Answer {number} of {count} (O: another).")
            shown = " " + shown.format(number=choice.number, count=choice.count)
        if delivery.answer.may_be_too_large(delivery.query.prompts, spacing_mm):
            words = _("{name}: {word}. {hint}")
            hint = tooLargeInWords()
            word = rating.inWords()
            self._logic.status.caution(words.format(name=name, word=word, hint=hint) + shown)
            return
        words = _("{name}: {word} (updated in {seconds:.1f} s).")
        self._logic.status.result(
            rating.activity,
            words.format(name=name, word=rating.inWords(), seconds=delivery.seconds) + shown,
        )

    def _otherWays(self, delivery: Delivery, written) -> tuple[Choice, ...]:
        """Return buttons that write the same answer by another rule, if it is still unchanged."""

        def write(overwrite: OverwriteMode) -> None:
            logic, segmentID = self._logic, delivery.segmentID
            working = logic.working
            if working is not None and segmentID in segmentIDs(working.node):
                with logic.showingErrors():
                    working.adoptManualEdits(segmentID)
                if working.present(segmentID) is written:
                    self.write(delivery, lambda: write(overwrite), overwrite)
                    logic.onSessionChanged()
                    return
            logic.showNextStep()

        return (
            Choice(_("Take it"), lambda: write(OverwriteMode.ALL)),
            Choice(_("Overlap"), lambda: write(OverwriteMode.NONE)),
        )


def tooLargeInWords() -> str:
    """Return advice for a first prompt whose answer is very large."""
    return _("This may be more than you meant: draw a box or a stroke.")
