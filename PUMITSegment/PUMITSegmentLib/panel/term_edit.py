"""Line edit for a segment's term, with suggestions from the terminologies."""

from __future__ import annotations

from functools import partial

import qt
from PUMITSlicerLib.status import Activity, Choice
from PUMITSlicerLib.term_search import TermSearch
from PUMITSlicerLib.terms import assignTerm, hasCode
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.rating import ratingOf

# Maximum length of user text quoted in a sentence.
_MOST_SHOWN = 40


class TermEdit:
    """Line edit that searches coded terms; choosing one names the segment."""

    def __init__(self, edit, selection: Selection) -> None:
        self._edit = edit
        self._selection = selection
        self._status = selection.status
        self._search = TermSearch()
        self._suggestions = qt.QStringListModel()
        self._completer = qt.QCompleter()
        self._completer.setModel(self._suggestions)
        self._completer.setCaseSensitivity(qt.Qt.CaseInsensitive)
        # The search has filtered already, with words in any order.
        self._completer.setCompletionMode(qt.QCompleter.UnfilteredPopupCompletion)
        edit.setCompleter(self._completer)
        edit.connect("textEdited(QString)", self._onEdited)
        edit.connect("returnPressed()", self._onReturn)
        self._completer.connect("activated(QString)", self._assign)

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
        self._edit.text = _meaning(segment) if isCoded else ""

    def _onEdited(self, text: str) -> None:
        self._suggestions.setStringList([term.name for term in self._search.search(text)])

    def _onReturn(self) -> None:
        self._assign(self._edit.text)

    def _assign(self, text: str) -> None:
        if not text.strip() or not self._selection.segmentID:
            return
        found = self._search.search(text, limit=2)
        if found and not self._search.isSure(text):
            choices = [Choice(term.name, partial(self._assign, term.name)) for term in found]
            words = _("{text} is not in the list of structures. Did you mean this?")
            self._status.ask(words.format(text=text[:_MOST_SHOWN]), *choices)
            return
        if not found:
            shown = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
            self._status.problem(
                _("{text} is not in the list of structures; try a shorter word.").format(text=shown)
            )
            return
        if not self._selection.guard.allows(lambda: self._assign(text)):
            return
        node = self._selection.segmentationNode
        assignTerm(node, self._selection.segmentID, found[0])
        self._edit.text = found[0].name
        segment = node.GetSegmentation().GetSegment(self._selection.segmentID)
        rating = ratingOf(segment)
        words = _("Named {name} (SNOMED CT).")
        if rating is not None:
            words = _("Named {name} (SNOMED CT); its segment: {rating}.")
        self._status.result(
            rating.activity if rating is not None else Activity.NOTE,
            words.format(name=found[0].name, rating=rating.inWords() if rating else ""),
        )


def _meaning(segment) -> str:
    """Return the text of a segment's terminology entry: type, with its modifier."""
    parts = [part.split("^") for part in (segment.GetTerminology() or "").split("~")]
    words = [parts[i][2] for i in (2, 3) if len(parts) > i and len(parts[i]) > 2 and parts[i][2]]
    return " ".join(reversed(words))
