"""Manual editing: a switch to the Segment Editor and back, and a clean-up menu."""

from __future__ import annotations

from typing import Any

import qt
import slicer
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.clean_up import CleanUp, cleanedUp, cleanUpTexts
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.segment_list import segmentName


class EditByHand:
    """Switch to the Segment Editor, with a toolbar button that leads back."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._status = selection.status
        self._bar: Any = None

    @property
    def backAction(self):
        """Action that returns to the panel, or None while it is shown."""
        return self._bar.actions()[0] if self._bar is not None else None

    def start(self) -> None:
        """Open the Segment Editor with the current segment."""
        if not self._selection.segmentID or self._selection.volumeNode is None:
            self._status.problem(_("Add a segment first."))
            return
        if not self._selection.guard.allows(self.start):
            return
        editor = segmentEditorNode()
        editor.SetAndObserveSegmentationNode(self._selection.segmentationNode)
        editor.SetAndObserveSourceVolumeNode(self._selection.volumeNode)
        editor.SetSelectedSegmentID(self._selection.segmentID)
        self._offerWayBack()
        slicer.util.selectModule("SegmentEditor")

    def close(self) -> None:
        """Remove the toolbar button, on return to the module or clean-up."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.setParent(None)
            bar.deleteLater()

    def _offerWayBack(self) -> None:
        self.close()
        window = slicer.util.mainWindow()
        if window is None:
            return
        self._bar = qt.QToolBar()
        self._bar.setWindowTitle("PUMIT")
        action = self._bar.addAction(_("Back to PUMIT Segment"))
        action.setToolTip(_("The next prompt continues from your edits"))
        action.connect("triggered()", lambda: slicer.util.selectModule("PUMITSegment"))
        window.addToolBar(self._bar)
        self._bar.show()


def addCleanUpMenu(button, selection: Selection) -> None:
    """Add a menu to a tool button: fill holes, keep the largest island, or smooth."""
    menu = qt.QMenu(button)
    for how, text in cleanUpTexts().items():
        action = menu.addAction(text)
        action.connect("triggered()", lambda how=how: cleanUp(selection, how))
    button.setMenu(menu)
    button.popupMode = qt.QToolButton.InstantPopup


def cleanUp(selection: Selection, how: CleanUp) -> None:
    """Clean up the selected segment; can be undone, and later prompts start from the result."""
    book, segmentID = selection.book, selection.segmentID
    if book is None or not segmentID or selection.volumeNode is None:
        return
    if not selection.guard.mayWrite(lambda: cleanUp(selection, how)):
        return
    selection.status.cancel()  # a pending answer would be for the old mask
    spacing_mm = selection.volumeNode.GetSpacing()[::-1]
    with selection.status.showingErrors():
        isChanged = book.edit(segmentID, lambda mask: cleanedUp(mask, how, spacing_mm))
        words = (
            _("{what}: {name} is updated.")
            if isChanged
            else _("{what}: nothing to change in {name}.")
        )
        name = segmentName(book.node, segmentID)
        selection.status.done(words.format(name=name, what=cleanUpTexts()[how]))
    selection.changed()
