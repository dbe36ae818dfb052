"""Manual editing: a switch to the Segment Editor and back, and a clean-up menu."""

from __future__ import annotations

from typing import Any

import qt
import slicer
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.clean_up import CleanUp, cleanedUp, cleanUpTexts
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.segment_list import segmentName


class EditByHand:
    """Switch to the Segment Editor, with a toolbar button that leads back."""

    def __init__(self, logic) -> None:
        self._logic = logic
        self._bar: Any = None

    @property
    def backAction(self):
        """Action that returns to the panel, or None while it is shown."""
        return self._bar.actions()[0] if self._bar is not None else None

    def start(self) -> None:
        """Open the Segment Editor with the current segment."""
        logic = self._logic
        if not logic.segmentID or logic.volumeNode is None:
            logic.status.problem(_("Add a segment first."))
            return
        if not logic.guard.allows(self.start):
            return
        editor = segmentEditorNode()
        editor.SetAndObserveSegmentationNode(logic.segmentationNode)
        editor.SetAndObserveSourceVolumeNode(logic.volumeNode)
        editor.SetSelectedSegmentID(logic.segmentID)
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


def addCleanUpMenu(button, logic) -> None:
    """Add a menu to a tool button: fill holes, keep the largest island, or smooth."""
    menu = qt.QMenu(button)
    for how, text in cleanUpTexts().items():
        action = menu.addAction(text)
        action.connect("triggered()", lambda how=how: cleanUp(logic, how))
    button.setMenu(menu)
    button.popupMode = qt.QToolButton.InstantPopup


def cleanUp(logic, how: CleanUp) -> None:
    """Clean up the selected segment; can be undone, and later prompts start from the result."""
    working, segmentID = logic.working, logic.segmentID
    if working is None or not segmentID or logic.volumeNode is None:
        return
    if not logic.mayWrite(lambda: cleanUp(logic, how)):
        return
    logic.cancel()  # a pending answer would be for the old mask
    spacing_mm = logic.volumeNode.GetSpacing()[::-1]
    with logic.showingErrors():
        isChanged = working.edit(segmentID, lambda mask: cleanedUp(mask, how, spacing_mm))
        words = (
            _("{what}: {name} is updated.")
            if isChanged
            else _("{what}: nothing to change in {name}.")
        )
        name = segmentName(working.node, segmentID)
        logic.status.done(words.format(name=name, what=cleanUpTexts()[how]))
    logic.onSessionChanged()
