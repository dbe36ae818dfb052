"""Opacity and outline of the segments at hand, their volumes, and a key that hides them."""

from __future__ import annotations

import qt
from PUMITSlicerLib.status_line import COLOURS
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.rating import ratingOf
from PUMITSegmentLib.segments.volumes import SegmentVolumes, sizeInWords

_SOON_MS = 150


class DisplayRow:
    """Display of the segments, and their volumes.

    Args:
        ui: Named widgets of the panel.
        logic: The module's logic.
    """

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._logic = logic
        self._isShowing = False
        self._hidden = None  # the display node whose segments a held key hides
        self._volumes = SegmentVolumes()
        # Of each segment, as they were counted last.
        self._texts: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        rows = ui.segmentsTable.tableWidget().verticalHeader()
        rows.setVisible(True)
        rows.toolTip = _(
            "Volume of each segment, and how far it can be believed; double-click to go there"
        )
        # Counting takes some ms for a large segment; a drag changes it many times.
        self._timer = qt.QTimer()
        self._timer.setSingleShot(True)
        self._timer.setInterval(_SOON_MS)
        self._timer.connect("timeout()", self.showVolumes)
        ui.opacitySlider.connect("valueChanged(int)", self._onOpacity)
        ui.outlineCheckBox.connect("toggled(bool)", self._onOutline)

    def refresh(self) -> None:
        """Show the state of the scene."""
        display = self._display()
        self._isShowing = True
        for widget in (self._ui.opacitySlider, self._ui.outlineCheckBox):
            widget.enabled = display is not None
        if display is not None:
            self._ui.opacitySlider.value = round(100 * display.GetOpacity2DFill())
            self._ui.outlineCheckBox.checked = not display.GetVisibility2DFill()
        self._isShowing = False
        self._label()
        if not self._timer.isActive():  # else many changes in a row would never be counted
            self._timer.start()

    def showVolumes(self) -> None:
        """Show how large each segment is."""
        volumeNode = self._logic.volumeNode
        extents = self._volumes.of(self._logic.segmentationNode)
        self._texts = {each: sizeInWords(extent, volumeNode) for each, extent in extents.items()}
        self._counts = {each: extent.voxels for each, extent in extents.items()}
        self._label()

    def _label(self) -> None:
        """Write each segment's volume and rating next to its row, which may be another one now.

        As headers of the rows: Slicer's table writes into its columns whenever a segment changes.
        """
        table = self._ui.segmentsTable
        model = table.tableWidget().model()
        for segmentID in table.displayedSegmentIDs():
            row, text = table.rowForSegmentID(segmentID), self._texts.get(segmentID, "")
            rating = self._rating(segmentID)
            if rating is not None:
                text = "  ".join(filter(None, (text, rating.inWords())))
            if model.headerData(row, qt.Qt.Vertical) != text:
                model.setHeaderData(row, qt.Qt.Vertical, text)
                colour = COLOURS.get(rating.activity) if rating is not None else None
                brush = qt.QBrush(qt.QColor(colour)) if colour else None
                model.setHeaderData(row, qt.Qt.Vertical, brush, qt.Qt.ForegroundRole)

    def _rating(self, segmentID: str):
        segmentation = self._logic.segmentationNode.GetSegmentation()
        segment = segmentation.GetSegment(segmentID)
        # What was not counted yet may have changed since it was rated.
        count = self._counts.get(segmentID)
        return ratingOf(segment, count) if segment is not None and count is not None else None

    def hide(self, isHidden: bool) -> None:
        """Hide all segments while a key is held, and show them again."""
        if isHidden and self._hidden is None:
            display = self._display()
            if display is not None and display.GetVisibility():
                self._hidden = display
                display.SetVisibility(False)
        elif not isHidden and self._hidden is not None:
            display, self._hidden = self._hidden, None
            display.SetVisibility(True)

    def close(self) -> None:
        """Show nothing more."""
        self.hide(False)
        self._timer.stop()

    def _display(self):
        node = self._logic.segmentationNode
        return node.GetDisplayNode() if node is not None else None

    def _onOpacity(self, percent: int) -> None:
        display = self._display()
        if not self._isShowing and display is not None:
            display.SetOpacity2DFill(percent / 100)

    def _onOutline(self, isOutline: bool) -> None:
        display = self._display()
        if not self._isShowing and display is not None:
            display.SetVisibility2DFill(not isOutline)
            display.SetVisibility2DOutline(True)
