"""Section 2 of the panel: the segments."""

from __future__ import annotations

import os
from pathlib import Path

import qt
from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status import Activity
from PUMITSlicerLib.status_line import COLOURS
from PUMITSlicerLib.term_field import TermField
from PUMITSlicerLib.terms import Term, assignTerm, hasCode, textOf
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.same_patient import Kinship, kinship, twoPatientsInWords
from PUMITSegmentLib.scene.segment_actions import SegmentActions
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.as_voxels import labelMapNodes, segmentationFromLabelMap
from PUMITSegmentLib.segments.at_place import showSegment
from PUMITSegmentLib.segments.rating import isReviewed, ratingOf, review
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.templates import (
    SUFFIX,
    TemplateSegment,
    addList,
    readList,
    shippedLists,
    writeList,
)
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


class DisplayRow:
    """Widgets for the display of the segments."""

    def __init__(self, ui, selection: Selection) -> None:
        self._ui = ui
        self._selection = selection
        self._isShowing = False
        self._hidden = None  # display node that a held key hides
        ui.opacitySlider.connect("valueChanged(int)", self._onOpacity)
        ui.outlineCheckBox.connect("toggled(bool)", self._onOutline)

    def refresh(self) -> None:
        """Show the display node's state."""
        display = self._display()
        self._isShowing = True
        for widget in (self._ui.opacitySlider, self._ui.outlineCheckBox):
            widget.enabled = display is not None
        if display is not None:
            self._ui.opacitySlider.value = round(100 * display.GetOpacity2DFill())
            self._ui.outlineCheckBox.checked = not display.GetVisibility2DFill()
        self._isShowing = False

    def hide(self, isHidden: bool) -> None:
        """Hide all segments while a key is held; show them again on release."""
        if isHidden and self._hidden is None:
            display = self._display()
            if display is not None and display.GetVisibility():
                self._hidden = display
                display.SetVisibility(False)
        elif not isHidden and self._hidden is not None:
            display, self._hidden = self._hidden, None
            display.SetVisibility(True)

    def close(self) -> None:
        """Show the segments if they are hidden."""
        self.hide(False)

    def _display(self):
        node = self._selection.segmentationNode
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


# Heights of the table: its frame, three rows, and about ten rows.
_FRAME_PX, _LEAST_PX, _MOST_PX = 4, 104, 330


class ListDialogs:
    """File dialogs for segment lists; replaced in tests."""

    def open(self) -> str:
        """Return the list file to read; "" if cancelled."""
        pattern = _("Lists of segments ({pattern})").format(pattern=f"*{SUFFIX}")
        return str(qt.QFileDialog.getOpenFileName(None, _("Open a list"), "", pattern) or "")

    def save(self) -> str:
        """Return the list file to write; "" if cancelled."""
        pattern = _("Lists of segments ({pattern})").format(pattern=f"*{SUFFIX}")
        return str(qt.QFileDialog.getSaveFileName(None, _("Save the list"), "", pattern) or "")


