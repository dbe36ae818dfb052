"""Line edit for a segment's term, with suggestions from the terminologies."""

from __future__ import annotations

from PUMITSlicerLib.status import Activity
from PUMITSlicerLib.term_field import TermField
from PUMITSlicerLib.term_search import Term, textOf
from PUMITSlicerLib.terms import assignTerm, hasCode
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.rating import ratingOf


class TermEdit:
    """Line edit that searches coded terms; choosing one names the segment."""

    def __init__(self, edit, selection: Selection) -> None:
        self._edit = edit
        self._selection = selection
        self._status = selection.status
        self._field = TermField(
            edit,
            selection.status,
            self._assign,
            self._subject,
        )

    def refresh(self) -> None:
        """Show the term of the selected segment."""
        node, segmentID = self._selection.segmentationNode, self._selection.segmentID
        self._edit.enabled = bool(segmentID)
        self._edit.toolTip = (
            _("Type what the segment is, such as left kidney: it gets name and code (SNOMED CT)")
            if segmentID
            else _("Select a segment first")
        )
        if self._edit.hasFocus():
            return
        segment = node.GetSegmentation().GetSegment(segmentID) if segmentID else None
        isCoded = segment is not None and hasCode(segment)
        self._edit.text = textOf(segment.GetTerminology()) if isCoded else ""

    def _subject(self) -> tuple:
        return self._selection.segmentationNode, self._selection.segmentID

    def _assign(self, term: Term) -> None:
        if not self._selection.segmentID:
            return
        asked = self._subject()
        if not self._selection.guard.allows(lambda: self._field.answer(asked, term)):
            return
        node = self._selection.segmentationNode
        assignTerm(node, self._selection.segmentID, term)
        self._edit.text = term.name
        segment = node.GetSegmentation().GetSegment(self._selection.segmentID)
        rating = ratingOf(segment)
        words = _("Named {name} (SNOMED CT).")
        if rating is not None:
            words = _("Named {name} (SNOMED CT); its segment: {rating}.")
        self._status.result(
            rating.activity if rating is not None else Activity.NOTE,
            words.format(name=term.name, rating=rating.inWords() if rating else ""),
        )
