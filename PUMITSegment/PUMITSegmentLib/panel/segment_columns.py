"""Columns of the segments table: volume, rating, and whether a person has reviewed it."""

from __future__ import annotations

import qt
from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status_line import COLOURS
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.rating import isReviewed, ratingOf, review
from PUMITSegmentLib.segments.volumes import SegmentVolumes, sizeInWords

_SOON_MS = 150
_SIZE, _RATING, _REVIEWED = range(3)
_YES = "\u2713"


class SegmentColumns:
    """Three columns appended to Slicer's segments table."""

    def __init__(self, ui, selection: Selection) -> None:
        self._table = ui.segmentsTable
        self._selection = selection
        self._status = selection.status
        self._volumes = SegmentVolumes()
        rows = self._table.tableWidget()
        model = rows.model()
        # Before there are rows: Slicer stores the segment ID in each cell of a new row.
        self._first = model.columnCount()
        model.insertColumns(self._first, len(_headers()))
        header = rows.horizontalHeader()
        for number, (text, tip) in enumerate(_headers()):
            column = self._first + number
            model.setHeaderData(column, qt.Qt.Horizontal, text)
            model.setHeaderData(column, qt.Qt.Horizontal, tip, qt.Qt.ToolTipRole)
            header.setSectionResizeMode(column, qt.QHeaderView.ResizeToContents)
        header.setStretchLastSection(False)
        rows.connect("pressed(QModelIndex)", self._onPressed)
        rows.connect("clicked(QModelIndex)", self._onClicked)
        # Counting takes some ms for a large segment, which changes many times during a drag.
        self._timer = singleShot(self.count, _SOON_MS)

    def refresh(self) -> None:
        """Show the current values, and count changed segments soon."""
        self._show()
        if not self._timer.isActive():  # restarting would postpone it at each of many changes
            self._timer.start()

    def count(self) -> None:
        """Count the voxels of changed segments, and show their sizes."""
        node = self._selection.segmentationNode
        for segmentID, extent in self._volumes.of(node).items():
            segment = self._segment(segmentID)
            if not isReviewed(segment, extent.digest):
                review(segment, None)
        self._show()

    def close(self) -> None:
        """Stop counting."""
        self._timer.stop()

    def _show(self) -> None:
        """Fill each segment's row, which may have moved."""
        model = self._table.tableWidget().model()
        extents = self._volumes.known(self._selection.segmentationNode)
        for segmentID in self._table.displayedSegmentIDs():
            texts, colour = ["", "", ""], None
            segment, extent = self._segment(segmentID), extents.get(segmentID)
            # An uncounted segment may have changed since it was rated.
            if segment is not None and extent is not None:
                rating = ratingOf(segment, extent.digest)
                texts[_SIZE] = sizeInWords(extent, self._selection.volumeNode)
                texts[_RATING] = rating.inWords() if rating is not None else ""
                texts[_REVIEWED] = _YES if isReviewed(segment, extent.digest) else ""
                colour = COLOURS.get(rating.activity) if rating is not None else None
            row = self._table.rowForSegmentID(segmentID)
            for number, text in enumerate(texts):
                index = model.index(row, self._first + number)
                if (model.data(index) or "") != text:
                    model.setData(index, text)
                    if number == _RATING:
                        brush = qt.QBrush(qt.QColor(colour)) if colour else None
                        model.setData(index, brush, qt.Qt.ForegroundRole)

    def _onPressed(self, index) -> None:
        """Let a double click edit Slicer's columns only; its model makes ours editable too."""
        self._table.readOnly = index.column() >= self._first

    def _onClicked(self, index) -> None:
        """Toggle whether a segment is reviewed."""
        if index.column() != self._first + _REVIEWED:
            return
        segmentID = self._table.segmentIDForRow(index.row())
        segment = self._segment(segmentID)
        if segment is None or not self._selection.guard.allows():
            return
        digest = self._volumes.of(self._selection.segmentationNode)[segmentID].digest
        if not digest:
            words = _("{name} is empty: there is nothing to review yet.")
            self._status.problem(words.format(name=segment.GetName()))
            return
        review(segment, None if isReviewed(segment, digest) else digest)
        self._show()

    def _segment(self, segmentID: str):
        node = self._selection.segmentationNode
        return node.GetSegmentation().GetSegment(segmentID) if node is not None else None


def _headers() -> tuple[tuple[str, str], ...]:
    return (
        (_("Volume"), _("Volume of the segment, or its area in a 2D image")),
        (
            _("Rating"),
            _("Estimated quality of the segment; removed when the segment is edited by hand"),
        ),
        (_("Reviewed"), _("Click to mark the segment as reviewed")),
    )