class SegmentSection:
    """Table of segments with New and Remove; the table itself edits names, colours and terms."""

    def __init__(self, ui, selection: Selection, actions: SegmentActions, iconFolder: str) -> None:
        self._ui = ui
        self._selection = selection
        self._actions = actions
        self._status = selection.status
        self._isShowing = False
        self._termEdit = TermEdit(ui.termEdit, selection)
        table = ui.segmentsTable
        table.setSelectionMode(qt.QAbstractItemView.SingleSelection)
        table.opacityColumnVisible = False
        table.statusColumnVisible = False  # replaced by our column "Reviewed"
        rows = table.tableWidget()
        rows.connect("doubleClicked(QModelIndex)", self._jump)
        table.connect("selectionChanged(QItemSelection,QItemSelection)", self._onSelectionChanged)
        ui.newSegmentButton.icon = qt.QIcon(os.path.join(iconFolder, "add.png"))
        ui.removeSegmentButton.icon = qt.QIcon(os.path.join(iconFolder, "remove.png"))
        ui.newSegmentButton.connect("clicked()", self._onNew)
        self._startMenu = qt.QMenu(ui.newSegmentButton)
        self._startMenu.connect("aboutToShow()", self._listStarts)
        self.dialogs = ListDialogs()
        ui.newSegmentButton.setMenu(self._startMenu)
        ui.newSegmentButton.popupMode = qt.QToolButton.MenuButtonPopup
        ui.removeSegmentButton.connect("clicked()", self._onRemove)

    def refresh(self) -> None:
        """Show the scene's segments."""
        ui = self._ui
        # Filling the table selects a row, which is not the user's choice.
        self._isShowing = True
        try:
            node = self._selection.segmentationNode
            if ui.segmentsTable.segmentationNode() is not node:
                ui.segmentsTable.setSegmentationNode(node)
                ui.show3DButton.setSegmentationNode(node)
            selection = [self._selection.segmentID] if self._selection.segmentID else []
            if list(ui.segmentsTable.selectedSegmentIDs()) != selection:
                if selection:
                    ui.segmentsTable.setSelectedSegmentIDs(selection)
                    rows = ui.segmentsTable.tableWidget()
                    row = ui.segmentsTable.rowForSegmentID(self._selection.segmentID)
                    rows.scrollTo(rows.model().index(row, 0))
                else:
                    ui.segmentsTable.clearSelection()
        finally:
            self._isShowing = False
        self._fitHeight()
        self._termEdit.refresh()
        for button in (ui.editByHandButton, ui.cleanUpButton):
            button.enabled = (
                bool(self._selection.segmentID) and self._selection.volumeNode is not None
            )
        ui.newSegmentButton.enabled = self._selection.volumeNode is not None
        ui.newSegmentButton.toolTip = (
            _("Add a segment (N); its menu adds a list of segments, or the segments of a label map")
            if self._selection.volumeNode is not None
            else _("Choose a scan first; it defines the grid of the segments")
        )
        ui.removeSegmentButton.enabled = bool(self._selection.segmentID)
        ui.removeSegmentButton.toolTip = (
            _("Remove the selected segment with its clicks and marks")
            if self._selection.segmentID
            else _("Select the segment to remove first")
        )

    def _fitHeight(self) -> None:
        """Fit the table's height to its rows, within limits."""
        rows = self._ui.segmentsTable.tableWidget()
        needed = rows.verticalHeader().length() + rows.horizontalHeader().height + _FRAME_PX
        self._ui.segmentsTable.setMinimumHeight(min(max(needed, _LEAST_PX), _MOST_PX))

    def close(self) -> None:
        """Disconnect the widgets from the segmentation."""
        self._ui.segmentsTable.setSegmentationNode(None)
        self._ui.show3DButton.setSegmentationNode(None)

    def _onNew(self) -> None:
        self._actions.newSegment()

    def _listStarts(self) -> None:
        """Fill the menu with the scene's label maps, which clicks can correct, and lists."""
        self._startMenu.clear()
        nodes = labelMapNodes()
        for node in nodes:
            text = _("From the label map {name}").format(name=node.GetName())
            action = self._startMenu.addAction(text)
            action.connect("triggered()", lambda node=node: self._onStart(node))
        if not nodes:
            self._startMenu.addAction(_("The scene has no label map")).setEnabled(False)
        self._startMenu.addSeparator()
        for title, listed in shippedLists().items():
            action = self._startMenu.addAction(_("All of: {title}").format(title=title))
            action.connect("triggered()", lambda listed=listed: self._onList(listed))
        action = self._startMenu.addAction(_("All of a saved list..."))
        action.connect("triggered()", self._onLoadList)
        action = self._startMenu.addAction(_("Save these segments as a list..."))
        action.setEnabled(bool(segmentIDs(self._selection.segmentationNode)))
        action.connect("triggered()", self._onSaveList)

    def _onList(self, listed: tuple[TemplateSegment, ...]) -> None:
        if count := addList(self._selection, self._actions, listed):
            words = _("{count} segments are in the table, empty: select one and click in it.")
            self._status.waiting(words.format(count=count))

    def _onLoadList(self) -> None:
        path = self.dialogs.open()
        if path:
            with self._status.showingErrors():
                self._onList(readList(Path(path)))

    def _onSaveList(self) -> None:
        path = self.dialogs.save()
        if path:
            file = Path(path if path.endswith(SUFFIX) else path.removesuffix(".json") + SUFFIX)
            with self._status.showingErrors():
                writeList(file, self._selection.segmentationNode)
                self._status.note(_("{name} is saved.").format(name=file.name))

    def _onStart(self, labelMapNode) -> None:
        guard, scan = self._selection.guard, self._selection.volumeNode
        if not guard.allows(lambda: self._onStart(labelMapNode)):
            return
        isOther = kinship(labelMapNode, scan) is Kinship.OTHER
        if isOther and not guard.permission.confirm(twoPatientsInWords(labelMapNode, scan)):
            words = _("{name} is of another patient than {scan}.")
            self._status.problem(words.format(name=labelMapNode.GetName(), scan=scan.GetName()))
            return
        with self._status.showingErrors():
            node = segmentationFromLabelMap(labelMapNode, scan)
            self._selection.parameters.segmentation = node
            words = _("{name}: choose Point, and click where a segment is wrong.")
            self._status.done(words.format(name=node.GetName()))

    def _onRemove(self) -> None:
        self._actions.removeSegment(self._selection.segmentID)

    def _jump(self, place) -> None:
        node = self._selection.segmentationNode
        if node is not None and self._selection.segmentID:
            showSegment(node, self._selection.segmentID)

    def _onSelectionChanged(self, selected, deselected) -> None:
        if self._isShowing or self._selection.parameters is None:
            return
        chosen = list(self._ui.segmentsTable.selectedSegmentIDs())
        # No selection means that the table is being filled, or the last segment was removed.
        if chosen:
            self._selection.selectSegment(chosen[0])
