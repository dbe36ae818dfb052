"""Manual editing: a switch to the Segment Editor and back, and a clean-up menu."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import qt
import slicer
from pumit.segmentation import Mask
from PUMITSlicerLib.labelmap_grid import Box
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.segment_list import segmentName

# Standard deviation of the smoothing in in-plane voxels.
_SMOOTHING = 2.0
# Threshold of the smoothed mask, and its minimum where a small mask would shrink.
_INSIDE, _LEAST_INSIDE = 0.5, 0.35
_MARGIN = 8
_NEIGHBOURS = np.ones((3, 3, 3), dtype=bool)


class CleanUp(enum.Enum):
    """Clean-up operation on a mask."""

    FILL_HOLES = "fill holes"
    LARGEST_ISLAND = "keep the largest island"
    SMOOTH = "smooth"


def cleanUpTexts() -> dict[CleanUp, str]:
    """Return the display texts of the operations."""
    return {
        CleanUp.FILL_HOLES: _("Fill holes"),
        CleanUp.LARGEST_ISLAND: _("Keep the largest island"),
        CleanUp.SMOOTH: _("Smooth"),
    }


def cleanedUp(mask: Mask, how: CleanUp, spacing_mm: tuple[float, float, float]) -> Mask:
    """Return a cleaned-up mask, (D, H, W).

    A hole is background that is not connected to the outside, in 3D; in 2D for an image of one
    slice.

    Args:
        mask: bool, (D, H, W).
        spacing_mm: (D, H, W); smoothing is isotropic in mm.
    """
    from scipy import ndimage  # takes 0.3 s, so only if needed

    result = mask.copy()
    box = Box.around(mask)
    if box.isEmpty:
        return result
    window = tuple(
        slice(max(start - _MARGIN, 0), stop + _MARGIN)
        for start, stop in zip(box.start, box.stop, strict=True)
    )
    part = result[window]
    if how is CleanUp.FILL_HOLES:
        filled = ndimage.binary_fill_holes(part[0])[None] if mask.shape[0] == 1 else None
        result[window] = ndimage.binary_fill_holes(part) if filled is None else filled
    elif how is CleanUp.LARGEST_ISLAND:
        labels, _number = ndimage.label(part, _NEIGHBOURS)
        counts = np.bincount(labels.ravel())
        counts[0] = 0
        result[window] = labels == counts.argmax()
    else:
        sigma_mm = _SMOOTHING * max(spacing_mm[1:])
        sigma = [
            sigma_mm / step if n > 1 else 0.0
            for step, n in zip(spacing_mm, mask.shape, strict=True)
        ]
        share = ndimage.gaussian_filter(part.astype(np.float32), sigma)
        # Keep the number of voxels: a threshold of 0.5 would shrink a small convex mask.
        kept = np.partition(share, -np.count_nonzero(part), axis=None)
        inside = float(kept[-np.count_nonzero(part)])
        result[window] = share >= min(max(inside, _LEAST_INSIDE), _INSIDE)
    return result


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
    selection.onLeaving(False)  # a pending answer would be for the old mask
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
